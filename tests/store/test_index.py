"""The index folder: filling, asking, starting again, and what a full or damaged disk does to it."""

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import DiskFull
from flaremq.store import indexfile
from flaremq.store.disk import Disk, DiskFile
from flaremq.store.index import Index, IndexShape
from flaremq.store.indexfile import Header
from flaremq.testing.clock import START_MS, ManualClock
from flaremq.testing.facts import FactRows

SHAPE = IndexShape(slots=10, entries_max=5)  # Four entries a file.
ALWAYS = (0, 1 << 62)


@pytest.fixture(autouse=True)
def _somewhere_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC-08:00")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class Bench:
    """An index in a folder, its clock, and the times it reported as sealed."""

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.disk = disk or Disk()
        self.sealed_ms: list[int] = []
        self.index = self.fresh()

    def fresh(self, later: Callable[[Callable[[], None]], None] | None = None) -> Index:
        shape, sealed = SHAPE, self.sealed_ms.append
        if later is None:
            return Index(self.disk, self.clock, self.folder, shape, sealed=sealed)
        return Index(self.disk, self.clock, self.folder, shape, sealed=sealed, later=later)

    def again(self, *, clean: bool = True) -> Index:
        """Stop without a word and start anew; a killed process leaves its maps behind."""
        if clean:
            self.index.flush()
        self.index.close()
        self.index = self.fresh()
        self.index.load(clean=clean)
        return self.index

    def put(self, first: int, last: int, key: bytes = b"a") -> None:
        table = records(first, last, key)
        self.index.put_many(table.facts, len(table), table.log)

    def found(self, key: str = "a", limit: int = 64, span: tuple[int, int] = ALWAYS) -> list[int]:
        return self.index.query("TopicTest", key, limit, *span)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else []


def records(first: int, last: int, key: bytes = b"a") -> FactRows:
    """A record every hundred bytes and every second."""
    table = FactRows()
    for n in range(first, last):
        table.add(100 * n, START_MS + 1000 * n, keys=key)
    return table


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "index")


def test_nothing_is_created_before_there_is_a_key(bench: Bench) -> None:
    table = FactRows()
    table.add(100, START_MS)
    bench.index.put_many(table.facts, 1, table.log)
    bench.index.put_many(table.facts, 1, table.log, 1)
    assert bench.names() == []
    assert bench.found() == []
    assert bench.index.end_offset == 0
    assert bench.index.next_offset == 101


def test_what_was_put_is_found_newest_first_over_all_files(bench: Bench) -> None:
    bench.put(0, 10)
    assert bench.index.file_count == 3
    assert bench.found() == [100 * n for n in range(9, -1, -1)]
    assert bench.found(limit=6) == [900, 800, 700, 600, 500, 400]
    assert bench.found("b") == []
    assert bench.index.end_offset == 900


def test_every_file_is_whole(bench: Bench) -> None:
    bench.put(0, 10)
    for name in bench.names():
        assert indexfile.check((bench.folder / name).read_bytes(), SHAPE.slots, SHAPE.entries_max) == []


def test_a_file_is_named_by_the_local_time_of_its_making(bench: Bench) -> None:
    bench.clock.advance_ms(7)
    bench.put(0, 1)
    assert bench.names() == ["20231115061320007"]


def test_files_made_in_one_millisecond_get_names_in_order(bench: Bench) -> None:
    bench.put(0, 12)
    assert bench.names() == ["20231115061320000", "20231115061320001", "20231115061320002"]


def test_a_clock_that_was_set_back_does_not_shuffle_the_files(bench: Bench) -> None:
    bench.put(0, 4)
    bench.clock.step_wall_ms(-3_600_000)
    bench.put(4, 8)
    assert bench.names() == ["20231115061320000", "20231115061320001"]
    bench.again()
    assert bench.found(limit=2) == [700, 600]


def test_a_name_that_is_taken_is_passed_over(bench: Bench) -> None:
    bench.folder.mkdir()
    (bench.folder / "20231115061320000").mkdir()
    bench.put(0, 1)
    assert "20231115061320001" in bench.names()


def test_a_millisecond_never_spoils_a_carry(bench: Bench) -> None:
    bench.folder.mkdir()
    (bench.folder / "20231231235959999").write_bytes(bytes(SHAPE.file_size))
    bench.index.load(clean=True)
    bench.put(0, 8)
    assert bench.names() == ["20231231235959999", "20240101000000000"]


def test_a_follow_up_file_begins_with_the_end_of_the_one_before(bench: Bench) -> None:
    bench.put(0, 5)
    second = Header.read((bench.folder / bench.names()[1]).read_bytes())
    assert (second.begin_ms, second.begin_offset) == (START_MS + 4000, 400)
    data = (bench.folder / bench.names()[1]).read_bytes()
    assert struct.unpack_from(">i", data, indexfile.entry_at(10, 1) + 12) == (1,)  # The gap of a second.


