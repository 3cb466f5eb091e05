"""Background work that fails for a while: the store says so, goes on, and has lost nothing when it heals."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.store.proofs import Promises, Queue, a_proof, served

from flaremq.base.errors import FileNotReady, FileUnavailable, FlareError, FlushFailed
from flaremq.base.units import HOUR_MS
from flaremq.store.api import PutStatus
from flaremq.store.consumequeue import ConsumeQueue
from flaremq.store.settings import FlushDisk
from flaremq.store.store import MessageStore
from flaremq.testing.builders import small_settings
from flaremq.testing.clock import ManualClock
from flaremq.testing.disk import TroubledDisk

A: Queue = (b"A", 0)
LONG_S = 30.0


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


ERRORS = {
    "no descriptor": os_error(errno.EMFILE),
    "no file of the system": os_error(errno.ENFILE),
    "no memory": os_error(errno.ENOMEM),
    "a read that failed": os_error(errno.EIO),
    "a file that cannot be opened": FileUnavailable("not now"),
    "a bug": ZeroDivisionError("of all things"),
}
each_error = pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)


def until(condition: Callable[[], bool]) -> None:
    """Give the threads of the store the processor until they have done what the test needs."""
    deadline_s = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline_s, "the other thread never got there"
        time.sleep(0)


class Troubled:
    """A store on a disk with troubles, and what it has promised."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.disk, self.clock, self.root = TroubledDisk(), ManualClock(), root
        self.settings = small_settings(root, **options)
        self.store = MessageStore(self.settings, clock=self.clock, disk=self.disk)
        self.promises = Promises()
        self.count = 0

    def put(self, count: int, *, size: int = 0, queue: Queue | None = None) -> None:
        for _ in range(count):
            to = queue or (b"A", self.count % 3)
            result = self.store.put(a_proof(to, f"m{self.count}", size))
            assert result.status is PutStatus.PUT_OK
            self.promises.add(to, result.queue_offset, f"m{self.count}")
            self.count += 1

    def is_degraded(self, part: str) -> None:
        until(lambda: part in self.store.flags.degraded)
        assert self.disk.raised or part == "dispatch"

    def is_well_again(self) -> None:
        self.disk.heal()
        until(lambda: not self.store.flags.degraded)
        self.put(5)
        self.promises.check(self.store)

    def stops_cleanly_and_has_all(self) -> None:
        self.store.close()
        assert not (self.root / "abort").exists()
        with MessageStore(self.settings, clock=self.clock) as again:
            assert again.report is not None and again.report.clean
            self.promises.check(again)


@pytest.fixture
def troubled(tmp_path: Path) -> Iterator[Troubled]:
    found = Troubled(tmp_path, clean_interval_ms=1, queue_flush_interval_ms=1, index_entries=40)
    found.store.open()
    yield found
    found.disk.heal()
    found.store.close()


# Each part with each error.


@each_error
@pytest.mark.parametrize("below", ["consumequeue", "index"])
@pytest.mark.parametrize("spared", [0, 1, 5])
def test_dispatch_goes_on_where_it_failed_and_doubles_nothing(
    troubled: Troubled, error: Exception, below: str, spared: int
) -> None:
    troubled.put(10)
    troubled.disk.trouble(error, below, "create", "open", "reserve", spared=spared)
    troubled.put(150)  # Several files of each queue, and of the index.
    troubled.is_degraded("dispatch")
    troubled.put(5)
    troubled.is_well_again()
    troubled.stops_cleanly_and_has_all()


@each_error
def test_a_queue_that_could_not_begin_begins_at_its_first_message(tmp_path: Path, error: Exception) -> None:
    troubled = Troubled(tmp_path)
    with troubled.store as store:
        troubled.put(60, queue=A)
        store.dispatch()
        store.dispatcher.remove_topic(b"A")  # The next message is number 60, behind fillers.
        troubled.disk.trouble(error, "consumequeue", "reserve")
        store.put(a_proof(A, "behind"))
        until(lambda: "dispatch" in store.flags.degraded)
        troubled.disk.heal()
        until(lambda: not store.flags.degraded)
        assert (store.min_offset(*A), store.max_offset(*A)) == (60, 61)
        assert store.get(*A, 60).count == 1


