"""Holds the answers to sends until their messages are safe.

    append > [wait: flushed, replicated ...] > answer > dispatch

Each guarantee that a broker gives is a mark: how far the log is on the disk, how far on enough slaves, how
far committed by a majority. An answer waits until all of them have passed its message. One wait serves
everything that was appended in a turn; a broker without marks (ASYNC_FLUSH, no replicas) answers at once and
does not use this.

The waits for several marks run side by side, each until its own deadline, so a slow slave does not lengthen
the wait for the disk. If several end badly, the code of the last mark counts: as in RocketMQ, where what
became of the slaves outranks what became of the disk.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
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
    """A watermark that a put waits for, how long, and the response codes if it does not get there."""

    mark: Watermark
    late: ResponseCode
    """When the time is up: FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT ..."""
    timeout_s: float
    failed: ResponseCode = ResponseCode.SYSTEM_ERROR
    """When the mark will never get there (`Watermark.fail`)."""
    absent: Callable[[int], ResponseCode | None] = lambda _end: None
    """Called for each put: a code means that waiting makes no sense, for example SLAVE_NOT_AVAILABLE. The
    other marks are waited for all the same."""


class _Held:
    """An answer, and what the marks have said about it so far."""

    __slots__ = ("code", "finish", "open", "rank")

    def __init__(self, finish: Finish, marks: int) -> None:
        self.finish = finish
        self.open = marks
        self.code: int = ResponseCode.SUCCESS
        self.rank = -1

    def decide(self, rank: int, code: int) -> bool:
        """One of the marks is done with it. Whether it was the last one."""
        if code != ResponseCode.SUCCESS and rank > self.rank:
            self.code, self.rank = code, rank
        self.open -= 1
        return self.open == 0

    def fail(self, code: int) -> bool:
        """One of the marks will never get there: no other is waited for. Whether it says so first."""
        if self.open <= 0:
            return False
        self.code, self.open = code, 0
        return True


class _Waiting:
    """What waits for one mark, oldest first."""

    def __init__(self, mark: Mark, rank: int, owner: Acks) -> None:
        self.mark = mark
        self._rank = rank
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._held: deque[tuple[int, float, _Held]] = deque()
        self._asked = False
        self._timer: asyncio.TimerHandle | None = None
        mark.mark.watch(self._moved)

    def add(self, end: int, held: _Held) -> bool:
        """Wait for `end`. Whether nothing is left to wait for, here or elsewhere."""
        code = self.mark.absent(end)
        if code is not None:
            return held.decide(self._rank, code)
        if self.mark.mark.value >= end:
            return held.decide(self._rank, ResponseCode.SUCCESS)
        if self.mark.mark.failure is not None:
            self._owner.finish(self._passed())
            return held.fail(self.mark.failed)
        deadline_s = self._loop.time() + self.mark.timeout_s
        self._held.append((end, deadline_s, held))
        if self._timer is None:
            self._timer = self._loop.call_at(deadline_s + _MARGIN_S, self._expire)
        return False

    def _moved(self, _to: int) -> None:
        """Called in the thread that moved the mark: schedules `_release` in the loop, once."""
        if not self._asked:
            self._asked = True
            if threading.get_ident() == self._thread:  # The way through its pipe is system calls.
                self._loop.call_soon(self._release)
                return
            try:
                self._loop.call_soon_threadsafe(self._release)
            except RuntimeError:  # The loop has ended, and with it the connections that waited.
                self._asked = False

    def _release(self) -> None:
        self._asked = False
        self._owner.finish(self._passed())

    def _passed(self) -> Iterable[_Held]:
        """Those that the mark has passed, or will never pass, if no other mark is left to wait for."""
        reached, done = self.mark.mark.value, []
        while self._held and reached >= self._held[0][0]:
            held = self._held.popleft()[2]
            if held.decide(self._rank, ResponseCode.SUCCESS):
                done.append(held)
        if self.mark.mark.failure is not None:
            done += [held for _, _, held in self._held if held.fail(self.mark.failed)]
            self._held.clear()
        return done

    def _expire(self) -> None:
        self._timer = None
        self._release()
        now_s = self._loop.time()
        self._owner.finish(self._take(lambda deadline_s: deadline_s <= now_s, self.mark.late))
        if self._held:
            self._timer = self._loop.call_at(self._held[0][1] + _MARGIN_S, self._expire)

    def _take(self, is_over: Callable[[float], bool], code: int) -> list[_Held]:
        done = []
        while self._held and is_over(self._held[0][1]):
            held = self._held.popleft()[2]
            if held.decide(self._rank, code):
                done.append(held)
        return done

    def __len__(self) -> int:
        return len(self._held)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Acks:
    """Answers held until every mark has passed the end of their messages, or has run out of time."""

    def __init__(self, marks: Sequence[Mark], show: Callable[[], None]) -> None:
        """`show` lets messages be dispatched soon: whoever waits for them is told then. Whoever reads after
        the answer sees them anyway."""
        self._show = show
        self._loop = asyncio.get_running_loop()
        self._waiting = [_Waiting(mark, rank, self) for rank, mark in enumerate(marks)]
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.needed = bool(self._waiting)
        """Whether a put that asks to be safe has to wait."""

    def __len__(self) -> int:
        return self._count

    def waits_for(self, mark: Watermark) -> int:
        """How many answers wait for this mark."""
        return sum(len(waiting) for waiting in self._waiting if waiting.mark.mark is mark)

    def hold(self, end: int, finish: Finish) -> None:
        """Call `finish` when every mark has passed `end`, cannot pass it, or is too late."""
        held = _Held(finish, len(self._waiting))
        self._count += 1
        self._idle.clear()
        done = [waiting.add(end, held) for waiting in self._waiting]
        if any(done):
            self.finish([held])

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

    def finish(self, done: Iterable[_Held]) -> None:
        """Answer these: no mark is left that they wait for."""
        shown = False
        for held in done:
            if not shown:
                self._show()
                shown = True
            self._count -= 1
            try:
                held.finish(held.code)
            except Exception:  # One answer that cannot be written must not hold back the others.
                log.exception("an answer could not be sent")
        if not self._count:
            self._idle.set()

    async def drain(self) -> None:
        """Wait until every held answer has been sent."""
        await self._idle.wait()

    def close(self) -> None:
        for waiting in self._waiting:
            waiting.close()