def test_the_keys_of_one_record_may_lie_in_two_files(bench: Bench) -> None:
    table = FactRows()
    table.add(100, START_MS, unique_key=b"u", keys=b"a b c d e")
    bench.index.put_many(table.facts, 1, table.log)
    assert [bench.found(key) for key in "uabcde"] == [[100]] * 6
    assert bench.index.file_count == 2


def test_a_key_given_twice_is_found_once(bench: Bench) -> None:
    table = FactRows()
    table.add(100, START_MS, unique_key=b"a", keys=b"a a b a a")  # Across two files.
    table.add(200, START_MS, keys=b"a")
    bench.index.put_many(table.facts, 2, table.log)
    assert bench.found() == [200, 100]


def test_rows_before_the_first_are_not_put(bench: Bench) -> None:
    table = records(0, 4)
    bench.index.put_many(table.facts, 4, table.log, 2)
    assert bench.found() == [300, 200]


def test_asking_stops_at_the_first_file_that_begins_before_the_asked_time(bench: Bench) -> None:
    bench.put(0, 12)
    assert bench.found(span=(START_MS + 5000, START_MS + 6000)) == [600, 500]
    first = bench.folder / bench.names()[0]
    with first.open("r+b") as file:  # Were it read, it would answer.
        file.write(struct.pack(">qq", START_MS, START_MS + 99_000))
    assert bench.found(span=(START_MS + 5000, START_MS + 99_000)) == [1100, 1000, 900, 800, 700, 600, 500]


def test_the_first_record_of_a_follow_up_file_is_found_by_its_own_time(bench: Bench) -> None:
    bench.put(0, 4)
    bench.put(3604, 3606)  # An hour of silence between the two files.
    assert bench.found(span=(START_MS + 3_604_000, START_MS + 3_604_500)) == [360_400]
    assert bench.found(span=(START_MS + 3_606_000, START_MS + 9_000_000)) == []


def test_a_second_delivery_of_the_same_records_changes_nothing(bench: Bench) -> None:
    bench.put(0, 6)
    before = [(bench.folder / name).read_bytes() for name in bench.names()]
    bench.put(0, 6)
    bench.put(3, 5)
    assert [(bench.folder / name).read_bytes() for name in bench.names()] == before
    assert bench.index.next_offset == 501


def test_records_after_a_cut_of_the_log_are_new_ones(bench: Bench) -> None:
    bench.put(0, 3)
    bench.index.cut(150)
    bench.put(2, 3, b"b")
    assert bench.found("b") == [200]
    bench.index.cut(10_000)
    assert bench.index.next_offset == 201


def test_after_a_clean_stop_the_last_record_is_not_put_again(bench: Bench) -> None:
    bench.put(0, 6)
    index = bench.again(clean=True)
    assert (index.end_offset, index.next_offset) == (500, 501)
    bench.put(0, 7)
    assert bench.found() == [600, 500, 400, 300, 200, 100, 0]
    assert Header.read((bench.folder / bench.names()[1]).read_bytes()).next_entry == 4


def test_after_a_crash_the_last_record_is_put_again_and_found_once(bench: Bench) -> None:
    bench.put(0, 6)
    index = bench.again(clean=False)
    assert (index.end_offset, index.next_offset) == (500, 500)
    bench.put(0, 7)
    assert bench.found() == [600, 500, 400, 300, 200, 100, 0]
    assert Header.read((bench.folder / bench.names()[1]).read_bytes()).next_entry == 5


def test_a_record_at_offset_zero_counts_after_a_clean_stop(bench: Bench) -> None:
    bench.put(0, 1)
    assert bench.again(clean=True).next_offset == 1


def test_an_empty_folder_starts_at_zero(bench: Bench) -> None:
    assert bench.index.load(clean=True) == []
    assert (bench.index.end_offset, bench.index.next_offset) == (0, 0)


def test_a_follow_up_file_without_its_header_does_not_hide_the_end(bench: Bench) -> None:
    bench.put(0, 4)
    (bench.folder / "20231115061320001").write_bytes(bytes(SHAPE.file_size))
    index = bench.again(clean=False)
    assert index.end_offset == 300
    bench.put(0, 6)
    assert bench.found()[:3] == [500, 400, 300]


