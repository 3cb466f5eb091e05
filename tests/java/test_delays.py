"""Delay levels: sent by Java's clients, and waiting in a folder that changes hands."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.java.clients import Draft, JavaClients, Queue, bodies
from tests.java.peers import Apache, Flare, Kind, Peers
from tests.java.toolchain import Toolchain

pytestmark = pytest.mark.java

SPANS_MS = {1: 1_000, 2: 5_000, 3: 10_000}
LIMIT_MS = 60_000
COUNT = 20


def now_ms() -> int:
    return int(time.time() * 1000)


def test_messages_come_when_their_level_says(java: JavaClients, queues: list[Queue]) -> None:
    topic, sent_ms = queues[0].topic, now_ms()
    consumer = java.push(topic)
    drafts = [Draft(topic=topic, body=b"%d" % level, delay_level=level, keys=f"k{level}") for level in (2, 1)]
    sent = java.producer().send(drafts)
    assert [each.status for each in sent] == ["SEND_OK", "SEND_OK"]
    received = consumer.received(2, LIMIT_MS)
    assert [each.body for each in sorted(received, key=lambda each: each.store_timestamp)] == [b"1", b"2"]
    for each in received:
        level = int(each.body)
        assert each.store_timestamp >= sent_ms + SPANS_MS[level]
        assert (each.queue.topic, each.keys) == (topic, f"k{level}")


@pytest.fixture
def clients(java_toolchain: Toolchain) -> Iterator[JavaClients]:
    with JavaClients(java_toolchain, "5.3.3") as clients:
        yield clients


def kinds(toolchain: Toolchain, names: tuple[str, str]) -> list[Kind]:
    return [Flare() if name == "ours" else Apache(toolchain, version=name) for name in names]


@pytest.mark.parametrize(
    "names", [("ours", "5.3.3"), ("5.3.3", "ours"), ("ours", "5.5.0"), ("5.5.0", "ours")], ids="-to-".join
)
def test_what_waits_in_a_folder_is_delivered_by_its_next_owner_and_once(
    java_toolchain: Toolchain, clients: JavaClients, tmp_path: Path, names: tuple[str, str]
) -> None:
    first, second = kinds(java_toolchain, names)
    with Peers(tmp_path) as peers:
        namesrv = peers.namesrv(Flare())
        clients.namesrv = namesrv.address
        broker = peers.broker(first, namesrv.address)
        (queue, *_) = clients.create_topic("Waiting", broker.address, broker.name)
        sent_ms = now_ms()
        producer = clients.producer()
        producer.send(
            [Draft(topic="Waiting", body=b"%02d" % n, delay_level=3, queue=queue) for n in range(COUNT)]
        )
        broker.stop()
        broker = peers.again(broker, second)
        consumer = clients.push("Waiting")
        received = consumer.received(COUNT, LIMIT_MS)
        assert bodies(received) == [f"{n:02}" for n in range(COUNT)]
        assert min(each.store_timestamp for each in received) >= sent_ms + SPANS_MS[3]
        consumer.stop()
        broker.stop()
        broker = peers.again(broker, first)
        producer.send([Draft(topic="Waiting", body=b"99", delay_level=1, queue=queue)])
        received = clients.push("Waiting").received(COUNT + 1, LIMIT_MS)
        assert bodies(received) == [*(f"{n:02}" for n in range(COUNT)), "99"], "it delivers none again"
        clients.stop_all()  # While there is a broker that they can tell.
