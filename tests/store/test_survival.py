"""Background work that fails for a while: the store says so, goes on, and has lost nothing when it heals."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.proofs import a_proof, served
from tests.store.troubled import LONG_S, A, Troubled, os_error, until

from flaremq.base.errors import FileNotReady, FileUnavailable, FlareError, FlushFailed
from flaremq.base.units import HOUR_MS
from flaremq.store.api import PutStatus
from flaremq.store.queue.consumequeue import ConsumeQueue
from flaremq.store.settings import FlushDisk

ERRORS = {
    "no descriptor": os_error(errno.EMFILE),
    "no file of the system": os_error(errno.ENFILE),
    "no memory": os_error(errno.ENOMEM),
    "a read that failed": os_error(errno.EIO),
    "a file that cannot be opened": FileUnavailable("not now"),
    "a bug": ZeroDivisionError("of all things"),
}
each_error = pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)


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
    refused = troubled.put_until_refused(size=5000)
    assert isinstance(refused, FileNotReady | FileUnavailable) and refused.retriable
    if not isinstance(error, FlareError):
        troubled.is_degraded("making log files")
        # The first may have come before the thread had tried, and while it made the last file that it could.
        assert str(error) in str(troubled.put_until_refused(size=5000))
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
    first = store.log.files.files[0].path
    store.dispatch()
    until(lambda: not any(file.held for file in store.log.files.files[:-1]))  # One that is read goes later.
    troubled.disk.trouble(error, "commitlog", operation)
    troubled.clock.advance_ms(1000 * HOUR_MS)
    now_s = troubled.clock.now_ms() / 1000 - 500 * 3600
    for file in store.log.files.files:
        os.utime(file.path, (now_s, now_s))
    store.clean_now()
    troubled.is_degraded("deleting old files")
    assert store.flags.writable
    assert first.exists() or operation == "sync"
    troubled.disk.heal()
    until(lambda: len(store.log.files.files) == 1)
    until(lambda: not store.flags.degraded)
    assert min(first.parent.iterdir()).name == f"{store.log.begin:020d}"
    until(lambda: store.min_offset(*A) > 0)
    result = store.put(a_proof(A, "last"))
    store.close()
    assert not (troubled.root / "abort").exists()
    with troubled.next_life() as again:
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
    tmp_path: Path, error: Exception
) -> None:
    """It must not pass for a queue whose messages are gone."""
    troubled = Troubled(tmp_path)
    store = troubled.store
    store.open()
    for worker in (store.workers.cleaner, store.workers.queue_flusher, store.workers.dispatch):
        worker.stop()  # None of them shall open a file again.
    troubled.put(60, queue=A)
    store.dispatch()
    queue = store.queues.get(*A)
    assert isinstance(queue, ConsumeQueue)
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
    store.close()