DAMAGES: list[Callable[[Path], object]] = [
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(path.read_bytes()[:-1]),
    lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    lambda path: path.write_bytes(b"\xff" * 32 + path.read_bytes()[32:]),
    lambda path: path.write_bytes(path.read_bytes()[:36] + b"\x7f" * 4 + path.read_bytes()[40:]),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_goes_with_all_newer_ones(bench: Bench, damage: Callable[[Path], object]) -> None:
    bench.put(0, 12)
    names = bench.names()
    bench.index.close()
    damage(bench.folder / names[1])
    bench.index = bench.fresh()
    assert bench.index.load(clean=True) == names[1:]
    assert bench.names() == names[:1]
    assert (bench.index.end_offset, bench.index.next_offset) == (300, 301)
    bench.put(0, 12)
    assert bench.found() == [100 * n for n in range(11, -1, -1)]


@pytest.mark.parametrize(
    "name", ["readme", "2023111506132000", "20231315061320000", "\uff120231115061320000", "x" * 17]
)
def test_a_file_that_is_no_index_file_is_left_alone(bench: Bench, name: str) -> None:
    bench.folder.mkdir()
    (bench.folder / name).write_bytes(b"mine")
    assert bench.index.load(clean=True) == []
    bench.put(0, 1)
    bench.index.destroy()


def test_files_of_a_java_broker_that_lived_through_the_end_of_summer_time(bench: Bench) -> None:
    bench.put(0, 8)
    bench.index.close()
    older, newer = bench.names()
    (bench.folder / newer).rename(bench.folder / "20231115051320000")
    bench.index = bench.fresh()
    bench.index.load(clean=True)
    assert bench.index.next_offset == 701
    bench.put(8, 9)
    assert bench.found(limit=6) == [800, 700, 600, 500, 400, 300]
    assert max(bench.names()) > older


def test_the_index_time_moves_when_a_full_file_has_been_synced(bench: Bench) -> None:
    bench.put(0, 4)
    assert bench.sealed_ms == []
    bench.put(4, 9)
    assert bench.sealed_ms == [START_MS + 3000, START_MS + 7000]


def test_a_full_file_is_sealed_in_the_background(bench: Bench) -> None:
    tasks: list[Callable[[], None]] = []
    bench.index = bench.fresh(tasks.append)
    bench.put(0, 9)
    assert bench.sealed_ms == [] and len(tasks) == 2
    assert bench.found(limit=3) == [800, 700, 600]
    for task in tasks:
        task()
    assert bench.sealed_ms == [START_MS + 3000, START_MS + 7000]
    assert bench.found() == [100 * n for n in range(8, -1, -1)]


def test_a_file_that_was_deleted_before_it_was_sealed_is_forgotten(bench: Bench) -> None:
    tasks: list[Callable[[], None]] = []
    bench.index = bench.fresh(tasks.append)
    bench.put(0, 5)
    bench.index.delete_before(10_000)
    tasks.pop()()
    assert bench.sealed_ms == []


def test_a_flush_syncs_but_does_not_move_the_index_time(bench: Bench) -> None:
    disk = SyncNotingDisk()
    bench = Bench(bench.folder, disk)
    bench.put(0, 3)
    bench.index.flush()
    bench.index.flush()
    assert disk.synced == bench.names()
    bench.put(3, 4)
    bench.index.flush()
    assert len(disk.synced) == 2
    assert bench.sealed_ms == []


class SyncNotingDisk(Disk):
    def __init__(self) -> None:
        self.synced: list[str] = []

    def open(self, path: Path, size: int, *, lasting: bool = False) -> DiskFile:
        return SyncNotingFile(self.synced, path, size, lasting=lasting)


class SyncNotingFile(DiskFile):
    def __init__(self, synced: list[str], path: Path, size: int, *, lasting: bool) -> None:
        super().__init__(path, size, lasting=lasting)
        self.synced = synced

    def sync(self) -> None:
        self.synced.append(self.path.name)


def test_the_sync_comes_before_the_index_time(bench: Bench) -> None:
    disk = SyncNotingDisk()
    bench = Bench(bench.folder, disk)
    seen: list[list[str]] = []
    bench.index = Index(
        bench.disk, bench.clock, bench.folder, SHAPE, sealed=lambda _ms: seen.append([*disk.synced])
    )
    bench.put(0, 5)
    assert seen == [bench.names()[:1]]


def test_after_a_crash_whatever_is_newer_than_the_index_time_goes(bench: Bench) -> None:
    bench.put(0, 12)
    names = bench.names()
    index = bench.again(clean=False)
    assert index.discard_unsafe(START_MS + 7000) == names[2:]
    assert bench.names() == names[:2]
    assert (index.end_offset, index.next_offset) == (700, 700)
    assert index.discard_unsafe(START_MS + 7000) == []
    assert index.discard_unsafe(0) == names[:2]
    assert (bench.names(), index.next_offset) == ([], 0)


def test_a_safe_file_behind_an_unsafe_one_goes_too(bench: Bench) -> None:
    bench.put(0, 8)
    bench.index.close()
    newest = bench.folder / bench.names()[1]
    newest.write_bytes(struct.pack(">qq", 5, 5) + newest.read_bytes()[16:])
    bench.index = bench.fresh()
    bench.index.load(clean=False)
    assert len(bench.index.discard_unsafe(START_MS)) == 2


def test_files_whose_records_have_left_the_log_are_deleted(bench: Bench) -> None:
    bench.put(0, 12)
    names = bench.names()
    assert bench.index.delete_before(300) == 0
    assert bench.index.delete_before(301) == 1
    assert bench.names() == names[1:]
    assert bench.found() == [100 * n for n in range(11, 3, -1)]


def test_the_newest_file_is_never_deleted(bench: Bench) -> None:
    bench.put(0, 12)
    assert bench.index.delete_before(1 << 60) == 2
    assert len(bench.names()) == 1
    assert bench.index.delete_before(1 << 60) == 0
    assert bench.index.end_offset == 1100


def test_a_destroyed_index_is_gone_and_can_begin_again(bench: Bench) -> None:
    bench.put(0, 12)
    bench.index.destroy()
    assert bench.names() == [] and bench.found() == []
    bench.put(0, 1)
    assert bench.found() == [0]


def test_more_files_than_may_be_open_are_still_all_found(bench: Bench) -> None:
    bench.put(0, 100)
    bench.again()
    assert bench.found(limit=200) == [100 * n for n in range(99, -1, -1)]


class SmallDisk(Disk):
    """Has room for so many more bytes."""

    room = 1 << 30

    def open(self, path: Path, size: int, *, lasting: bool = False) -> DiskFile:
        return SmallFile(self, path, size, lasting=lasting)


class SmallFile(DiskFile):
    def __init__(self, disk: SmallDisk, path: Path, size: int, *, lasting: bool) -> None:
        super().__init__(path, size, lasting=lasting)
        self._disk = disk

    def reserve(self, at: int, size: int) -> None:  # noqa: ARG002
        if size > self._disk.room:
            raise DiskFull(f"no room for {size}")
        self._disk.room -= size


def test_a_full_disk_is_told_before_a_byte_is_written(tmp_path: Path) -> None:
    disk = SmallDisk()
    bench = Bench(tmp_path / "index", disk)
    disk.room = 10
    with pytest.raises(DiskFull):
        bench.put(0, 1)
    assert bench.names() == []
    disk.room = indexfile.entry_at(SHAPE.slots, 1)
    with pytest.raises(DiskFull):
        bench.put(0, 1)
    assert (bench.found(), bench.index.next_offset) == ([], 0)
    disk.room = 1 << 20
    bench.put(0, 2)
    assert bench.found() == [100, 0]


def test_a_disk_that_fills_up_between_two_files_loses_and_doubles_no_key(tmp_path: Path) -> None:
    disk = SmallDisk()
    bench = Bench(tmp_path / "index", disk)
    table = FactRows()
    table.add(100, START_MS, keys=b"a")
    table.add(200, START_MS, unique_key=b"u", keys=b"b c d e")
    disk.room = SHAPE.file_size
    for _ in range(2):
        with pytest.raises(DiskFull):
            bench.index.put_many(table.facts, 2, table.log)
        assert bench.index.next_offset == 200
    disk.room = 1 << 20
    bench.index.put_many(table.facts, 2, table.log)
    assert [bench.found(key) for key in "aubcde"] == [[100], *([[200]] * 5)]
    headers = [Header.read((bench.folder / name).read_bytes()) for name in bench.names()]
    assert sum(header.next_entry - 1 for header in headers) == 6


batches = st.lists(st.lists(st.sampled_from([b"a", b"b", b"a b", b"", b"c b a"]), max_size=6), max_size=6)


@given(batches=batches, restart=st.sets(st.integers(0, 5)), clean=st.booleans())
def test_the_index_answers_as_a_dictionary_would(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[bytes]], restart: set[int], clean: bool
) -> None:
    bench = Bench(tmp_path_factory.mktemp("index"))
    expected: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    offset = 0
    for i, batch in enumerate(batches):
        table = FactRows()
        for keys in batch:
            offset += 100
            table.add(offset, START_MS + offset, keys=keys)
            for key in keys.decode().split():
                expected[key].insert(0, offset)
        bench.index.put_many(table.facts, len(table), table.log)
        if i in restart:
            bench.again(clean=clean)
            bench.index.put_many(table.facts, len(table), table.log)
    assert {key: bench.found(key) for key in expected} == expected
    bench.index.destroy()
