"""The index after a restart, after damage, on a full disk and after a power failure."""

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.facts import FactRows
from tests.store.indexrig import SHAPE, IndexRig

from flaremq.base.errors import DiskFull
from flaremq.store.index import indexfile
from flaremq.store.index.indexfile import IndexHeader
from flaremq.testing.clock import START_MS
from flaremq.testing.fakes.disk import FaultyDisk, PowerLossDisk


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


def test_after_a_clean_stop_the_last_record_is_not_put_again(bench: IndexRig) -> None:
    bench.put(0, 6)
    index = bench.again(clean=True)
    assert (index.end_offset, index.next_offset) == (500, 501)
    bench.put(0, 7)
    assert bench.found() == [600, 500, 400, 300, 200, 100, 0]
    assert IndexHeader.read((bench.folder / bench.names()[1]).read_bytes()).next_entry == 4


def test_after_a_crash_the_last_record_is_put_again_and_found_once(bench: IndexRig) -> None:
    bench.put(0, 6)
    index = bench.again(clean=False)
    assert (index.end_offset, index.next_offset) == (500, 500)
    bench.put(0, 7)
    assert bench.found() == [600, 500, 400, 300, 200, 100, 0]
    assert IndexHeader.read((bench.folder / bench.names()[1]).read_bytes()).next_entry == 5


def test_a_record_at_offset_zero_counts_after_a_clean_stop(bench: IndexRig) -> None:
    bench.put(0, 1)
    assert bench.again(clean=True).next_offset == 1


def test_an_empty_folder_starts_at_zero(bench: IndexRig) -> None:
    assert bench.index.load(clean=True) == []
    assert (bench.index.end_offset, bench.index.next_offset) == (0, 0)


def test_a_follow_up_file_without_its_header_does_not_hide_the_end(bench: IndexRig) -> None:
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
def test_a_damaged_file_goes_with_all_newer_ones(bench: IndexRig, damage: Callable[[Path], object]) -> None:
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
def test_a_file_that_is_no_index_file_is_left_alone(bench: IndexRig, name: str) -> None:
    bench.folder.mkdir()
    (bench.folder / name).write_bytes(b"mine")
    assert bench.index.load(clean=True) == []
    bench.put(0, 1)
    bench.index.destroy()


def test_files_of_a_java_broker_that_lived_through_the_end_of_summer_time(bench: IndexRig) -> None:
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


def test_after_a_crash_whatever_is_newer_than_the_index_time_goes(bench: IndexRig) -> None:
    bench.put(0, 12)
    names = bench.names()
    index = bench.again(clean=False)
    assert index.discard_unsafe(START_MS + 7000) == names[2:]
    assert bench.names() == names[:2]
    assert (index.end_offset, index.next_offset) == (700, 700)
    assert index.discard_unsafe(START_MS + 7000) == []
    assert index.discard_unsafe(0) == names[:2]
    assert (bench.names(), index.next_offset) == ([], 0)


def test_a_safe_file_behind_an_unsafe_one_goes_too(bench: IndexRig) -> None:
    bench.put(0, 8)
    bench.index.close()
    newest = bench.folder / bench.names()[1]
    newest.write_bytes(struct.pack(">qq", 5, 5) + newest.read_bytes()[16:])
    bench.index = bench.fresh()
    bench.index.load(clean=False)
    assert len(bench.index.discard_unsafe(START_MS)) == 2


def test_files_whose_records_have_left_the_log_are_deleted(bench: IndexRig) -> None:
    bench.put(0, 12)
    names = bench.names()
    assert bench.index.delete_before(300) == 0
    assert bench.index.delete_before(301) == 1
    assert bench.names() == names[1:]
    assert bench.found() == [100 * n for n in range(11, 3, -1)]


def test_the_newest_file_is_never_deleted(bench: IndexRig) -> None:
    bench.put(0, 12)
    assert bench.index.delete_before(1 << 60) == 2
    assert len(bench.names()) == 1
    assert bench.index.delete_before(1 << 60) == 0
    assert bench.index.end_offset == 1100


