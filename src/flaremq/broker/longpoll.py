"""Pulls that found nothing and wait: woken in the turn in which a message arrives for them.

pull > nothing new > [parked] > arrival, or the time that the consumer gave > answer
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from flaremq.base.errors import Busy

_SWEEP_S: Final = 5.0
_HOLD_MAX_S: Final = 3600.0  # Whatever was asked for: nobody believes in a connection for longer.


class Waiting(Protocol):
    """What is parked here."""

    @property
    def is_open(self) -> bool:
        """Whether there is still somebody to answer."""


P = TypeVar("P", bound=Waiting)
Again = Callable[[P, bool], bool]
"""Look once more. True: it was answered. With True for its last argument it must be."""


@dataclass(slots=True, eq=False)
class _Parked(Generic[P]):
    key: tuple[bytes, int]
    pull: P
    until_s: float
    done: bool = False


class LongPoll(Generic[P]):
    """By queue. Also a listener of the store: whoever dispatches says which queues have grown."""

    def __init__(self, again: Again[P], limit: int) -> None:
        self._again = again
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._parked: dict[tuple[bytes, int], list[_Parked[P]]] = {}
        self._deadlines: list[tuple[float, int, _Parked[P]]] = []
        self._numbers = itertools.count()
        self._woken: dict[tuple[bytes, int], None] = {}
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.TimerHandle | None = self._loop.call_later(_SWEEP_S, self._sweep)

    def __len__(self) -> int:
        return self._count

    def park(self, topic: bytes, queue_id: int, pull: P, hold_s: float) -> None:
        """Keep a pull until something arrives for it, or the time is over."""
        if self._count >= self._limit:
            raise Busy(
                f"[OVERLOAD]system busy, start flow control for a while: {self._count} pulls wait, "
                f"limit is {self._limit} (pullThreadPoolQueueCapacity)"
            )
        until_s = self._loop.time() + min(hold_s, _HOLD_MAX_S)
        parked = _Parked((topic, queue_id), pull, until_s)
        self._parked.setdefault(parked.key, []).append(parked)
        heapq.heappush(self._deadlines, (until_s, next(self._numbers), parked))
        self._count += 1
        if self._deadlines[0][2] is parked:
            self._set_timer()

    def arrived(self, topic: bytes, queue_id: int, max_offset: int) -> None:  # noqa: ARG002
        """A queue has grown. Called from the dispatching thread, which is the loop's as a rule."""
        key = (topic, queue_id)
        if key not in self._parked:
            return
        if threading.get_ident() == self._thread:
            self._wake(key)
        else:
            self._loop.call_soon_threadsafe(self._wake, key)

    def _wake(self, key: tuple[bytes, int]) -> None:
        if not self._woken:
            self._loop.call_soon(self._run_woken)
        self._woken[key] = None

    def _run_woken(self) -> None:
        woken, self._woken = self._woken, {}
        for key in woken:
            self._look(key)

    def _look(self, key: tuple[bytes, int]) -> None:
        parked = self._parked.pop(key, [])
        left = [each for each in parked if not self._ends(each, last=False)]
        if left:
            # Somebody may have come while we looked.
            self._parked[key] = left + self._parked.get(key, [])

    def _ends(self, parked: _Parked[P], *, last: bool) -> bool:
        """Whether a pull need not be kept any longer."""
        if not parked.done and (not parked.pull.is_open or self._again(parked.pull, last)):
            parked.done = True
            self._count -= 1
        return parked.done

    # Time.

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._deadlines:
            self._timer = self._loop.call_at(self._deadlines[0][0], self._expire)

    def _expire(self) -> None:
        now_s = self._loop.time()
        while self._deadlines and (self._deadlines[0][0] <= now_s or self._deadlines[0][2].done):
            parked = heapq.heappop(self._deadlines)[2]
            if not parked.done:
                self._ends(parked, last=True)
                self._remove(parked)
        self._set_timer()

    def _remove(self, parked: _Parked[P]) -> None:
        others = self._parked.get(parked.key)
        if others is not None and parked in others:
            others.remove(parked)
            if not others:
                del self._parked[parked.key]

    def _sweep(self) -> None:
        """Look at all of them now and then: those who are gone need not be kept, and none is forgotten."""
        for key in list(self._parked):
            self._look(key)
        if len(self._deadlines) > 2 * self._count + 64:
            self._deadlines = [each for each in self._deadlines if not each[2].done]
            heapq.heapify(self._deadlines)
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    def close(self) -> None:
        """Answer everyone."""
        for timer in (self._timer, self._sweeper):
            if timer is not None:
                timer.cancel()
        for key in list(self._parked):
            for parked in self._parked.pop(key):
                self._ends(parked, last=True)
        self._deadlines.clear()
