"""The index folder: filling, asking, starting again, and what a full or damaged disk does to it."""

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.store.facts import FactRows
from tests.store.indexrig import SHAPE, IndexRig, records

from flaremq.store.index import indexfile
from flaremq.store.index.index import Index
from flaremq.store.index.indexfile import IndexHeader
from flaremq.testing.clock import START_MS
from flaremq.testing.fakes.disk import PowerLossDisk


@pytest.fixture(autouse=True)
def _somewhere_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC-08:00")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def bench(tmp_path: Path) -> IndexRig:
    return IndexRig(tmp_path / "index")


def test_nothing_is_created_before_there_is_a_key(bench: IndexRig) -> None:
    table = FactRows()
    table.add(100, START_MS)
    bench.index.put_many(table.facts, 1, table.log)
    bench.index.put_many(table.facts, 1, table.log, 1)
    assert bench.names() == []
    assert bench.found() == []
    assert bench.index.end_offset == 0
    assert bench.index.next_offset == 101


def test_what_was_put_is_found_newest_first_over_all_files(bench: IndexRig) -> None:
    bench.put(0, 10)
    assert bench.index.file_count == 3
    assert bench.found() == [100 * n for n in range(9, -1, -1)]
    assert bench.found(limit=6) == [900, 800, 700, 600, 500, 400]
    assert bench.found("b") == []
    assert bench.index.end_offset == 900


def test_every_file_is_whole(bench: IndexRig) -> None:
    bench.put(0, 10)
    for name in bench.names():
        assert indexfile.check((bench.folder / name).read_bytes(), SHAPE.slots, SHAPE.entries_max) == []


def test_a_file_is_named_by_the_local_time_of_its_making(bench: IndexRig) -> None:
    bench.clock.advance_ms(7)
    bench.put(0, 1)
    assert bench.names() == ["20231115061320007"]


def test_files_made_in_one_millisecond_get_names_in_order(bench: IndexRig) -> None:
    bench.put(0, 12)
    assert bench.names() == ["20231115061320000", "20231115061320001", "20231115061320002"]


def test_a_clock_that_was_set_back_does_not_shuffle_the_files(bench: IndexRig) -> None:
    bench.put(0, 4)
    bench.clock.step_wall_ms(-3_600_000)
    bench.put(4, 8)
    assert bench.names() == ["20231115061320000", "20231115061320001"]
    bench.again()
    assert bench.found(limit=2) == [700, 600]


def test_a_name_that_is_taken_is_passed_over(bench: IndexRig) -> None:
    bench.folder.mkdir()
    (bench.folder / "20231115061320000").mkdir()
    bench.put(0, 1)
    assert "20231115061320001" in bench.names()


def test_a_millisecond_never_spoils_a_carry(bench: IndexRig) -> None:
    bench.folder.mkdir()
    (bench.folder / "20231231235959999").write_bytes(bytes(SHAPE.file_size))
    bench.index.load(clean=True)
    bench.put(0, 8)
    assert bench.names() == ["20231231235959999", "20240101000000000"]


def test_a_follow_up_file_begins_with_the_end_of_the_one_before(bench: IndexRig) -> None:
    bench.put(0, 5)
    second = IndexHeader.read((bench.folder / bench.names()[1]).read_bytes())
    assert (second.begin_ms, second.begin_offset) == (START_MS + 4000, 400)
    data = (bench.folder / bench.names()[1]).read_bytes()
    assert struct.unpack_from(">i", data, indexfile.entry_at(10, 1) + 12) == (1,)  # The gap of a second.


def test_the_keys_of_one_record_may_lie_in_two_files(bench: IndexRig) -> None:
    table = FactRows()
    table.add(100, START_MS, unique_key=b"u", keys=b"a b c d e")
    bench.index.put_many(table.facts, 1, table.log)
    assert [bench.found(key) for key in "uabcde"] == [[100]] * 6
    assert bench.index.file_count == 2


def test_a_key_given_twice_is_found_once(bench: IndexRig) -> None:
    table = FactRows()
    table.add(100, START_MS, unique_key=b"a", keys=b"a a b a a")  # Across two files.
    table.add(200, START_MS, keys=b"a")
    bench.index.put_many(table.facts, 2, table.log)
    assert bench.found() == [200, 100]


def test_rows_before_the_first_are_not_put(bench: IndexRig) -> None:
    table = records(0, 4)
    bench.index.put_many(table.facts, 4, table.log, 2)
    assert bench.found() == [300, 200]


