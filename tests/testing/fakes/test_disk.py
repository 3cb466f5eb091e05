"""The disks that tests break on purpose must themselves do what they say."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import CorruptStore, DiskFull, FlushFailed
from flaremq.store.files.disk import DiskFile
from flaremq.testing.fakes.disk import FaultyDisk, PowerLossDisk

SIZE = 4 * 4096


def a_file(disk: FaultyDisk, path: Path, size: int = SIZE) -> DiskFile:
    """A file whose name is safe."""
    disk.create(path, size)
    for folder in (path.parent, path.parent.parent):
        disk.sync_folder(folder)
    return disk.open(path, size)


def test_the_next_sync_fails_once_per_request(tmp_path: Path) -> None:
    disk = FaultyDisk()
    file = a_file(disk, tmp_path / "f")
    disk.fail_next_sync()
    disk.fail_next_sync(FlushFailed("the second one"))
    with pytest.raises(FlushFailed):
        file.sync()
    with pytest.raises(FlushFailed, match="the second one"):
        file.sync()
    file.sync()
    assert disk.synced == [tmp_path / "f"]


def test_all_syncs_fail_until_they_are_repaired(tmp_path: Path) -> None:
    disk = FaultyDisk()
    file = a_file(disk, tmp_path / "f")
    disk.fail_all_syncs()
    for _ in range(3):
        with pytest.raises(FlushFailed):
            file.sync()
    disk.repair_syncs()
    file.sync()


def test_the_used_share_is_what_the_test_says(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.ratio, disk.ratios[tmp_path / "log"] = 0.7, 0.93
    assert disk.used_ratio(tmp_path / "log") == 0.93
    assert disk.used_ratio(tmp_path) == 0.7
    disk.partition = 1000
    assert disk.partition_size(tmp_path) == 1000


def test_space_is_paid_for_once_per_byte(tmp_path: Path) -> None:
    disk = FaultyDisk(free_bytes=1000)
    file = a_file(disk, tmp_path / "f")
    assert disk.free_bytes == 1000  # Sparse.
    file.reserve(0, 400)
    file.reserve(0, 400)
    file.write(300, bytes(200))
    assert disk.free_bytes == 500
    with pytest.raises(DiskFull, match="no room for 501 more bytes, 500 are free"):
        file.reserve(0, 1001)
    with pytest.raises(DiskFull):
        file.write(500, bytes(501))
    file.write(500, bytes(500))
    assert disk.free_bytes == 0


def test_a_file_that_is_reserved_at_once_is_paid_for_at_once(tmp_path: Path) -> None:
    disk = FaultyDisk(free_bytes=SIZE - 1)
    with pytest.raises(DiskFull):
        disk.create(tmp_path / "f", SIZE, reserved=True)
    assert not (tmp_path / "f").exists()
    with pytest.raises(DiskFull):
        disk.replace(tmp_path / "g", bytes(SIZE))
    assert not (tmp_path / "g").exists()


def test_what_is_cleared_or_deleted_comes_back(tmp_path: Path) -> None:
    disk = FaultyDisk(free_bytes=1000)
    file = a_file(disk, tmp_path / "a" / "f")
    file.reserve(100, 900)
    file.clear_from(900, keep_space=True)
    assert disk.free_bytes == 100
    file.clear_from(400)
    assert disk.free_bytes == 700
    disk.delete(tmp_path / "a" / "f")
    assert disk.free_bytes == 1000
    a_file(disk, tmp_path / "a" / "g").reserve(0, 10)
    disk.delete_folder(tmp_path / "a")
    assert disk.free_bytes == 1000


def test_a_wrong_length_is_refused_as_by_a_real_disk(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.create(tmp_path / "f", 10)
    with pytest.raises(CorruptStore):
        disk.open(tmp_path / "f", 11)


def test_what_was_synced_survives_and_at_worst_nothing_else(tmp_path: Path) -> None:
    disk = PowerLossDisk()
    file = a_file(disk, tmp_path / "f")
    file.view[0:5] = b"first"
    file.sync()
    file.view[5:11] = b"second"
    file.view[0:1] = b"X"
    disk.lose_power(None)
    assert (tmp_path / "f").read_bytes() == b"first" + bytes(SIZE - 5)


def test_old_maps_reach_nothing_after_the_failure(tmp_path: Path) -> None:
    disk = PowerLossDisk()
    file = a_file(disk, tmp_path / "f")
    disk.lose_power(None)
    file.view[0:5] = b"ghost"
    assert (tmp_path / "f").read_bytes() == bytes(SIZE)


def test_what_was_there_before_is_safe(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * SIZE)
    (tmp_path / "foreign").write_bytes(b"y")
    disk = PowerLossDisk()
    disk.open(tmp_path / "f", SIZE).view[0:1] = b"z"
    disk.lose_power(None)
    assert (tmp_path / "f").read_bytes() == b"x" * SIZE
    assert (tmp_path / "foreign").read_bytes() == b"y"


def test_a_replaced_file_has_its_new_content(tmp_path: Path) -> None:
    disk = PowerLossDisk()
    disk.replace(tmp_path / "f", b"old")
    disk.replace(tmp_path / "f", b"newer")
    disk.lose_power(None)
    assert (tmp_path / "f").read_bytes() == b"newer"


def test_a_deleted_name_may_come_back_until_its_folder_is_synced(tmp_path: Path) -> None:
    disk = PowerLossDisk()
    file = a_file(disk, tmp_path / "f")
    file.view[0:5] = b"first"
    file.sync()
    disk.delete(tmp_path / "f")
    disk.lose_power(None)
    assert (tmp_path / "f").read_bytes()[:5] == b"first"
    disk.delete(tmp_path / "f")
    disk.sync_folder(tmp_path)
    disk.lose_power(None)
    assert not (tmp_path / "f").exists()


def test_a_file_whose_folder_was_synced_keeps_its_name_and_length(tmp_path: Path) -> None:
    disk = PowerLossDisk()
    a_file(disk, tmp_path / "f").view[0:1] = b"x"
    disk.lose_power(None)
    assert (tmp_path / "f").read_bytes() == bytes(SIZE)


def test_a_file_that_nobody_synced_is_gone(tmp_path: Path) -> None:
    disk = PowerLossDisk()
    disk.create(tmp_path / "f", SIZE)
    disk.lose_power(None)
    assert not (tmp_path / "f").exists()


def test_the_sync_of_a_file_saves_its_name_and_those_above_it(tmp_path: Path) -> None:
    disk = PowerLossDisk()
    path = tmp_path / "a" / "b" / "f"
    disk.create(path, SIZE)
    disk.open(path, SIZE).sync()
    disk.lose_power(None)
    assert path.read_bytes() == bytes(SIZE)


def test_strictly_only_the_sync_of_a_folder_saves_a_name(tmp_path: Path) -> None:
    disk = PowerLossDisk(strict_names=True)
    path = tmp_path / "a" / "f"
    for synced in ((), (path.parent,), (path.parent, tmp_path)):
        disk.create(path, SIZE)
        disk.open(path, SIZE).sync()
        for folder in synced:
            disk.sync_folder(folder)
        disk.lose_power(None)
        assert path.exists() == (len(synced) == 2)


def test_a_new_folder_is_lost_with_all_its_files(tmp_path: Path) -> None:
    disk = PowerLossDisk()
    disk.create(tmp_path / "a" / "b" / "f", SIZE)
    disk.sync_folder(tmp_path / "a" / "b")
    disk.lose_power(None)
    assert list(tmp_path.iterdir()) == []


def test_a_cleared_part_may_come_back_until_the_next_sync(tmp_path: Path) -> None:
    disk = PowerLossDisk()
    file = a_file(disk, tmp_path / "f")
    file.view[0:5] = b"first"
    file.sync()
    file.clear_from(0)
    disk.lose_power(None)
    assert (tmp_path / "f").read_bytes()[:5] == b"first"


def test_a_failed_sync_makes_nothing_safe(tmp_path: Path) -> None:
    disk = PowerLossDisk()
    file = a_file(disk, tmp_path / "f")
    file.view[0:5] = b"first"
    disk.fail_next_sync()
    with pytest.raises(FlushFailed):
        file.sync()
    disk.lose_power(None)
    assert (tmp_path / "f").read_bytes() == bytes(SIZE)


def after_failure(folder: Path, seed: int) -> bytes:
    """Two pages of synced x, four of y written over and behind them."""
    disk = PowerLossDisk()
    file = a_file(disk, folder / "f")
    file.view[: 2 * 4096] = b"x" * 2 * 4096
    file.sync()
    file.view[100:] = b"y" * (SIZE - 100)
    disk.lose_power(seed)
    return (folder / "f").read_bytes()


@given(seed=st.integers(0, 1 << 32))
def test_every_byte_is_an_old_or_a_new_one_and_a_synced_one_stays(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    left = after_failure(tmp_path_factory.mktemp("loss"), seed)
    assert len(left) == SIZE
    assert left[:100] == b"x" * 100
    assert set(left[100 : 2 * 4096]) <= set(b"xy")
    assert set(left[2 * 4096 :]) <= {0, ord("y")}


def test_one_seed_gives_one_failure_and_seeds_together_give_all_kinds(tmp_path: Path) -> None:
    seen: set[str] = set()
    for seed in range(40):
        folder = tmp_path / str(seed)
        left = after_failure(folder, seed)
        assert after_failure(folder / "again", seed) == left
        for at in range(2 * 4096, SIZE, 4096):
            kinds = {b"\0": "lost", b"y": "survives"}
            page = left[at : at + 4096]
            seen.add(kinds.get(page[:1], "?") if len(set(page)) == 1 else "torn")
    assert seen == {"lost", "survives", "torn"}


def test_an_unsynced_deletion_sometimes_holds(tmp_path: Path) -> None:
    outcomes = set()
    for seed in range(20):
        disk = PowerLossDisk()
        path = tmp_path / str(seed)
        a_file(disk, path).sync()
        disk.delete(path)
        disk.lose_power(seed)
        outcomes.add(path.exists())
    assert outcomes == {True, False}


def test_the_disk_serves_on_after_the_failure(tmp_path: Path) -> None:
    disk = PowerLossDisk()
    a_file(disk, tmp_path / "f")
    disk.lose_power(7)
    file = disk.open(tmp_path / "f", SIZE)
    file.view[0:5] = b"first"
    file.sync()
    disk.lose_power(None)
    assert (tmp_path / "f").read_bytes()[:5] == b"first"
