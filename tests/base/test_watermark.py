"""Threads and tasks on one mark. A thread that must be waiting is waited for by `waiting`."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import FlushFailed
from flaremq.base.watermark import Watermark
from flaremq.testing.clock import settle

LONG_S = 30.0
"""A deadline that only a broken test reaches."""


def until(condition: Callable[[], bool]) -> None:
    """Give other threads the processor until they have done what the test needs."""
    deadline_s = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline_s, "the other thread never got there"
        time.sleep(0)


def in_thread(mark: Watermark, at_least: int, timeout_s: float | None = LONG_S) -> "Future[bool]":
    """A thread that waits, and is known to wait when this returns."""
    before = mark.waiting
    pool = ThreadPoolExecutor(1)
    future = pool.submit(mark.wait_blocking, at_least, timeout_s)
    until(lambda: mark.waiting == before + 1)
    pool.shutdown(wait=False)
    return future


def test_a_mark_needs_no_event_loop() -> None:
    mark = Watermark(7)
    mark.advance(9)
    assert mark.value == 9


def test_a_mark_never_goes_back() -> None:
    mark = Watermark(5)
    mark.advance(3)
    mark.advance(5)
    assert mark.value == 5


async def test_wait_returns_once_the_mark_is_reached_not_before() -> None:
    mark = Watermark()
    task = asyncio.create_task(mark.wait(10, timeout_s=LONG_S))
    await settle()
    mark.advance(9)
    await settle()
    assert not task.done()
    mark.advance(10)
    assert await task


async def test_a_point_already_reached_is_not_waited_for() -> None:
    mark = Watermark(10)
    assert await mark.wait(10, timeout_s=0)
    assert mark.wait_blocking(3, timeout_s=0)


@pytest.mark.parametrize("timeout_s", [0, -1, 0.001])
async def test_wait_gives_up_at_its_deadline(timeout_s: float) -> None:
    mark = Watermark()
    assert not await mark.wait(1, timeout_s)
    assert not mark.wait_blocking(1, timeout_s)
    assert mark.waiting == 0


async def test_one_advance_wakes_exactly_those_whose_point_it_reached() -> None:
    mark = Watermark()
    tasks = {at: asyncio.create_task(mark.wait(at, timeout_s=LONG_S)) for at in (30, 10, 20, 21)}
    await settle()
    mark.advance(20)
    await settle()
    assert {at for at, task in tasks.items() if task.done()} == {10, 20}
    assert mark.waiting == 2
    mark.advance(100)
    assert all([await task for task in tasks.values()])
    assert mark.waiting == 0


async def test_a_task_that_timed_out_is_forgotten_at_once_and_others_stay() -> None:
    mark = Watermark()
    keep = asyncio.create_task(mark.wait(7, timeout_s=LONG_S))
    assert not await mark.wait(9, timeout_s=0.001)
    assert mark.waiting == 1
    mark.advance(7)
    assert await keep


async def test_a_cancelled_task_is_forgotten_at_once() -> None:
    mark = Watermark()
    task = asyncio.create_task(mark.wait(3, timeout_s=LONG_S))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert mark.waiting == 0


async def test_a_task_cancelled_as_the_mark_passes_breaks_nothing() -> None:
    mark = Watermark()
    task = asyncio.create_task(mark.wait(3, timeout_s=LONG_S))
    await settle()
    task.cancel()
    mark.advance(4)  # Takes the entry of a task that is cancelled but has not run again.
    with pytest.raises(asyncio.CancelledError):
        await task
    assert mark.waiting == 0
    assert await mark.wait(4, timeout_s=0)


class HeldLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes when the test says so, however busy the machine is."""

    now_s = 100.0

    def time(self) -> float:
        return self.now_s


def test_a_mark_reached_in_the_very_moment_of_the_timeout_counts_as_reached() -> None:
    mark = Watermark()
    loop = HeldLoop()
    task = loop.create_task(mark.wait(1, timeout_s=1.0))
    loop.run_until_complete(settle())
    loop.call_later(1.5, mark.advance, 1)
    loop.now_s += 2.0  # Both are due in one round: the timer runs, the advance, then the task.
    assert loop.run_until_complete(task)
    loop.close()


async def test_an_advance_in_another_thread_wakes_a_task() -> None:
    mark = Watermark()
    task = asyncio.create_task(mark.wait(1, timeout_s=LONG_S))
    await settle()
    await asyncio.to_thread(mark.advance, 1)
    assert await task


def test_an_advance_wakes_a_thread() -> None:
    mark = Watermark()
    early, late = in_thread(mark, 5), in_thread(mark, 6)
    mark.advance(5)
    assert early.result(LONG_S)
    assert not late.done()
    mark.advance(6)
    assert late.result(LONG_S)


def test_a_thread_may_wait_for_ever() -> None:
    mark = Watermark()
    future = in_thread(mark, 1, timeout_s=None)
    mark.advance(1)
    assert future.result(LONG_S)


async def test_a_task_may_wait_for_ever() -> None:
    mark = Watermark()
    task = asyncio.create_task(mark.wait(1, timeout_s=None))
    await settle()
    mark.advance(1)
    assert await task


def test_a_timeout_beyond_what_the_system_can_count_is_no_error() -> None:
    mark = Watermark()
    future = in_thread(mark, 1, timeout_s=1e12)
    mark.advance(1)
    assert future.result(LONG_S)


