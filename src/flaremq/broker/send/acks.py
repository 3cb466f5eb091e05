"""Holds the answers to sends until their messages are safe.

    append > [wait: flushed, replicated ...] > dispatch > answer

Each guarantee that a broker gives is a mark: how far the log is on the disk, how far on enough slaves, how
far committed by a majority. An answer waits until all of them have passed its message. One wait serves
everything that was appended in a turn; a broker without marks (ASYNC_FLUSH, no replicas) answers at once and
does not use this.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from flaremq.base.watermark import Watermark
from flaremq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

Finish: TypeAlias = Callable[[int], None]
"""Answers the waiting sends with this response code."""

_MARGIN_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Mark:
    """A watermark that a put waits for, and the response codes if it does not get there."""

    mark: Watermark
    late: ResponseCode
    """When the time is up: FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT ..."""
    failed: ResponseCode = ResponseCode.SYSTEM_ERROR
    """When the mark will never get there (`Watermark.fail`)."""
    absent: Callable[[int], ResponseCode | None] = lambda _end: None
    """Called for each put: a code means that waiting makes no sense, for example SLAVE_NOT_AVAILABLE."""


@dataclass(slots=True, frozen=True)
class _Held:
    end: int
    deadline_s: float
    finish: Finish


class Acks:
    """Answers held until every mark has passed the end of their messages, oldest first."""

    def __init__(self, marks: Sequence[Mark], timeout_s: float, show: Callable[[], None]) -> None:
        """`show` makes messages visible: once a producer has its answer, consumers can read the message."""
        self._marks = tuple(marks)
        self._show = show
        self._loop = asyncio.get_running_loop()
        self._held: deque[_Held] = deque()
        self._asked = False
        self._timer: asyncio.TimerHandle | None = None
        self._timeout_s = timeout_s
        self._idle = asyncio.Event()
        self._idle.set()
        self.needed = bool(self._marks)
        """Whether a put that asks to be safe has to wait."""
        for each in self._marks:
            each.mark.watch(self._moved)

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, end: int, finish: Finish) -> None:
        """Call `finish` when all marks have passed `end`, when one cannot, or when it is too late."""
        for each in self._marks:
            code = each.absent(end)
            if code is not None:
                finish(code)
                return
        deadline_s = self._loop.time() + self._timeout_s
        self._held.append(_Held(end, deadline_s, finish))
        self._idle.clear()
        if self._timer is None:
            self._timer = self._loop.call_at(deadline_s + _MARGIN_S, self._expire)
        if self._reached >= end or self._failure is not None:
            self._release()

    async def safe(self, end: int) -> int:
        """Wait until the log is safe up to `end`. The response code, as `hold` would answer with."""
        if not self.needed:
            return ResponseCode.SUCCESS
        answered: asyncio.Future[int] = self._loop.create_future()

        def finish(code: int) -> None:
            if not answered.done():  # The request may have been given up.
                answered.set_result(code)

        self.hold(end, finish)
        return await answered

    @property
    def _reached(self) -> int:
        """The position that all marks have passed."""
        return min(each.mark.value for each in self._marks)

    @property
    def _failure(self) -> ResponseCode | None:
        return next((each.failed for each in self._marks if each.mark.failure is not None), None)

    def _moved(self, _to: int) -> None:
        """Called in the thread that moved a mark: schedules `_release` in the loop, once."""
        if not self._asked:
            self._asked = True
            try:
                self._loop.call_soon_threadsafe(self._release)
            except RuntimeError:  # The loop has ended, and with it the connections that waited.
                self._asked = False

    def _release(self) -> None:
        self._asked = False
        reached = self._reached
        if self._held and reached >= self._held[0].end:
            self._show()
            while self._held and reached >= self._held[0].end:
                self._finish(self._held.popleft(), ResponseCode.SUCCESS)
        failure = self._failure
        if failure is not None:
            while self._held:
                self._finish(self._held.popleft(), failure)

    def _expire(self) -> None:
        self._timer = None
        self._release()
        now_s = self._loop.time()
        while self._held and self._held[0].deadline_s <= now_s:
            held = self._held.popleft()
            # A mark may have passed it a moment ago, in another thread.
            behind = (each.late for each in self._marks if each.mark.value < held.end)
            self._finish(held, next(behind, ResponseCode.SUCCESS))
        if self._held:
            self._timer = self._loop.call_at(self._held[0].deadline_s + _MARGIN_S, self._expire)

    def _finish(self, held: _Held, code: int) -> None:
        try:
            held.finish(code)
        except Exception:  # One answer that cannot be written must not hold back the others.
            log.exception("an answer could not be sent")
        if not self._held:
            self._idle.set()

    async def drain(self) -> None:
        """Wait until every held answer has been sent."""
        await self._idle.wait()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
