"""What a broker does by the clock."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from tests.broker.desks import a_desk

from flaremq.base.lifecycle import Work
from flaremq.broker.tasks import Task, Tasks, until_midnight_s
from flaremq.testing.clock import ManualClock, settle


class Time:
    """A clock whose sleepers wake as it is moved on."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.clock.monotonic_s() + seconds, future))
        await future

    async def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance_ms(1000)
            due = [each for each in self._sleepers if each[0] <= self.clock.monotonic_s()]
            self._sleepers = [each for each in self._sleepers if each not in due]
            for _, future in due:
                if not future.done():
                    future.set_result(None)
            await settle()


@pytest.fixture
def passing() -> Time:
    return Time()


async def run(passing: Time, *tasks: Task) -> Tasks:
    running = Tasks(tasks, passing.clock, sleep=passing.sleep)
    running.start()
    await settle()
    return running


async def test_a_task_comes_first_and_then_with_its_period(passing: Time) -> None:
    done: list[float] = []
    tasks = await run(passing, Task("t", 10, 3, lambda: done.append(passing.clock.monotonic_s())))
    await passing.pass_s(17)
    assert done == [10, 13, 16]
    await tasks.stop()
    await passing.pass_s(10)
    assert len(done) == 3


async def test_a_task_that_fails_comes_again(passing: Time, caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []

    async def work() -> None:
        done.append(1)
        raise RuntimeError("no luck")

    tasks = await run(passing, Task("unlucky", 1, 1, work))
    await passing.pass_s(3)
    assert len(done) == 3
    assert "task unlucky failed" in caplog.text
    await tasks.stop()


async def test_a_task_that_runs_long_does_not_pile_up(passing: Time) -> None:
    under_way, most, done = 0, 0, 0

    async def work() -> None:
        nonlocal under_way, most, done
        under_way += 1
        most = max(most, under_way)
        await passing.sleep(5)
        under_way -= 1
        done += 1

    tasks = await run(passing, Task("long", 0, 1, work))
    await passing.pass_s(21)
    assert (most, done) == (1, 4)
    await tasks.stop()


async def test_time_that_the_work_took_is_not_waited_again(passing: Time) -> None:
    began: list[float] = []

    async def work() -> None:
        began.append(passing.clock.monotonic_s())
        await passing.sleep(4)

    tasks = await run(passing, Task("t", 1, 10, work))
    await passing.pass_s(25)
    assert began == [1, 11, 21]
    await tasks.stop()


async def test_stopping_does_not_wait_for_work(passing: Time) -> None:
    tasks = await run(passing, Task("endless", 0, 1, lambda: asyncio.Event().wait()))
    await passing.pass_s(1)
    await asyncio.wait_for(tasks.stop(), 60)


async def test_a_period_may_change_from_time_to_time(passing: Time) -> None:
    periods, done = iter((2.0, 5.0, 1000.0)), []
    tasks = await run(
        passing, Task("t", 1, lambda: next(periods), lambda: done.append(passing.clock.monotonic_s()))
    )
    await passing.pass_s(20)
    assert done == [1, 3, 8]
    await tasks.stop()


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Shanghai"])
@pytest.mark.parametrize("now_s", [1_700_000_000, 1_710_000_000, 1_710_054_000, 1_730_599_200, 1_711_843_200])
def test_midnight_is_the_local_one_even_when_clocks_change(
    zone: str, now_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        clock = ManualClock(now_s * 1000)
        midnight = time.localtime(now_s + until_midnight_s(clock))
        assert (midnight.tm_hour, midnight.tm_min, midnight.tm_sec) == (0, 0, 0)
        assert 0 < until_midnight_s(clock) <= 25 * 3600
        clock.advance_ms(round(until_midnight_s(clock) * 1000))
        assert until_midnight_s(clock) >= 23 * 3600
    finally:
        monkeypatch.undo()
        time.tzset()


async def tasks_of(folder: Path, **settings: Any) -> list[Task]:
    """The periodic work of all features of a broker."""
    async with a_desk(folder, broker=settings) as desk:
        return list(desk.made.tasks())


async def test_the_periodic_work_of_all_features_is_done_in_a_day(passing: Time, tmp_path: Path) -> None:
    counts: dict[str, int] = {}

    def counted(name: str) -> Work:
        return lambda: counts.update({name: counts.get(name, 0) + 1})

    tasks = [
        Task(task.name, task.first_s, task.period_s, counted(task.name)) for task in await tasks_of(tmp_path)
    ]
    running = await run(passing, *tasks)
    await passing.pass_s(700)
    await running.stop()
    assert counts["save-tables"] == 139
    assert counts["sample-second"] == 700 and counts["sample-minute"] == 71 and counts["sample-hour"] == 2
    assert counts["disable-slow-consumers"] == 3 and counts["refresh-namesrvs"] == 6
    assert counts["turn-put-times"] == 11 and counts["print-backlogs"] == 691
    assert "midnight" not in counts


async def test_no_task_shares_its_name_with_another(tmp_path: Path) -> None:
    names = [task.name for task in await tasks_of(tmp_path)]
    assert len(names) == len(set(names)) == 23


async def test_periods_are_those_of_the_settings(tmp_path: Path) -> None:
    tasks = await tasks_of(tmp_path, flush_offsets_ms=1500, namesrv_refresh_ms=2500)
    periods = {task.name: task.period_s for task in tasks}
    assert (periods["save-tables"], periods["refresh-namesrvs"]) == (1.5, 2.5)
