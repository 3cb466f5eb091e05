"""Load for `flaremq bench`: messages as fast as a window allows, or by a plan, and what came of them.

By a plan, the time of a message counts from when it should have been sent, not from when it was: a
broker that stalls is not spared because the stall also held up the one who measures.
"""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from flaremq.base.errors import FlareError
from flaremq.cli.histogram import Histogram
from flaremq.client.instance import Client
from flaremq.client.message import Receipt
from flaremq.client.pipeline import Pipeline, Under
from flaremq.client.producer import Producer
from flaremq.client.settings import ClientSettings, ProducerSettings
from flaremq.model.message import Message

_RUN: Final = 64
_TICK_S: Final = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be sent, and how."""

    topic: str
    size: int = 128
    connections: int = 1
    window: int = 256
    """Messages, or batches, that wait for their answers at a time, on each connection."""
    batch: int = 1
    rate: float = 0.0
    """Messages a second, of all connections; 0: as fast as it goes."""
    seconds: float = 10.0
    count: int = 0
    """Messages in all; 0: as many as the time allows."""
    tags: str | None = None


@dataclass(slots=True)
class Outcome:
    """What has been measured so far. Whoever shows it may look at any time."""

    stored: int = 0
    failed: int = 0
    last_error: str = ""
    latency: Histogram = field(default_factory=Histogram)
    lateness: Histogram = field(default_factory=Histogram)
    """How long after its time by the plan a message was sent."""
    began_s: float = 0.0
    ended_s: float = 0.0

    @property
    def elapsed_s(self) -> float:
        return (self.ended_s or perf_counter()) - self.began_s

    def note(self, stored: int, began_s: float) -> None:
        self.stored += stored
        self.latency.add(perf_counter() - began_s)

    def note_failure(self, error: FlareError) -> None:
        self.failed += 1
        self.last_error = str(error)


async def run(plan: Plan, settings: ClientSettings, outcome: Outcome) -> None:
    """All connections at once, until the plan is done."""
    producing = ProducerSettings(window=max(plan.window, 1), message_size_max=64 << 20, compress_over=1 << 30)
    clients = [Client(settings=settings) for _ in range(plan.connections)]
    producers = [Producer("PID_flaremq_bench", settings=producing, client=client) for client in clients]
    try:
        for producer in producers:
            await producer.client.start()
            await producer.start()
            await producer.send(Message(plan.topic, bytes(plan.size), tags=plan.tags))  # Connects, creates.
        outcome.began_s = perf_counter()
        await asyncio.gather(
            *(_line(plan, producer, number, outcome) for number, producer in enumerate(producers))
        )
        outcome.ended_s = perf_counter()
    finally:
        for producer in producers:
            await producer.stop()
            await producer.client.stop()


async def _line(plan: Plan, producer: Producer, number: int, outcome: Outcome) -> None:
    pace = Pace(plan, number, outcome)
    if plan.batch > 1:
        await asyncio.gather(*(_batches(plan, producer, pace, outcome) for _ in range(plan.window)))
        return
    pipeline = Timed(producer, plan.window, outcome)
    message = Message(plan.topic, bytes(plan.size), tags=plan.tags)
    try:
        while dues := await pace.next(min(_RUN, plan.window)):
            pipeline.begun.extend(dues)
            await pipeline.feed([message] * len(dues))
        await pipeline.finish()
    finally:
        pipeline.close()
    pipeline.settle()


async def _batches(plan: Plan, producer: Producer, pace: Pace, outcome: Outcome) -> None:
    messages = [Message(plan.topic, bytes(plan.size), tags=plan.tags)] * plan.batch
    while dues := await pace.next(plan.batch):
        try:
            await producer.send_batch(messages[: len(dues)])
        except FlareError as error:
            outcome.note_failure(error)
        else:
            outcome.note(len(dues), dues[0])


class Pace:
    """When messages of one connection are due."""

    def __init__(self, plan: Plan, number: int, outcome: Outcome) -> None:
        self._outcome = outcome
        self._begin_s = perf_counter()
        self._end_s = self._begin_s + (plan.seconds if not plan.count else math.inf)
        share, rest = divmod(plan.count, plan.connections)
        self._left = share + (number < rest) if plan.count else -1
        self._gap_s = plan.connections / plan.rate if plan.rate else 0.0
        self._given = 0

    async def next(self, most: int) -> Sequence[float]:
        """When each of the next messages was due, one at least; none when all is done."""
        if self._left >= 0:
            most = min(most, self._left)
        now_s = perf_counter()
        if not most or now_s >= self._end_s:
            return ()
        if not self._gap_s:
            self._left -= most if self._left >= 0 else 0
            return (now_s,) * most
        return await self._by_plan(most)

    async def _by_plan(self, most: int) -> Sequence[float]:
        due_s = self._begin_s + self._given * self._gap_s
        if due_s >= self._end_s:
            return ()
        while (now_s := perf_counter()) < due_s:
            await asyncio.sleep(max(due_s - now_s, _TICK_S / 2))
        count = min(most, int((now_s - due_s) / self._gap_s) + 1)
        dues = [due_s + step * self._gap_s for step in range(count)]
        self._given += count
        self._left -= count if self._left >= 0 else 0
        self._outcome.lateness.extend(now_s - each for each in dues)
        return dues


class Timed(Pipeline):
    """A pipeline that notes how long each message took, and keeps nothing else of it."""

    def __init__(self, producer: Producer, window: int, outcome: Outcome) -> None:
        super().__init__(producer, window, producer.settings.timeout_s)
        self._outcome = outcome
        self.begun: array[float] = array("d")

    def stored(self, under: Under, receipt: Receipt) -> None:
        super().stored(under, receipt)
        self._outcome.note(1, self.begun[under.place])

    def settle(self) -> None:
        """Count what did not go the quick way: tried again, or failed."""
        for _, error in self._failed:
            self._outcome.note_failure(error)