@each_error
def test_log_files_are_made_when_the_disk_lets_us_and_nothing_acknowledged_is_lost(
    troubled: Troubled, error: Exception
) -> None:
    troubled.store.log.preallocator._wait_s = 0.001
    troubled.disk.trouble(error, "commitlog", "create")
    refused: FlareError | None = None
    while refused is None:
        try:
            troubled.put(1, size=5000)
        except FlareError as found:
            refused = found
    assert isinstance(refused, FileNotReady | FileUnavailable) and refused.retriable
    if not isinstance(error, FlareError):
        troubled.is_degraded("making log files")
        assert str(error) in str(refused)
    assert troubled.store.flags.writable
    troubled.disk.heal()
    until(lambda: not troubled.store.flags.degraded)
    troubled.store.log.preallocator._wait_s = LONG_S
    troubled.put(50, size=5000)
    troubled.is_well_again()
    troubled.stops_cleanly_and_has_all()


@each_error
@pytest.mark.parametrize("operation", ["delete", "ratio", "sync"])
def test_the_cleaner_goes_on_and_leaves_no_gap(troubled: Troubled, error: Exception, operation: str) -> None:
    troubled.put(60, size=5000)
    store = troubled.store
    first = store.log.queue.files[0].path
    troubled.disk.trouble(error, "commitlog", operation)
    troubled.clock.advance_ms(1000 * HOUR_MS)
    now_s = troubled.clock.now_ms() / 1000 - 500 * 3600
    for file in store.log.queue.files:
        os.utime(file.path, (now_s, now_s))
    store.clean_now()
    troubled.is_degraded("deleting old files")
    assert store.flags.writable
    assert first.exists() or operation == "sync"
    troubled.disk.heal()
    until(lambda: len(store.log.queue.files) == 1)
    until(lambda: not store.flags.degraded)
    assert min(first.parent.iterdir()).name == f"{store.log.begin:020d}"
    until(lambda: store.min_offset(*A) > 0)
    result = store.put(a_proof(A, "last"))
    store.close()
    assert not (troubled.root / "abort").exists()
    with MessageStore(troubled.settings, clock=troubled.clock) as again:
        assert again.get(*A, result.queue_offset).count == 1


@each_error
@pytest.mark.parametrize("below", ["consumequeue", "index"])
def test_queues_are_flushed_later_and_vouched_for_only_then(
    tmp_path: Path, error: Exception, below: str
) -> None:
    troubled = Troubled(
        tmp_path, queue_flush_interval_ms=1, queue_flush_thorough_interval_ms=0, index_entries=9
    )
    with troubled.store as store:
        troubled.disk.trouble(error, below, "sync")
        troubled.put(30)
        store.dispatch()
        troubled.is_degraded("flushing queues")
        assert store.checkpoint._flushed[1] == 0, "nobody may vouch for queues that are not on the disk"
        troubled.is_well_again()
        until(lambda: store.checkpoint._flushed[1] == store.dispatcher.last_store_ms)
        flushed = {path.parent for path in troubled.disk.synced if "consumequeue" in path.parts}
        assert len(flushed) == 3, "every queue is on the disk"
    troubled.stops_cleanly_and_has_all()


@each_error
@pytest.mark.parametrize("flush", FlushDisk)
def test_the_pool_is_committed_later_and_nothing_is_lost(
    tmp_path: Path, error: Exception, flush: FlushDisk
) -> None:
    troubled = Troubled(
        tmp_path,
        pool_enabled=True,
        flush_disk=flush,
        sync_flush_timeout_ms=1,
        commit_least_pages=0,
        flush_least_pages=0,
    )
    with troubled.store as store:
        store.put(a_proof(A, "first"))
        troubled.disk.trouble(error, "commitlog", "reserve")
        late = store.put(a_proof(A, "late"))
        assert (late.status is PutStatus.PUT_OK) == (flush is FlushDisk.ASYNC_FLUSH)
        until(lambda: "committing the transient pool" in store.flags.degraded)
        assert store.flags.writable
        troubled.disk.heal()
        until(lambda: not store.flags.degraded and store.flushed.value == store.log.end)
        assert served(store)[A][-1] == "late"


