"""Numbered messages: of Java's producers at our broker, and of ours at Apache's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.java.clients import Draft, JavaClients
from tests.java.peers import FOR_TESTS, Apache, Flare, Peers
from tests.java.toolchain import Toolchain

from flaremq.client.sync import Message, Producer
from flaremq.model.message import StoredMessage
from flaremq.testing.cluster import Cluster, eventually
from flaremq.testing.fakes.network import HOST, BadNetwork
from flaremq.testing.fakes.wireclient import WireClient

pytestmark = pytest.mark.java

TOPIC = "Once"


@pytest.fixture(params=["4.9.8", "5.3.3", "5.5.0"])
def clients(request: pytest.FixtureRequest, java_toolchain: Toolchain) -> Iterator[JavaClients]:
    with JavaClients(java_toolchain, request.param) as clients:
        yield clients


def draft(value: str, body: bytes) -> Draft:
    return Draft(topic=TOPIC, body=body, properties={"PRODUCER_SEQ": value})


async def stored(address: str) -> list[StoredMessage]:
    async with WireClient() as wire:
        return [each for queue in range(8) for each in await wire.read_all(address, TOPIC, queue)]


@contextmanager
def network(port: int) -> Iterator[BadNetwork]:
    """A network with an event loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = BadNetwork(port)
    try:
        asyncio.run_coroutine_threadsafe(made.__aenter__(), loop).result(10)
        yield made
        asyncio.run_coroutine_threadsafe(made.__aexit__(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_what_java_sends_again_with_a_number_is_stored_once(clients: JavaClients, tmp_path: Path) -> None:
    with Peers(tmp_path) as peers:
        namesrv = peers.namesrv(Flare())
        clients.namesrv = namesrv.address
        broker = peers.broker(Flare(), namesrv.address, options=FOR_TESTS)
        clients.create_topic(TOPIC, broker.address, broker.name)
        producer = clients.producer()
        one = draft("java-1:1", b"one")
        sent = [*producer.send([one, one]), *producer.send([one], "async")]
        assert {each.status for each in sent} == {"SEND_OK"}
        assert len({(each.offset_message_id, each.queue_offset, each.queue.queue_id) for each in sent}) == 1
        batch = [draft("java-1:2", b"two"), draft("java-1:3", b"three")]
        batches = [producer.send(batch, "batch")[0] for _ in range(2)]
        assert batches[0].offset_message_id == batches[1].offset_message_id
        found = asyncio.run(stored(broker.address))
        assert sorted(each.body for each in found) == [b"one", b"three", b"two"]
        clients.stop_all()


def test_javas_own_retries_store_a_message_once(clients: JavaClients, tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = cluster.namesrv()
        clients.namesrv = namesrv.address
        broker = cluster.broker("broker-a", namesrv.address, brokerIP1=HOST)
        address = f"127.0.0.1:{broker.port}"
        with network(broker.port) as between:
            asyncio.run(_make_topic(address))
            producer = clients.producer(sendMsgTimeout=20_000, retryTimesWhenSendFailed=10)
            producer.send([draft("java-2:1", b"one")])
            between.loses_answers = True

            async def lose_an_answer() -> None:
                async def is_stored() -> bool:
                    return len(await stored(address)) == 2

                await eventually("the message is stored", is_stored)
                between.loses_answers = False
                between.cut()

            thread = threading.Thread(target=lambda: asyncio.run(lose_an_answer()))
            thread.start()
            (again,) = producer.send([draft("java-2:2", b"two")])
            thread.join()
            assert again.status == "SEND_OK"
            found = asyncio.run(stored(address))
            assert sorted(each.body for each in found) == [b"one", b"two"]
            assert again.offset_message_id in [each.message_id for each in found]
            clients.stop_all()


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0", "4.9.7"])
def test_our_numbered_messages_are_stored_by_apaches_broker(
    java_toolchain: Toolchain, tmp_path: Path, version: str
) -> None:
    kind = Apache(java_toolchain, version=version)
    with Peers(tmp_path) as peers:
        namesrv = peers.namesrv(kind)
        broker = peers.broker(kind, namesrv.address, options=FOR_TESTS)
        asyncio.run(_make_topic(broker.address))
        with Producer("g", namesrv.address, producer_id="ours") as producer:
            receipts = [producer.send(Message(TOPIC, b"%d" % n, sequence=n)) for n in (1, 2, 2)]
            receipts += producer.send_many([Message(TOPIC, b"%d" % n, sequence=n) for n in (3, 4)])
            producer.send_batch([Message(TOPIC, b"5", sequence=5), Message(TOPIC, b"6", sequence=6)])
        assert not any(receipt.is_repeated for receipt in receipts)
        found = asyncio.run(stored(broker.address))
        assert sorted((each.body, each.get("PRODUCER_SEQ")) for each in found) == [
            (b"%d" % n, f"ours:{n}") for n in (1, 2, 2, 3, 4, 5, 6)
        ], "Apache's broker does not compare"


async def _make_topic(address: str) -> None:
    async with WireClient() as wire:
        await wire.create_topic(address, TOPIC, 4)
