"""Disks that fail, fill up or forget, one fault at a time: what a producer is told, and what is left."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.store.proofs import Promises, Queue, a_proof, name_in, served

from flaremq.base.errors import DiskFull, FlushFailed, PageCacheBusy, StoreClosed
from flaremq.model.record import decode_many
from flaremq.store.api import PutStatus
from flaremq.store.files.disk import Disk, DiskFile
from flaremq.store.settings import FlushDisk
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import drafts_of, put_together, small_settings
from flaremq.testing.fakes.disk import FaultyDisk, PowerLossDisk

A: Queue = (b"A", 0)
SYNC: dict[str, Any] = {"flush_disk": FlushDisk.SYNC_FLUSH}


class PickyDisk(FaultyDisk):
    """Its syncs fail once for files below a folder of this name."""

    failing = ""

    def before_sync(self, file: DiskFile) -> None:
        if self.failing in file.path.parts:
            self.failing = ""
            raise FlushFailed(f"{file.path}: the disk of this test said no, once")
        super().before_sync(file)


@contextmanager
def opened(root: Path, disk: Disk | None = None, **options: Any) -> Iterator[MessageStore]:
    store = MessageStore(small_settings(root, **options), clock=ManualClock(), disk=disk)
    store.open()
    try:
        yield store
    finally:
        store.close()


def put(store: MessageStore, *names: str, queue: Queue = A, size: int = 0) -> None:
    for name in names:
        assert store.put(a_proof(queue, name, size)).status is PutStatus.PUT_OK


_before: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def threads_of_others() -> None:
    """Other tests may keep servers in this process."""
    _before.clear()
    _before.update(threading.enumerate())


def our_threads() -> set[str]:
    """Those that this test has started and not ended."""
    left = set(threading.enumerate()) - _before
    return {thread.name for thread in left if thread.name.startswith("flaremq-")}


# A sync that fails.


def test_after_a_failed_sync_nothing_is_taken_any_more_whatever_the_disk_says_later(tmp_path: Path) -> None:
    disk = PickyDisk()
    with opened(tmp_path, disk, **SYNC) as store:
        put(store, "safe")
        safe = store.flushed.value
        disk.failing = "commitlog"
        with pytest.raises(FlushFailed):
            store.put(a_proof(A, "lost"))
        assert disk.failing == "", "it failed, and would not again"
        store.workers.log_flusher.flush(0)
        assert store.flushed.value == safe
        for take in (
            lambda: store.put(a_proof(A, "later")),
            lambda: store.put(a_proof(A, "later"), wait=False),
            lambda: put_together(store, [a_proof(A, "later")]),
            lambda: store.put_many(drafts_of([a_proof(A, "later")], store.offsets)),
        ):
            with pytest.raises(FlushFailed):
                take()
    assert (tmp_path / "abort").exists()
    assert not our_threads()
    with opened(tmp_path) as store:
        assert served(store)[A][0] == "safe"
        assert "later" not in served(store)[A]


def test_under_async_flush_the_next_put_hears_of_a_failed_sync(tmp_path: Path) -> None:
    disk = PickyDisk()
    with opened(tmp_path, disk) as store:
        put(store, "taken")
        disk.failing = "commitlog"
        with pytest.raises(FlushFailed):
            store.workers.log_flusher.flush(0)
        with pytest.raises(FlushFailed):
            store.put(a_proof(A, "refused"))
    assert (tmp_path / "abort").exists()


def test_a_close_that_cannot_sync_says_so_and_closes_all_the_same(tmp_path: Path) -> None:
    disk = PickyDisk()
    store = MessageStore(small_settings(tmp_path), clock=ManualClock(), disk=disk)
    store.open()
    put(store, "taken")
    disk.failing = "commitlog"
    with pytest.raises(FlushFailed):
        store.close()
    assert (tmp_path / "abort").exists()
    assert not our_threads()
    with opened(tmp_path) as store:
        assert served(store) == {A: ["taken"]}


@pytest.mark.parametrize("part", ["consumequeue", "index"])
def test_a_queue_that_could_not_be_synced_is_vouched_for_no_more(tmp_path: Path, part: str) -> None:
    disk = PickyDisk()
    with opened(tmp_path, disk, index_entries=5) as store:
        store.workers.queue_flusher._worker.stop()
        put(store, *[f"m{i}" for i in range(10)])
        store.dispatch()
        disk.failing = part
        with pytest.raises(FlushFailed):
            store.workers.queue_flusher.flush(0)
        put(store, "later")
        store.dispatch()
        store.workers.queue_flusher.flush(0)
        assert store.checkpoint.queue_time_ms == store.checkpoint._flushed[1] == 0
        assert store.checkpoint._flushed[2] == 0
    assert (tmp_path / "abort").exists()
    with opened(tmp_path) as store:
        assert served(store)[A][-1] == "later"


# No space.


def until_full(store: MessageStore, batch: int) -> tuple[list[str], DiskFull]:
    """Put batches until the disk takes no more: names of what was taken, and what was said then."""
    names: list[str] = []
    while True:
        more = [f"m{len(names) + i}" for i in range(batch)]
        end, offset = store.log.end, store.offsets.get(*A)
        try:
            results = put_together(store, [a_proof(A, name, 2000) for name in more])
        except DiskFull as error:
            assert (store.log.end, store.offsets.get(*A)) == (end, offset), "a part of the batch was taken"
            return names, error
        assert [result.queue_offset for result in results] == list(range(offset, offset + batch))
        names += more


@pytest.mark.parametrize("batch", [1, 7])
def test_a_full_disk_takes_a_batch_whole_or_not_and_goes_on_when_there_is_space(
    tmp_path: Path, batch: int
) -> None:
    disk = FaultyDisk(free_bytes=5 * 64 * 1024)
    with opened(tmp_path, disk) as store:
        names, error = until_full(store, batch)
        assert len(names) > 3 * 18
        assert "commitlog" in str(error) and error.retriable
        with pytest.raises(DiskFull):
            put_together(store, [a_proof(A, "again", 7_000), a_proof(A, "again", 7_000)])
        disk.free_bytes = 1 << 30
        put(store, "space again", size=3000)
        assert served(store) == {A: [*names, "space again"]}
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize("options", [{}, {"ext_enabled": True}, {"index_entries": 7}], ids=str)
@pytest.mark.parametrize("step", [300, 4096])
def test_dispatch_waits_for_space_and_skips_nothing(
    tmp_path: Path, options: dict[str, Any], step: int
) -> None:
    disk = FaultyDisk()
    with opened(tmp_path, disk, **options) as store:
        store.workers.dispatch.stop()
        promises = Promises()
        for i in range(150):
            queue = (b"A", i % 2)
            result = store.put(a_proof(queue, f"m{i}"))
            promises.add(queue, result.queue_offset, f"m{i}")
        disk.free_bytes, waits = 0, 0
        while store.dispatcher.behind:
            try:
                store.dispatch()
            except DiskFull:
                waits += 1
                disk.free_bytes += step
        assert waits > 1
        promises.check(store)


def test_the_thread_that_dispatches_goes_on_by_itself_when_there_is_space(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with opened(tmp_path, disk) as store:
        arrived = threading.Event()

        class Listener:
            def arrived(self, topic: bytes, queue_id: int, max_offset: int) -> None:
                if max_offset == 3:
                    arrived.set()

        store.listen(Listener())
        put(store, "first")
        disk.free_bytes = 0
        put(store, "second", "third", queue=A)
        store.workers.dispatch.wake()
        disk.free_bytes = 1 << 20
        store.workers.dispatch.wake()
        assert arrived.wait(30)
        assert served(store) == {A: ["first", "second", "third"]}


def test_a_store_is_closed_on_a_full_disk_and_completes_its_queues_at_the_next_start(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with opened(tmp_path, disk) as store:
        store.workers.dispatch.stop()
        put(store, "taken")
        disk.free_bytes = 0
    assert (tmp_path / "abort").exists()
    assert not our_threads()
    with opened(tmp_path) as store:
        assert served(store) == {A: ["taken"]}


def test_a_start_on_a_full_disk_is_refused_and_leaves_nothing_locked(tmp_path: Path) -> None:
    with pytest.raises(DiskFull), opened(tmp_path, FaultyDisk(free_bytes=0)):
        pass
    assert not our_threads()
    with opened(tmp_path) as store:
        put(store, "fine")


@pytest.mark.parametrize("call", ["mkdir", "ftruncate", "write"])
def test_a_disk_without_room_for_a_name_is_full_and_nothing_worse(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    disk, path = Disk(), tmp_path / "new" / "file"
    monkeypatch.setattr(Path if call == "mkdir" else os, call, full)
    with pytest.raises(DiskFull, match="No space left"):
        disk.replace(path, b"content") if call == "write" else disk.create(path, 4096)


# Parts that reached the disk, and parts that did not.


def log_file(root: Path, offset: int = 0) -> Path:
    return root / "commitlog" / f"{offset:020d}"


def killed(store: MessageStore) -> None:
    store.flags.failed(FlushFailed("this process is no more"))
    store.close()


WHOLE: dict[str, Any] = {"append_crc": True, "force_record_crc": True}


@pytest.mark.parametrize("part", range(12))
def test_a_record_of_which_only_parts_are_there_is_cut_with_all_behind_it(tmp_path: Path, part: int) -> None:
    store = MessageStore(small_settings(tmp_path, **WHOLE), clock=ManualClock())
    store.open()
    put(store, "whole", size=1000)
    begin = store.log.end
    put(store, "torn", size=1000)
    size = store.log.end - begin
    put(store, "behind", size=1000)
    killed(store)
    data = bytearray(log_file(tmp_path).read_bytes())
    at, length = begin + size * part // 12, size // 12
    data[at : at + length] = bytes(length)
    log_file(tmp_path).write_bytes(data)
    with opened(tmp_path, **WHOLE) as store:
        assert served(store) == {A: ["whole"]}
        assert store.log.end == begin
        assert not any(log_file(tmp_path).read_bytes()[begin:])
        put(store, "next")
        assert served(store) == {A: ["whole", "next"]}


def test_entries_of_a_log_page_that_was_lost_are_dropped_and_made_again(tmp_path: Path) -> None:
    disk = PowerLossDisk()
    store = MessageStore(small_settings(tmp_path, **WHOLE), clock=ManualClock(), disk=disk)
    store.open()
    store.workers.log_flusher._flusher.stop()
    put(store, "safe")
    store.workers.log_flusher.flush(0)
    put(store, "lost 1", "lost 2")
    store.dispatch()
    store.workers.queue_flusher.flush(0)
    disk.lose_power(None)
    killed(store)
    with opened(tmp_path) as store:
        assert store.report is not None
        assert not store.report.clean
        assert served(store) == {A: ["safe"]}
        put(store, "next")
        assert served(store) == {A: ["safe", "next"]}


def test_a_log_whose_only_file_is_damaged_at_its_head_goes_on_where_it_began(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, *[f"m{i}" for i in range(30)], size=5000)
        begin = store.log.files.files[-1].offset
    for path in log_file(tmp_path).parent.iterdir():
        if path != log_file(tmp_path, begin):
            path.unlink()
    with log_file(tmp_path, begin).open("r+b") as file:
        file.write(bytes(100))
    with opened(tmp_path, **SYNC) as store:
        assert store.log.end == store.log.begin == store.flushed.value == begin
        put(store, "next", queue=(b"B", 0))
        assert store.flushed.value == store.log.end > begin
        store.dispatch()
        (message,) = decode_many(store.get(b"B", 0, 0).gathered())
        assert (message.physical_offset, name_in((b"B", 0), message.body)) == (begin, "next")


# A start or a stop that does not get through.


class DyingDisk(FaultyDisk):
    """Ends the start of a store at one of the things that it does."""

    left = 1 << 62

    def _live(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # Log files that are made ahead: no part of what a start finds and mends.
        self.left -= 1
        if self.left < 0:
            raise SystemExit("the process was killed here")

    def create(self, path: Path, size: int, *, reserved: bool = False) -> None:
        self._live()
        super().create(path, size, reserved=reserved)

    def delete(self, path: Path) -> None:
        self._live()
        super().delete(path)

    def delete_folder(self, folder: Path) -> None:
        self._live()
        super().delete_folder(folder)

    def take(self, path: Path, at: int, size: int) -> None:
        self._live()
        super().take(path, at, size)


def starts(root: Path, operations: int) -> bool:
    """Start a store, and let it die after so many operations; whether it came through."""
    disk = DyingDisk()
    disk.left = operations
    try:
        with opened(root, disk):
            disk.left = 1 << 62
    except SystemExit:
        return False
    return True


@pytest.mark.parametrize("damage", ["queue", "queues", "entries", "log"])
def test_a_start_that_died_half_way_was_no_clean_stop(tmp_path: Path, damage: str) -> None:
    """Wherever it dies, the next one finds all that is left to be done."""
    names = {(topic, 0): [f"m{i}" for i in range(60)] for topic in (b"A", b"B", b"C")}
    with opened(tmp_path) as store:  # The checkpoint vouches for the first queue.
        for queue in names:
            put(store, *names[queue], queue=queue, size=1000)
            cast(ManualClock, store.clock).advance_ms(10_000)
    if damage == "log":
        names[b"C", 0].pop()
        last = max(log_file(tmp_path).parent.iterdir())
        data = last.read_bytes().rstrip(b"\0")
        last.write_bytes((data[:-1000] + bytes(1000)).ljust(64 * 1024, b"\0"))
    else:
        for path in (tmp_path / "consumequeue").rglob("0000*" if damage == "queues" else "A/0/0000*"):
            path.write_bytes(b"\xff" * (1000 if damage == "entries" else 7))
    for life in range(100):
        root = tmp_path.with_name(f"{tmp_path.name}-{life}")
        shutil.copytree(tmp_path, root)
        survived = starts(root, life)
        with opened(root, FaultyDisk()) as store:
            assert served(store) == names
        shutil.rmtree(root)
        if survived:
            return
    pytest.fail("a hundred operations were not enough")


def test_a_put_that_waited_while_the_store_was_closed_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, "before")
        checked, closed, answers = threading.Event(), threading.Event(), list[Exception]()
        check = store.check_writable

        def slow_check() -> None:
            check()
            checked.set()
            closed.wait(30)

        def late_put() -> None:
            try:
                store.put(a_proof(A, "late"))
            except StoreClosed as error:
                answers.append(error)

        store.check_writable = slow_check  # type: ignore[method-assign]
        thread = threading.Thread(target=late_put)
        thread.start()
        assert checked.wait(30)
        store.close()
        store.check_writable = check  # type: ignore[method-assign]
        closed.set()
        thread.join()
        assert len(answers) == 1
    with opened(tmp_path) as store:
        assert served(store) == {A: ["before"]}


# A reader in the way, and answers to a producer that is too fast.


def test_a_reader_keeps_its_bytes_when_its_file_is_deleted(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with opened(tmp_path, disk, destroy_interval_ms=60_000) as store:
        clock = cast(ManualClock, store.clock)
        put(store, *[f"m{i}" for i in range(40)], size=5000)
        store.dispatch()
        held = store.record(0)
        assert held is not None
        content = bytes(held)
        disk.ratio = 0.89
        assert store.retention.run_once() == 0
        clock.advance_ms(60_000)
        assert store.retention.run_once() > 1
        assert not log_file(tmp_path).exists()
        assert bytes(held) == content
        begin = store.min_offset(*A)
        assert begin > 20 and store.get(*A, begin).records
        assert store.record(0) is None


def test_an_append_that_hangs_is_told_to_whoever_comes_next(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        clock = cast(ManualClock, store.clock)
        store.flags.append_began()  # Another thread, in the middle of it.
        clock.advance_ms(1_001)
        with pytest.raises(PageCacheBusy, match="1001 ms, limit is 1000") as caught:
            store.put(a_proof(A, "refused"))
        assert caught.value.retriable and caught.value.response_code == 2
        store.flags.append_ended()
        clock.advance_ms(1_000)
        put(store, "taken")


def test_a_file_that_was_deleted_before_its_sync_is_no_failure(tmp_path: Path) -> None:
    disk = Disk()
    disk.create(tmp_path / "file", 4096)
    file = disk.open(tmp_path / "file", 4096)
    disk.delete(tmp_path / "file")
    file.sync()
    file.close()
