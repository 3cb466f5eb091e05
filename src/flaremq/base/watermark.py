"""A number that only grows, and the threads and tasks that wait for it to reach a point.

Flushed, replicated, dispatched: each is one Watermark, so a sync flush, a slave ack and a long poll are the
same wait on three different numbers. Threads and tasks of any event loop may wait on the same mark; an
advance, from any thread, wakes both kinds.
"""

import asyncio
import itertools
import threading
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeAlias


class _Waiter(Protocol):
    """Told once how the wait ended."""

    def wake(self, reached: bool, running: asyncio.AbstractEventLoop | None) -> None: ...


class _ThreadWaiter:
    """A lock that starts locked: waking is releasing it, which is cheap in Python."""

    __slots__ = ("_gate", "reached")

    def __init__(self) -> None:
        self.reached = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def wake(self, reached: bool, running: asyncio.AbstractEventLoop | None) -> None:  # noqa: ARG002
        self.reached = reached
        self._gate.release()

    def sleep(self, timeout_s: float | None) -> None:
        if timeout_s is None:
            self._gate.acquire()
        else:
            self._gate.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))


class _TaskWaiter:
    __slots__ = ("future", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.future: asyncio.Future[bool] = loop.create_future()

    def wake(self, reached: bool, running: asyncio.AbstractEventLoop | None) -> None:
        if running is self.loop:
            # In its own loop: the way through the loop's pipe would cost a system call.
            self.resolve(reached)
            return
        # A loop that was closed meanwhile has no task left to wake.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.resolve, reached)

    def resolve(self, reached: bool) -> None:
        if not self.future.done():
            self.future.set_result(reached)


_Entry: TypeAlias = tuple[int, int, _Waiter]
"""The point waited for, a unique number (waiters do not compare), the waiter."""


class Watermark:
    """Monotonic offset.

    Invariants:
      W1  value never decreases, except by `rewind`.
      W2  every enlisted waiter waits for more than value, and `fail` was not called.
      W3  a waiter is woken by the thread that takes it off the list, so once or never.
    """

    def __init__(self, value: int = 0) -> None:
        self._value = value
        self._failure: Exception | None = None
        self._lock = threading.Lock()
        self._waiters: list[_Entry] = []  # Sorted by the point waited for.
        self._watchers: tuple[Callable[[int], None], ...] = ()
        self._tiebreak = itertools.count()

    def __repr__(self) -> str:
        return f"Watermark({self._value}, waiting={self.waiting}, failure={self._failure!r})"

    @property
    def value(self) -> int:
        return self._value

    @property
    def failure(self) -> Exception | None:
        return self._failure

    @property
    def waiting(self) -> int:
        """How many threads and tasks are waiting now."""
        return len(self._waiters)

    def advance(self, to: int) -> None:
        """Raise the mark to `to` and wake its waiters; does nothing if it is not above value.

        From any thread. After `fail` it does nothing: a later success must not vouch for what an earlier
        failure may have lost.
        """
        if to <= self._value:
            return
        with self._lock:
            # Two advances may arrive out of order; the larger has won already.
            if to <= self._value or self._failure is not None:
                return
            self._value = to
            # Most advances come without waiters: they cost two checks and a lock.
            waiters = self._waiters
            ready = self._take(to) if waiters and waiters[0][0] <= to else None
        if ready is not None:
            _wake(ready, reached=True)
        for watcher in self._watchers:
            watcher(to)

    def fail(self, error: Exception) -> None:
        """Nothing above value will ever be reached: `error` is raised in every wait for more.

        This is final, for present and future waiters. The first error stays.
        """
        with self._lock:
            if self._failure is not None:
                return
            self._failure = error
            waiters, self._waiters = self._waiters, []
        _wake(waiters, reached=False)

    def rewind(self, to: int) -> None:
        """Take the mark back. For recovery and truncation only, while nothing waits on it."""
        with self._lock:
            assert not self._waiters, f"{len(self._waiters)} wait on a mark that is being rewound"
            assert to <= self._value, f"rewind from {self._value} to {to} would be an advance"
            self._value = to

    def watch(self, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call `callback` with the new value after each advance; returns a function that ends this.

        The advancing thread calls it, holding no lock, after the waiters were woken. Two threads that advance
        may call in either order. The callback must be quick and never raise.
        """
        with self._lock:
            self._watchers = (*self._watchers, callback)

        def unwatch() -> None:
            with self._lock:
                self._watchers = tuple(other for other in self._watchers if other is not callback)

        return unwatch

    async def wait(self, at_least: int, timeout_s: float | None) -> bool:
        """True once value >= at_least; False if timeout_s passed first; None waits for ever.

        Raises the error of `fail` if the point was not reached before it.
        """
        if self._value >= at_least:
            return True
        loop = asyncio.get_running_loop()
        waiter = _TaskWaiter(loop)
        entry = self._enlist(at_least, timeout_s, waiter)
        if entry is None:
            return self._reached(at_least)
        timer = None if timeout_s is None else loop.call_later(timeout_s, waiter.resolve, False)
        reached = False
        try:
            reached = await waiter.future
        finally:
            if timer is not None:
                timer.cancel()
            if not reached:
                self._forget(entry)
        return reached or self._reached(at_least)

    def wait_blocking(self, at_least: int, timeout_s: float | None) -> bool:
        """Like `wait`, for a thread. Never in the thread of an event loop: it would block it."""
        if self._value >= at_least:
            return True
        waiter = _ThreadWaiter()
        entry = self._enlist(at_least, timeout_s, waiter)
        if entry is None:
            return self._reached(at_least)
        try:
            waiter.sleep(timeout_s)
        finally:  # KeyboardInterrupt may end the sleep of a main thread.
            if not waiter.reached:
                self._forget(entry)
        return waiter.reached or self._reached(at_least)

    def _enlist(self, at_least: int, timeout_s: float | None, waiter: _Waiter) -> _Entry | None:
        """None if the answer is known without waiting."""
        with self._lock:
            out_of_time = timeout_s is not None and timeout_s <= 0
            if self._value >= at_least or self._failure is not None or out_of_time:
                return None
            entry = (at_least, next(self._tiebreak), waiter)
            self._waiters.insert(bisect_left(self._waiters, entry), entry)
            return entry

    def _take(self, to: int) -> list[_Entry]:
        """Take the waiters for `to` or less off the list. Under the lock."""
        count = bisect_left(self._waiters, (to + 1,))
        ready = self._waiters[:count]
        del self._waiters[:count]
        return ready

    def _forget(self, entry: _Entry) -> None:
        """Remove a waiter that gave up; otherwise an idle queue would collect one per poll."""
        with self._lock:
            at = bisect_left(self._waiters, entry)
            if at < len(self._waiters) and self._waiters[at] is entry:
                del self._waiters[at]

    def _reached(self, at_least: int) -> bool:
        if self._value >= at_least:
            return True
        if self._failure is not None:
            # Many waits may raise this one object: each starts a new traceback, so none grows for ever.
            raise self._failure.with_traceback(None)
        return False


def _wake(entries: list[_Entry], *, reached: bool) -> None:
    try:
        running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    for _, _, waiter in entries:
        waiter.wake(reached, running)
