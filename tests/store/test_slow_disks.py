"""How a store stops, is trimmed, runs out of space and dispatches on disks that are slow or say no."""

from __future__ import annotations

import errno
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.store.proofs import a_proof, served
from tests.store.troubled import LONG_S, A, Troubled, os_error, until

from flaremq.base.errors import DiskFull, FlareError
from flaremq.base.units import HOUR_MS
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import small_settings
from flaremq.testing.fakes.disk import FaultyDisk, TroubledDisk

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
            assert self.allowed.acquire(timeout=LONG_S)
        super().delete(path)

    def clean(self, store: MessageStore) -> None:
        """Let the cleaner begin with the first deletion, and stay in the middle of it."""
        # It puts off a file that is being read until its clock, which stands still here, says that it may ask
        # again.
        until(lambda: store.log.readable_end == store.log.end and not store.dispatcher.behind)
        until(lambda: not store.log.files.files[0].held)
        for file in store.log.files.files:
            os.utime(file.path, (0, 0))
        self.slow = True
        store.clean_now()
        assert self.begun.acquire(timeout=LONG_S)


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
    clock.advance_ms(1000 * HOUR_MS)  # What the pool holds is committed.
    disk.clean(store)
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
    assert len(store.log.files.files) > 6
    disk.clean(store)
    disk.allowed.release(1)
    disk.slow = False
    before = len(store.log.files.files)
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


# Space.


def test_a_disk_without_room_for_the_next_file_is_told_once_and_so_is_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    disk = FaultyDisk(free_bytes=6 * 64 * 1024)
    with MessageStore(small_settings(tmp_path), clock=ManualClock(), disk=disk) as store:
        refused = 0
        while refused < 3:
            try:
                store.put(a_proof(A, "large", 9000))
            except DiskFull:
                refused += 1
        store.put(a_proof(A, "a small one still fits"))
        told = [record for record in caplog.records if "no room for the next log file" in record.getMessage()]
        assert [record.levelno for record in told] == [logging.ERROR]
        assert told[0].flare == {  # type: ignore[attr-defined]
            "folder": tmp_path / "commitlog",
            "used": "50%",
            "file_size": 64 * 1024,
        }
        assert "lower fileReservedTime" in told[0].getMessage()
        assert not [record for record in caplog.records if "room again" in record.getMessage()]
        disk.free_bytes = 1 << 30
        for _ in range(20):
            store.put(a_proof(A, "large", 9000))
        over = [record for record in caplog.records if "room again" in record.getMessage()]
        assert [record.levelno for record in over] == [logging.INFO]


def test_levels_of_a_full_disk_change_while_the_store_is_open(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.ratio = 0.80
    settings = small_settings(tmp_path, clean_interval_ms=600_000, clean_forcibly_enabled=False)
    with MessageStore(settings, clock=ManualClock(), disk=disk) as store:
        store.put(a_proof(A, "taken"))
        store.change(replace(settings, disk_warning_percent=75, disk_clean_forcibly_percent=70))
        until(lambda: not store.flags.writable)
        with pytest.raises(DiskFull, match="80% full, limit is 75%"):
            store.put(a_proof(A, "refused"))
        store.change(settings)
        until(lambda: store.flags.writable)
        store.put(a_proof(A, "taken again"))
        store.change(replace(settings, message_size_max=1))
        assert store.settings.message_size_max == settings.message_size_max, "not while it is open"


# The log is flushed from where it was.


def test_a_flush_looks_at_no_file_that_is_safe(tmp_path: Path) -> None:
    with MessageStore(small_settings(tmp_path), clock=ManualClock()) as store:
        for number in range(40):
            store.put(a_proof(A, f"m{number}", 5000))
        store.workers.log_flusher.flush(0)
        files = store.log.files.files
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
