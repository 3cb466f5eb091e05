import gc
import os
from pathlib import Path

import pytest

from flaremq.base.errors import CorruptStore, DiskFull, FileUnavailable
from flaremq.store.files.disk import Disk

PAGE = 4096


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_a_created_file_is_zeros_of_full_length_and_takes_no_space(disk: Disk, tmp_path: Path) -> None:
    disk.create(tmp_path / "a" / "f", 1 << 24)
    assert (tmp_path / "a" / "f").stat().st_size == 1 << 24
    assert (tmp_path / "a" / "f").stat().st_blocks == 0


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="this system knows no files without a name")
def test_a_file_has_its_name_only_when_it_is_whole(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truncate, seen = os.ftruncate, []

    def watched(fd: int, size: int) -> None:
        seen.append(list(tmp_path.iterdir()))
        truncate(fd, size)

    monkeypatch.setattr(os, "ftruncate", watched)
    disk.create(tmp_path / "f", PAGE)
    assert seen == [[]]
    assert (tmp_path / "f").stat().st_size == PAGE


def test_a_reserved_file_has_its_space_from_the_start(disk: Disk, tmp_path: Path) -> None:
    disk.create(tmp_path / "f", 1 << 20, reserved=True)
    assert (tmp_path / "f").stat().st_blocks * 512 >= 1 << 20


def test_no_file_is_created_over_another(disk: Disk, tmp_path: Path) -> None:
    disk.create(tmp_path / "f", PAGE)
    with pytest.raises(FileExistsError):
        disk.create(tmp_path / "f", PAGE)


def test_what_cannot_be_reserved_leaves_no_file_behind(disk: Disk, tmp_path: Path) -> None:
    size = 1 << 60  # No disk has this.
    with pytest.raises((DiskFull, FileUnavailable)):
        disk.create(tmp_path / "f", size, reserved=True)
    assert not (tmp_path / "f").exists()


def test_map_and_descriptor_show_the_same_bytes(disk: Disk, tmp_path: Path) -> None:
    disk.create(tmp_path / "f", PAGE)
    file = disk.open(tmp_path / "f", PAGE)
    file.write(10, b"abc")
    file.view[13:16] = b"def"
    file.sync()
    assert (tmp_path / "f").read_bytes()[10:16] == b"abcdef" == bytes(file.view[10:16])
    file.close()


def test_a_file_of_another_length_is_corrupt(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(100))
    with pytest.raises(CorruptStore, match="100 bytes long, not 4096"):
        disk.open(tmp_path / "f", PAGE)


@pytest.mark.parametrize("keep_space", [True, False])
def test_clearing_wipes_the_tail_and_keeps_the_length(disk: Disk, tmp_path: Path, keep_space: bool) -> None:
    disk.create(tmp_path / "f", 3 * PAGE)
    file = disk.open(tmp_path / "f", 3 * PAGE)
    file.view[:] = b"x" * 3 * PAGE
    file.clear_from(100, keep_space=keep_space)
    assert bytes(file.view) == b"x" * 100 + bytes(3 * PAGE - 100)
    assert (tmp_path / "f").stat().st_size == 3 * PAGE
    file.close()


def test_a_map_is_held_while_somebody_has_a_slice_of_it(disk: Disk, tmp_path: Path) -> None:
    disk.create(tmp_path / "f", PAGE)
    file = disk.open(tmp_path / "f", PAGE)
    assert not file.held
    pieces = [file.view[5:10]]
    held = file.held
    pieces.clear()
    assert (held, file.held) == (True, False)
    file.close()


def test_a_slice_outlives_close_and_deletion(disk: Disk, tmp_path: Path) -> None:
    disk.create(tmp_path / "f", PAGE)
    file = disk.open(tmp_path / "f", PAGE)
    file.view[:5] = b"alive"
    piece = file.view[:5]
    file.close()
    disk.delete(tmp_path / "f")
    assert bytes(piece) == b"alive"


@pytest.mark.parametrize("lasting", [True, False])
def test_a_closed_file_leaves_no_descriptor_open(disk: Disk, tmp_path: Path, lasting: bool) -> None:
    disk.create(tmp_path / "f", PAGE)
    gc.collect()  # What other tests left behind is not to be counted.
    before = len(list(Path("/proc/self/fd").iterdir()))
    file = disk.open(tmp_path / "f", PAGE, lasting=lasting)
    file.sync()
    file.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_warming_touches_every_page(disk: Disk, tmp_path: Path) -> None:
    disk.create(tmp_path / "f", 8 * PAGE)
    file = disk.open(tmp_path / "f", 8 * PAGE)
    file.warm(2)
    assert (tmp_path / "f").stat().st_blocks * 512 >= 8 * PAGE
    file.unlock()
    assert not file.locked
    file.close()


def test_a_small_file_is_replaced_whole(disk: Disk, tmp_path: Path) -> None:
    disk.replace(tmp_path / "d" / "f", b"old")
    disk.replace(tmp_path / "d" / "f", b"new")
    assert disk.read(tmp_path / "d" / "f") == b"new"
    assert disk.names(tmp_path / "d") == ["f"]


def test_names_are_plain_files_in_order(disk: Disk, tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    assert disk.names(tmp_path) == ["a", "b"]
    assert disk.folders(tmp_path) == ["folder"]
    assert disk.names(tmp_path / "none") == [] == disk.folders(tmp_path / "none")


def test_the_used_ratio_is_whole_percents_and_minus_one_where_unknown(disk: Disk, tmp_path: Path) -> None:
    ratio = disk.used_ratio(tmp_path)
    assert 0 <= ratio <= 1
    assert abs(ratio * 100 - round(ratio * 100)) < 1e-9
    assert disk.used_ratio(tmp_path / "none") == -1
