"""Sends that wait out an outage: late rather than failed.

A restarting broker refuses connections for some seconds, longer than a send's own attempts take. A program
that sends a stream of messages can wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from flaremq.base.backoff import Backoff, retry
from flaremq.base.errors import FlareError, NoNameServer
from flaremq.client.message import Receipt
from flaremq.client.producer.balance import QueueSelector
from flaremq.client.producer.packing import PackedMessage
from flaremq.client.producer.pipeline import InFlight
from flaremq.model.message import Message, MessageQueue
from flaremq.protocol.command import Command
from flaremq.remoting.connection import Connection

if TYPE_CHECKING:
    from flaremq.client.producer.producer import Producer

_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 2.0

T = TypeVar("T")


async def patiently(attempt: Callable[[], Awaitable[T]], patience_s: float) -> T:
    """Try until it succeeds, with growing pauses. Raises the last error if it is final, or time is up."""
    now_s = asyncio.get_running_loop().time
    backoff = Backoff(_PAUSE_S, _PAUSE_MAX_S, timeout_s=patience_s, now_s=now_s)
    return await retry(attempt, backoff, may_pass=may_pass, sleep=asyncio.sleep)


def may_pass(error: FlareError) -> bool:
    """Whether waiting may help. Not for a silent NameServer: mostly its address is wrong, and known routes do
    without it."""
    return error.retriable and not isinstance(error, NoNameServer)


class RetryingProducer:
    """A producer for pipelines that waits while no broker accepts a message."""

    def __init__(self, producer: Producer, patience_s: float) -> None:
        self._producer = producer
        self._patience_s = patience_s
        self.frames = producer.frames
        self.hooks = producer.hooks
        self.is_numbered = producer.is_numbered

    def number(self, message: Message | PackedMessage) -> str:
        return self._producer.number(message)

    def next_ids(self, count: int) -> list[str]:
        return self._producer.next_ids(count)

    def now_ms(self) -> int:
        return self._producer.now_ms()

    def placed_nowait(
        self, message: Message | PackedMessage, to: MessageQueue | QueueSelector | None
    ) -> tuple[MessageQueue, Connection] | None:
        return self._producer.placed_nowait(message, to)

    async def placed(
        self, message: Message | PackedMessage, to: MessageQueue | QueueSelector | None
    ) -> tuple[MessageQueue, Connection]:
        return await patiently(lambda: self._producer.placed(message, to), self._patience_s)

    async def placed_late(
        self, message: Message | PackedMessage, to: MessageQueue | QueueSelector | None
    ) -> tuple[MessageQueue, Connection]:
        return await self.placed(message, to)

    def has_other(self, topic: str) -> bool:
        return self._producer.has_other(topic)

    def receipt(
        self, answer: Command, queue: MessageQueue, address: str, code: int, message_id: str
    ) -> Receipt:
        return self._producer.receipt(answer, queue, address, code, message_id)

    async def again(
        self,
        in_flight: InFlight,
        to: MessageQueue | QueueSelector | None,
        error: FlareError,
        timeout_s: float,
    ) -> Receipt:
        try:
            return await self._producer.again(in_flight, to, error, timeout_s)
        except FlareError as last:
            if not may_pass(last):
                raise
        each_s = self._producer.settings.timeout_s
        return await patiently(lambda: self._producer.resend(in_flight, to, each_s), self._patience_s)
