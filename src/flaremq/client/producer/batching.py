"""Messages gathered into batches: lanes with one request in flight at a time in each.

A broker may store two requests for one queue in either order, however they were written. So messages whose
order matters use the lane of their queue, where the next request waits for the answer to the last. Messages
that gather meanwhile are sent as one batch; lanes do not wait for each other. A request that failed for a
passing reason is sent again to the same queue, because another queue would change the order: it may then be
stored twice, but never behind its successors.

Messages whose order does not matter use lanes with a number and no queue, wherever there is room.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeAlias

from flaremq.base.units import KiB
from flaremq.client.message import Receipt
from flaremq.client.producer.packing import PackedMessage
from flaremq.client.producer.retry import patiently
from flaremq.model.message import MessageQueue

BATCH_SIZE_MAX: Final = 512 * KiB
_BATCH_COUNT_MAX: Final = 1024
"""The answer lists the id of every message in a batch, so batches are kept short."""


class BatchSender(Protocol):
    """The producer, as a batcher needs it."""

    async def send_ready(
        self, messages: Sequence[PackedMessage], to: MessageQueue | None, timeout_s: float | None = None
    ) -> Receipt: ...


LaneKey: TypeAlias = MessageQueue | int
"""A queue, or the number of a lane for any queue."""


class Batcher:
    """All lanes of one sender. A final failure in one stops all: `room` and `finish` raise it."""

    def __init__(
        self,
        sends: BatchSender,
        timeout_s: float,
        size_max: int = BATCH_SIZE_MAX,
        patience_s: float | None = None,
    ) -> None:
        """A message larger than `size_max` is sent alone. `patience_s` is for all attempts together."""
        self._sends = sends
        self._timeout_s = timeout_s
        self._patience_s = timeout_s if patience_s is None else patience_s
        self._size_max = size_max
        self._waiting: dict[LaneKey, deque[PackedMessage]] = {}
        self._working: dict[LaneKey, asyncio.Task[None]] = {}
        self._outstanding = 0
        self._progress = asyncio.Event()
        self._error: Exception | None = None

    def add(self, lane: LaneKey, messages: Iterable[PackedMessage]) -> None:
        """Queue them after the messages that the lane already has."""
        waiting = self._waiting.setdefault(lane, deque())
        before = len(waiting)
        waiting.extend(messages)
        self._outstanding += len(waiting) - before
        if waiting and lane not in self._working:
            self._working[lane] = asyncio.create_task(self._work(lane, waiting), name=f"lane-{lane}")

    async def room(self, at_most: int) -> None:
        """Wait until at most this many messages are outstanding."""
        while self._outstanding > at_most and self._error is None:
            self._progress.clear()
            await self._progress.wait()
        if self._error is not None:
            raise self._error

    async def finish(self) -> None:
        await self.room(0)

    async def aclose(self) -> None:
        """Give up outstanding messages. Needed after a failure, and safe at any time."""
        working = list(self._working.values())
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)

    async def _work(self, lane: LaneKey, waiting: deque[PackedMessage]) -> None:
        to = lane if isinstance(lane, MessageQueue) else None
        try:
            while waiting and self._error is None:
                batch = self._batch(waiting)
                await self._send(batch, to)
                self._outstanding -= len(batch)
                self._progress.set()
        except Exception as error:  # noqa: BLE001 - Raised by `room` and `finish`.
            self._error = self._error or error
        finally:
            self._working.pop(lane, None)
            self._progress.set()

    def _batch(self, waiting: deque[PackedMessage]) -> list[PackedMessage]:
        first = waiting.popleft()
        batch, room = [first], self._size_max - first.batched_size
        while waiting and not first.alone and len(batch) < _BATCH_COUNT_MAX:
            following = waiting[0]
            room -= following.batched_size
            if following.alone or room < 0 or following.topic != first.topic:
                break
            batch.append(waiting.popleft())
        return batch

    async def _send(self, batch: list[PackedMessage], to: MessageQueue | None) -> None:
        await patiently(lambda: self._sends.send_ready(batch, to, self._timeout_s), self._patience_s)