def test_asking_stops_at_the_first_file_that_begins_before_the_asked_time(bench: IndexRig) -> None:
    bench.put(0, 12)
    assert bench.found(span=(START_MS + 5000, START_MS + 6000)) == [600, 500]
    first = bench.folder / bench.names()[0]
    with first.open("r+b") as file:  # Were it read, it would answer.
        file.write(struct.pack(">qq", START_MS, START_MS + 99_000))
    assert bench.found(span=(START_MS + 5000, START_MS + 99_000)) == [1100, 1000, 900, 800, 700, 600, 500]


def test_the_first_record_of_a_follow_up_file_is_found_by_its_own_time(bench: IndexRig) -> None:
    bench.put(0, 4)
    bench.put(3604, 3606)  # An hour of silence between the two files.
    assert bench.found(span=(START_MS + 3_604_000, START_MS + 3_604_500)) == [360_400]
    assert bench.found(span=(START_MS + 3_606_000, START_MS + 9_000_000)) == []


def test_a_second_delivery_of_the_same_records_changes_nothing(bench: IndexRig) -> None:
    bench.put(0, 6)
    before = [(bench.folder / name).read_bytes() for name in bench.names()]
    bench.put(0, 6)
    bench.put(3, 5)
    assert [(bench.folder / name).read_bytes() for name in bench.names()] == before
    assert bench.index.next_offset == 501


def test_records_after_a_cut_of_the_log_are_new_ones(bench: IndexRig) -> None:
    bench.put(0, 3)
    bench.index.cut(150)
    bench.put(2, 3, b"b")
    assert bench.found("b") == [200]
    assert bench.found("a") == [100, 0]
    bench.index.cut(10_000)
    assert bench.index.next_offset == 201


def test_a_file_of_which_the_log_has_lost_all_records_is_removed(bench: IndexRig) -> None:
    bench.put(0, 6)
    assert bench.index.file_count == 2
    bench.index.cut(400)
    assert (bench.index.file_count, bench.found(), bench.index.next_offset) == (1, [300, 200, 100, 0], 400)
    bench.put(4, 6, b"b")
    assert bench.found("b") == [500, 400]


def test_what_is_put_after_a_cut_is_there_after_a_power_failure(tmp_path: Path) -> None:
    disk = PowerLossDisk()
    bench = IndexRig(tmp_path / "index", disk)
    bench.put(0, 3)
    bench.index.flush()
    bench.index.cut(100)
    bench.put(1, 2, b"b")
    bench.index.flush()
    disk.lose_power(None)
    bench.index = bench.fresh()
    bench.index.load(clean=True)
    assert (bench.found("a"), bench.found("b")) == ([0], [100])


def test_the_index_time_moves_when_a_full_file_has_been_synced(bench: IndexRig) -> None:
    bench.put(0, 4)
    assert bench.sealed_ms == []
    bench.put(4, 9)
    assert bench.sealed_ms == [START_MS + 3000, START_MS + 7000]


def test_a_full_file_is_sealed_in_the_background(bench: IndexRig) -> None:
    tasks: list[Callable[[], None]] = []
    bench.index = bench.fresh(tasks.append)
    bench.put(0, 9)
    assert bench.sealed_ms == [] and len(tasks) == 2
    assert bench.found(limit=3) == [800, 700, 600]
    for task in tasks:
        task()
    assert bench.sealed_ms == [START_MS + 3000, START_MS + 7000]
    assert bench.found() == [100 * n for n in range(8, -1, -1)]


def test_a_file_that_was_deleted_before_it_was_sealed_is_forgotten(bench: IndexRig) -> None:
    tasks: list[Callable[[], None]] = []
    bench.index = bench.fresh(tasks.append)
    bench.put(0, 5)
    bench.index.delete_before(10_000)
    tasks.pop()()
    assert bench.sealed_ms == []


def test_a_flush_syncs_but_does_not_move_the_index_time(bench: IndexRig) -> None:
    bench.put(0, 3)
    bench.index.flush()
    bench.index.flush()
    assert [path.name for path in bench.disk.synced] == bench.names()
    bench.put(3, 4)
    bench.index.flush()
    assert len(bench.disk.synced) == 2
    assert bench.sealed_ms == []


def test_the_sync_comes_before_the_index_time(bench: IndexRig) -> None:
    seen: list[list[Path]] = []
    bench.index = Index(
        bench.disk, bench.clock, bench.folder, SHAPE, sealed=lambda _ms: seen.append([*bench.disk.synced])
    )
    bench.put(0, 5)
    assert [[path.name for path in synced] for synced in seen] == [bench.names()[:1]]
