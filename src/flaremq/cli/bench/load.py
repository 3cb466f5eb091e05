"""Load for `flaremq bench`: messages as fast as a window allows, or by a plan, and their outcome.

With a plan, the time of a message counts from when it was due, not from when it was sent: a broker that
stalls is not spared because the stall also held up the sender.
"""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from flaremq.base.errors import FlareError
from flaremq.cli.bench.histogram import LatencyHistogram
from flaremq.client.client import Client
from flaremq.client.message import Receipt
from flaremq.client.producer.pipeline import InFlight, SendPipeline
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ClientSettings, ProducerSettings
from flaremq.model.message import Message
from flaremq.protocol.command import Command

_RUN: Final = 64
_TICK_S: Final = 0.002
_REST_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """The messages to send, and how to send them."""

    topic: str
    size: int = 128
    connections: int = 1
    window: int = 256
    """Messages, or batches, in flight at a time on each connection."""
    batch: int = 1
    rate: float = 0.0
    """Messages per second on all connections; 0: as fast as possible."""
    seconds: float = 10.0
    count: int = 0
    """Total number of messages; 0: as many as the time allows."""
    tags: str | None = None


@dataclass(slots=True)
class Outcome:
    """The measurements so far. They may be read at any time."""

    stored: int = 0
    failed: int = 0
    unsent: int = 0
    """Messages that were due but not sent, because those before them were held up."""
    last_error: str = ""
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    lateness: LatencyHistogram = field(default_factory=LatencyHistogram)
    """How long after it was due a message was sent."""
    began_s: float = 0.0
    ended_s: float = 0.0

    @property
    def elapsed_s(self) -> float:
        return (self.ended_s or perf_counter()) - self.began_s if self.began_s else 0.0

    @property
    def rate(self) -> float:
        """Stored messages per second."""
        return self.stored / self.elapsed_s if self.elapsed_s else 0.0

    def note(self, stored: int, began_s: float) -> None:
        self.stored += stored
        self.latency.add(perf_counter() - began_s, stored)

    def note_failure(self, error: FlareError, count: int = 1) -> None:
        self.failed += count
        self.last_error = str(error)


async def run(plan: LoadPlan, settings: ClientSettings, outcome: Outcome) -> None:
    """Send on all connections at once, until the plan is done. The first message of each is not counted."""
    producing = ProducerSettings(window=plan.window, message_size_max=64 << 20, compress_over=1 << 30)
    async with AsyncExitStack() as stack:
        producers: list[Producer] = []
        for _ in range(plan.connections):
            client = await stack.enter_async_context(Client(settings=settings))
            producer = Producer("PID_flaremq_bench", settings=producing, client=client)
            producers.append(await stack.enter_async_context(producer))
            await producer.send(
                Message(plan.topic, bytes(plan.size), tags=plan.tags)
            )  # Connects; creates it.
        outcome.began_s = perf_counter()
        try:
            await asyncio.gather(
                *(_line(plan, producer, number, outcome) for number, producer in enumerate(producers))
            )
        finally:
            outcome.ended_s = perf_counter()


async def _line(plan: LoadPlan, producer: Producer, number: int, outcome: Outcome) -> None:
    pace = LoadPace(plan, number, outcome)
    if plan.batch > 1:
        await asyncio.gather(*(_batches(plan, producer, pace, outcome) for _ in range(plan.window)))
        return
    pipeline = Timed(producer, plan.window, outcome)
    message = Message(plan.topic, bytes(plan.size), tags=plan.tags)
    try:
        while dues := await pace.next(min(_RUN, plan.window)):
            await pipeline.timed([message] * len(dues), dues)
        await pipeline.finish()
    finally:
        pipeline.close()


async def _batches(plan: LoadPlan, producer: Producer, pace: LoadPace, outcome: Outcome) -> None:
    messages = [Message(plan.topic, bytes(plan.size), tags=plan.tags)] * plan.batch
    while dues := await pace.next(plan.batch):
        try:
            await producer.send_batch(messages[: len(dues)])
        except FlareError as error:
            outcome.note_failure(error, len(dues))
        else:
            outcome.note(len(dues), dues[0])


