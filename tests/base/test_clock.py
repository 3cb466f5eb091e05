import asyncio
import time

import pytest

from flaremq.base.clock import Clock, SystemClock
from flaremq.testing.clock import ManualClock, settle


def test_the_system_clock_tells_unix_milliseconds() -> None:
    clock: Clock = SystemClock()
    before_ms = time.time_ns() // 1_000_000
    assert before_ms <= clock.now_ms() <= time.time_ns() // 1_000_000


def test_the_monotonic_clock_of_the_system_does_not_go_back() -> None:
    clock = SystemClock()
    first = clock.monotonic_s()
    assert clock.monotonic_s() >= first


def test_a_manual_clock_stands_still_until_it_is_advanced() -> None:
    clock: Clock = ManualClock(now_ms=5_000)
    assert (clock.now_ms(), clock.monotonic_s()) == (5_000, 0.0)
    assert (clock.now_ms(), clock.monotonic_s()) == (5_000, 0.0)


def test_advancing_moves_both_clocks() -> None:
    clock = ManualClock(now_ms=5_000)
    clock.advance_ms(1_500)
    assert (clock.now_ms(), clock.monotonic_s()) == (6_500, 1.5)


def test_a_step_of_the_wall_clock_leaves_the_monotonic_clock_alone() -> None:
    clock = ManualClock(now_ms=5_000)
    clock.step_wall_ms(-2_000)
    assert (clock.now_ms(), clock.monotonic_s()) == (3_000, 0.0)


def test_time_cannot_be_advanced_backwards() -> None:
    with pytest.raises(AssertionError, match="step_wall_ms"):
        ManualClock().advance_ms(-1)


async def test_settle_lets_a_chain_of_tasks_run_to_its_end() -> None:
    events = [asyncio.Event() for _ in range(5)]

    async def link(at: int) -> None:
        await events[at].wait()
        events[at + 1].set()

    tasks = [asyncio.create_task(link(at)) for at in range(4)]
    await settle()
    assert not events[-1].is_set()
    events[0].set()
    await settle()
    assert events[-1].is_set()
    await asyncio.gather(*tasks)
