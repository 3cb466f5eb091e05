"""Message trace: what producers and consumers record, and that no send waits for it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.consumer.tools import quick
from tests.client.either import Either

from flaremq.admin.admin import Admin
from flaremq.admin.values.messages import Scan
from flaremq.base.errors import FlareError, ManyFailed, NoRoute, UsageError
from flaremq.client import sync
from flaremq.client.client import Client
from flaremq.client.consumer.litepull import LitePullConsumer
from flaremq.client.consumer.outcome import Later
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.message import Decision, Recall, Receipt, ReceivedMessage
from flaremq.client.producer.producer import Producer
from flaremq.client.producer.transaction import TransactionProducer
from flaremq.client.settings import ClientSettings, Trace
from flaremq.client.trace import (
    BODY_SIZE_MAX,
    KEYS_SIZE_MAX,
    TraceDispatcher,
    inner_group,
    pack_records,
)
from flaremq.model.message import Message, MessageQueue
from flaremq.model.names import check_group
from flaremq.protocol.tracerecord import (
    EndTransactionRecord,
    PubRecord,
    RecallRecord,
    ReturnCode,
    SubAfterRecord,
    SubBeforeRecord,
    TracedType,
    TraceRecord,
    read_records,
)
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import Embedded, EmbeddedThread


async def records_of(servers: EmbeddedThread, topic: str, count: int) -> list[TraceRecord]:
    """All records in a trace topic, once there are so many; without those of each other's order."""
    found: list[TraceRecord] = []

    async def are_there() -> bool:
        found.clear()
        async with Admin(servers.namesrv) as admin:
            if topic not in [each.name for each in await admin.topics.list()]:
                return False
            async for message in admin.messages.scan(Scan(topic=topic)):
                found.extend(read_records(message.body))
        return len(found) >= count

    await eventually(f"{count} trace records are stored", are_there)
    return found


def of(kind: type[Any], records: Iterable[TraceRecord]) -> list[Any]:
    return [record for record in records if isinstance(record, kind)]


@pytest.fixture
def trace(topic: str) -> Trace:
    """A trace topic of its own for each test."""
    return Trace(topic=f"Trace-{topic}", interval_s=0.1)


@pytest.fixture(params=[Producer, sync.Producer], ids=["async", "blocking"])
def make(request: pytest.FixtureRequest, servers: EmbeddedThread) -> Callable[..., Any]:
    def made(trace: bool | Trace) -> Either:
        return Either(request.param("PID_trace", servers.namesrv, trace=trace))

    return made


# Sends.


async def test_a_send_is_recorded(
    make: Callable[..., Any], servers: EmbeddedThread, topic: str, trace: Trace
) -> None:
    async with make(trace) as producer:
        receipt = await producer.send(Message(topic, b"12345", tags="A", keys=["k1", "k2"]))
    (record,) = await records_of(servers, trace.topic, 1)
    assert isinstance(record, PubRecord)
    assert (record.group, record.topic, record.message_id) == ("PID_trace", topic, receipt.message_id)
    assert (record.tags, record.keys, record.body_size) == ("A", "k1 k2", 5)
    assert (record.type, record.success, record.region) == (TracedType.NORMAL, True, "DefaultRegion")
    assert record.offset_id == receipt.offset_id
    assert record.store_host in servers.addresses
    assert 0 <= record.cost_ms < 10_000 and record.timestamp_ms > 1_700_000_000_000


async def test_fault_31_a_message_whose_properties_are_full_is_recorded(
    make: Callable[..., Any], servers: EmbeddedThread, topic: str, trace: Trace
) -> None:
    """As many keys as fit, by which the record could be found: its own message has less room for them."""
    keys = [f"order-{number:06}" for number in range(2_400)]
    async with make(trace) as producer:
        receipt = await producer.send(Message(topic, b"12345", tags="A", keys=keys))
    (record,) = of(PubRecord, await records_of(servers, trace.topic, 1))
    assert (record.message_id, record.keys.split(), record.success) == (receipt.message_id, keys, True)


