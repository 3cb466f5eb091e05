"""Pulls that found nothing and wait: woken in the turn in which a message arrives for them.

    pull > nothing new > [parked] > arrival, or the consumer's time is up > answer

Tens of thousands may wait for one queue, or time out at the same moment, and the loop has others to serve.
So pulls to be checked stand in a line, which is worked off in slices of a few milliseconds. A check mostly
means reading a few queue entries. If it means evaluating an expression, it is done in a thread, and the pull
is `away` meanwhile: an arrival or a timeout in that time is handled when it comes back.

One connection may hold only a share of all places, so that it cannot shut out the others.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final, Generic, Protocol, TypeVar

from flaremq.base.errors import Busy
from flaremq.base.lifecycle import Owned

_SWEEP_S: Final = 5.0
_SLICE_S: Final = 0.005  # A tenth of what counts as a slow turn.
_SHARE: Final = 10
"""A connection may hold 1/10 of all places. A consumer parks one pull for each of its queues."""
_HOLD_MAX_S: Final = 3600.0  # Upper limit, whatever the request says.


class Waiting(Protocol):
    """A pull that can be parked."""

    @property
    def is_open(self) -> bool:
        """Whether its connection is still open."""

    @property
    def owner(self) -> object:
        """The connection whose share it counts against."""


P = TypeVar("P", bound=Waiting)
Again = Callable[[P, bool], bool | Awaitable[bool]]
"""Check a pull once more and return whether it was answered. If the last argument is True, it must be. May
return an awaitable of the same for a slow check."""


@dataclass(slots=True, eq=False)
class _Parked(Generic[P]):
    key: tuple[bytes, int]
    pull: P
    until_s: float
    done: bool = False
    away: bool = False
    """It is being checked in a thread."""
    missed: bool = False
    """Messages arrived for it meanwhile."""


class LongPoll(Generic[P]):
    """Parked pulls by queue. As a listener of the store, it learns which queues have grown."""

    def __init__(self, again: Again[P], limit: int, now_s: Callable[[], float] = monotonic) -> None:
        self._again = again
        self._now_s = now_s
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._parked: dict[tuple[bytes, int], dict[_Parked[P], None]] = {}
        self._away: dict[tuple[bytes, int], dict[_Parked[P], None]] = {}
        self._deadlines: list[tuple[float, int, _Parked[P]]] = []
        self._numbers = itertools.count()
        self._woken: dict[tuple[bytes, int], None] = {}
        self._line: deque[_Parked[P]] = deque()  # To be checked, one after the other.
        self._is_working = False
        self._places: Counter[object] = Counter()
        self._count = 0
        self._tasks = Owned()
        self._timer: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.TimerHandle | None = self._loop.call_later(_SWEEP_S, self._sweep)
        self.closed = False
        """Every pull is answered at once from now on, and no slow check is started."""

    def __len__(self) -> int:
        return self._count

    def park(self, topic: bytes, queue_id: int, pull: P, hold_s: float) -> bool:
        """Keep a pull until messages arrive for it, or the time is up. False if its connection has used up
        its share: answer it now. Raises Busy if all places are taken."""
        if self._count >= self._limit:
            raise Busy(
                f"[OVERLOAD]system busy, start flow control for a while: {self._count} pulls wait, "
                f"limit is {self._limit} (pullThreadPoolQueueCapacity)"
            )
        if self._places[pull.owner] >= max(1, self._limit // _SHARE):
            return False
        until_s = self._loop.time() + min(hold_s, _HOLD_MAX_S)
        parked = _Parked((topic, queue_id), pull, until_s)
        self._parked.setdefault(parked.key, {})[parked] = None
        heapq.heappush(self._deadlines, (until_s, next(self._numbers), parked))
        self._count += 1
        self._places[pull.owner] += 1
        if self._deadlines[0][2] is parked:
            self._set_timer()
        return True

    def arrived(self, topic: bytes, queue_id: int, max_offset: int) -> None:  # noqa: ARG002
        """A queue has grown. Called in the dispatching thread, usually that of the loop."""
        key = (topic, queue_id)
        if threading.get_ident() != self._thread:
            # At this moment the loop may be parking a pull that has seen nothing of it yet.
            if not self.closed:
                self._loop.call_soon_threadsafe(self._wake, key)
        elif key in self._parked or key in self._away:
            self._wake(key)

    def _wake(self, key: tuple[bytes, int]) -> None:
        if not self._woken:
            self._loop.call_soon(self._run_woken)
        self._woken[key] = None

    def _run_woken(self) -> None:
        woken, self._woken = self._woken, {}
        for key in woken:
            for away in self._away.get(key, ()):
                away.missed = True
            self._line.extend(self._parked.pop(key, ()))
        self._work()

    # Checking.

    def _work(self) -> None:
        """Check the pulls in line for the length of a slice; the others after sockets have been served."""
        if self._is_working:
            return
        # The loop's clock may stand still while a callback runs.
        ends_s, now_s = self._now_s() + _SLICE_S, self._loop.time()
        while self._line:
            parked = self._line.popleft()
            if not self._ends(parked, last=self.closed or parked.until_s <= now_s):
                self._parked.setdefault(parked.key, {})[parked] = None
            if self._line and self._now_s() > ends_s:
                self._is_working = True
                self._loop.call_soon(self._work_on)
                return

    def _work_on(self) -> None:
        self._is_working = False
        self._work()

    def _ends(self, parked: _Parked[P], *, last: bool) -> bool:
        """Whether a pull is finished, or away."""
        if parked.done:
            return True
        answered = not parked.pull.is_open or self._again(parked.pull, last)
        if isinstance(answered, bool):
            if answered:
                self._end(parked)
            return answered
        parked.away = True
        self._away.setdefault(parked.key, {})[parked] = None
        self._tasks.spawn("look-aside", self._settle(parked, answered))
        return True

    async def _settle(self, parked: _Parked[P], looking: Awaitable[bool]) -> None:
        answered = await looking
        parked.away = False
        others = self._away[parked.key]
        del others[parked]
        if not others:
            del self._away[parked.key]
        if answered:
            self._end(parked)
        elif parked.missed or self.closed or parked.until_s <= self._loop.time():
            parked.missed = False
            self._line.append(parked)
            self._work()
        else:
            self._parked.setdefault(parked.key, {})[parked] = None

    def _end(self, parked: _Parked[P]) -> None:
        parked.done = True
        self._count -= 1
        owner = parked.pull.owner
        self._places[owner] -= 1
        if not self._places[owner]:
            del self._places[owner]

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
            others = self._parked.get(parked.key)
            if others is not None and parked in others:  # Else it is away or in line, and ends there.
                del others[parked]
                if not others:
                    del self._parked[parked.key]
                self._line.append(parked)
        self._set_timer()
        self._work()

    def _sweep(self) -> None:
        """Check all of them now and then: closed ones are dropped, and none can be forgotten."""
        for key in list(self._parked):
            self._line.extend(self._parked.pop(key))
        if len(self._deadlines) > 2 * self._count + 64:
            self._deadlines = [each for each in self._deadlines if not each[2].done]
            heapq.heapify(self._deadlines)
        self._work()
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    def close(self) -> None:
        """Answer all pulls, except those that are away: they are answered when they come back."""
        self.closed = True
        for timer in (self._timer, self._sweeper):
            if timer is not None:
                timer.cancel()
        left = [parked for key in list(self._parked) for parked in self._parked.pop(key)]
        for parked in (*self._line, *left):
            self._ends(parked, last=True)
        self._line.clear()
        self._deadlines.clear()

    async def aclose(self) -> None:
        """Close, and wait a little for the pulls that are away."""
        self.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                while len(self._tasks):
                    await asyncio.sleep(0.001)
        await self._tasks.aclose(timeout_s=5)
