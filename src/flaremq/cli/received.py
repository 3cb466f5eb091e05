"""Consumers for `flaremq bench`: they count, and look at how old a message is."""

from __future__ import annotations

import asyncio
import struct
import time
from contextlib import AsyncExitStack
from time import perf_counter
from typing import Final

from flaremq.base.errors import FlareError
from flaremq.cli import load
from flaremq.cli.histogram import Histogram
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.instance import Client
from flaremq.client.message import ReceivedMessage
from flaremq.client.producer import Producer
from flaremq.client.settings import ClientSettings, ConsumerSettings
from flaremq.model.message import Message
from flaremq.protocol.bodies.group import ConsumeFromWhere

_STAMP: Final = struct.Struct(">Qd")  # Which run of the bench, and when the message was due.
_LAST_S: Final = 3.0  # For messages that are under way when the sending ends.


class Received:
    """What has come so far."""

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self.age = Histogram()
        self.first_s = self.last_s = 0.0
        self._seen = (perf_counter(), 0)

    @property
    def elapsed_s(self) -> float:
        """From the first message to the last: a consumer takes a moment to find its queues."""
        return self.last_s - self.first_s

    def rate(self) -> float:
        """Since it was asked for last."""
        now_s, (then_s, before) = perf_counter(), self._seen
        self._seen = now_s, self.count
        return (self.count - before) / max(now_s - then_s, 1e-9)

    def note(self, messages: list[ReceivedMessage]) -> None:
        now_s = perf_counter()
        if not self.count:
            self.first_s = now_s
        self.last_s = now_s
        self.count += len(messages)
        self.size += sum([each.size for each in messages])


async def follow(
    received: Received,
    settings: ClientSettings,
    topic: str,
    group: str,
    consumers: int,
    seconds: float,
    *,
    begin: bool,
) -> None:
    """Consume for so long."""

    async def handle(messages: list[ReceivedMessage]) -> None:
        received.note(messages)
        received.age.add(max(time.time() - messages[0].store_timestamp_ms / 1000, 0.0))

    async with AsyncExitStack() as stack:
        for _ in range(consumers):
            await stack.enter_async_context(_consumer(settings, topic, group, handle, begin=begin))
        await asyncio.sleep(seconds)


async def ping(plan: load.Plan, settings: ClientSettings, outcome: load.Outcome, received: Received) -> None:
    """Messages by a plan, each with its time in it, and a consumer that reads the times."""
    run = time.time_ns()

    async def handle(messages: list[ReceivedMessage]) -> None:
        for message in messages:
            number, due_s = _STAMP.unpack_from(message.body)
            if number == run:
                received.note([message])
                received.age.add(perf_counter() - due_s)

    async with (
        Client(settings=settings) as client,
        Producer("PID_flaremq_bench", client=client) as producer,
    ):
        await producer.send(Message(plan.topic, bytes(plan.size)))
        async with _consumer(
            settings, plan.topic, f"GID_flaremq_ping_{run}", handle, begin=False
        ) as consumer:
            await _has_queues(consumer)
            outcome.began_s = perf_counter()
            await _by_plan(plan, producer, run, outcome)
            outcome.ended_s = perf_counter()
            deadline_s = perf_counter() + _LAST_S
            while received.count < outcome.stored and perf_counter() < deadline_s:
                await asyncio.sleep(0.02)


async def _has_queues(consumer: PushConsumer) -> None:
    """What is sent before a consumer has its queues would look late."""
    deadline_s = perf_counter() + 30
    while not consumer.assignment and perf_counter() < deadline_s:
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.2)


async def _by_plan(plan: load.Plan, producer: Producer, run: int, outcome: load.Outcome) -> None:
    pace = load.Pace(plan, 0, outcome)
    padding = bytes(plan.size - _STAMP.size)
    under_way: set[asyncio.Task[None]] = set()

    async def one(due_s: float) -> None:
        try:
            await producer.send(Message(plan.topic, _STAMP.pack(run, due_s) + padding))
        except FlareError as error:
            outcome.note_failure(error)
        else:
            outcome.note(1, due_s)

    while dues := await pace.next(64):
        for due_s in dues:
            task = asyncio.create_task(one(due_s))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
    if under_way:
        await asyncio.wait(under_way)


def _consumer(
    settings: ClientSettings, topic: str, group: str, handle: object, *, begin: bool
) -> PushConsumer:
    where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET if begin else ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consumer = PushConsumer(group, settings=ConsumerSettings(start_from=where, batch_max=32), client=settings)
    consumer.subscribe(topic, handler=handle)  # type: ignore[arg-type]
    return consumer
