"""Clocks that a test moves, and a way to wait for tasks instead of time."""

import asyncio
import math
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Final

from flaremq.base.errors import UsageError

START_MS: Final = 1_700_000_000_000
"""Where a ManualClock begins by default: 14 November 2023, 22:13:20 UTC."""

_ROUNDS: Final = 10  # Enough for a chain of ten tasks, each waking the next.


class ManualClock:
    """A `Clock` that stands still between two calls of `advance_ms`."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._wall_start_ms = now_ms
        self._elapsed_ms = 0

    def now_ms(self) -> int:
        return self._wall_start_ms + self._elapsed_ms

    def monotonic_s(self) -> float:
        return self._elapsed_ms / 1000

    def advance_ms(self, by: int) -> None:
        """Let time pass, on both clocks."""
        assert by >= 0, "time does not run backwards; step_wall_ms moves the wall clock alone"
        self._elapsed_ms += by

    def step_wall_ms(self, by: int) -> None:
        """Set the wall clock forwards or back. The monotonic clock does not change."""
        self._wall_start_ms += by


class MovableClock:
    """A `Clock` that runs with the system's, ahead of it by everything that `advance` has added.

    It never stands still, so waiting for a socket or a disk by it does not hang. Any thread may move it.
    Tasks that sleep by it wake when they are due, whether time passes or the clock is moved.
    """

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._lock = threading.Lock()
        self._sleepers: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def monotonic_s(self) -> float:
        return time.monotonic() + self._ahead_ms / 1000

    def advance(self, by: float | timedelta) -> None:
        """Let this many seconds pass at once. Work that became due several times happens once, and soon."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        if not 0 <= seconds < math.inf:
            raise UsageError(f"the clock cannot be advanced by {by} s: expected 0 or more")
        with self._lock:
            self._ahead_ms += round(seconds * 1000)
            sleepers = list(self._sleepers.items())
        for woken, loop in sleepers:
            with suppress(RuntimeError):  # A closed loop has no task to wake.
                loop.call_soon_threadsafe(woken.set)

    async def sleep(self, seconds: float) -> None:
        """Like asyncio.sleep, by this clock."""
        until_s, woken = self.monotonic_s() + seconds, asyncio.Event()
        with self._lock:
            self._sleepers[woken] = asyncio.get_running_loop()
        try:
            while (left_s := until_s - self.monotonic_s()) > 0:
                woken.clear()  # Set in this loop only, after the clock has moved: none is missed.
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await woken.wait()
        finally:
            with self._lock:
                del self._sleepers[woken]


async def settle() -> None:
    """Let every ready task run until it waits for something."""
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)
