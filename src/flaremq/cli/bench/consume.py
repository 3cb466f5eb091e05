"""Consumers for `flaremq bench`: they count messages and measure their age."""

from __future__ import annotations

import asyncio
import struct
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

from flaremq.base.errors import FlareError, NoRoute, TopicNotFound
from flaremq.cli.bench import load
from flaremq.cli.bench.histogram import LatencyHistogram
from flaremq.client.client import Client
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.message import ReceivedMessage
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ClientSettings, ConsumerSettings
from flaremq.model.message import Message
from flaremq.protocol.bodies.group import ConsumeFromWhere

_STAMP: Final = struct.Struct(">Qd")  # Which run of the bench, and when the message was due.
STAMP_SIZE: Final = _STAMP.size
_LAST_S: Final = 3.0  # For messages that are in flight when the sending ends.
_QUEUES_LIMIT_S: Final = 30.0
_BATCH: Final = 32
_PING_GROUP: Final = "GID_flaremq_bench_latency"


class Received:
    """The messages received so far."""

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self.age = LatencyHistogram()
        self.first_s = self.last_s = 0.0
        self._seen = (perf_counter(), 0)

    @property
    def elapsed_s(self) -> float:
        """From the first message to the last: a consumer takes a moment to find its queues."""
        return self.last_s - self.first_s

    def rate(self) -> float:
        """The rate since the last call."""
        now_s, (then_s, before) = perf_counter(), self._seen
        self._seen = now_s, self.count
        return (self.count - before) / max(now_s - then_s, 1e-9)

    def note(self, messages: list[ReceivedMessage], age_s: float) -> None:
        now_s = perf_counter()
        if not self.count:
            self.first_s = now_s
        self.last_s = now_s
        self.count += len(messages)
        self.size += sum([each.size for each in messages])
        self.age.add(age_s, len(messages))


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """The consumers, their topic and the duration."""

    topic: str
    group: str
    consumers: int = 1
    seconds: float = 10.0
    begin: bool = True
    """A new group begins at the oldest message, not at the newest."""


async def follow(wanted: Following, settings: ClientSettings, received: Received) -> None:
    """Consume for the duration."""

    async def handle(messages: list[ReceivedMessage]) -> None:
        received.note(messages, max(time.time() - messages[0].store_timestamp_ms / 1000, 0.0))

    where = (
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        if wanted.begin
        else ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    )
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(settings=settings))
        if await client.routes.refresh(wanted.topic) is None:
            raise TopicNotFound(
                f"topic {wanted.topic!r} is unknown: see `flaremq topic list`, or send to it first"
            )
        for _ in range(wanted.consumers):
            taking = ConsumerSettings(start_from=where, batch_max=_BATCH)
            consumer = PushConsumer(wanted.group, settings=taking, client=settings)
            consumer.subscribe(wanted.topic, handler=handle)
            await stack.enter_async_context(consumer)
        await asyncio.sleep(wanted.seconds)


async def ping(
    plan: load.LoadPlan, settings: ClientSettings, outcome: load.Outcome, received: Received
) -> None:
    """Send messages by a plan, each with its time in it, and consume them to measure the delay.

    The consumer broadcasts, and its offsets are thrown away: each run begins at the end of the topic, no
    offset stays on the broker, and two concurrent runs do not take each other's messages.
    """
    run = time.time_ns()

    async def handle(messages: list[ReceivedMessage]) -> None:
        for message in messages:
            if len(message.body) < STAMP_SIZE:
                continue
            number, due_s = _STAMP.unpack_from(message.body)
            if number == run:
                received.note([message], perf_counter() - due_s)

    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flaremq-bench-")))
        client = await stack.enter_async_context(Client(settings=settings))
        producer = await stack.enter_async_context(Producer("PID_flaremq_bench", client=client))
        await producer.send(Message(plan.topic, bytes(plan.size)))
        taking = ConsumerSettings(broadcasting=True, batch_max=_BATCH, offsets_folder=folder)
        consumer = PushConsumer(_PING_GROUP, settings=taking, client=settings)
        consumer.subscribe(plan.topic, handler=handle)
        await stack.enter_async_context(consumer)
        await _has_queues(consumer, client, plan.topic)
        outcome.began_s = perf_counter()
        try:
            await _by_plan(plan, producer, run, outcome)
        finally:
            outcome.ended_s = perf_counter()
        deadline_s = perf_counter() + _LAST_S
        while received.count < outcome.stored and perf_counter() < deadline_s:
            await asyncio.sleep(0.02)


async def _has_queues(consumer: PushConsumer, client: Client, topic: str) -> None:
    """Wait for the queues of a consumer: messages sent before that would be late, or missed."""
    deadline_s = perf_counter() + _QUEUES_LIMIT_S
    while perf_counter() < deadline_s:
        route = await client.routes.refresh(topic)
        if route is not None and route.readable and consumer.assignment.issuperset(route.readable):
            return
        await asyncio.sleep(0.02)
    raise NoRoute(
        f"a consumer did not get the queues of topic {topic!r} within {_QUEUES_LIMIT_S:g} s: "
        "see `flaremq topic route`"
    )


async def _by_plan(plan: load.LoadPlan, producer: Producer, run: int, outcome: load.Outcome) -> None:
    pace = load.LoadPace(plan, 0, outcome)
    padding = bytes(plan.size - STAMP_SIZE)
    under_way: set[asyncio.Task[None]] = set()

    async def one(due_s: float) -> None:
        try:
            await producer.send(Message(plan.topic, _STAMP.pack(run, due_s) + padding))
        except FlareError as error:
            outcome.note_failure(error)
        else:
            outcome.note(1, due_s)

    try:
        while dues := await pace.next(64):
            for due_s in dues:
                task = asyncio.create_task(one(due_s))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
        if under_way:
            await asyncio.wait(under_way)
    finally:
        for task in under_way:
            task.cancel()
