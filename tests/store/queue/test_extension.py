"""Units of the queue extension: their bytes, their addresses, and what is left of them after damage."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import DiskFull
from flaremq.store.files.disk import Disk
from flaremq.store.files.filequeue import FileQueue, file_name
from flaremq.store.queue.extension import ConsumeQueueExt, StoredUnit, is_address

BASE = -(1 << 63)
GOLDEN = bytes.fromhex("001c 000000000027a807 0000018bcfe5687b 0008 0102030405060708")
UNIT = StoredUnit(0x27A807, 1700000000123, bytes(range(1, 9)))
SIZE = 100  # Three units of 28 bytes, then the mark.


def opened(folder: Path, size: int = SIZE, disk: Disk | None = None) -> ConsumeQueueExt:
    return ConsumeQueueExt(FileQueue(disk or Disk(), [folder], size))


def put(ext: ConsumeQueueExt, unit: StoredUnit = UNIT) -> int | None:
    return ext.put(unit.tags_code, unit.store_ms, unit.bit_map)


def again(folder: Path, max_address: int = 0) -> ConsumeQueueExt:
    ext = opened(folder)
    ext.load()
    ext.recover(max_address)
    return ext


def test_the_bytes_and_addresses_are_those_of_rocketmq(tmp_path: Path) -> None:
    ext = opened(tmp_path)
    assert put(ext) == BASE
    assert put(ext) == -9223372036854775780
    data = (tmp_path / file_name(0)).read_bytes()
    assert data == GOLDEN + GOLDEN + bytes(SIZE - 56)


def test_an_address_is_smaller_than_any_hash() -> None:
    assert is_address(BASE) and is_address(-2147483649)
    assert not is_address(-2147483648) and not is_address(0) and not is_address((1 << 63) - 1)


def test_a_file_that_cannot_take_the_next_unit_ends_in_a_mark(tmp_path: Path) -> None:
    ext = opened(tmp_path)
    addresses = [put(ext) for _ in range(4)]
    assert addresses == [BASE, BASE + 28, BASE + 56, BASE + SIZE]
    assert (tmp_path / file_name(0)).read_bytes()[84:] == b"\xff\xff" + bytes(14)
    assert [ext.get(address) for address in addresses if address is not None] == [UNIT] * 4


def test_four_bytes_at_the_end_stay_free(tmp_path: Path) -> None:
    fits = StoredUnit(1, 2, bytes(SIZE - 20 - 4))
    ext = opened(tmp_path)
    assert put(ext, fits) == BASE
    assert put(ext, StoredUnit(1, 2, bytes(SIZE - 20 - 3))) is None
    assert put(ext) == BASE + SIZE


def test_a_unit_larger_than_a_short_can_tell_is_not_stored(tmp_path: Path) -> None:
    ext = opened(tmp_path, 1 << 17)
    assert ext.put(1, 2, bytes(32767 - 20)) == BASE
    assert ext.put(1, 2, bytes(32767 - 19)) is None


def test_no_address_is_given_that_could_be_a_hash(tmp_path: Path) -> None:
    size = 1 << 20
    last = ((1 << 63) - (1 << 31) - 1) // size * size  # The last file that holds an address.
    files = FileQueue(Disk(), [tmp_path], size)
    files.add(last)
    ext = ConsumeQueueExt(files)
    files.files[0].set_positions(size - 32)
    assert is_address(put(ext) or 0)
    files.files[0].set_positions(size)
    assert put(ext) is None


@pytest.mark.parametrize("address", [BASE + 1, BASE + 28, BASE + 10_000, -1 - (1 << 31), 0, 2598919])
def test_an_address_without_a_unit_gives_none(tmp_path: Path, address: int) -> None:
    ext = opened(tmp_path)
    put(ext)
    assert ext.get(address) is None
    assert opened(tmp_path / "empty").get(address) is None


class FullDisk(Disk):
    def create(self, path: Path, size: int, *, reserved: bool = False) -> None:
        raise DiskFull(f"{path}: no room for {size} bytes")


def test_a_full_disk_leaves_the_caller_with_the_plain_code(tmp_path: Path) -> None:
    assert put(opened(tmp_path, disk=FullDisk())) is None


units = st.builds(
    StoredUnit,
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, (1 << 63) - 1),
    st.binary(max_size=40),
)


@given(st.lists(units, max_size=20), st.integers(64, 200))
def test_what_was_put_comes_back_also_after_a_restart(
    tmp_path_factory: pytest.TempPathFactory, given_units: list[StoredUnit], size: int
) -> None:
    folder = tmp_path_factory.mktemp("ext")
    ext = opened(folder, size)
    addresses = [put(ext, unit) for unit in given_units]
    assert None not in addresses and addresses == sorted(set(addresses), key=lambda address: address or 0)
    found = [ext.get(address) for address in addresses if address is not None]
    assert found == given_units
    end = ext.end
    ext.close()
    restarted = opened(folder, size)
    restarted.load()
    restarted.recover(0)
    assert restarted.end == end
    assert [restarted.get(address) for address in addresses if address is not None] == given_units
    restarted.destroy()


@given(data=st.data(), cut=st.integers(0, SIZE - 1))
def test_recovery_ends_on_any_bytes_and_can_go_on(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("ext")
    ext = opened(folder)
    for _ in range(5):
        put(ext)
    ext.close()
    path = folder / file_name(SIZE)
    garbage = data.draw(st.binary(min_size=SIZE - cut, max_size=SIZE - cut))
    path.write_bytes(path.read_bytes()[:cut] + garbage)
    ext = again(folder)
    address = put(ext)
    assert address is not None and ext.get(address) == UNIT
    assert all(ext.get(BASE + at) == UNIT for at in (0, 28, 56))
    ext.destroy()


def test_a_torn_unit_at_the_end_is_cut_and_wiped(tmp_path: Path) -> None:
    ext = opened(tmp_path)
    put(ext), put(ext)
    ext.close()
    path = tmp_path / file_name(0)
    path.write_bytes(path.read_bytes()[:28] + b"\x7f\xff" + b"\x55" * (SIZE - 30))
    ext = again(tmp_path)
    assert ext.end == 28
    assert path.read_bytes() == GOLDEN + bytes(SIZE - 28)


def test_a_file_with_its_mark_is_full_although_no_other_follows(tmp_path: Path) -> None:
    ext = opened(tmp_path)
    for _ in range(4):
        put(ext)
    ext.close()
    (tmp_path / file_name(SIZE)).unlink()
    ext = again(tmp_path)
    assert put(ext) == BASE + SIZE


def test_units_behind_the_last_one_of_the_queue_are_cut(tmp_path: Path) -> None:
    ext = opened(tmp_path)
    for _ in range(5):
        put(ext)
    ext.close()
    ext = again(tmp_path, BASE + 28)
    assert ext.end == 56
    assert ext.get(BASE + 28) == UNIT and ext.get(BASE + 56) is None
    assert not (tmp_path / file_name(SIZE)).exists()
    assert put(ext) == BASE + 56


def test_without_an_address_in_the_queue_nothing_whole_is_cut(tmp_path: Path) -> None:
    ext = opened(tmp_path)
    put(ext)
    ext.close()
    assert again(tmp_path, 2598919).end == 28


def test_the_place_of_a_lost_unit_is_not_given_to_another(tmp_path: Path) -> None:
    ext = opened(tmp_path)
    put(ext), put(ext)
    ext.close()
    path = tmp_path / file_name(0)
    path.write_bytes(path.read_bytes()[:28] + bytes(SIZE - 28))
    ext = again(tmp_path, BASE + 28)
    assert ext.get(BASE + 28) is None
    assert put(ext) == BASE + SIZE
    assert ext.get(BASE + 28) is None
    ext.close()
    ext = again(tmp_path, BASE + SIZE)
    assert ext.get(BASE + SIZE) == UNIT and ext.get(BASE) == UNIT


def test_files_before_the_smallest_live_address_are_deleted(tmp_path: Path) -> None:
    ext = opened(tmp_path)
    for _ in range(9):
        put(ext)
    assert ext.delete_before(BASE + SIZE - 1) == 0
    assert ext.delete_before(BASE + SIZE) == 1
    assert ext.get(BASE) is None and ext.get(BASE + SIZE) == UNIT
    assert ext.delete_before(2598919) == 0
    assert ext.delete_before(BASE + 100 * SIZE) == 1
    assert put(ext) == BASE + 3 * SIZE


def test_a_queue_whose_first_files_are_gone_goes_on_where_it_was(tmp_path: Path) -> None:
    ext = opened(tmp_path)
    for _ in range(4):
        put(ext)
    ext.delete_before(BASE + SIZE)
    ext.close()
    (tmp_path / file_name(SIZE)).write_bytes(bytes(SIZE))
    assert put(again(tmp_path)) == BASE + SIZE


def test_a_flush_counts_pages(tmp_path: Path) -> None:
    files = FileQueue(Disk(), [tmp_path], 1 << 16)
    ext = ConsumeQueueExt(files)
    ext.put(1, 2, bytes(5000))
    ext.flush(2)
    assert files.files[0].flushed == 0
    ext.flush(1)
    assert files.files[0].flushed == 5020
    ext.put(1, 2)
    ext.flush(1)
    assert files.files[0].flushed == 5020
    ext.flush()
    assert files.files[0].flushed == 5040


def test_a_destroyed_extension_leaves_no_file(tmp_path: Path) -> None:
    ext = opened(tmp_path)
    put(ext)
    ext.destroy()
    assert list(tmp_path.iterdir()) == []
    assert put(ext) == BASE
