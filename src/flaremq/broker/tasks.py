"""Periodic work of a broker. Each feature lists its tasks (`features.Feature.tasks`); they run here.

A task that fails is logged and runs again; one that takes long runs later, never twice at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import isawaitable
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.lifecycle import Owned, Sleep, Work
from flaremq.base.logs import fields, logger

log = logger("broker.tasks")

MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
_SLOW_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    first_s: float
    """Time from the broker's start to its first run."""
    period_s: float | Callable[[], float]
    """From start to start. A function is called before each run: not all days are equally long."""
    work: Work


def until_midnight_s(clock: Clock) -> float:
    """Seconds to the next local midnight; at least one, as work due at midnight starts just after it."""
    now_s = clock.now_ms() / 1000
    today = time.localtime(now_s)
    midnight_s = time.mktime((today.tm_year, today.tm_mon, today.tm_mday + 1, 0, 0, 0, 0, 0, -1))
    return max(1.0, midnight_s - now_s)


class Tasks:
    """Runs each task in an asyncio task."""

    def __init__(self, tasks: Iterable[Task], clock: Clock, *, sleep: Sleep = asyncio.sleep) -> None:
        self._table = list(tasks)
        self._clock = clock
        self._sleep = sleep
        self._running = Owned()

    def start(self) -> None:
        for task in self._table:
            self._running.spawn(task.name, self._repeat(task))

    async def stop(self) -> None:
        """Stop at once: work in progress is cancelled. Features that need it done do it again in `stop`."""
        await self._running.aclose(timeout_s=5)

    async def _repeat(self, task: Task) -> None:
        await self._sleep(task.first_s)
        while True:
            period_s = task.period_s() if callable(task.period_s) else task.period_s
            began_s = self._clock.monotonic_s()
            await self._do(task)
            took_s = self._clock.monotonic_s() - began_s
            if took_s > max(_SLOW_S, period_s):
                log.warning(
                    "a task takes longer than its period", extra=fields(task=task.name, took_s=took_s)
                )
            await self._sleep(max(0.0, period_s - took_s))

    async def _do(self, task: Task) -> None:
        try:
            result = task.work()
            if isawaitable(result):
                await result
        except Exception:
            log.exception("task %s failed and will run again", task.name)
