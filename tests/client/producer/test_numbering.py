"""Producers with an id: each message is stored once, whatever becomes of answers and connections."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from tests.client.either import Either

from flaremq.base.errors import (
    FlareError,
    InvalidName,
    ManyFailed,
    MessageIllegal,
    OutcomeUnknown,
    UsageError,
)
from flaremq.client import sync
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.errors import error_for
from flaremq.client.message import Receipt, ReceivedMessage
from flaremq.client.producer.numbering import Attempts, Numbering
from flaremq.client.producer.producer import Producer
from flaremq.client.producer.transaction import TransactionProducer
from flaremq.client.settings import ProducerSettings
from flaremq.model.message import Message, MessageQueue, StoredMessage
from flaremq.protocol.codes import ResponseCode
from flaremq.protocol.command import Command
from flaremq.testing.clock import ManualClock
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import Embedded, EmbeddedThread
from flaremq.testing.fakes.network import HOST, BadNetwork
from flaremq.testing.fakes.wireclient import WireClient

Make: TypeAlias = Any
TOPIC = "Numbered"


@pytest.fixture(params=[Producer, sync.Producer], ids=["async", "blocking"])
def make(request: pytest.FixtureRequest, servers: EmbeddedThread) -> Make:
    def made(producer_id: str | None, **settings: Any) -> Either:
        given = ProducerSettings(**settings)
        return Either(request.param("PID_once", servers.namesrv, settings=given, producer_id=producer_id))

    return made


async def stored(namesrv: str, topic: str) -> list[StoredMessage]:
    """All messages of a topic, queue by queue."""
    async with Producer("PID_reader", namesrv) as producer, WireClient() as wire:
        queues = await producer.queues(topic)
        found = []
        for queue in queues:
            address = producer.client.routes.master(queue.broker_name)
            assert address is not None
            found += await wire.read_all(address.replace(HOST, "127.0.0.1"), topic, queue.queue_id)
        return found


async def test_the_messages_of_a_producer_have_consecutive_numbers(
    make: Make, servers: EmbeddedThread, topic: str
) -> None:
    async with make("billing-1") as producer:
        await producer.send(Message(topic, b"0"))
        await producer.send_many([Message(topic, b"%d" % n) for n in range(1, 4)])
        await producer.send_batch([Message(topic, b"%d" % n) for n in range(4, 6)])
        await producer.send(Message(topic, b"6", delay_level=0, properties={"a": "b"}))
    messages = sorted(await stored(servers.namesrv, topic), key=lambda each: each.body)
    values = [message.get("PRODUCER_SEQ") or "" for message in messages]
    assert {value.partition(":")[0] for value in values} == {"billing-1"}
    numbers = [int(value.partition(":")[2]) for value in values]
    assert numbers == list(range(numbers[0], numbers[0] + 7))


async def test_without_an_id_nothing_is_numbered(make: Make, servers: EmbeddedThread, topic: str) -> None:
    async with make(None) as producer:
        await producer.send(Message(topic, b"x"))
        await producer.send_many([Message(topic, b"x")])
    assert [each.get("PRODUCER_SEQ") for each in await stored(servers.namesrv, topic)] == [None, None]


async def test_a_message_with_its_own_number_can_be_sent_again(
    make: Make, servers: EmbeddedThread, topic: str
) -> None:
    messages = [Message(topic, b"row %d" % n, sequence=n) for n in range(20)]
    async with make(f"loader{topic[-3:]}") as producer:
        first = [await producer.send(message) for message in messages[:5]]
        first += await producer.send_many(messages[5:])
    async with make(f"loader{topic[-3:]}") as producer:  # As after a crash.
        again = await producer.send_many(messages)
        more = await producer.send_batch(messages[:1])
    assert [receipt.offset_id for receipt in again] == [receipt.offset_id for receipt in first]
    assert [receipt.message_id for receipt in again] == [receipt.message_id for receipt in first]
    assert all(receipt.is_repeated for receipt in (*again, more)) and not any(
        receipt.is_repeated for receipt in first
    )
    assert len(await stored(servers.namesrv, topic)) == 20


async def test_another_message_with_the_same_number_is_refused(make: Make, topic: str) -> None:
    async with make(f"loader{topic[-3:]}") as producer:
        await producer.send(Message(topic, b"one", sequence=1))
        with pytest.raises(MessageIllegal, match="stored already"):
            await producer.send(Message(topic, b"another", sequence=1))


async def test_a_number_needs_a_producer_with_an_id(make: Make, topic: str) -> None:
    message = Message(topic, b"x", sequence=1)
    async with make(None) as producer:
        with pytest.raises(UsageError, match="producer_id="):
            await producer.send(message)
        with pytest.raises(ManyFailed, match="producer_id="):
            await producer.send_many([message])


@pytest.mark.parametrize("sequence", [-1, 2**63, 1.0, "1", True])
def test_a_number_that_is_none_is_refused(sequence: Any) -> None:
    with pytest.raises(MessageIllegal, match="expected a number from 0"):
        Message("T", b"x", sequence=sequence)


def test_the_property_of_the_number_is_not_set_by_hand() -> None:
    with pytest.raises(MessageIllegal, match="sequence="):
        Message("T", b"x", properties={"PRODUCER_SEQ": "a:1"})


def test_an_id_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(InvalidName, match="expected 1 to 64 letters"):
        Producer("g", "127.0.0.1:1", producer_id="a b")


def test_a_later_run_has_greater_numbers() -> None:
    clock = ManualClock()
    first = Numbering("p", clock)
    numbers = [int(first.text(None).partition(":")[2]) for _ in range(3)]
    clock.advance_ms(1)
    later = int(Numbering("p", clock).text(None).partition(":")[2])
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
    assert later > numbers[-1] + 1_000_000


def test_numbers_are_given_with_all_messages_or_with_none() -> None:
    plain, given = Message("T", b"x"), Message("T", b"x", sequence=7)
    own, made = Numbering("p", ManualClock()), Numbering("p", ManualClock())
    assert own.text(given) == "p:7"
    with pytest.raises(UsageError, match="all messages a sequence, or none"):
        own.text(plain)
    number = made.text(plain)
    with pytest.raises(UsageError, match="all messages a sequence, or none"):
        made.text(given)
    assert made.text(Message("T", b"x", sequence=int(number[2:]))) == number, "sent again"


async def test_messages_that_wait_are_stored_once(servers: EmbeddedThread, topic: str) -> None:
    later = Message(topic, b"later", delay_s=3600, sequence=1)
    async with Producer("PID_once", servers.namesrv, producer_id="waits") as producer:
        first, again = await producer.send(later), await producer.send(later)
        assert (again.offset_id, again.recall_handle) == (first.offset_id, first.recall_handle)
        assert first.recall_handle is not None


async def test_a_transaction_is_prepared_once(servers: EmbeddedThread, topic: str) -> None:
    message = Message(topic, b"paid", sequence=1)

    def checker(_message: ReceivedMessage) -> None: ...

    async with TransactionProducer(
        "PID_once_tx", servers.namesrv, checker=checker, producer_id="pays"
    ) as producer:
        first = await producer.prepare(message)
        again = await producer.prepare(message)
        assert (again.id, again.receipt.offset_id) == (first.id, first.receipt.offset_id)
        await producer.end(again)
    assert [each.body for each in await stored(servers.namesrv, topic)] == [b"paid"]


async def test_copies_that_brokers_and_consumers_make_are_all_delivered(
    servers: EmbeddedThread, topic: str
) -> None:
    """Delayed, timed and committed messages, and retries: none is taken for a repeated send."""
    came: Counter[bytes] = Counter()
    consumer = PushConsumer(f"GID_{topic[-3:]}", namesrv=servers.namesrv)

    @consumer.subscribe(topic)
    async def fails_once(message: ReceivedMessage) -> None:
        came[message.body] += 1
        if came[message.body] == 1:
            raise RuntimeError("later")

    def checker(_message: ReceivedMessage) -> None: ...

    id_of, given = f"copies{topic[-3:]}", [Message(topic, b"now"), Message(topic, b"later", delay_level=1)]
    async with (
        Producer("PID_once", servers.namesrv, producer_id=id_of) as producer,
        TransactionProducer(
            "PID_once_tx", servers.namesrv, checker=checker, producer_id=f"{id_of}-paid"
        ) as buyer,
    ):
        await producer.send_many([*given, Message(topic, b"soon", delay_s=0.1)])
        await buyer.send(Message(topic, b"paid"), lambda _transaction: True)

        async def all_came_again() -> bool:
            return came == {b"now": 2, b"later": 2, b"soon": 2, b"paid": 2}

        async with consumer:
            await eventually("all came, and came again", all_came_again)


# A bad network.


@asynccontextmanager
async def bad(folder: Path, rng: random.Random | None = None) -> AsyncIterator[tuple[Embedded, BadNetwork]]:
    async with (
        Embedded(folder, options={"brokerIP1": HOST}) as servers,
        BadNetwork(servers.brokers[0].port, rng) as network,
        WireClient() as wire,
    ):
        await wire.create_topic(servers.addresses[0], TOPIC, 4)
        yield servers, network


def bodies(messages: list[StoredMessage]) -> list[int]:
    return sorted(int(message.body) for message in messages)


async def test_a_send_whose_answer_is_lost_is_stored_once(tmp_path: Path) -> None:
    async with bad(tmp_path) as (servers, network):

        async def both_are_stored() -> bool:
            return len(await stored(servers.namesrv, TOPIC)) == 2

        settings = ProducerSettings(timeout_s=5)
        async with Producer("g", servers.namesrv, producer_id="p", settings=settings) as producer:
            first = await producer.send(Message(TOPIC, b"1"))
            network.loses_answers = True
            sending = asyncio.create_task(producer.send(Message(TOPIC, b"2")))
            await eventually("the message is stored", both_are_stored)
            network.loses_answers = False
            network.cut()
            receipt = await sending
        assert receipt.is_repeated and not first.is_repeated
        assert bodies(await stored(servers.namesrv, TOPIC)) == [1, 2]


class TwoBrokers:
    """A send goes to broker a first, and to b where a is left out. The first is answered with a code."""

    def __init__(self, code: int) -> None:
        self._answers: list[FlareError | None] = [error_for("a:10911", 10, Command(code=code)), None]
        self.asked: list[str] = []

    async def find(
        self, _parcel: Any, to: Any, _message: Any, _deadline_s: float, not_at: str | None = None
    ) -> tuple[MessageQueue, str]:
        queue = to or MessageQueue(TOPIC, "b" if not_at == "a" else "a", 0)
        return queue, "address"

    async def attempt(self, _parcel: Any, queue: MessageQueue, _address: str, _limit_s: float) -> Receipt:
        self.asked.append(queue.broker_name)
        error = self._answers.pop(0)
        if error is not None:
            raise error
        return Receipt("id", queue, 7, "offset id")

    def may_go_on(self, _error: FlareError, _queue: MessageQueue, _topic: str) -> bool:
        return True


@pytest.mark.parametrize(
    ("code", "second"), [(ResponseCode.SYSTEM_ERROR, "a"), (ResponseCode.SERVICE_NOT_AVAILABLE, "b")]
)
async def test_a_send_whose_sync_failed_is_repeated_where_it_may_be_stored_and_nowhere_else(
    code: int, second: str
) -> None:
    """A broker whose sync fails has the message in its log, and answers SYSTEM_ERROR."""

    async def sleep(_span_s: float) -> None: ...

    brokers, client = TwoBrokers(code), SimpleNamespace(clock=ManualClock(), sleep=sleep)
    attempts: Any = Attempts(brokers, SimpleNamespace(topic=TOPIC), 3.0, client)  # type: ignore[arg-type]
    receipt = await attempts.run(None, None, 3)
    assert (brokers.asked, receipt.queue.broker_name) == (["a", second], second)


async def test_a_send_without_any_answer_says_that_its_outcome_is_unknown(tmp_path: Path) -> None:
    async with bad(tmp_path) as (servers, network):
        settings = ProducerSettings(timeout_s=0.6)
        async with Producer("g", servers.namesrv, producer_id="p", settings=settings) as producer:
            await producer.queues(TOPIC)
            network.loses_answers = True
            with pytest.raises(OutcomeUnknown, match="it may be stored") as caught:
                await producer.send(Message(TOPIC, b"1"))
            network.loses_answers = False
            unknown = caught.value
            receipt = await producer.send(
                Message(TOPIC, b"1", sequence=unknown.sequence), to=unknown.queue, timeout_s=5
            )
        assert receipt.is_repeated
        assert len(unknown.attempts) > 1
        assert bodies(await stored(servers.namesrv, TOPIC)) == [1]


async def test_a_numbered_send_waits_for_a_broker_that_restarts(tmp_path: Path) -> None:
    async with Embedded(tmp_path) as servers:
        settings = ProducerSettings(timeout_s=20)
        async with Producer("g", servers.namesrv, producer_id="p", settings=settings) as producer:
            first = await producer.send(Message(TOPIC, b"1", sequence=1))
            await servers.stop("broker-a")
            sending = [
                asyncio.create_task(producer.send(Message(TOPIC, b"1", sequence=1))),
                asyncio.create_task(
                    producer.send_many([Message(TOPIC, b"%d" % n, sequence=n) for n in (2, 3)])
                ),
            ]
            await asyncio.sleep(0)
            await servers.start("broker-a")
            again, _ = await asyncio.gather(*sending)
        assert isinstance(again, Receipt)
        assert (again.is_repeated, again.offset_id) == (True, first.offset_id)
        assert bodies(await stored(servers.namesrv, TOPIC)) == [1, 2, 3]


@pytest.mark.parametrize("seed", range(3))
async def test_every_message_is_stored_once_and_in_order_on_a_bad_network(tmp_path: Path, seed: int) -> None:
    """Delays, cuts, halves of frames; every acknowledged message is there, and none is there twice."""
    async with bad(tmp_path, random.Random(seed)) as (servers, network):
        settings = ProducerSettings(timeout_s=20, window=40)
        queue = MessageQueue(TOPIC, "broker-a", 1)
        async with Producer("g", servers.namesrv, producer_id="p", settings=settings) as producer:
            receipts = [await producer.send(Message(TOPIC, b"%d" % n), to=queue) for n in range(60)]
            receipts += await producer.send_many(
                [Message(TOPIC, b"%d" % n) for n in range(60, 400)], to=queue
            )
            for n in range(400, 420, 2):
                pair = [Message(TOPIC, b"%d" % n), Message(TOPIC, b"%d" % (n + 1))]
                await producer.send_batch(pair, to=queue)
        network.rng = None
        found = await stored(servers.namesrv, TOPIC)
        assert network.cuts > 3
        assert [int(message.body) for message in found] == list(range(420))
        assert [receipt.queue_offset for receipt in receipts] == list(range(400))
