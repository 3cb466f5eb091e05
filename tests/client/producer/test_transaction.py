"""Transactions as a program uses them: its own step, the end of it, and the questions of brokers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.consumer.tools import Seen, a_topic, joined

from flaremq.base.errors import MessageIllegal, UsageError
from flaremq.client import sync
from flaremq.client.message import Decision, ReceivedMessage
from flaremq.client.producer.producer import Producer
from flaremq.client.producer.transaction import Checker, Transaction, TransactionProducer
from flaremq.model.message import Message
from flaremq.testing.clock import MovableClock
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import EmbeddedThread


@pytest.fixture(scope="module")
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, clock: MovableClock) -> Iterator[EmbeddedThread]:
    """Brokers whose time can be moved. Each look of a test moves it: they may ask as often as they like."""
    options = {"transactionCheckMax": 10_000}
    with EmbeddedThread(
        tmp_path_factory.mktemp("servers"), brokers=2, options=options, clock=clock
    ) as running:
        yield running


def never(message: ReceivedMessage) -> bool:
    raise AssertionError(f"nobody should ask about {message}")


@asynccontextmanager
async def a_producer(
    servers: EmbeddedThread, topic: str, checker: Checker = never
) -> AsyncIterator[TransactionProducer]:
    async with (
        a_topic(servers, topic, 1),
        TransactionProducer(f"P-{topic}", servers.namesrv, checker=checker) as producer,
    ):
        yield producer


@pytest.mark.parametrize("told", [True, Decision.COMMIT])
@pytest.mark.parametrize("way", ["async", "plain"])
async def test_a_message_is_delivered_once_its_step_has_succeeded(
    servers: EmbeddedThread, topic: str, told: Any, way: str
) -> None:
    seen = Seen()

    def plain(transaction: Transaction) -> Any:
        assert not seen.messages
        assert threading.current_thread() is not threading.main_thread()
        return told

    async def step(transaction: Transaction) -> Any:
        assert not seen.messages
        return told

    async with a_producer(servers, topic) as producer, joined(servers, f"G-{topic}", topic, seen):
        message = Message(topic, b"paid", tags="t", keys=["o-17"])
        assert await producer.send(message, step if way == "async" else plain) is Decision.COMMIT
        await seen.count(1)
    (message_seen,) = seen.messages
    assert (message_seen.body, message_seen.tags, message_seen.keys) == (b"paid", "t", ("o-17",))


async def test_a_message_whose_step_says_no_does_not_come(servers: EmbeddedThread, topic: str) -> None:
    seen = Seen()
    async with a_producer(servers, topic) as producer, joined(servers, f"G-{topic}", topic, seen):
        assert await producer.send(Message(topic, b"no"), lambda _: False) is Decision.ROLLBACK
        async with producer.transaction(Message(topic, b"not this")) as transaction:
            transaction.roll_back()
        async with producer.transaction(Message(topic, b"but this")):
            pass
        await seen.count(1)
    assert seen.bodies == [b"but this"]


async def test_when_a_step_fails_the_broker_asks_and_the_checker_decides(
    servers: EmbeddedThread, clock: MovableClock, topic: str
) -> None:
    seen, asked = Seen(), list[tuple[str, bytes]]()

    async def checker(message: ReceivedMessage) -> bool:
        asked.append((message.topic, message.body))
        return message.body == b"done"

    async with (
        a_producer(servers, topic, checker) as producer,
        joined(servers, f"G-{topic}", topic, seen),
    ):
        for body in (b"done", b"not done"):
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction(Message(topic, body)):
                    _ = 1 / 0
        await producer.producer.client.beat()
        clock.advance(31)
        await seen.count(1)

        async def both() -> bool:
            return len(asked) == 2

        await eventually("the checker was asked about both", both)
    assert seen.bodies == [b"done"]
    assert sorted(asked) == [(topic, b"done"), (topic, b"not done")]


async def test_another_producer_of_the_group_answers_for_one_that_died(
    servers: EmbeddedThread, clock: MovableClock, topic: str
) -> None:
    seen = Seen()
    async with a_producer(servers, topic) as first:
        await first.prepare(Message(topic, b"orphan"))
    async with (
        TransactionProducer(f"P-{topic}", servers.namesrv, checker=lambda _: True) as second,
        joined(servers, f"G-{topic}", topic, seen),
    ):
        await second.producer.queues(topic)
        await second.producer.client.beat()
        clock.advance(31)
        await seen.count(1)
    assert seen.bodies == [b"orphan"]


async def test_a_checker_that_fails_or_does_not_know_is_asked_again(
    servers: EmbeddedThread, clock: MovableClock, topic: str
) -> None:
    seen, answers = Seen(), [ValueError("the database is away"), None, "nonsense", True]

    def checker(_message: ReceivedMessage) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with (
        a_producer(servers, topic, checker) as producer,
        joined(servers, f"G-{topic}", topic, seen),
    ):
        await producer.send(Message(topic, b"late"), lambda _: None)
        await producer.producer.client.beat()
        for left in (3, 2, 1, 0):

            async def asked(left: int = left) -> bool:
                clock.advance(31)
                return len(answers) <= left

            await eventually("the checker was asked", asked)
        await seen.count(1)
    assert seen.bodies == [b"late"]


async def test_nobody_is_asked_about_a_step_that_is_still_running(
    servers: EmbeddedThread, clock: MovableClock, topic: str
) -> None:
    seen, go_on = Seen(), asyncio.Event()

    async def slow(_transaction: Transaction) -> bool:
        await go_on.wait()
        return True

    async with a_producer(servers, topic) as producer, joined(servers, f"G-{topic}", topic, seen):
        sending = asyncio.create_task(producer.send(Message(topic, b"slow"), slow))

        async def is_prepared() -> bool:
            return bool(producer._running)

        await eventually("it is prepared", is_prepared)
        await producer.producer.client.beat()
        clock.advance(31)
        go_on.set()
        assert await sending is Decision.COMMIT
        await seen.count(1)


async def test_one_client_has_one_checker_for_a_group(servers: EmbeddedThread, topic: str) -> None:
    async with a_producer(servers, topic) as producer:
        other = TransactionProducer(producer.group, checker=never, client=producer.producer.client)
        with pytest.raises(UsageError, match="already has a transactional producer"):
            await other.start()


def test_the_blocking_producer_runs_steps_in_the_callers_thread(servers: EmbeddedThread, topic: str) -> None:
    here = threading.current_thread()
    with sync.TransactionProducer(f"P-{topic}", servers.namesrv, checker=never) as producer:

        def step(transaction: Transaction) -> bool:
            assert threading.current_thread() is here
            return bool(transaction.id)

        assert producer.send(Message(topic, b"1"), step) is Decision.COMMIT
        with producer.transaction(Message(topic, b"2")) as transaction:
            assert transaction.id


# Several messages, and messages that are answered.


@pytest.mark.parametrize("commits", [True, False])
async def test_several_messages_end_as_one_step_says(
    servers: EmbeddedThread, topic: str, commits: bool
) -> None:
    seen, steps = Seen(), list[int]()

    def step(transactions: list[Transaction]) -> bool:
        steps.append(len(transactions))
        return commits

    async with a_producer(servers, topic) as producer, joined(servers, f"G-{topic}", topic, seen):
        told = await producer.send_batch([Message(topic, b"1"), Message(topic, b"2")], step)
        assert told is (Decision.COMMIT if commits else Decision.ROLLBACK)
        await producer.send(Message(topic, b"last"), lambda _: True)
        await seen.count(3 if commits else 1)
        assert sorted(seen.bodies) == ([b"1", b"2", b"last"] if commits else [b"last"])
    assert steps == [2]


async def test_if_one_of_several_cannot_be_prepared_none_is_delivered(
    servers: EmbeddedThread, topic: str
) -> None:
    seen = Seen()
    async with a_producer(servers, topic) as producer, joined(servers, f"G-{topic}", topic, seen):
        with pytest.raises(MessageIllegal):
            await producer.send_batch(
                [Message(topic, b"1"), Message(topic, b"x" * (5 << 20))], lambda _: True
            )
        await producer.send(Message(topic, b"last"), lambda _: True)
        await seen.count(1)
        assert seen.bodies == [b"last"]


def test_blocking_steps_for_several_messages_run_in_the_callers_thread(
    servers: EmbeddedThread, topic: str
) -> None:
    threads: list[threading.Thread] = []

    def step(_transactions: list[Transaction]) -> bool:
        threads.append(threading.current_thread())
        return True

    with sync.TransactionProducer(f"P-{topic}", servers.namesrv, checker=never) as producer:
        assert producer.send_batch([Message(topic, b"1")], step) is Decision.COMMIT
    assert threads == [threading.main_thread()]


async def test_a_request_of_a_transaction_is_answered_once_it_is_committed(
    servers: EmbeddedThread, topic: str
) -> None:
    async with a_producer(servers, topic) as producer, Producer("repliers", servers.namesrv) as replier:

        async def answer(message: ReceivedMessage) -> None:
            await replier.reply(message, b"re:" + message.body)

        async with joined(servers, f"G-{topic}", topic, Seen(answer)):
            reply = await producer.request(Message(topic, b"paid?"), lambda _: True, 20)
            assert reply is not None
            assert reply.body == b"re:paid?"
            assert await producer.request(Message(topic, b"no"), lambda _: False, 20) is None


async def test_a_transaction_or_a_request_is_about_one_message(servers: EmbeddedThread, topic: str) -> None:
    messages: Any = [Message(topic, b"1"), Message(topic, b"2")]
    async with a_producer(servers, topic) as producer:
        with pytest.raises(UsageError, match="about one message, and got list: for several, use send_batch"):
            await producer.send(messages, lambda _: True)
        with pytest.raises(UsageError, match="a request is one message, and got list"):
            await producer.producer.request(messages)