async def test_every_way_to_send_is_recorded(
    make: Callable[..., Any], servers: EmbeddedThread, topic: str, trace: Trace
) -> None:
    async with make(trace) as producer:
        many = await producer.send_many([Message(topic, b"%d" % n) for n in range(30)])
        batch = await producer.send_batch([Message(topic, b"x" * n, keys=[f"b{n}"]) for n in (1, 2)])
        late = await producer.send(Message(topic, b"late", delay_s=3600))
        level = await producer.send(Message(topic, b"level", delay_level=1))
        await producer.send_oneway(Message(topic, b"no receipt"))
        assert await producer.recall(late) is Recall.CANCELLED
    found = await records_of(servers, trace.topic, 35)
    pubs = {record.message_id: record for record in of(PubRecord, found)}
    ids = batch.message_id.split(",")
    assert pubs.keys() == {*(r.message_id for r in many), *ids, late.message_id, level.message_id}
    assert [(pubs[i].keys, pubs[i].body_size) for i in ids] == [("b1", 1), ("b2", 2)]
    assert [pubs[i].offset_id for i in ids] == batch.offset_id.split(",")
    assert pubs[late.message_id].type == pubs[level.message_id].type == TracedType.DELAY
    (recall,) = of(RecallRecord, found)
    assert (recall.topic, recall.message_id, recall.success) == (topic, late.message_id, True)
    assert len(found) == 35


async def test_a_trace_message_has_the_ids_and_keys_of_its_records(
    servers: EmbeddedThread, topic: str, trace: Trace
) -> None:
    async with Producer("PID_trace", servers.namesrv, trace=trace) as producer:
        receipts = await producer.send_many([Message(topic, b"x", keys=[f"k{n}", "all"]) for n in range(5)])

    async def are_found() -> bool:
        async with Admin(servers.namesrv) as admin:
            words = [*(r.message_id for r in receipts), "k0", "k4", "all"]
            return all([await admin.messages.by_key(trace.topic, word) for word in words])

    await eventually("the index has all words", are_found)


async def test_trace_messages_are_not_traced(servers: EmbeddedThread, topic: str, trace: Trace) -> None:
    async with Producer("PID_trace", servers.namesrv, trace=trace) as producer:
        await producer.send(Message(f"{trace.topic}-of-others", b"x"))
        receipt = await producer.send(Message(topic, b"x"))
    (record,) = await records_of(servers, trace.topic, 1)
    assert isinstance(record, PubRecord) and record.message_id == receipt.message_id


async def test_the_trace_topic_of_cloud_clients_can_be_written(servers: EmbeddedThread, topic: str) -> None:
    """Java's clients of 5.3.0 send there, whatever their access channel."""
    cloud = Trace(topic="rmq_sys_TRACE_DATA_DefaultRegion")
    async with Producer("PID_trace", servers.namesrv, trace=cloud) as producer:
        receipt = await producer.send(Message(topic, b"x"))
    (record,) = await records_of(servers, cloud.topic, 1)
    assert isinstance(record, PubRecord) and record.message_id == receipt.message_id


async def test_a_broker_can_switch_trace_off(tmp_path: Path) -> None:
    async with Embedded(tmp_path, options={"traceOn": "false"}) as servers:
        async with Producer("PID_trace", servers.namesrv, trace=Trace(interval_s=0.01)) as producer:
            assert (await producer.send(Message("T", b"x"))).region is None
            await producer.send_many([Message("T", b"y")] * 20)
        async with Admin(servers.namesrv) as admin:
            assert "RMQ_SYS_TRACE_TOPIC" not in [each.name for each in await admin.topics.list()]


async def test_a_failed_attempt_is_recorded(servers: EmbeddedThread, topic: str, trace: Trace) -> None:
    async with Producer("PID_trace", servers.namesrv, trace=trace) as producer:
        await producer.send(Message(topic, b"x"))
        queue = (await producer.queues(topic))[0]
        with pytest.raises(FlareError, match="queueId"):
            await producer.send(Message(topic, b"y"), to=MessageQueue(topic, queue.broker_name, 99))
    good, bad = sorted(of(PubRecord, await records_of(servers, trace.topic, 2)), key=lambda r: not r.success)
    assert (good.success, bad.success, bad.offset_id) == (True, False, None)


