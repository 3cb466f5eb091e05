"""What holds for every queue, whatever its entries look like: the suite of the seam `store.api.Queue`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from flaremq.model.layout import BATCH_ENTRY_SIZE, ENTRY_FORMAT, ENTRY_SIZE
from flaremq.store.api import Boundary, Queue
from flaremq.store.files.disk import Disk
from flaremq.store.files.filequeue import FileQueue
from flaremq.store.queue.batchconsumequeue import BatchConsumeQueue, BatchEntry
from flaremq.store.queue.consumequeue import ConsumeQueue

SIZE = 100  # Of each record.
FIRST_MS = 10_000
PER_FILE = 4


def plain(folder: Path, count: int) -> Queue:
    queue = ConsumeQueue("T", 0, FileQueue(Disk(), [folder], PER_FILE * ENTRY_SIZE))
    for n in range(count):
        entry = struct.pack(ENTRY_FORMAT, n * SIZE, SIZE, n)
        queue.append(memoryview(entry), n, (n + 1) * SIZE)
    return queue


def batches(folder: Path, count: int) -> Queue:
    """One message in each."""
    queue = BatchConsumeQueue(FileQueue(Disk(), [folder], PER_FILE * BATCH_ENTRY_SIZE))
    for n in range(count):
        queue.append(BatchEntry(n * SIZE, SIZE, n, FIRST_MS + n, n, 1))
    return queue


Made = Callable[[int], Queue]


@pytest.fixture(params=[plain, batches])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    return lambda count: request.param(tmp_path / "queue", count)


def store_time(offset: int, size: int) -> int:
    assert size == SIZE
    return FIRST_MS + offset // SIZE


def test_a_new_queue_is_empty_and_has_no_room(made: Made) -> None:
    queue = made(0)
    assert (queue.min_offset, queue.max_offset, queue.newest, queue.file_count) == (0, 0, -1, 0)
    assert queue.locate(0) is None and queue.listed(0, 10) == [] and not queue.has_room(1)
    assert queue.offset_by_time(FIRST_MS, Boundary.LOWER, 0, store_time) == 0


def test_every_message_is_located(made: Made) -> None:
    queue = made(10)
    for n in range(10):
        found = queue.locate(n)
        assert found is not None and (found.physical_offset, found.size) == (n * SIZE, SIZE)
        assert found.store_ms in (None, FIRST_MS + n)
    assert queue.locate(10) is None


def test_entries_are_listed_as_far_as_they_are_there(made: Made) -> None:
    queue = made(10)
    assert queue.listed(8, 5) == [(8 * SIZE, SIZE, 8), (9 * SIZE, SIZE, 9)]
    assert queue.listed(2, 3) == [(n * SIZE, SIZE, n) for n in (2, 3, 4)]
    assert queue.listed(10, 3) == []


def test_room_ends_with_the_newest_file(made: Made) -> None:
    queue = made(PER_FILE + 1)
    assert queue.has_room(PER_FILE - 1) and not queue.has_room(PER_FILE)


@pytest.mark.parametrize("boundary", list(Boundary))
def test_a_message_is_found_by_its_time(made: Made, boundary: Boundary) -> None:
    queue = made(10)
    found = [queue.offset_by_time(FIRST_MS + n, boundary, 0, store_time) for n in range(10)]
    assert found == list(range(10))


def test_what_left_the_log_leaves_the_queue(made: Made) -> None:
    queue = made(10)
    queue.correct_min(6 * SIZE)
    assert queue.min_offset == 6
    assert queue.delete_before(6 * SIZE) == 1 and queue.file_count == 2
    assert queue.offset_by_time(FIRST_MS, Boundary.LOWER, 6 * SIZE, store_time) == 6


def test_a_log_that_was_cut_cuts_the_queue(made: Made) -> None:
    queue = made(10)
    queue.truncate_to(7 * SIZE)
    assert queue.max_offset == 7 and queue.locate(7) is None and queue.newest < 7 * SIZE + 1


def test_a_queue_is_found_again_after_a_restart(made: Made, tmp_path: Path) -> None:
    queue = made(10)
    queue.flush(0)
    queue.close()
    again = made(0)
    again.load()
    again.recover()
    assert again.max_offset == 10 and again.newest == queue.newest
    assert again.folder == tmp_path / "queue"


def test_a_destroyed_queue_begins_anew(made: Made) -> None:
    queue = made(10)
    queue.destroy()
    assert (queue.min_offset, queue.max_offset, queue.newest, queue.file_count) == (0, 0, -1, 0)


def test_without_extension_units_there_is_no_address(made: Made) -> None:
    queue = made(3)
    assert queue.first_address() is None and queue.last_address() is None
