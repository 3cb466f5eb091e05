from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import (
    BodyTooLarge,
    FileNotReady,
    InvalidName,
    PropertiesTooLong,
    RecordTooLarge,
)
from flaremq.model.columns import Draft
from flaremq.model.layout import BLANK_MAGIC, BLANK_SIZE
from flaremq.store.commitlog import CommitLog
from flaremq.store.files.disk import Disk
from flaremq.store.queue.nextoffsets import QueueOffsets
from flaremq.store.settings import FlushDisk
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import NOW_MS, STORE_HOST, a_message, drafts_of, small_settings

FILE_SIZE = 64 * 1024


def log_in(root: Path, disk: Disk | None = None, **options: Any) -> CommitLog:
    settings = small_settings(root, **options)
    log = CommitLog(disk or Disk(), settings, ManualClock(NOW_MS), STORE_HOST, QueueOffsets())
    log.start()
    return log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    log = log_in(tmp_path)
    yield log
    log.stop()
    log.close()


def append(log: CommitLog, *bodies: bytes, together: bool = False) -> list[tuple[int, int]]:
    drafts = drafts_of([a_message(body) for body in bodies], log.offsets)
    if together:
        drafts.rows[Draft.TOGETHER] = len(bodies)
    assert log.append_many(drafts) == len(bodies)
    width = Draft.WIDTH
    return [
        (drafts.rows[r + Draft.PHYSICAL_OFFSET], drafts.rows[r + Draft.SIZE])
        for r in range(0, len(drafts.rows), width)
    ]


OVERHEAD = 91 + len(b"TopicTest") + len(b"TAGS\x01TagA\x02")


def test_append_says_where_each_record_landed(log: CommitLog) -> None:
    assert append(log, b"1234", b"12") == [(0, OVERHEAD + 4), (OVERHEAD + 4, OVERHEAD + 2)]
    assert log.end == log.readable_end == 2 * OVERHEAD + 6


def test_a_record_that_does_not_fit_starts_the_next_file(log: CommitLog, tmp_path: Path) -> None:
    size = 13_000
    while FILE_SIZE - log.end >= OVERHEAD + size + BLANK_SIZE:
        append(log, bytes(size))
    left = FILE_SIZE - log.end
    assert append(log, bytes(left - OVERHEAD - BLANK_SIZE + 1)) == [(FILE_SIZE, left - BLANK_SIZE + 1)]
    first = (tmp_path / "commitlog" / ("0" * 20)).read_bytes()
    assert struct.unpack_from(">ii", first, FILE_SIZE - left) == (left, BLANK_MAGIC)


def test_the_largest_record_leaves_room_for_just_a_blank(tmp_path: Path) -> None:
    log = log_in(tmp_path, message_size_max=60_000)
    body = FILE_SIZE - BLANK_SIZE - OVERHEAD
    assert append(log, bytes(min(body, 60_000)))[0][0] == 0
    log.stop()


