"""Lanes: one request of a queue at a time, in order, whatever happens to it; queues side by side."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

import pytest

from flaremq.base.errors import FlareError, MessageIllegal, ServiceStops
from flaremq.client.message import Receipt
from flaremq.client.producer.batching import Batcher
from flaremq.client.producer.packing import PackedMessage
from flaremq.model.batch import FIXED_SIZE
from flaremq.model.message import MessageQueue

A, B = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


def message(number: int, *, alone: bool = False, size: int = 4, topic: str = "T") -> PackedMessage:
    return PackedMessage(topic, f"{number:0{size}d}".encode(), "", f"id{number}", None, alone)


class Broker:
    """Keeps what it is sent; fails when it is told to."""

    def __init__(self) -> None:
        self.stored: dict[MessageQueue | None, list[list[int]]] = defaultdict(list)
        self.failures: list[FlareError] = []
        self.open = asyncio.Event()
        self.open.set()
        self._under_way: dict[MessageQueue | None, int] = defaultdict(int)
        self.most = 0
        """Requests that were under way together, all queues counted."""

    async def send_ready(
        self, messages: Sequence[PackedMessage], to: MessageQueue | None, timeout_s: float | None = None
    ) -> Receipt:
        self._under_way[to] += 1
        assert to is None or self._under_way[to] == 1, "two requests of one queue"
        assert len({each.topic for each in messages}) == 1, "two topics in one request"
        self.most = max(self.most, sum(self._under_way.values()))
        try:
            await self.open.wait()
            await asyncio.sleep(0)
            if self.failures:
                raise self.failures.pop(0)
            self.stored[to].append([int(each.body) for each in messages])
        finally:
            self._under_way[to] -= 1
        return Receipt("", to or A, 0, "")


async def test_what_gathers_goes_together_and_in_order() -> None:
    broker = Broker()
    lanes = Batcher(broker, 1.0)
    broker.open.clear()
    for number in range(100):
        lanes.add((A, B)[number % 2], [message(number)])
        await asyncio.sleep(0)
    broker.open.set()
    await lanes.finish()
    for queue, first in ((A, 0), (B, 1)):
        assert [n for batch in broker.stored[queue] for n in batch] == list(range(first, 100, 2))
        assert len(broker.stored[queue]) == 2  # The first went alone, all others waited for it.
    assert broker.most == 2
    await lanes.aclose()


async def test_batches_end_at_their_size_and_at_messages_that_go_alone() -> None:
    broker = Broker()
    lanes = Batcher(broker, 1.0, size_max=2 * (FIXED_SIZE + 4))
    numbers = [message(n, alone=n == 3) for n in range(6)] + [message(6, size=100), message(7)]
    lanes.add(A, numbers)
    await lanes.finish()
    assert broker.stored[A] == [[0, 1], [2], [3], [4, 5], [6], [7]]


async def test_a_passing_failure_is_tried_again_in_its_place() -> None:
    broker = Broker()
    broker.failures = [ServiceStops("broker-a is shutting down")]
    lanes = Batcher(broker, 5.0)
    lanes.add(A, [message(n, alone=True) for n in range(3)])
    await lanes.finish()
    assert broker.stored[A] == [[0], [1], [2]]


async def test_what_fails_for_good_ends_all_and_is_raised() -> None:
    broker = Broker()
    broker.failures = [MessageIllegal("no")]
    lanes = Batcher(broker, 5.0)
    lanes.add(A, [message(n, alone=True) for n in range(3)])
    with pytest.raises(MessageIllegal, match="no"):
        await lanes.finish()
    with pytest.raises(MessageIllegal, match="no"):
        await lanes.room(1000)
    assert not broker.stored[A]
    await lanes.aclose()


async def test_whoever_feeds_waits_for_room() -> None:
    broker = Broker()
    broker.open.clear()
    lanes = Batcher(broker, 5.0)
    lanes.add(A, [message(n, alone=True) for n in range(4)])
    waiting = asyncio.create_task(lanes.room(2))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    broker.open.set()
    await waiting
    assert len(broker.stored[A]) >= 2
    await lanes.aclose()


async def test_lanes_without_a_queue_take_any_topic_and_run_side_by_side() -> None:
    broker = Broker()
    lanes = Batcher(broker, 1.0)
    broker.open.clear()
    lanes.add(0, [message(n, topic="T" if n < 3 else "U") for n in range(5)])
    lanes.add(1, [message(n) for n in range(5, 8)])
    for _ in range(10):
        await asyncio.sleep(0)
    assert broker.most == 2
    broker.open.set()
    await lanes.finish()
    assert sorted(broker.stored[None]) == [[0, 1, 2], [3, 4], [5, 6, 7]]