def test_a_loop_closed_meanwhile_does_not_break_advance() -> None:
    mark = Watermark()
    loop = asyncio.new_event_loop()
    task = loop.create_task(mark.wait(1, timeout_s=None))
    loop.run_until_complete(settle())
    thread = in_thread(mark, 1)
    loop.close()
    mark.advance(1)
    assert mark.value == 1
    assert thread.result(LONG_S)
    assert not task.done()
    task.get_coro().close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_two_loops_may_wait_on_one_mark() -> None:
    mark = Watermark()
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(lambda: asyncio.run(mark.wait(3, timeout_s=LONG_S))) for _ in range(2)]
        until(lambda: mark.waiting == 2)
        mark.advance(3)
        assert [future.result(LONG_S) for future in futures] == [True, True]


def test_watchers_hear_of_each_advance_and_of_nothing_else() -> None:
    mark = Watermark()
    heard: list[int] = []
    mark.watch(heard.append)
    mark.advance(3)
    mark.advance(2)
    mark.advance(3)
    mark.advance(8)
    assert heard == [3, 8]


def test_a_watcher_is_called_in_the_advancing_thread_and_may_use_the_mark() -> None:
    mark = Watermark()
    seen: list[tuple[int, int]] = []

    def watcher(value: int) -> None:
        seen.append((threading.get_ident(), value))
        if value < 3:
            mark.advance(value + 1)  # A lock that was still held would end here.

    mark.watch(watcher)
    thread = threading.Thread(target=mark.advance, args=(1,))
    thread.start()
    thread.join(LONG_S)
    assert [value for _, value in seen] == [1, 2, 3]
    assert {ident for ident, _ in seen} == {thread.ident}


def test_a_watch_can_be_ended() -> None:
    mark = Watermark()
    heard: list[int] = []
    unwatch = mark.watch(heard.append)
    mark.advance(1)
    unwatch()
    unwatch()
    mark.advance(2)
    assert heard == [1]


async def test_failure_reaches_present_and_future_waiters_of_both_kinds() -> None:
    mark = Watermark(5)
    error = FlushFailed("disk is gone")
    task = asyncio.create_task(mark.wait(6, timeout_s=LONG_S))
    thread = in_thread(mark, 6)
    await settle()
    mark.fail(error)
    with pytest.raises(FlushFailed) as caught:
        await task
    assert caught.value is error
    with pytest.raises(FlushFailed, match="disk is gone"):
        thread.result(LONG_S)
    with pytest.raises(FlushFailed, match="disk is gone"):
        mark.wait_blocking(6, timeout_s=LONG_S)
    with pytest.raises(FlushFailed):
        await mark.wait(6, timeout_s=LONG_S)
    assert mark.failure is error
    assert mark.waiting == 0


async def test_what_was_reached_before_the_failure_stays_reached() -> None:
    mark = Watermark(5)
    mark.fail(FlushFailed("disk is gone"))
    assert await mark.wait(5, timeout_s=0)
    assert mark.wait_blocking(4, timeout_s=0)


def test_a_failed_mark_stands_still_for_good() -> None:
    mark = Watermark(5)
    mark.fail(FlushFailed("first"))
    mark.fail(FlushFailed("second"))
    mark.advance(9)
    assert mark.value == 5
    with pytest.raises(FlushFailed, match="first"):
        mark.wait_blocking(9, timeout_s=0)


def test_a_failure_raised_a_thousand_times_does_not_grow() -> None:
    mark = Watermark()
    mark.fail(FlushFailed("disk is gone"))
    depths = []
    for _ in range(1000):
        with pytest.raises(FlushFailed) as caught:
            mark.wait_blocking(1, timeout_s=0)
        depths.append(len(caught.traceback))
    assert len(set(depths)) == 1


def test_rewind_takes_the_mark_back_while_nobody_waits() -> None:
    mark = Watermark(10)
    mark.rewind(4)
    assert mark.value == 4
    with pytest.raises(AssertionError, match="advance"):
        mark.rewind(5)


def test_rewind_under_a_waiter_is_our_own_bug() -> None:
    mark = Watermark(10)
    thread = in_thread(mark, 11)
    with pytest.raises(AssertionError, match="1 wait"):
        mark.rewind(4)
    mark.advance(11)
    assert thread.result(LONG_S)


def test_threads_that_advance_against_each_other_end_at_the_largest() -> None:
    mark = Watermark()
    last = 4_000
    waiters = [in_thread(mark, at) for at in (1, last // 2, last)]

    def climb(first: int) -> None:
        for to in range(first, last + 1, 4):
            mark.advance(to)

    threads = [threading.Thread(target=climb, args=(first,)) for first in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert mark.value == last
    assert all(waiter.result(LONG_S) for waiter in waiters)


@given(points=st.lists(st.integers(0, 20), max_size=12), steps=st.lists(st.integers(0, 20), max_size=8))
def test_each_waiter_is_woken_by_the_first_step_that_reaches_its_point(
    points: list[int], steps: list[int]
) -> None:
    async def run() -> None:
        mark = Watermark()
        tasks = [asyncio.create_task(mark.wait(point, timeout_s=LONG_S)) for point in points]
        await settle()
        highest = 0
        for step in steps:
            highest = max(highest, step)
            mark.advance(step)
            await settle()
            assert [task.done() for task in tasks] == [point <= highest for point in points]
            assert mark.waiting == sum(point > highest for point in points)
        mark.advance(100)
        await asyncio.gather(*tasks)

    asyncio.run(run())
