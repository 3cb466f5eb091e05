from __future__ import annotations

import struct
from pathlib import Path

import pytest

from flaremq.base.errors import CorruptStore
from flaremq.model.layout import ENTRY_FORMAT, FILLER_SIZE
from flaremq.store.files.disk import Disk
from flaremq.store.files.filequeue import FileQueue
from flaremq.store.files.mappedfile import OpenFiles
from flaremq.store.queue.consumequeue import ConsumeQueue

PER_FILE = 10


def queue_in(folder: Path) -> ConsumeQueue:
    return ConsumeQueue("T", 0, FileQueue(Disk(), [folder], PER_FILE * 20, open_files=OpenFiles(8)))


def entries(*offsets: int, size: int = 50) -> memoryview:
    return memoryview(b"".join(struct.pack(ENTRY_FORMAT, offset, size, 7) for offset in offsets))


def filled(folder: Path, count: int, first: int = 0) -> ConsumeQueue:
    queue = queue_in(folder)
    offsets = [100 * (first + i) for i in range(count)]
    queue.append(entries(*offsets), first, offsets[-1] + 50)
    return queue


def test_the_nth_entry_lies_at_byte_twenty_n(tmp_path: Path) -> None:
    queue = filled(tmp_path, 25)
    assert (queue.min_offset, queue.max_offset, queue.file_count) == (0, 25, 3)
    assert queue.entry(13) == (1300, 50, 7)
    assert (tmp_path / f"{200:020d}").read_bytes()[60:80] == bytes(entries(1300))


def test_reads_end_with_their_file(tmp_path: Path) -> None:
    queue = filled(tmp_path, 25)
    assert len(queue.entries(7, 100)) == 3 * 20
    assert len(queue.entries(20, 100)) == 5 * 20
    assert len(queue.entries(25, 100)) == 0
    assert len(queue.entries(99, 100)) == 0
    assert queue.next_file_offset(7) == 10


def test_a_queue_that_begins_late_is_filled_up_to_its_first_message(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3, first=25)
    assert (queue.min_offset, queue.max_offset) == (25, 28)
    data = (tmp_path / f"{400:020d}").read_bytes()
    assert data[:100] == struct.pack(ENTRY_FORMAT, 0, FILLER_SIZE, 0) * 5
    queue.correct_min(0)
    assert queue.min_offset == 25


def test_fillers_are_not_taken_for_messages_after_a_restart(tmp_path: Path) -> None:
    """Java lands on a filler here and skips real messages."""
    filled(tmp_path, 3, first=25).close()
    queue = queue_in(tmp_path)
    queue.load()
    queue.recover()
    queue.correct_min(0)
    assert (queue.min_offset, queue.max_offset, queue.physical_end) == (25, 28, 2750)


def test_missing_entries_stay_empty_and_later_ones_keep_their_places(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    queue.append(entries(900), 9, 950)
    assert queue.entry(9) == (900, 50, 7)
    assert queue.entry(5) == (0, FILLER_SIZE, 0)


def test_a_gap_that_cannot_be_is_passed_over(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    queue.append(entries(900), 1 << 40, 950)
    assert (queue.max_offset, queue.entry(3)) == (4, (900, 50, 7))


def test_recovery_finds_the_end_and_wipes_what_is_stale_behind_it(tmp_path: Path) -> None:
    filled(tmp_path, 25).close()
    path = tmp_path / f"{400:020d}"
    data = bytearray(path.read_bytes())
    data[40:60] = bytes(20)  # Entry 22 never reached the disk, 23 and 24 did.
    path.write_bytes(data)
    queue = queue_in(tmp_path)
    queue.load()
    queue.recover()
    assert (queue.max_offset, queue.physical_end) == (22, 2150)
    assert not any(path.read_bytes()[40:])


def test_an_old_file_that_points_nowhere_is_reported(tmp_path: Path) -> None:
    filled(tmp_path, 65).close()
    path = tmp_path / f"{0:020d}"
    path.write_bytes(bytes(path.stat().st_size))
    queue = queue_in(tmp_path)
    queue.load()
    with pytest.raises(CorruptStore, match="point nowhere"):
        queue.recover()


@pytest.mark.parametrize(("cut", "left"), [(2500, 25), (1250, 13), (1200, 12), (1000, 10), (0, 0)])
def test_truncating_keeps_entries_of_records_before_the_cut(tmp_path: Path, cut: int, left: int) -> None:
    queue = filled(tmp_path, 25)
    queue.truncate_to(cut)
    assert queue.max_offset == left
    assert queue.physical_end == (100 * (left - 1) + 50 if left else -1)
    queue.append(entries(5000), left, 5050)
    assert queue.entry(left) == (5000, 50, 7)


@pytest.mark.parametrize(
    ("log_min", "expected"), [(0, 0), (1, 1), (100, 1), (1150, 12), (2400, 24), (9999, 25)]
)
def test_the_first_offset_follows_the_log(tmp_path: Path, log_min: int, expected: int) -> None:
    queue = filled(tmp_path, 25)
    queue.correct_min(log_min)
    assert queue.min_offset == expected


def test_files_go_when_their_last_message_has_left_the_log(tmp_path: Path) -> None:
    queue = filled(tmp_path, 35)
    assert queue.delete_before(900) == 0
    assert queue.delete_before(1000) == 1
    assert queue.delete_before(1 << 40) == 2  # Never the last one.
    queue.correct_min(1 << 40)
    assert (queue.min_offset, queue.max_offset) == (35, 35)


def test_only_queues_with_enough_dirty_pages_are_flushed(tmp_path: Path) -> None:
    queue = queue_in(tmp_path)
    queue.append(entries(0), 0, 50)
    files = queue._files.files
    queue.flush(2)
    assert files[0].flushed == 0
    queue.flush(0)
    assert files[0].flushed == 20
