"""The next log file is there when it is needed, and there is never a second one of its name."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from flaremq.base.errors import DiskFull
from flaremq.store.files.disk import Disk
from flaremq.store.files.preallocate import Preallocator
from flaremq.testing.fakes.builders import small_settings


class SlowDisk(Disk):
    """Creates a file only when it is let."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.allowed = threading.Semaphore(0)
        self.full = False

    def create(self, path: Path, size: int, *, reserved: bool = False) -> None:
        self.begun.release()
        self.allowed.acquire()
        if self.full:
            raise DiskFull("no room")
        super().create(path, size, reserved=reserved)


def test_a_file_that_is_being_made_is_waited_for_and_not_made_twice(tmp_path: Path) -> None:
    disk = SlowDisk()
    ahead = Preallocator(disk, small_settings(tmp_path))
    ahead.start()
    ahead.want(0, tmp_path / "0")
    disk.begun.acquire()  # It is on its way, and not ready.
    taken: list[int] = []
    taker = threading.Thread(target=lambda: taken.append(ahead.take(0, tmp_path / "0").offset))
    taker.start()
    disk.allowed.release()
    taker.join()
    ahead.stop()
    assert taken == [0]
    assert (tmp_path / "0").exists()  # Stopping removes spares, and this one was taken.


def test_a_file_that_cannot_be_made_is_told_to_whoever_needs_it_and_can_be_tried_again(
    tmp_path: Path,
) -> None:
    disk = SlowDisk()
    disk.full = True
    ahead = Preallocator(disk, small_settings(tmp_path))
    ahead.start()
    disk.allowed.release()
    with pytest.raises(DiskFull, match="no room"):
        ahead.take(0, tmp_path / "0")
    disk.full = False
    disk.allowed.release()
    assert ahead.take(0, tmp_path / "0").offset == 0
    ahead.stop()


def test_spares_go_with_the_stop(tmp_path: Path) -> None:
    ahead = Preallocator(Disk(), small_settings(tmp_path))
    ahead.start()
    ahead.want(0, tmp_path / "0")
    assert ahead.take(0, tmp_path / "0").offset == 0
    ahead.want(4096, tmp_path / "4096")
    ahead.stop()
    assert (tmp_path / "0").exists()
    assert not (tmp_path / "4096").exists()


class NoDescriptorAtFirst(Disk):
    """The first sync of a folder fails."""

    def __init__(self) -> None:
        self.synced: list[Path] = []
        self._fails = True

    def sync_folder(self, folder: Path) -> None:
        if self._fails:
            self._fails = False
            raise OSError(errno.EMFILE, "Too many open files")
        super().sync_folder(folder)
        self.synced.append(folder)


class Hears:
    def __init__(self) -> None:
        self.failures, self.well = 0, threading.Event()

    def failed(self, error: Exception) -> None:
        self.failures += 1

    def recovered(self) -> None:
        self.well.set()


def test_the_name_of_a_file_is_made_durable_later_though_no_other_file_is_wanted(tmp_path: Path) -> None:
    disk, hears = NoDescriptorAtFirst(), Hears()
    ahead = Preallocator(disk, small_settings(tmp_path), listener=hears)
    ahead.start()
    assert ahead.take(0, tmp_path / "0").offset == 0
    assert hears.well.wait(10)
    ahead.stop()
    assert (hears.failures, disk.synced) == (1, [tmp_path])
