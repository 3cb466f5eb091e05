"""Producers, async and blocking: what is sent is stored, where it should be, and the receipt says so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

import pytest
from tests.client.either import Either

from flaremq.base.errors import (
    BodyTooLarge,
    ConfigError,
    InvalidName,
    ManyFailed,
    MessageIllegal,
    NoNameServer,
    SendFailed,
    TopicNotFound,
    UsageError,
)
from flaremq.client import sync
from flaremq.client.message import Receipt, SendStatus
from flaremq.client.producer.balance import by_hash
from flaremq.client.producer.packing import split_batches
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ProducerSettings
from flaremq.model.compression import decompress
from flaremq.model.message import Message, MessageQueue, StoredMessage
from flaremq.model.msgid import decode_unique_id
from flaremq.remoting.ports import free_port
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import Embedded, EmbeddedThread
from flaremq.testing.fakes.wireclient import WireClient

Make: TypeAlias = Any
KINDS = [Producer, sync.Producer]


@pytest.fixture(params=KINDS, ids=["async", "blocking"])
def make(request: pytest.FixtureRequest, servers: EmbeddedThread) -> Make:
    """Makes a producer of either kind."""

    def made(group: str = "PID_tests", **settings: Any) -> Either:
        return Either(request.param(group, servers.namesrv, settings=ProducerSettings(**settings)))

    return made


async def stored(servers: EmbeddedThread, receipt: Receipt) -> StoredMessage:
    """What lies where a receipt says. RocketMQ, by whose brokers this is run too, shows it a moment later."""
    found: list[StoredMessage] = []

    async def is_there() -> bool:
        messages = await all_stored(servers, receipt.queue)
        found[:] = [message for message in messages if message.queue_offset == receipt.queue_offset]
        return bool(found)

    await eventually("the message can be read", is_there)
    return found[0]


async def all_stored(servers: EmbeddedThread, queue: MessageQueue) -> list[StoredMessage]:
    address = servers.addresses[ord(queue.broker_name[-1]) - ord("a")]
    async with WireClient() as wire:
        return await wire.read_all(address, queue.topic, queue.queue_id)


async def test_a_message_is_stored_as_it_was_given(make: Make, servers: EmbeddedThread, topic: str) -> None:
    given = Message(
        topic,
        "ü".encode(),
        tags="paid",
        keys=["o-17", "c-3"],
        properties={"region": "eu", "päth": "a/b"},
        flag=9,
    )
    async with make() as producer:
        receipt = await producer.send(given)
    assert receipt.status is SendStatus.OK
    found = await stored(servers, receipt)
    assert (found.body, found.tags, found.keys, found.flag) == ("ü".encode(), "paid", ("o-17", "c-3"), 9)
    assert found.get("region") == "eu" and found.get("päth") == "a/b"
    assert found.unique_key == receipt.message_id
    assert found.message_id == receipt.offset_id
    assert decode_unique_id(receipt.message_id).ip == "127.0.0.1"


async def test_messages_without_a_key_go_to_all_queues_of_all_brokers_in_turn(make: Make, topic: str) -> None:
    async with make(avoid_slow=False) as producer:
        receipts = [await producer.send(Message(topic, b"x")) for _ in range(16)]
        queues = await producer.queues(topic)
    assert {receipt.queue for receipt in receipts} == set(queues)
    assert len(queues) == 8


async def test_messages_of_one_sharding_key_go_to_one_queue(make: Make, topic: str) -> None:
    async with make() as producer:
        by_key = [await producer.send(Message(topic, b"x", sharding_key="order-17")) for _ in range(5)]
        by_choice = [await producer.send(Message(topic, b"x"), to=by_hash("order-17")) for _ in range(5)]
    assert len({receipt.queue for receipt in by_key + by_choice}) == 1


async def test_a_selector_and_a_queue_decide_where_a_message_goes(make: Make, topic: str) -> None:
    def last(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        assert message.body == b"chosen"
        return queues[-1]

    async with make() as producer:
        queues = await producer.queues(topic)
        assert (await producer.send(Message(topic, b"chosen"), to=last)).queue == queues[-1]
        assert (await producer.send(Message(topic, b"x"), to=queues[3])).queue == queues[3]
        with pytest.raises(UsageError, match="another topic"):
            await producer.send(Message("Other", b"x"), to=queues[3])
        with pytest.raises(UsageError, match="expected one of the queues"):
            await producer.send(Message(topic, b"x"), to=lambda *_: MessageQueue(topic, "broker-z", 0))


async def test_many_messages_are_stored_once_each_and_receipts_are_in_their_order(
    make: Make, servers: EmbeddedThread, topic: str
) -> None:
    bodies = [b"%d" % number for number in range(3000)]
    async with make() as producer:
        receipts = await producer.send_many((Message(topic, body, tags="t") for body in bodies), window=100)
        queues = await producer.queues(topic)
    lying = {}
    for queue in queues:
        for found in await all_stored(servers, queue):
            lying[(queue, found.queue_offset)] = (found.body, found.unique_key, found.message_id)
    assert len(lying) == 3000
    for body, receipt in zip(bodies, receipts, strict=True):
        assert lying[(receipt.queue, receipt.queue_offset)] == (body, receipt.message_id, receipt.offset_id)


async def test_many_messages_to_one_queue_stay_in_order(
    make: Make, servers: EmbeddedThread, topic: str
) -> None:
    bodies = [b"%d" % number for number in range(500)]
    async with make() as producer:
        queue = (await producer.queues(topic))[0]
        await producer.send_many([Message(topic, body) for body in bodies], to=queue)
    assert [found.body for found in await all_stored(servers, queue)] == bodies


async def test_one_bad_message_among_many_does_not_harm_the_others(make: Make, topic: str) -> None:
    messages = [Message(topic, b"good"), Message("no such name!", b"x"), Message(topic, b"good too")]
    async with make() as producer:
        with pytest.raises(ManyFailed, match="1 of 3") as caught:
            await producer.send_many(messages)
    first, second, third = caught.value.results
    assert isinstance(first, Receipt) and isinstance(second, InvalidName) and isinstance(third, Receipt)


async def test_no_messages_are_many_enough(make: Make) -> None:
    async with make() as producer:
        assert await producer.send_many([]) == []


async def test_a_batch_is_stored_together(make: Make, servers: EmbeddedThread, topic: str) -> None:
    async with make() as producer:
        receipt = await producer.send_batch([Message(topic, b"%d" % n, tags="t") for n in range(10)])
    found = await all_stored(servers, receipt.queue)
    assert [each.body for each in found] == [b"%d" % n for n in range(10)]
    assert ",".join(each.unique_key or "" for each in found) == receipt.message_id
    assert receipt.offset_id == ",".join(each.message_id for each in found)


async def test_batches_are_split_by_size_and_keep_their_order(make: Make, topic: str) -> None:
    messages = [Message(topic, bytes(size)) for size in (400, 500, 200, 900, 10, 10)]
    batches = split_batches(messages, size_max=1000)
    assert [[len(each.body) for each in batch] for batch in batches] == [[400], [500, 200], [900], [10, 10]]
    with pytest.raises(MessageIllegal, match="does not fit in a batch"):
        split_batches([Message(topic, bytes(2000))], size_max=1000)
    async with make() as producer:
        for batch in batches:
            await producer.send_batch(batch)


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([], "an empty batch"),
        ([Message("A", b"x"), Message("B", b"x")], "expected one topic"),
        ([Message("A", b"x"), Message("A", b"x", wait_store=False)], "all or none"),
        ([Message("A", b"x", delay_level=1)], "send delayed messages alone"),
        ([Message("%RETRY%g", b"x")], "does not accept batches"),
        ([Message("A", bytes(4 << 20)), Message("A", b"x")], "split_batches"),
    ],
)
async def test_a_batch_that_cannot_be_is_refused(make: Make, messages: list[Message], complaint: str) -> None:
    async with make() as producer:
        with pytest.raises(UsageError, match=complaint):
            await producer.send_batch(messages)


async def test_a_one_way_message_arrives(make: Make, servers: EmbeddedThread, topic: str) -> None:
    async with make() as producer:
        queue = (await producer.send(Message(topic, b"first"))).queue
        await producer.send_oneway(Message(topic, b"second"), to=queue)
        await producer.send(Message(topic, b"third"), to=queue)
    bodies = [found.body for found in await all_stored(servers, queue)]
    assert sorted(bodies) == [b"first", b"second", b"third"]  # Java's broker may store the third first.


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
async def test_a_large_body_is_compressed(
    make: Make, servers: EmbeddedThread, topic: str, compression: str
) -> None:
    body = b"again and again " * 1000
    async with make(compression=compression, compress_over=1000) as producer:
        one = await producer.send(Message(topic, body))
        many = await producer.send_many([Message(topic, body)])
    for receipt in (one, *many):
        found = await stored(servers, receipt)
        assert len(found.body) < 1000
        assert decompress(found.body, found.sys_flag, 1 << 20) == body


async def test_what_no_broker_would_take_is_refused_before_it_is_sent(make: Make, topic: str) -> None:
    async with make(message_size_max=1000, compress_over=100) as producer:
        with pytest.raises(BodyTooLarge, match="limit is 1000"):
            await producer.send(Message(topic, bytes(1001)))
        with pytest.raises(MessageIllegal, match="is empty: brokers reject"):
            await producer.send(Message(topic, b""))
        with pytest.raises(InvalidName, match="use letters"):
            await producer.send(Message("a topic", b"x"))
        with pytest.raises(MessageIllegal, match="properties of"):
            await producer.send(Message(topic, b"x", properties={"long": "x" * 40_000}))


async def test_a_refusal_has_the_brokers_code_its_words_and_what_to_do(make: Make) -> None:
    async with make() as producer:
        with pytest.raises(SendFailed, match=r"NO_PERMISSION.*ask the operator") as caught:
            await producer.send(Message("SELF_TEST_TOPIC", b"x"))
    assert caught.value.response_code == 16
    assert len(caught.value.attempts) == 3
    assert caught.value.remark
    assert caught.value.address and caught.value.address.startswith("127.0.0.1:")


async def test_several_producers_of_one_and_of_many_groups_work_in_one_process(
    make: Make, servers: EmbeddedThread, topic: str
) -> None:
    producers = [make(f"PID_{number % 3}") for number in range(6)]
    for producer in producers:
        await producer.start()
    receipts = await asyncio.gather(*(producer.send(Message(topic, b"x")) for producer in producers))
    for producer in producers:
        await producer.stop()
    assert len({(receipt.queue, receipt.queue_offset) for receipt in receipts}) == 6


async def test_brokers_know_a_producer_while_it_runs(make: Make, servers: EmbeddedThread, topic: str) -> None:
    async with make("PID_known") as producer:
        await producer.send(Message(topic, b"x"))
        await _until(lambda: all(broker.tables.producers.members("PID_known") for broker in servers.brokers))
    await _until(lambda: not any(broker.tables.producers.members("PID_known") for broker in servers.brokers))


async def test_a_producer_that_is_not_running_says_so() -> None:
    producer = Producer("PID_tests", "127.0.0.1:1")
    with pytest.raises(UsageError, match="call start"):
        await producer.send(Message("T", b"x"))
    await producer.start()
    await producer.stop()
    await producer.stop()
    with pytest.raises(UsageError, match="create a new one"):
        await producer.start()


async def test_without_a_name_server_a_send_says_who_was_asked(topic: str) -> None:
    async with Producer("PID_tests", f"127.0.0.1:{free_port()}") as producer:
        with pytest.raises(NoNameServer, match="see whether one runs there"):
            await producer.send(Message(topic, b"x"))


@pytest.mark.parametrize("namesrv", ["", "localhost", "127.0.0.1:port", "127.0.0.1:99999", " ; "])
@pytest.mark.parametrize("kind", KINDS)
def test_an_address_that_is_none_is_refused_at_once(
    kind: Any, namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigError, match=r"host:port"):
        kind("PID_tests", namesrv)


def test_the_environment_may_name_the_name_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876;10.0.0.2:9876")
    assert Producer("g").client.namesrvs.addresses == ("10.0.0.1:9876", "10.0.0.2:9876")
    monkeypatch.setenv("FLAREMQ_NAMESRV", "10.0.0.3:9876")
    assert Producer("g").client.namesrvs.addresses == ("10.0.0.3:9876",)


async def test_a_topic_that_nobody_may_create_is_unknown(tmp_path: Any, topic: str) -> None:
    no_creation = {"autoCreateTopicEnable": False}
    async with (
        Embedded(tmp_path, options=no_creation) as servers,
        Producer("PID_tests", servers.namesrv) as producer,
    ):
        with pytest.raises(TopicNotFound, match="create it first"):
            await producer.send(Message(topic, b"x"))


async def _until(is_so: Any) -> None:
    async def asked() -> bool:
        return bool(is_so())

    await eventually("what the test waits for", asked)