class LoadPace:
    """When the messages of one connection are due. Those of a batch are due together."""

    def __init__(self, plan: LoadPlan, number: int, outcome: Outcome) -> None:
        self._outcome = outcome
        self._batch = plan.batch
        self._begin_s = perf_counter()
        self._end_s = self._begin_s + (plan.seconds if not plan.count else math.inf)
        self._left = _share(plan, number)
        self._gap_s = plan.connections / plan.rate if plan.rate else 0.0
        self._given = 0
        self._turn = asyncio.Lock()

    async def next(self, most: int) -> Sequence[float]:
        """When each of the next messages was due: at least one, or none at the end of the plan."""
        if self._gap_s:
            async with self._turn:
                return await self._by_plan(most)
        now_s, count = perf_counter(), int(min(most, self._left))
        if now_s >= self._end_s:
            return ()
        self._left -= count
        return (now_s,) * count

    async def _by_plan(self, most: int) -> Sequence[float]:
        if not self._left:
            return ()
        due_s = self._due_s(self._given)
        while (now_s := perf_counter()) < due_s:
            await asyncio.sleep(max(due_s - now_s, _TICK_S / 2))
        if now_s >= self._end_s:
            # The end of the plan does not move: if the broker is too slow, some messages are left.
            self._outcome.unsent += int(self._left)
            self._left = 0
            return ()
        passed = int((now_s - self._begin_s) / self._gap_s) // self._batch * self._batch
        count = int(min(most, max(passed - self._given, 0) + self._batch, self._left))
        dues = [self._due_s(self._given + step) for step in range(count)]
        self._given += count
        self._left -= count
        self._outcome.lateness.extend(now_s - each for each in dues)
        return dues

    def _due_s(self, number: int) -> float:
        return self._begin_s + number // self._batch * self._batch * self._gap_s


def _share(plan: LoadPlan, number: int) -> float:
    """How many messages of the plan this connection sends; infinite if only time ends it."""
    if plan.count:
        share, rest = divmod(plan.count, plan.connections)
        return share + (number < rest)
    if not plan.rate:
        return math.inf
    # Counted once: comparing times instead could gain or lose a message by rounding.
    batches = plan.seconds * plan.rate / plan.connections / plan.batch
    return math.ceil(round(batches, 6)) * plan.batch


class Timed(SendPipeline):
    """A pipeline that notes how long each message took, and nothing else.

    Failed messages are not retried: a later attempt would count as another message.
    """

    def __init__(self, producer: Producer, window: int, outcome: Outcome) -> None:
        super().__init__(producer, window, producer.settings.timeout_s)
        self._outcome = outcome
        self._begun: array[float] = array("d")

    async def timed(self, part: Sequence[Message], dues: Sequence[float]) -> None:
        """Feed these messages, which were due at these times."""
        self._begun.extend(dues)
        first = len(self._results)
        await self.feed(part)
        unplaced = [each for each in self._results[first:] if isinstance(each, FlareError)]
        for error in unplaced:
            self._outcome.note_failure(error)
        if unplaced:
            await asyncio.sleep(_REST_S)  # No broker to send to: nothing else would wait.

    def stored(self, under: InFlight, address: str, receipt: Receipt) -> None:  # noqa: ARG002
        """Only when it came matters."""
        self._outstanding -= 1
        self._progress.set()
        self._outcome.note(1, self._begun[under.place])

    def answered(self, under: InFlight, address: str, answer: Command) -> None:
        super().answered(under, address, answer)
        if self._results[under.place] is not None:  # Stored, by an answer of another form than usual.
            self._results[under.place] = None
            self._outcome.note(1, self._begun[under.place])
        self._count_failures()

    def lost(self, under: InFlight, address: str, error: FlareError) -> None:
        super().lost(under, address, error)
        self._count_failures()

    def _count_failures(self) -> None:
        for _, error, _ in self._failed:
            self._outcome.note_failure(error)
        self._failed.clear()
