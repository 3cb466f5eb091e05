"""Queues of inner batches: bytes, searching, and the same queue after restart, truncation and deletion."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import CorruptStore
from flaremq.store.api import Boundary
from flaremq.store.files.disk import Disk
from flaremq.store.files.filequeue import FileQueue, file_name
from flaremq.store.queue.batchconsumequeue import BatchConsumeQueue, BatchEntry

GOLDEN = bytes.fromhex(
    "0000000040001000 0000009f 000000000027a807 0000018bcfe5687b 0000000000000007 0003 ffffffff 00000000"
)
EXAMPLE = BatchEntry(0x40001000, 0x9F, 0x27A807, 1700000000123, 7, 3)
FILE_SIZE = 4 * 46


def opened(folder: Path) -> BatchConsumeQueue:
    return BatchConsumeQueue(FileQueue(Disk(), [folder], FILE_SIZE))


def again(folder: Path) -> BatchConsumeQueue:
    queue = opened(folder)
    queue.load()
    queue.recover()
    return queue


def an_entry(n: int, base: int, count: int = 3) -> BatchEntry:
    return BatchEntry(1000 * n, 500, n, 10_000 + 10 * n, base, count)


def filled(folder: Path, entries: int, first_base: int = 0) -> BatchConsumeQueue:
    """Batches of three: entry n at 1000*n in the log holds [3n, 3n+3), stored at 10_000 + 10n."""
    queue = opened(folder)
    for n in range(entries):
        assert queue.append(an_entry(n, first_base + 3 * n))
    return queue


def state(queue: BatchConsumeQueue) -> tuple[int, int, int]:
    return queue.min_offset, queue.max_offset, queue.max_physical_offset


def test_the_bytes_are_those_of_rocketmq(tmp_path: Path) -> None:
    queue = opened(tmp_path)
    assert queue.append(EXAMPLE)
    assert (tmp_path / file_name(0)).read_bytes() == GOLDEN + bytes(FILE_SIZE - 46)
    assert queue.find(7) == queue.find(9) == EXAMPLE


def by_time(queue: BatchConsumeQueue, time_ms: int, boundary: Boundary) -> int:
    """Batches know their own times: no record is asked."""

    def never(_offset: int, _size: int) -> int:
        raise AssertionError("a record was read")

    return queue.offset_by_time(time_ms, boundary, 0, never)


def test_an_empty_queue_has_nothing(tmp_path: Path) -> None:
    queue = opened(tmp_path)
    assert state(queue) == (0, 0, -1)
    assert queue.find(0) is None and queue.entries(0, 10) == []
    assert by_time(queue, 10_000, Boundary.LOWER) == 0
    queue.recover()
    assert state(queue) == (0, 0, -1)


def test_the_largest_physical_offset_is_the_start_of_the_last_batch(tmp_path: Path) -> None:
    assert state(filled(tmp_path, 10)) == (0, 30, 9000)


def test_a_queue_may_begin_anywhere(tmp_path: Path) -> None:
    queue = filled(tmp_path, 2, first_base=70)
    assert state(queue) == (70, 76, 1000)
    assert queue.find(69) is None and queue.find(70) == an_entry(0, 70)


def test_what_is_there_already_is_not_appended_again(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    assert not queue.append(an_entry(2, 6))
    assert not queue.append(an_entry(0, 0))
    assert queue.append(an_entry(3, 9))
    assert [entry.base_offset for entry in queue.entries(0, 10)] == [0, 3, 6, 9]


def test_a_batch_whose_offsets_are_taken_is_left_out(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    assert not queue.append(an_entry(3, 8))
    assert state(queue) == (0, 9, 2000)


@pytest.mark.parametrize(
    "entry", [an_entry(0, -1), an_entry(0, 0, 0), an_entry(0, 0, 32768), an_entry(-1, 0)]
)
def test_an_entry_that_cannot_be_is_a_bug(tmp_path: Path, entry: BatchEntry) -> None:
    with pytest.raises(AssertionError):
        opened(tmp_path).append(entry)


counts = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2)), min_size=1, max_size=18)


def placed(given_counts: list[tuple[int, int]]) -> list[BatchEntry]:
    entries, base = [], 0
    for n, (count, gap) in enumerate(given_counts):
        entries.append(an_entry(n, base + gap, count))
        base = entries[-1].end_offset
    return entries


@given(given_counts=counts, limit=st.integers(1, 20))
def test_every_offset_finds_its_batch_before_and_after_a_restart(
    tmp_path_factory: pytest.TempPathFactory, given_counts: list[tuple[int, int]], limit: int
) -> None:
    folder, entries = tmp_path_factory.mktemp("batch"), placed(given_counts)
    queue = opened(folder)
    for entry in entries:
        queue.append(entry)
    before = state(queue)
    for tried in (queue, again(folder)):
        assert state(tried) == before
        for offset in range(-1, entries[-1].end_offset + 2):
            holder = [entry for entry in entries if entry.base_offset <= offset < entry.end_offset]
            assert tried.find(offset) == (holder[0] if holder else None)
            following = [entry for entry in entries if entry.end_offset > offset]
            assert tried.entries(offset, limit) == following[:limit]
    queue.destroy()


@given(given_counts=counts, cut=st.integers(0, 19_000))
def test_a_truncated_queue_is_one_that_never_had_more(
    tmp_path_factory: pytest.TempPathFactory, given_counts: list[tuple[int, int]], cut: int
) -> None:
    folder, entries = tmp_path_factory.mktemp("batch"), placed(given_counts)
    queue = opened(folder)
    for entry in entries:
        queue.append(entry)
    queue.truncate_to(cut)
    kept = [entry for entry in entries if entry.physical_offset < cut]
    assert queue.entries(0, 100) == kept
    if kept:
        assert state(queue) == (kept[0].base_offset, kept[-1].end_offset, kept[-1].physical_offset)
        assert state(again(folder)) == state(queue)
    else:
        assert state(queue) == (entries[0].base_offset, entries[0].base_offset, -1)
    for entry in entries:
        queue.append(entry)
    assert queue.entries(0, 100) == entries
    assert again(folder).entries(0, 100) == entries
    queue.destroy()


@given(given_counts=counts, minimum=st.integers(0, 19_000), delete=st.booleans())
def test_dead_entries_are_not_found_and_the_end_stays(
    tmp_path_factory: pytest.TempPathFactory, given_counts: list[tuple[int, int]], minimum: int, delete: bool
) -> None:
    folder, entries = tmp_path_factory.mktemp("batch"), placed(given_counts)
    queue = opened(folder)
    for entry in entries:
        queue.append(entry)
    if delete:
        queue.delete_before(minimum)
    queue.correct_min(minimum)
    alive = [entry for entry in entries if entry.physical_offset >= minimum]
    assert queue.entries(0, 100) == alive
    assert queue.max_offset == entries[-1].end_offset
    assert queue.min_offset == (alive[0].base_offset if alive else queue.max_offset)
    if alive:
        assert queue.find(alive[0].base_offset - 1) is None
    following = an_entry(100, entries[-1].end_offset)
    queue.append(following)
    assert queue.entries(0, 100) == [*alive, following]
    queue.destroy()


def test_files_of_dead_entries_are_deleted_but_never_the_last(tmp_path: Path) -> None:
    queue = filled(tmp_path, 10)
    assert queue.delete_before(3000) == 0
    assert queue.delete_before(3001) == 1
    assert not (tmp_path / file_name(0)).exists()
    assert queue.min_offset == 12
    assert queue.delete_before(1 << 60) == 1
    assert (tmp_path / file_name(2 * FILE_SIZE)).exists()
    assert state(queue) == (30, 30, 9000)


def test_a_queue_without_its_first_files_recovers(tmp_path: Path) -> None:
    filled(tmp_path, 10).delete_before(4000)
    queue = again(tmp_path)
    assert state(queue) == (12, 30, 9000)
    assert queue.find(11) is None and queue.find(12) == an_entry(4, 12)
    queue.append(an_entry(10, 30))
    assert queue.find(30) == an_entry(10, 30)


def test_of_older_files_recovery_looks_at_both_ends_only(tmp_path: Path) -> None:
    filled(tmp_path, 16).close()
    oldest = tmp_path / file_name(0)
    data = oldest.read_bytes()
    oldest.write_bytes(data[:46] + bytes(46) + data[92:])
    assert again(tmp_path).max_offset == 48
    oldest.write_bytes(data[:46] + bytes(FILE_SIZE - 46))
    with pytest.raises(CorruptStore, match="point nowhere"):
        again(tmp_path)


def test_an_entry_that_cannot_be_ends_the_queue_and_later_files_go(tmp_path: Path) -> None:
    filled(tmp_path, 10).close()
    second = tmp_path / file_name(FILE_SIZE)
    second.write_bytes(second.read_bytes()[:92] + bytes(46) + second.read_bytes()[138:])
    queue = again(tmp_path)
    assert state(queue) == (0, 18, 5000)
    assert second.read_bytes()[92:] == bytes(92)
    assert not (tmp_path / file_name(2 * FILE_SIZE)).exists()


def test_entries_left_over_from_before_a_truncation_by_java_are_not_revived(tmp_path: Path) -> None:
    filled(tmp_path, 4).close()
    path = tmp_path / file_name(0)
    path.write_bytes(path.read_bytes()[: 3 * 46] + path.read_bytes()[46:92])
    assert state(again(tmp_path)) == (0, 9, 2000)


def test_a_spare_file_of_zeros_is_taken_as_empty(tmp_path: Path) -> None:
    filled(tmp_path, 4).close()
    (tmp_path / file_name(FILE_SIZE)).write_bytes(bytes(FILE_SIZE))
    queue = again(tmp_path)
    assert state(queue) == (0, 12, 3000)
    queue.append(an_entry(4, 12))
    assert (tmp_path / file_name(FILE_SIZE)).read_bytes()[:8] == (4000).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("time_ms", "lower", "upper"),
    [(9_999, 0, 0), (10_000, 0, 0), (10_015, 6, 0), (10_020, 6, 6), (10_090, 27, 27), (99_999, 27, 27)],
)
def test_batches_by_time(tmp_path: Path, time_ms: int, lower: int, upper: int) -> None:
    queue = filled(tmp_path, 10)
    assert by_time(queue, time_ms, Boundary.LOWER) == lower
    assert by_time(queue, time_ms, Boundary.UPPER) == upper


def test_dead_batches_are_not_found_by_time(tmp_path: Path) -> None:
    queue = filled(tmp_path, 10)
    queue.correct_min(4000)
    assert by_time(queue, 10_010, Boundary.LOWER) == 12
    assert by_time(queue, 10_010, Boundary.UPPER) == 12, "none has this time: the oldest that is alive"


def test_a_flush_counts_pages(tmp_path: Path) -> None:
    files = FileQueue(Disk(), [tmp_path], 46 * 200)
    queue = BatchConsumeQueue(files)
    for n in range(100):
        queue.append(an_entry(n, 3 * n))
    queue.flush(2)
    assert files.files[0].flushed == 0
    queue.flush(1)
    assert files.files[0].flushed == 4600
    queue.append(an_entry(100, 300))
    queue.flush(1)
    assert files.files[0].flushed == 4600
    queue.flush()
    assert files.files[0].flushed == 4646


def test_a_destroyed_queue_can_begin_again(tmp_path: Path) -> None:
    queue = filled(tmp_path, 10)
    queue.destroy()
    assert list(tmp_path.iterdir()) == [] and state(queue) == (0, 0, -1)
    assert queue.append(an_entry(0, 5))
    assert state(queue) == (5, 8, 0)