@pytest.mark.parametrize("kind", [TransactionProducer, sync.TransactionProducer], ids=["async", "blocking"])
async def test_the_end_of_a_transaction_is_recorded(
    kind: Any, servers: EmbeddedThread, topic: str, trace: Trace
) -> None:
    producer = Either(kind("PID_trace", servers.namesrv, checker=lambda _: None, trace=trace))
    ids: dict[Decision, str] = {}
    async with producer:
        for decision in Decision:

            def step(transaction: Any, told: Decision = decision) -> Decision:
                ids[told] = transaction.id
                return told

            await producer.send(Message(topic, b"x", keys=[decision.name]), step)
    found = await records_of(servers, trace.topic, 6)
    assert {r.message_id: r.type for r in of(PubRecord, found)} == dict.fromkeys(
        ids.values(), TracedType.HALF
    )
    ends = {record.message_id: record for record in of(EndTransactionRecord, found)}
    assert [ends[ids[each]].state for each in Decision] == ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"]
    commit = ends[ids[Decision.COMMIT]]
    assert (commit.keys, commit.transaction_id, commit.from_check) == ("COMMIT", commit.message_id, False)
    assert (commit.type, commit.store_host in servers.addresses) == (TracedType.COMMIT, True)


async def test_a_request_is_recorded_and_its_reply_is_not(
    servers: EmbeddedThread, topic: str, trace: Trace, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = PushConsumer(f"GID-{topic}", servers.namesrv, settings=quick())
    async with Producer("PID_trace", servers.namesrv, trace=trace) as producer:

        @consumer.subscribe(topic)
        async def answer(message: ReceivedMessage) -> None:
            await producer.reply(message, b"42")

        async with consumer:
            assert (await producer.request(Message(topic, b"6 * 7"), timeout_s=20)).body == b"42"
    (record,) = await records_of(servers, trace.topic, 1)
    assert isinstance(record, PubRecord) and (record.topic, record.body_size) == (topic, 5)
    assert "hook" not in caplog.text


async def test_records_after_the_stop_are_counted_as_dropped() -> None:
    dispatcher = a_dispatcher(FakeSender())
    await dispatcher.start()
    await dispatcher.stop()
    dispatcher.append("T", a_pub())
    assert dispatcher.dropped == 1


# Consumption.


@pytest.mark.parametrize("kind", [PushConsumer, sync.PushConsumer], ids=["async", "blocking"])
async def test_deliveries_are_recorded_with_their_outcome(
    kind: Any, servers: EmbeddedThread, topic: str, trace: Trace
) -> None:
    done = threading.Event()
    consumer = kind(f"GID-{topic}", servers.namesrv, settings=quick(), trace=trace)

    def handle(message: ReceivedMessage) -> None:
        if message.reconsume_times == 0:
            raise RuntimeError("no")
        if message.reconsume_times == 1:
            raise Later("not yet")
        done.set()

    consumer.subscribe(topic, handle)
    async with Producer("PID_trace", servers.namesrv) as producer:
        receipt = await producer.send(Message(topic, b"x", keys=["k"]))
    async with Either(consumer):
        await asyncio.to_thread(done.wait, 20)
    found = await records_of(servers, trace.topic, 6)
    before = sorted(of(SubBeforeRecord, found), key=lambda record: record.retry_times)
    assert [record.retry_times for record in before] == [0, 1, 2]
    after = {record.request_id: record for record in of(SubAfterRecord, found)}
    outcomes = [after[record.request_id] for record in before]
    assert [each.code for each in outcomes] == [ReturnCode.EXCEPTION, ReturnCode.FAILED, ReturnCode.SUCCESS]
    assert [each.success for each in outcomes] == [False, False, True]
    for record in (*before, *outcomes):
        assert (record.message_id, record.keys, record.group) == (receipt.message_id, "k", f"GID-{topic}")


@pytest.mark.parametrize("kind", [LitePullConsumer, sync.LitePullConsumer], ids=["async", "blocking"])
async def test_a_poll_is_recorded_as_consumed(
    kind: Any, servers: EmbeddedThread, topic: str, trace: Trace
) -> None:
    async with Producer("PID_trace", servers.namesrv) as producer:
        receipts = await producer.send_many([Message(topic, b"%d" % n) for n in range(5)])
    consumer = kind(f"GID-{topic}", servers.namesrv, settings=quick(), trace=trace)
    consumer.subscribe(topic)
    got: list[Any] = []
    async with Either(consumer) as either:
        while len(got) < 5:
            got += await either.poll(timeout_s=5)
    found = await records_of(servers, trace.topic, 10)
    wanted = {receipt.message_id for receipt in receipts}
    assert {record.message_id for record in of(SubBeforeRecord, found)} == wanted
    assert {record.message_id for record in of(SubAfterRecord, found) if record.success} == wanted


async def test_a_batch_element_has_no_region_and_no_record_of_its_consumption(
    servers: EmbeddedThread, topic: str, trace: Trace
) -> None:
    async with Producer("PID_trace", servers.namesrv) as producer:
        await producer.send_batch([Message(topic, b"1"), Message(topic, b"2")])
        single = await producer.send(Message(topic, b"3"))
    consumer = LitePullConsumer(f"GID-{topic}", servers.namesrv, settings=quick(), trace=trace)
    consumer.subscribe(topic)
    got: list[ReceivedMessage] = []
    async with consumer:
        while len(got) < 3:
            got += await consumer.poll(timeout_s=5)
    found = await records_of(servers, trace.topic, 2)
    assert {record.message_id for record in found} == {single.message_id}


# The dispatcher.


@dataclass
class FakeSender:
    """An inner producer whose broker can be away, or silent."""

    sent: list[Message] = field(default_factory=list)
    error: FlareError | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    calls: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    async def send_many(
        self, messages: Iterable[Message], *, timeout_s: float | None = None
    ) -> list[Receipt]:
        self.calls += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.sent += messages
        return []

    @property
    def ids(self) -> list[str]:
        return [record.message_id for each in self.sent for record in read_records(each.body)]


def a_pub(message_id: str = "ID", keys: str | None = None) -> PubRecord:
    return PubRecord(1, "r", "g", "T", message_id, None, keys, "h:1", 1, 1, 0, None, True)


def a_dispatcher(sender: FakeSender, **changes: Any) -> TraceDispatcher:
    client = Client(settings=ClientSettings(namesrv="127.0.0.1:1"))
    return TraceDispatcher(Trace(**changes), client, "g", sender)


async def test_ten_records_go_out_at_once_and_fewer_at_the_stop() -> None:
    sender = FakeSender()
    dispatcher = a_dispatcher(sender, interval_s=3600)
    await dispatcher.start()
    for n in range(10):
        dispatcher.append("T", a_pub(f"{n}"))

    async def are_sent() -> bool:
        return len(sender.ids) == 10

    await eventually("ten records are sent", are_sent)
    dispatcher.append("T", a_pub("last"))
    assert "last" not in sender.ids
    await dispatcher.stop()
    assert sender.ids == [*(f"{n}" for n in range(10)), "last"]


async def test_records_that_do_not_fit_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    sender = FakeSender()
    dispatcher = a_dispatcher(sender, interval_s=3600, queue_max=20)
    with caplog.at_level(logging.WARNING, "flaremq.client.trace"):
        for n in range(25):
            dispatcher.append("T", a_pub(f"{n}"))
    assert dispatcher.dropped == 5
    assert len(caplog.records) == 1, "one line a minute"
    assert "dropped so far: 1. The limit of 20 waiting records is reached" in caplog.text
    await dispatcher.start()
    await dispatcher.stop()
    assert len(sender.ids) == 20


async def test_records_that_brokers_do_not_take_are_dropped_and_the_next_ones_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sender = FakeSender(error=NoRoute("no broker has topic RMQ_SYS_TRACE_TOPIC"))
    dispatcher = a_dispatcher(sender)
    dispatcher.append("T", a_pub())
    assert await dispatcher.flush() is False
    assert dispatcher.dropped == 1 and "traceTopicEnable=true" in caplog.text
    sender.error = ManyFailed(
        "1 of 2 was not stored", [Receipt("", MessageQueue("", "", 0), 0, ""), NoRoute("")]
    )
    dispatcher.append("T", a_pub())
    dispatcher.append("U", a_pub())
    assert await dispatcher.flush() is False
    assert dispatcher.dropped == 2
    sender.error = None
    dispatcher.append("T", a_pub("good"))
    assert await dispatcher.flush() is True
    assert sender.ids == ["good"]


async def test_a_stop_does_not_wait_longer_than_its_time(caplog: pytest.LogCaptureFixture) -> None:
    sender = FakeSender()
    sender.gate.clear()
    dispatcher = a_dispatcher(sender, wait_at_stop_s=0.05)
    await dispatcher.start()
    dispatcher.append("T", a_pub())
    await dispatcher.stop()
    assert dispatcher.dropped == 1
    assert "They were not sent within 0.05 s of the stop" in caplog.text


async def test_a_stop_sends_nothing_twice() -> None:
    sender = FakeSender()
    sender.gate.clear()
    dispatcher = a_dispatcher(sender, batch=1)
    await dispatcher.start()
    dispatcher.append("T", a_pub("under way"))

    async def is_called() -> bool:
        return sender.calls == 1

    await eventually("it is under way", is_called)
    dispatcher.append("T", a_pub("waits"))
    stopping = asyncio.create_task(dispatcher.stop())
    sender.gate.set()
    await stopping
    assert sender.ids == ["under way", "waits"]


async def test_any_thread_may_append() -> None:
    sender = FakeSender()
    dispatcher = a_dispatcher(sender, interval_s=3600)
    await dispatcher.start()

    def append(number: int) -> None:
        for n in range(100):
            dispatcher.append("T", a_pub(f"{number}-{n}"))

    threads = [threading.Thread(target=append, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()

    async def are_sent() -> bool:
        return len(set(sender.ids)) == 400

    await eventually("all are sent", are_sent)
    await dispatcher.stop()


def test_a_trace_message_has_records_of_one_topic() -> None:
    records = [(topic, a_pub(f"{n}")) for n, topic in enumerate("ABAB")]
    packed = pack_records("Trace", records)
    assert [[record.message_id for record in read_records(each.body)] for each, _ in packed] == [
        ["0", "2"],
        ["1", "3"],
    ]
    assert [tuple(each.keys) for each, _ in packed] == [("0", "2"), ("1", "3")]


ids = st.text("0123456789ABCDEF", min_size=1, max_size=60)
many_keys = st.lists(st.text("aä€😀 ", max_size=4000), max_size=8).map(" ".join)


@given(st.lists(st.tuples(ids, st.none() | many_keys), max_size=40))
def test_no_trace_message_is_too_large_and_no_record_is_lost(given: list[tuple[str, str | None]]) -> None:
    records = [("T", a_pub(i, keys)) for i, keys in given]
    packed = pack_records("Trace", records)
    assert [r.message_id for each, _ in packed for r in read_records(each.body)] == [i for i, _ in given]
    assert sum(count for _, count in packed) == len(given)
    for message, _ in packed:
        assert len(message.body) <= BODY_SIZE_MAX
        assert len(" ".join(message.keys).encode()) <= KEYS_SIZE_MAX
        assert {record.message_id for record in read_records(message.body)} <= set(message.keys)


def test_the_inner_group_is_valid_whatever_the_group() -> None:
    assert inner_group("orders", "PRODUCE").startswith("_INNER_TRACE_PRODUCER-orders-PRODUCE-")
    check_group(inner_group("g" * 120, "CONSUME"))


def test_a_wrong_value_of_trace_is_refused() -> None:
    with pytest.raises(UsageError, match=r"trace='yes': expected True, False or Trace\(topic=...\)"):
        Producer("g", "127.0.0.1:9876", trace="yes")  # type: ignore[arg-type]