def test_a_batch_lies_in_one_file(log: CommitLog) -> None:
    append(log, *[bytes(10_000)] * 5)
    places = append(log, *[bytes(5_000)] * 3, together=True)
    assert [offset // FILE_SIZE for offset, _ in places] == [1, 1, 1]


def test_a_batch_that_no_file_can_hold_is_refused(log: CommitLog) -> None:
    with pytest.raises(RecordTooLarge, match="limit is 65528"):
        append(log, *[bytes(12_000)] * 6, together=True)
    append(log, b"still works")


@pytest.mark.parametrize(
    ("message", "error", "words"),
    [
        (a_message(bytes(16 * 1024 + 1)), BodyTooLarge, "16385 bytes, limit is 16384"),
        (a_message(properties=b"a\x01" + bytes(33_000)), PropertiesTooLong, "limit is 32767"),
    ],
)
def test_what_is_too_large_changes_nothing(
    log: CommitLog, message: Any, error: type[Exception], words: str
) -> None:
    drafts = drafts_of([a_message(), message], log.offsets)
    with pytest.raises(error, match=words):
        log.append_many(drafts)
    assert (log.end, list(log.offsets.next)) == (0, [0])


def test_a_record_over_its_own_limit_is_refused(tmp_path: Path) -> None:
    log = log_in(tmp_path, commitlog_file_size=4096 * 8, message_size_max=1024 * 20)
    with pytest.raises(RecordTooLarge, match="limit is 32760"):
        log.append_many(
            drafts_of([a_message(bytes(20_000), properties=b"a\x01" + b"x" * 20_000)], log.offsets)
        )
    log.stop()


def test_an_empty_topic_is_refused(log: CommitLog) -> None:
    drafts = drafts_of([a_message()], log.offsets)
    drafts.rows[Draft.TOPIC_SIZE] = 0
    with pytest.raises(InvalidName, match="topic of 0 bytes"):
        log.append_many(drafts)


def test_the_next_file_is_made_before_it_is_needed(log: CommitLog, tmp_path: Path) -> None:
    append(log, b"x")
    log.preallocator.take(FILE_SIZE, log.files.path_of(FILE_SIZE))  # Returns when it is ready.
    made = {path.name for path in (tmp_path / "commitlog").iterdir()}
    assert {f"{0:020d}", f"{FILE_SIZE:020d}"} <= made, "the one after it may be there too"


def test_a_clean_stop_removes_the_spare_file(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    append(log, b"x")
    log.stop()
    log.close()
    assert [p.name for p in (tmp_path / "commitlog").iterdir()] == [f"{0:020d}"]


def test_rows_that_found_room_stand_when_the_next_file_cannot_be_had(tmp_path: Path) -> None:
    class FullDisk(Disk):
        full = False

        def create(self, path: Path, size: int, *, reserved: bool = False) -> None:
            if self.full:
                raise FileNotReady("no space for another file")
            super().create(path, size, reserved=reserved)

    disk = FullDisk()
    log = log_in(tmp_path, disk)
    append(log, b"x")
    log.preallocator.stop()
    disk.full = True
    drafts = drafts_of([a_message(bytes(10_000)) for _ in range(10)], log.offsets)
    stored = log.append_many(drafts)
    assert stored == 6
    assert log.offsets.next[0] == 7
    with pytest.raises(FileNotReady, match="no space"):
        log.append_many(drafts_of([a_message(bytes(10_000))], log.offsets))
    disk.full = False
    append(log, bytes(10_000))
    assert log.end > FILE_SIZE


def test_flush_moves_the_mark_over_whole_files(log: CommitLog) -> None:
    append(log, *[bytes(10_000)] * 8)
    assert log.flushed.value == 0
    log.flush(0)
    assert log.flushed.value == log.end > FILE_SIZE


def test_flush_waits_for_enough_dirty_pages(log: CommitLog) -> None:
    append(log, bytes(5_000))
    log.flush(4)
    assert log.flushed.value == 0
    append(log, bytes(12_000))
    log.flush(4)
    assert log.flushed.value == log.end


@pytest.mark.parametrize(
    ("options", "confirmed"),
    [
        ({}, "end"),
        ({"flush_disk": FlushDisk.SYNC_FLUSH}, "flushed"),
        ({"flush_disk": FlushDisk.SYNC_FLUSH, "read_uncommitted": True}, "end"),
    ],
)
def test_what_may_be_seen_follows_the_flush_type(tmp_path: Path, options: Any, confirmed: str) -> None:
    log = log_in(tmp_path, **options)
    append(log, b"x")
    assert log.confirmed == (log.end if confirmed == "end" else 0)
    log.flush(0)
    assert log.confirmed == log.end
    log.stop()


def test_with_the_pool_only_committed_bytes_are_read_or_flushed(tmp_path: Path) -> None:
    log = log_in(tmp_path, pool_enabled=True, pool_size=2)
    ((offset, size),) = append(log, b"pooled")
    assert (log.end, log.readable_end, log.confirmed) == (size, 0, 0)
    assert log.slice(offset, size) is None
    log.flush(0)
    assert log.flushed.value == 0
    assert log.commit(0)
    assert not log.commit(0)
    assert log.readable_end == size
    assert bytes(log.slice(offset, size) or b"")[88:94] == b"pooled"
    log.stop()


def test_a_full_file_gives_its_buffer_back(tmp_path: Path) -> None:
    log = log_in(tmp_path, pool_enabled=True, pool_size=2)
    append(log, *[bytes(10_000)] * 8)
    assert log.pool is not None
    assert log.pool.available == 0
    log.commit(0)
    assert log.pool.available == 1
    assert log.readable_end == log.end
    log.stop()


def test_an_empty_pool_fails_at_once_only_if_asked_to(tmp_path: Path) -> None:
    bodies = [bytes(10_000)] * 7
    strict = log_in(tmp_path / "a", pool_enabled=True, pool_size=1, pool_fast_fail=True)
    drafts = drafts_of([a_message(body) for body in bodies], strict.offsets)
    assert strict.append_many(drafts) == 6
    with pytest.raises(FileNotReady, match="all 1 buffers"):
        strict.append_many(drafts_of([a_message(bytes(10_000))], strict.offsets))
    lenient = log_in(tmp_path / "b", pool_enabled=True, pool_size=1)
    append(lenient, *bodies)
    for log in (strict, lenient):
        log.stop()


def test_a_warm_file_is_wholly_on_disk(tmp_path: Path) -> None:
    log = log_in(tmp_path, warm_enabled=True, flush_disk=FlushDisk.SYNC_FLUSH, warm_flush_least_pages=4)
    append(log, b"x")
    assert (tmp_path / "commitlog" / ("0" * 20)).stat().st_blocks * 512 >= FILE_SIZE
    log.stop()


def test_several_folders_take_turns_and_a_full_one_is_passed_over(tmp_path: Path) -> None:
    class LopsidedDisk(Disk):
        full: Path | None = None

        def used_ratio(self, path: Path) -> float:
            return 0.99 if path == self.full else 0.1

    disk = LopsidedDisk()
    paths = (str(tmp_path / "a"), str(tmp_path / "b"))
    log = log_in(tmp_path, disk, commitlog_paths=paths)
    placed = [log.files.path_of(i * FILE_SIZE).parent.name for i in range(4)]
    assert placed == ["a", "b", "a", "b"]
    disk.full = tmp_path / "a"
    assert {log.files.path_of(i * FILE_SIZE).parent.name for i in range(4)} == {"b"}
    log.stop()


def test_bytes_of_another_log_are_taken_as_they_are(log: CommitLog, tmp_path: Path) -> None:
    other = log_in(tmp_path / "other")
    append(other, b"one", b"two")
    data = other.slice(0, other.end)
    assert data is not None
    log.append_raw(data)
    assert log.slice(0, log.end) == data
    other.stop()


@given(sizes=st.lists(st.integers(0, 16_384), max_size=25))
def test_no_record_straddles_files(sizes: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    log = log_in(tmp_path_factory.mktemp("log"))
    for size in sizes:
        ((offset, length),) = append(log, bytes(size))
        assert offset // FILE_SIZE == (offset + length + BLANK_SIZE - 1) // FILE_SIZE
    log.stop()
    log.close()
