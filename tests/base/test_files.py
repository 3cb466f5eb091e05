"""Small files: whole or not at all, also when several write at once or the disk refuses."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flaremq.base.errors import StoreError
from flaremq.base.files import BackedFile, Files, create_whole, replace_whole

WRITERS = 8


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_a_created_file_has_its_content_and_leaves_nothing_else(tmp_path: Path) -> None:
    assert create_whole(tmp_path / "new" / "a", b"one")
    assert (tmp_path / "new" / "a").read_bytes() == b"one"
    assert names(tmp_path / "new") == ["a"]


def test_a_file_that_exists_is_not_created_again(tmp_path: Path) -> None:
    assert create_whole(tmp_path / "a", b"one")
    assert not create_whole(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"one"
    assert names(tmp_path) == ["a"]


def test_of_several_writers_at_once_exactly_one_creates_the_file(tmp_path: Path) -> None:
    with ThreadPoolExecutor(WRITERS) as pool:
        made = list(pool.map(lambda number: create_whole(tmp_path / "a", b"%d" % number), range(WRITERS)))
    assert sum(made) == 1
    assert (tmp_path / "a").read_bytes() == b"%d" % made.index(True)


def test_a_replaced_file_has_the_new_content_and_leaves_nothing_else(tmp_path: Path) -> None:
    replace_whole(tmp_path / "a", b"one")
    replace_whole(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"two"
    assert names(tmp_path) == ["a"]


def test_a_mode_is_that_of_the_file(tmp_path: Path) -> None:
    replace_whole(tmp_path / "a", b"#!/bin/sh", mode=0o755)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755


@pytest.mark.parametrize("write", [create_whole, replace_whole])
def test_a_disk_that_refuses_is_reported_and_the_old_content_stays(
    write: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_whole(tmp_path / "old", b"one")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    target = tmp_path / ("new" if write is create_whole else "old")
    with pytest.raises(StoreError, match=f"cannot write {target}: No space left on device"):
        write(target, b"two")  # type: ignore[operator]
    assert names(tmp_path) == ["old"]
    assert (tmp_path / "old").read_bytes() == b"one"


def test_a_backed_file_keeps_the_content_before_and_its_permissions(tmp_path: Path) -> None:
    file = BackedFile(tmp_path / "topics.json")
    file.save(b"one")
    file.path.chmod(0o600)
    file.save(b"two")
    assert file.path.read_bytes() == b"two"
    assert file.backup.read_bytes() == b"one"
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert names(tmp_path) == ["topics.json", "topics.json.bak"]


def test_what_a_crash_left_half_written_does_not_stop_the_next_save(tmp_path: Path) -> None:
    (tmp_path / "topics.json.tmp").write_bytes(b"hal")
    BackedFile(tmp_path / "topics.json").save(b"whole")
    assert (tmp_path / "topics.json").read_bytes() == b"whole"
    assert names(tmp_path) == ["topics.json"]


def test_a_table_is_read_and_written_through_the_files_that_it_is_given(tmp_path: Path) -> None:
    class InMemory(Files):
        def __init__(self) -> None:
            self.kept: dict[Path, bytes] = {}

        def read(self, path: Path) -> bytes:
            if path not in self.kept:
                raise FileNotFoundError(path)
            return self.kept[path]

        def save(self, path: Path, backup: Path, data: bytes) -> None:
            if path in self.kept:
                self.kept[backup] = self.kept[path]
            self.kept[path] = data

    file = BackedFile(tmp_path / "topics.json", InMemory())
    assert file.load_as(bytes) is None
    file.save(b"one")
    file.save(b"two")
    assert file.load_as(bytes) == b"two"
    assert list(tmp_path.iterdir()) == []
