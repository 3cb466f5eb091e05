"""Timer messages: sent and cancelled by Java's clients and by ours, also in a folder that changes hands."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.java.clients import Draft, JavaClients, Queue, bodies
from tests.java.jvm import JavaStoreError
from tests.java.peers import FOR_TESTS, Apache, Flare, Kind, Peers
from tests.java.toolchain import Toolchain

from flaremq.client.message import Recall
from flaremq.client.sync import Producer
from flaremq.model.message import Message

pytestmark = pytest.mark.java

LIMIT_MS = 60_000
COUNT = 20
SPAN_MS = 8_000


def now_ms() -> int:
    return int(time.time() * 1000)


def test_messages_come_at_their_moment(java: JavaClients, queues: list[Queue]) -> None:
    topic = queues[0].topic
    consumer, producer = java.push(topic), java.producer()
    sent_ms = now_ms()
    asked = ({"TIMER_DELIVER_MS": str(sent_ms + 9000)}, {"TIMER_DELAY_SEC": "2"}, {"TIMER_DELAY_MS": "5000"})
    producer.send(
        [Draft(topic=topic, body=b"%d" % n, timer=each, keys=f"k{n}") for n, each in enumerate(asked)]
    )
    received = sorted(consumer.received(3, LIMIT_MS), key=lambda each: each.store_timestamp)
    assert [each.body for each in received] == [b"1", b"2", b"0"]
    for each, span_ms in zip(received, (2000, 5000, 9000), strict=True):
        assert each.store_timestamp >= sent_ms + span_ms
        assert (each.queue.topic, each.keys) == (topic, f"k{each.body.decode()}")


def test_a_message_is_cancelled_by_its_handle(java: JavaClients, queues: list[Queue]) -> None:
    if java.version.startswith("4"):
        pytest.skip("4.x cannot recall a message")
    topic, producer, consumer = queues[0].topic, java.producer(), java.push(queues[0].topic)
    drafts = [Draft(topic=topic, body=b"%d" % n, timer={"TIMER_DELAY_SEC": "5"}) for n in range(3)]
    sent = producer.send(drafts)
    handle = sent[1].recall_handle
    assert handle is not None
    assert producer.recall(topic, handle) == sent[1].message_id
    assert bodies(consumer.received(2, LIMIT_MS)) == ["0", "2"]
    with pytest.raises(JavaStoreError, match=r"can no longer be cancelled"):
        producer.recall(topic, handle)


@pytest.fixture
def clients(java_toolchain: Toolchain) -> Iterator[JavaClients]:
    with JavaClients(java_toolchain, "5.3.3") as clients:
        yield clients


def kinds(toolchain: Toolchain, names: tuple[str, str]) -> list[Kind]:
    return [Flare() if name == "ours" else Apache(toolchain, version=name) for name in names]


@pytest.mark.parametrize(
    "names", [("ours", "5.3.3"), ("5.3.3", "ours"), ("ours", "5.5.0"), ("5.5.0", "ours")], ids="-to-".join
)
def test_what_waits_in_a_folder_is_delivered_by_its_next_owner(
    java_toolchain: Toolchain, clients: JavaClients, tmp_path: Path, names: tuple[str, str]
) -> None:
    first, second = kinds(java_toolchain, names)
    with Peers(tmp_path) as peers:
        namesrv = peers.namesrv(Flare())
        clients.namesrv = namesrv.address
        broker = peers.broker(first, namesrv.address, options={**FOR_TESTS, "recallMessageEnable": "true"})
        (queue, *_) = clients.create_topic("Waiting", broker.address, broker.name)
        producer = clients.producer()
        moment_ms = now_ms() + 25_000
        sent = producer.send(
            [
                Draft(
                    topic="Waiting", body=b"%02d" % n, queue=queue, timer={"TIMER_DELIVER_MS": str(moment_ms)}
                )
                for n in range(COUNT)
            ]
        )
        handle = sent[7].recall_handle
        assert handle is not None
        producer.recall("Waiting", handle)
        broker.stop()
        broker = peers.again(broker, second)
        received = clients.push("Waiting").received(COUNT - 1, LIMIT_MS)
        assert bodies(received) == [f"{n:02}" for n in range(COUNT) if n != 7]
        assert min(each.store_timestamp for each in received) >= moment_ms
        clients.stop_all()  # While there is a broker that they can tell.


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_our_producer_sends_and_cancels_timers_at_apaches_broker(
    java_toolchain: Toolchain, clients: JavaClients, tmp_path: Path, version: str
) -> None:
    kind = Apache(java_toolchain, version=version)
    with Peers(tmp_path) as peers:
        namesrv = peers.namesrv(kind)
        clients.namesrv = namesrv.address
        broker = peers.broker(kind, namesrv.address, options={**FOR_TESTS, "recallMessageEnable": "true"})
        clients.create_topic("Waiting", broker.address, broker.name)
        with Producer("ours", namesrv.address) as producer:
            sent_ms = now_ms()
            receipts = [
                producer.send(Message("Waiting", b"%d" % n, delay_s=SPAN_MS / 1000)) for n in range(3)
            ]
            assert producer.recall(receipts[1]) is Recall.CANCELLED
            received = clients.push("Waiting").received(2, LIMIT_MS)
            assert bodies(received) == ["0", "2"]
            assert min(each.store_timestamp for each in received) >= sent_ms + SPAN_MS
            assert producer.recall(receipts[0]) is Recall.TOO_LATE
        clients.stop_all()