def test_only_a_failed_sync_of_the_log_ends_writing(troubled: Troubled) -> None:
    troubled.put(3)
    troubled.disk.trouble(FlushFailed("the disk said no"), "commitlog", "sync")
    with pytest.raises(FlushFailed):
        troubled.store.workers.log_flusher.flush(0)
    troubled.disk.heal()
    with pytest.raises(FlushFailed):
        troubled.store.put(a_proof(A, "refused"))


def test_a_listener_that_fails_keeps_no_message_from_its_queue(troubled: Troubled) -> None:
    class Deaf:
        def arrived(self, topic: bytes, queue_id: int, max_offset: int) -> None:
            raise ZeroDivisionError("of all things")

    class Hears:
        heard = 0

        def arrived(self, topic: bytes, queue_id: int, max_offset: int) -> None:
            self.heard += 1

    hears = Hears()
    troubled.store.listen(Deaf())
    troubled.store.listen(hears)
    troubled.put(9)
    troubled.promises.check(troubled.store)
    assert hears.heard >= 3
    assert not troubled.store.flags.degraded


# Reading meanwhile.


@pytest.mark.parametrize("error", [FileUnavailable("no descriptor"), os_error(errno.EMFILE)], ids=str)
def test_a_queue_whose_file_cannot_be_opened_loses_no_message_for_that(
    troubled: Troubled, error: Exception
) -> None:
    """It must not pass for a queue whose messages are gone."""
    store = troubled.store
    troubled.put(60, queue=A)
    store.dispatch()
    queue = store.queues.get(*A)
    assert isinstance(queue, ConsumeQueue)
    until(lambda: not store.flags.degraded)
    troubled.disk.trouble(error, "consumequeue", "open")  # First: a thread that flushes may open them again.
    for file in queue._files.files:
        file.rest()
    with pytest.raises((FileUnavailable, OSError)):
        queue.correct_min(0)
    with pytest.raises((FileUnavailable, OSError)):
        store.get(*A, 0)
    troubled.disk.heal()
    assert store.min_offset(*A) == 0
    assert store.get(*A, 0).count > 0


# Stops.


