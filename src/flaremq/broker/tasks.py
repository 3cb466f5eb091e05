"""Everything that a broker does by the clock, in one table.

A task that fails is logged and comes again; one that runs long comes later, never twice at once.
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
from flaremq.broker.settings import BrokerSettings

log = logger("broker.tasks")

_MINUTE_S: Final = 60.0
_HOUR_S: Final = 3600.0
_SLOW_S: Final = 1.0


def nothing() -> None:
    """The work of a part that this broker does not have (yet)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chores:
    """What a broker has to do again and again. Whoever builds it names who does each."""

    save_offsets: Work
    save_filters: Work = nothing
    save_orders: Work = nothing
    """What is known of orderly consumers that pop."""
    sample_second: Work
    sample_minute: Work
    sample_hour: Work
    sample_day: Work
    turn_put_times: Work
    midnight: Work
    drop_idle_statistics: Work
    guard: Work
    print_watermarks: Work
    print_dispatch_lag: Work
    refresh_namesrvs: Work
    expire_clients: Work
    expire_subscriptions: Work = nothing
    expire_filters: Work = nothing


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    first_s: float
    period_s: float | Callable[[], float]
    """Counted from begin to begin. A function is asked before each time: not all days are as long."""
    work: Work


def table(settings: BrokerSettings, clock: Clock, chores: Chores) -> list[Task]:
    """All periods of a broker. Where Java has one, it is Java's."""
    return [
        Task("save-offsets", 10, settings.flush_offsets_ms / 1000, chores.save_offsets),
        Task("save-filters", 10, 10, chores.save_filters),
        Task("save-orders", 10, 10, chores.save_orders),
        Task("sample-second", 1, 1, chores.sample_second),
        Task("sample-minute", 0, 10, chores.sample_minute),
        Task("sample-hour", 0, 10 * _MINUTE_S, chores.sample_hour),
        Task("sample-day", 0, _HOUR_S, chores.sample_day),
        Task("turn-put-times", _MINUTE_S, _MINUTE_S, chores.turn_put_times),
        Task("midnight", until_midnight_s(clock), lambda: until_midnight_s(clock), chores.midnight),
        Task("drop-idle-statistics", 10 * _MINUTE_S, 10 * _MINUTE_S, chores.drop_idle_statistics),
        Task("guard", 3 * _MINUTE_S, 3 * _MINUTE_S, chores.guard),
        Task("print-watermarks", 10, 1, chores.print_watermarks),
        Task("print-dispatch-lag", 10, _MINUTE_S, chores.print_dispatch_lag),
        Task("refresh-namesrvs", 10, settings.namesrv_refresh_ms / 1000, chores.refresh_namesrvs),
        Task("expire-clients", 10, 10, chores.expire_clients),
        Task("expire-subscriptions", 10, 10, chores.expire_subscriptions),
        Task("expire-filters", 10, _MINUTE_S, chores.expire_filters),
    ]


def until_midnight_s(clock: Clock) -> float:
    """Seconds to the next local midnight; never none, as it has just been when the work begins."""
    now_s = clock.now_ms() / 1000
    today = time.localtime(now_s)
    midnight_s = time.mktime((today.tm_year, today.tm_mon, today.tm_mday + 1, 0, 0, 0, 0, 0, -1))
    return max(1.0, midnight_s - now_s)


class Tasks:
    """Runs a table of tasks, each in a task of the event loop."""

    def __init__(self, tasks: Iterable[Task], clock: Clock, *, sleep: Sleep = asyncio.sleep) -> None:
        self._table = [task for task in tasks if task.work is not nothing]
        self._clock = clock
        self._sleep = sleep
        self._running = Owned()

    def start(self) -> None:
        for task in self._table:
            self._running.spawn(task.name, self._repeat(task))

    async def stop(self) -> None:
        """At once: work that is under way is given up, and whoever needs its result does it himself."""
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
            log.exception("task %s failed and comes again", task.name)