def test_a_destroyed_index_is_gone_and_can_begin_again(bench: IndexRig) -> None:
    bench.put(0, 12)
    bench.index.destroy()
    assert bench.names() == [] and bench.found() == []
    bench.put(0, 1)
    assert bench.found() == [0]


def test_more_files_than_may_be_open_are_still_all_found(bench: IndexRig) -> None:
    bench.put(0, 100)
    bench.again()
    assert bench.found(limit=200) == [100 * n for n in range(99, -1, -1)]


def test_a_full_disk_is_told_before_a_byte_is_written(tmp_path: Path) -> None:
    disk = FaultyDisk()
    bench = IndexRig(tmp_path / "index", disk)
    disk.free_bytes = 10
    with pytest.raises(DiskFull):
        bench.put(0, 1)
    assert bench.names() == []
    disk.free_bytes = indexfile.entry_at(SHAPE.slots, 1)
    with pytest.raises(DiskFull):
        bench.put(0, 1)
    assert (bench.found(), bench.index.next_offset) == ([], 0)
    disk.free_bytes = 1 << 20
    bench.put(0, 2)
    assert bench.found() == [100, 0]


def test_a_disk_that_fills_up_between_two_files_loses_and_doubles_no_key(tmp_path: Path) -> None:
    disk = FaultyDisk()
    bench = IndexRig(tmp_path / "index", disk)
    table = FactRows()
    table.add(100, START_MS, keys=b"a")
    table.add(200, START_MS, unique_key=b"u", keys=b"b c d e")
    disk.free_bytes = SHAPE.file_size
    for _ in range(2):
        with pytest.raises(DiskFull):
            bench.index.put_many(table.facts, 2, table.log)
        assert bench.index.next_offset == 200
    disk.free_bytes = 1 << 20
    bench.index.put_many(table.facts, 2, table.log)
    assert [bench.found(key) for key in "aubcde"] == [[100], *([[200]] * 5)]
    headers = [IndexHeader.read((bench.folder / name).read_bytes()) for name in bench.names()]
    assert sum(header.next_entry - 1 for header in headers) == 6


batches = st.lists(st.lists(st.sampled_from([b"a", b"b", b"a b", b"", b"c b a"]), max_size=6), max_size=6)


@given(batches=batches, restart=st.sets(st.integers(0, 5)), clean=st.booleans())
def test_the_index_answers_as_a_dictionary_would(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[bytes]], restart: set[int], clean: bool
) -> None:
    bench = IndexRig(tmp_path_factory.mktemp("index"))
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


@given(batches=batches, seed=st.one_of(st.none(), st.integers(0, 1 << 32)), restarts=st.integers(1, 2))
def test_after_a_power_failure_the_log_brings_back_every_key(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[bytes]], seed: int | None, restarts: int
) -> None:
    disk = PowerLossDisk(strict_names=True)
    bench = IndexRig(tmp_path_factory.mktemp("index"), disk)
    table, expected = FactRows(), dict[str, list[int]](a=[], b=[], c=[])
    for keys in [keys for batch in batches for keys in batch]:
        offset = 100 * len(table)
        table.add(offset, START_MS + 1000 * len(table), keys=keys)
        for key in keys.decode().split():
            expected[key].insert(0, offset)
    bench.index.put_many(table.facts, len(table), table.log)
    for _ in range(restarts):
        disk.lose_power(seed)
        bench.index = bench.fresh()
        bench.index.load(clean=False)
        bench.index.discard_unsafe(max(bench.sealed_ms, default=0))
        # What recovery does: every record that may be missing, in the order of the log.
        first = next((n for n in range(len(table)) if 100 * n >= bench.index.next_offset), len(table))
        bench.index.put_many(table.facts, len(table), table.log, first)
        assert {key: bench.found(key) for key in expected} == expected
    bench.index.destroy()
