"""When bytes become safe: the steps of the flushing threads, driven by hand."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from flaremq.base.errors import FlushFailed
from flaremq.base.lifecycle import Step, Worker
from flaremq.store.commitlog import CommitLog
from flaremq.store.dispatch import Dispatcher
from flaremq.store.files.checkpoint import Checkpoint
from flaremq.store.flags import Flags
from flaremq.store.flush import LogFlusher, QueueFlusher
from flaremq.store.queue.nextoffsets import QueueOffsets
from flaremq.store.queue.queues import Queues
from flaremq.store.settings import FlushDisk
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import NOW_MS, STORE_HOST, a_message, drafts_of, small_settings
from flaremq.testing.fakes.disk import FaultyDisk


class Thread:
    """What a step sees of its thread, and how long it rested after each step."""

    stopping = False

    def __init__(self) -> None:
        self.rests_s: list[float] = []

    def ask_to_stop(self) -> None:
        self.stopping = True


class Bench:
    """A log, its queues and their flushers, with no thread running."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.disk, self.clock, self.thread = FaultyDisk(), ManualClock(NOW_MS), Thread()
        self.settings = small_settings(root, **options)
        self.log = CommitLog(self.disk, self.settings, self.clock, STORE_HOST, QueueOffsets())
        self.log.start()
        self.log.preallocator.stop()
        self.flags = Flags(self.clock, page_cache_busy_ms=1000, dispatch_lag_max=100)
        self.checkpoint = Checkpoint(self.disk, root / "checkpoint")
        self.queues = Queues(self.disk, self.settings, lambda _topic: False)
        self.dispatcher = Dispatcher(self.log, self.queues, None, self.settings)
        self.flusher = LogFlusher(self.log, self.checkpoint, self.flags, self.clock)
        tasks: deque[Callable[[], None]] = deque()
        self.queue_flusher = QueueFlusher(self.queues, self.dispatcher, self.checkpoint, tasks, self.clock)

    def put(self, size: int = 100) -> None:
        self.log.append_many(drafts_of([a_message(bytes(size))], self.log.offsets))

    def step(self, step: Step) -> None:
        rest_s = step(cast(Worker, self.thread))
        if rest_s is not None:
            self.thread.rests_s.append(rest_s)


def test_the_log_is_flushed_every_interval_when_enough_pages_are_dirty(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flush_interval_ms=700, flush_least_pages=2)
    bench.put()
    bench.step(bench.flusher._flush_step)
    assert bench.thread.rests_s == [0.7]
    assert bench.log.flushed.value == 0
    bench.put(9000)
    bench.step(bench.flusher._flush_step)
    assert bench.log.flushed.value == bench.log.end


def test_after_the_thorough_interval_every_byte_is_flushed_and_the_checkpoint_moves(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flush_thorough_interval_ms=3000)
    bench.put()
    bench.clock.advance_ms(2999)
    bench.step(bench.flusher._flush_step)
    assert (bench.log.flushed.value, bench.checkpoint.log_time_ms) == (0, 0)
    bench.clock.advance_ms(1)
    bench.step(bench.flusher._flush_step)
    assert (bench.log.flushed.value, bench.checkpoint.log_time_ms) == (bench.log.end, NOW_MS)


@pytest.mark.parametrize(
    ("options", "woken"),
    [
        ({}, True),
        ({"flush_timed": True}, False),
        ({"flush_wake_on_put": False}, False),
        ({"flush_timed": True, "flush_disk": FlushDisk.SYNC_FLUSH}, True),
    ],
)
def test_a_put_wakes_the_flusher_unless_it_is_timed(tmp_path: Path, options: Any, woken: bool) -> None:
    bench = Bench(tmp_path, **options)
    for _ in range(6):  # Over four pages: less is not worth waking anybody.
        bench.put(3_400)
    bench.flusher.put()
    assert bench.flusher._flusher._woken.is_set() is woken


