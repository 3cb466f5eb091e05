"""What consumers do by the clock, told in real seconds: locks, pulls that nobody answers, older brokers."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import pytest
from tests.client.consumer.fakebroker import QUEUE, TOPIC, FakeBroker, consuming
from tests.client.consumer.tools import FIRST, Seen, numbered
from tests.client.leaps import LoopClock, leaping, reach

from flaremq.client.client import Client
from flaremq.client.consumer.litepull import LitePullConsumer
from flaremq.client.message import ReceivedMessage
from flaremq.client.settings import ConsumerSettings
from flaremq.protocol.codes import RequestCode

LOCK, PULL, LITE_PULL = RequestCode.LOCK_BATCH_MQ, RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE


def now_s() -> float:
    return asyncio.get_running_loop().time()


def gaps(times: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


# Locks.


def test_an_orderly_consumer_renews_its_locks_every_twenty_seconds() -> None:
    async def story() -> None:
        async with FakeBroker() as broker, consuming(broker, Seen(), orderly=True) as consumer:
            await reach(130)
            assert QUEUE in consumer.assignment
            assert consumer._assignment.queues[QUEUE].is_locked(now_s())
            times = broker.times(LOCK)
            assert len(times) == 7
            assert gaps(times) == pytest.approx([20] * 6, abs=0.5)

    leaping(story())


def test_who_consumes_without_order_asks_for_no_locks() -> None:
    async def story() -> None:
        async with FakeBroker() as broker, consuming(broker, Seen()):
            await reach(60)
            assert not broker.times(LOCK)

    leaping(story())


def test_a_lock_that_nobody_renews_counts_for_thirty_seconds_and_then_nothing_is_consumed() -> None:
    async def story() -> None:
        seen = Seen()
        async with FakeBroker() as broker, consuming(broker, seen, orderly=True) as consumer:
            broker.answers_locks = False  # The broker is there, but has no answer: nobody says no.
            await reach(29)
            broker.put(b"in time")
            await seen.count(1)
            await reach(31)
            broker.put(b"too late")
            await reach(39)
            assert seen.bodies == [b"in time"]
            assert consumer._assignment.queues[QUEUE].count == 1
            broker.answers_locks = True
            await seen.count(2, 60)
            assert now_s() < 70
            assert seen.bodies == [b"in time", b"too late"]

    leaping(story())


def test_a_lock_that_is_refused_ends_consuming_at_once_and_another_yes_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        seen = Seen()
        async with FakeBroker() as broker, consuming(broker, seen, orderly=True):
            broker.gives_locks = False
            await reach(21)
            broker.put(b"not ours")
            await reach(39)
            assert not seen.messages
            broker.gives_locks = True
            await seen.count(1)
            assert now_s() < 41

    leaping(story())
    assert [each.message for each in caplog.records if "lost the lock" in each.message] == [
        f"group G lost the lock on {QUEUE}"
    ]


def test_offsets_are_not_stored_by_who_may_have_lost_the_lock() -> None:
    async def story() -> None:
        seen = Seen()
        async with FakeBroker() as broker, consuming(broker, seen, orderly=True):
            broker.put(*numbered(3))
            await seen.count(3)
            await reach(6)
            assert broker.committed == 3
            broker.answers_locks = False
            await reach(35)
            broker.committed = 7  # Whoever has it now is further.
            await reach(39)
        assert broker.committed == 7

    leaping(story())


# Pulls that nobody answers.


def test_a_queue_of_which_nothing_was_asked_for_two_minutes_begins_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        seen = Seen()
        async with (
            FakeBroker(ignores_pulls=1) as broker,
            consuming(broker, seen, pull_timeout_s=10_000.0) as consumer,
        ):
            broker.put(b"one")
            before = consumer._assignment.queues[QUEUE]
            await reach(119)
            assert not seen.messages and len(broker.times(PULL)) == 1
            await seen.count(1, 60)
            assert 120 < now_s() < 145  # The next round of sharing out finds it.
            assert before.dropped and consumer._assignment.queues[QUEUE] is not before

    leaping(story())
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert [each.message for each in warnings if each.name.startswith("flaremq.client")] == [
        f"group G: no pull from {QUEUE} for a long time: starting it again"
    ]


def test_a_pull_without_an_answer_is_given_up_and_asked_again() -> None:
    async def story() -> None:
        seen = Seen()
        async with FakeBroker(ignores_pulls=1) as broker, consuming(broker, seen):
            broker.put(b"one")
            await seen.count(1, 60)
            assert 30 <= now_s() < 35

    leaping(story())


def test_a_queue_that_waits_for_its_handler_is_not_begun_anew() -> None:
    async def story() -> None:
        release, begun = asyncio.Event(), list[bytes]()

        async def handler(message: ReceivedMessage) -> None:
            begun.append(message.body)
            await release.wait()

        async with FakeBroker() as broker, consuming(broker, handler, queue_count_max=2) as consumer:
            before = consumer._assignment.queues[QUEUE]
            broker.put(*numbered(4))
            await reach(400)
            assert consumer._assignment.queues[QUEUE] is before and not before.dropped
            assert sorted(begun) == numbered(4)
            release.set()
            await reach(410)
            assert broker.committed == 4 and len(begun) == 4

    leaping(story())


# Older brokers.


def test_a_broker_that_knows_no_lite_pulls_is_asked_for_plain_ones() -> None:
    async def story() -> None:
        async with (
            FakeBroker(lacks=frozenset({LITE_PULL})) as broker,
            Client(broker.address, clock=LoopClock()) as client,
            LitePullConsumer("G", settings=ConsumerSettings(start_from=FIRST), client=client) as consumer,
        ):
            consumer.subscribe(TOPIC)
            broker.put(*numbered(3))
            found = [message.body for message in await consumer.poll(10.0)]
            broker.put(b"more")
            found += [message.body for message in await consumer.poll(10.0)]
            assert found == [*numbered(3), b"more"]
            await consumer.commit()
            assert broker.committed == 4
            assert len(broker.times(PULL)) >= 2
            assert now_s() < 5  # Nobody rested because of it.

    leaping(story())


def test_a_broker_that_knows_lite_pulls_is_asked_for_no_others() -> None:
    async def story() -> None:
        async with (
            FakeBroker() as broker,
            Client(broker.address, clock=LoopClock()) as client,
            LitePullConsumer("G", settings=ConsumerSettings(start_from=FIRST), client=client) as consumer,
        ):
            consumer.subscribe(TOPIC)
            broker.put(*numbered(3))
            assert [message.body for message in await consumer.poll(10.0)] == numbered(3)
            assert broker.times(LITE_PULL) and not broker.times(PULL)

    leaping(story())