class SlowToDelete(TroubledDisk):
    """Lets the cleaner delete a file only when it is let itself."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.allowed = threading.Semaphore(0)
        self.slow = False

    def delete(self, path: Path) -> None:
        if self.slow and threading.current_thread().name == "flaremq-clean":
            self.begun.release()
            self.allowed.acquire()
        super().delete(path)


@pytest.mark.parametrize("pool", [True, False])
def test_a_cleaner_that_does_not_stop_in_time_costs_no_acknowledged_message(
    tmp_path: Path, pool: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {
        "pool_enabled": pool,
        "commit_least_pages": 1000,
        "commit_thorough_interval_ms": 1_000_000,
        "clean_interval_ms": 1,
    }
    disk, clock = SlowToDelete(), ManualClock()
    store = MessageStore(small_settings(tmp_path, **options), clock=clock, disk=disk)
    store.open()
    for number in range(60):
        store.put(a_proof(A, f"old{number}", 5000))
    clock.advance_ms(1000 * HOUR_MS)
    disk.slow = True
    for file in store.log.queue.files:
        os.utime(file.path, (0, 0))
    store.clean_now()
    disk.begun.acquire()  # The cleaner is in the middle of a deletion, and stays there.
    acknowledged = [store.put(a_proof(A, f"new{number}")).queue_offset for number in range(50)]
    monkeypatch.setattr(
        store.workers.cleaner, "stop", lambda: type(store.workers.cleaner).stop(store.workers.cleaner, 0.01)
    )
    with pytest.raises(FlareError, match="flaremq-clean did not end"):
        store.close()
    assert not (tmp_path / "abort").exists(), "log and queues are whole"
    for _ in range(10):
        disk.allowed.release()
    store.workers.cleaner._thread.join(LONG_S)
    with MessageStore(small_settings(tmp_path, **options), clock=clock) as again:
        assert [again.get(*A, offset).count > 0 for offset in acknowledged] == [True] * 50


def test_a_long_round_of_cleaning_ends_with_the_store(tmp_path: Path) -> None:
    disk, clock = SlowToDelete(), ManualClock()
    settings = small_settings(tmp_path, clean_interval_ms=1, delete_log_interval_ms=0)
    store = MessageStore(settings, clock=clock, disk=disk)
    store.open()
    for number in range(100):
        store.put(a_proof(A, f"old{number}", 5000))
    assert len(store.log.queue.files) > 6
    for file in store.log.queue.files:
        os.utime(file.path, (0, 0))
    disk.slow = True
    store.clean_now()
    disk.begun.acquire()
    disk.allowed.release(1)
    disk.slow = False
    before = len(store.log.queue.files)
    store.close()
    left = len(list((tmp_path / "commitlog").iterdir()))
    assert left >= before - 2, "it did not delete what it could in its last moments"


def test_a_close_that_cannot_commit_is_not_clean(tmp_path: Path) -> None:
    troubled = Troubled(tmp_path, pool_enabled=True)
    troubled.store.open()
    troubled.store.put(a_proof(A, "first"))
    troubled.disk.trouble(os_error(errno.EIO), "commitlog", "reserve")
    troubled.store.put(a_proof(A, "lost"))
    with pytest.raises(OSError, match="Input/output"):
        troubled.store.close()
    assert (tmp_path / "abort").exists()


# A topic that is removed while its files are trimmed.


def test_retention_and_the_removal_of_a_topic_exclude_each_other(tmp_path: Path) -> None:
    class Pausing(TroubledDisk):
        def __init__(self) -> None:
            super().__init__()
            self.reached, self.go_on = threading.Event(), threading.Event()
            self.pauses = False

        def delete(self, path: Path) -> None:
            if self.pauses and "consumequeue" in path.parts:
                self.pauses = False
                self.reached.set()
                self.go_on.wait(LONG_S)
            super().delete(path)

    disk = Pausing()
    with MessageStore(small_settings(tmp_path), clock=ManualClock(), disk=disk) as store:
        for number in range(200):
            store.put(a_proof(A, f"m{number}"))
        store.dispatch()
        (trimmed,) = store.queues.trimmed()

        def trim() -> None:
            trimmed.delete_before(store.log.end)
            trimmed.correct_min(store.log.end)

        disk.pauses = True
        with ThreadPoolExecutor(2) as threads:
            trimming = threads.submit(trim)
            assert disk.reached.wait(LONG_S)
            removal = threads.submit(store.dispatcher.remove_topic, b"A")
            assert store.dispatcher.catch_up() == 0  # Whoever dispatches is kept waiting by neither.
            disk.go_on.set()
            trimming.result(LONG_S)
            assert removal.result(LONG_S) == 1
        trim()
        store.put(a_proof(A, "again"))
        assert store.flags.writable and not store.flags.degraded


# The log is flushed from where it was.


def test_a_flush_looks_at_no_file_that_is_safe(tmp_path: Path) -> None:
    with MessageStore(small_settings(tmp_path), clock=ManualClock()) as store:
        for number in range(40):
            store.put(a_proof(A, f"m{number}", 5000))
        store.workers.log_flusher.flush(0)
        files = store.log.queue.files
        assert len(files) > 3
        for file in files[:-1]:
            file.flushed = 0  # As if unsafe: whoever looked would sync it.
        before = [file.flushed for file in files[:-1]]
        store.put(a_proof(A, "last"))
        store.workers.log_flusher.flush(0)
        assert [file.flushed for file in files[:-1]] == before
        assert store.flushed.value == store.log.end


# Dispatch in an event loop.


@pytest.mark.parametrize(
    "options", [{}, {"ext_enabled": True}, {"index_entries": 9}, {"index_enabled": False}], ids=str
)
def test_dispatch_without_making_files_goes_as_far_as_there_is_room(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    troubled = Troubled(tmp_path, **options)
    create, made = troubled.disk.create, list[Path]()

    def noted(path: Path, size: int, *, reserved: bool = False) -> None:
        made.append(path)
        create(path, size, reserved=reserved)

    troubled.disk.create = noted  # type: ignore[method-assign]
    with troubled.store as store:
        store.workers.dispatch.stop()
        helped = 0
        for _ in range(200):
            troubled.put(1)
            made.clear()
            store.dispatcher.catch_up(makes_files=False)
            assert not [path for path in made if "commitlog" not in path.parts]
            if store.dispatcher.behind:
                helped += 1
                store.dispatcher.catch_up()
        assert 3 <= helped < 100, "a file is made now and then, and all else needs none"
        if store.index is not None:
            troubled.promises.check(store)
        assert sum(map(len, served(store).values())) == 200