def test_a_put_of_less_than_is_flushed_at_a_time_lets_the_flusher_sleep(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.put(100)
    bench.flusher.put()
    assert not bench.flusher._flusher._woken.is_set()


def test_puts_that_wait_for_nothing_leave_the_flusher_a_rest_after_each_sync(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.clock.advance_ms(10_000)
    woken = bench.flusher._flusher._woken

    def put_pages() -> None:
        for _ in range(6):
            bench.put(3_400)
        bench.flusher.put()

    put_pages()
    assert woken.is_set()
    woken.clear()
    bench.step(bench.flusher._flush_step)
    bench.clock.advance_ms(99)
    put_pages()
    assert not woken.is_set()
    bench.clock.advance_ms(1)
    put_pages()
    assert woken.is_set()


def test_a_put_that_waits_for_the_disk_wakes_the_flusher_right_after_a_sync(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flush_disk=FlushDisk.SYNC_FLUSH)
    bench.put()
    bench.step(bench.flusher._flush_step)
    bench.put()
    bench.flusher.put()
    assert bench.flusher._flusher._woken.is_set()


@pytest.mark.parametrize(
    ("wake", "pool", "woken"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_a_put_wakes_the_committer_of_the_pool(tmp_path: Path, wake: bool, pool: bool, woken: bool) -> None:
    bench = Bench(tmp_path, pool_enabled=pool, pool_size=2, commit_wake_on_put=wake)
    bench.flusher.put()
    assert bench.flusher._committer._woken.is_set() is woken


def test_the_pool_is_committed_by_pages_and_by_time(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        pool_enabled=True,
        pool_size=2,
        commit_interval_ms=150,
        commit_least_pages=2,
        commit_thorough_interval_ms=400,
    )
    bench.put()
    bench.step(bench.flusher._commit_step)
    assert bench.thread.rests_s == [0.15]
    assert bench.log.readable_end == 0
    bench.put(9000)
    bench.step(bench.flusher._commit_step)
    assert bench.log.readable_end == bench.log.end
    assert bench.flusher._flusher._woken.is_set()  # What was committed can be flushed.
    bench.put()
    bench.clock.advance_ms(399)
    bench.step(bench.flusher._commit_step)
    assert bench.log.readable_end < bench.log.end
    bench.clock.advance_ms(1)
    bench.step(bench.flusher._commit_step)
    assert bench.log.readable_end == bench.log.end


def test_group_commit_flushes_at_once_and_rests_when_there_is_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flush_disk=FlushDisk.SYNC_FLUSH)
    for _ in range(3):
        bench.put()
    bench.step(bench.flusher._flush_step)
    assert bench.thread.rests_s == []
    assert bench.log.flushed.value == bench.log.end
    assert len(bench.disk.synced) == 1  # Three puts, one sync.
    bench.step(bench.flusher._flush_step)
    assert bench.thread.rests_s == [0.5]


def test_queues_are_flushed_every_interval_when_enough_pages_are_dirty(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        queue_flush_interval_ms=1500,
        queue_flush_least_pages=1,
        consumequeue_file_size=40_000,
        commitlog_file_size=1 << 20,
    )
    bench.put()
    bench.dispatcher.catch_up()
    bench.step(bench.queue_flusher._step)
    assert bench.thread.rests_s == [1.5]
    assert not [path for path in bench.disk.synced if "consumequeue" in str(path)]
    for _ in range(4096 // 20):
        bench.put()
    bench.dispatcher.catch_up()
    bench.step(bench.queue_flusher._step)
    assert [path for path in bench.disk.synced if "consumequeue" in str(path)]
    assert bench.checkpoint.queue_time_ms == 0


def test_after_the_thorough_interval_all_queues_are_flushed_and_the_checkpoint_says_so(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, queue_flush_thorough_interval_ms=20_000)
    bench.put()
    bench.dispatcher.catch_up()
    bench.clock.advance_ms(19_999)
    bench.step(bench.queue_flusher._step)
    assert bench.checkpoint.queue_time_ms == 0
    bench.clock.advance_ms(1)
    bench.step(bench.queue_flusher._step)
    assert bench.checkpoint.queue_time_ms == NOW_MS
    assert [path for path in bench.disk.synced if "consumequeue" in str(path)]


def test_after_a_failed_flush_of_a_queue_the_checkpoint_never_moves_again(tmp_path: Path) -> None:
    """The log goes on; the next start makes from it what the queue may have lost."""
    bench = Bench(tmp_path)
    bench.put()
    bench.dispatcher.catch_up()
    bench.disk.fail_next_sync()
    bench.clock.advance_ms(60_000)
    with pytest.raises(FlushFailed):
        bench.step(bench.queue_flusher._step)
    assert bench.thread.stopping
    bench.queue_flusher.flush(0)
    assert bench.checkpoint.queue_time_ms == 0
    bench.put()
    bench.flusher.flush(0)
    assert bench.log.flushed.value == bench.log.end


def test_a_failed_flush_of_the_log_is_never_retried_into_success(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flush_disk=FlushDisk.SYNC_FLUSH)
    bench.put()
    bench.disk.fail_next_sync()
    with pytest.raises(FlushFailed):
        bench.step(bench.flusher._flush_step)
    assert bench.thread.stopping
    bench.flusher.flush(0)  # The disk says yes again, and nobody believes it.
    assert bench.log.flushed.value == 0
    with pytest.raises(FlushFailed):
        bench.log.flushed.wait_blocking(1, timeout_s=0)
    with pytest.raises(FlushFailed):
        bench.flags.check(0)


@pytest.mark.parametrize("flush", FlushDisk)
def test_a_sync_that_failed_elsewhere_ends_flushing(tmp_path: Path, flush: FlushDisk) -> None:
    bench = Bench(tmp_path, flush_disk=flush)
    bench.put()
    bench.disk.fail_next_sync()
    with pytest.raises(FlushFailed):
        bench.flusher.flush(0)
    bench.step(bench.flusher._flush_step)
    assert bench.thread.stopping
    assert bench.log.flushed.value == 0


def test_one_sync_of_the_log_is_over_before_the_next_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells of a failure only once: the other sync would vouch for what is lost."""
    bench = Bench(tmp_path)
    begun, go_on, calls = threading.Event(), threading.Event(), list[int]()

    def sync(_least_pages: int) -> None:
        calls.append(len(calls))
        begun.set()
        assert go_on.wait(10)
        raise FlushFailed("the disk failed")

    monkeypatch.setattr(bench.log, "flush", sync)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(bench.flusher.flush, 0)
        assert begun.wait(10)
        second = threads.submit(bench.flusher.flush, 0)
        go_on.set()
        assert isinstance(first.exception(10), FlushFailed)
        second.result(10)
    assert calls == [0]
