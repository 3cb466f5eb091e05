"""Tables on disk: whole or not at all, and never silently empty."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from flaremq.base.errors import ConfigError, StoreError
from flaremq.base.lifecycle import Owned
from flaremq.broker.offload import Offload
from flaremq.broker.tables.configfile import Autosave, ConfigFile, Saving, lines, save_all
from flaremq.protocol import fastjson
from flaremq.testing.clock import settle


@pytest.fixture
def file(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path / "config" / "topics.json")


def test_nothing_there_is_nothing_loaded(file: ConfigFile) -> None:
    assert file.load() is None


def test_what_was_saved_is_loaded_and_the_one_before_is_the_backup(file: ConfigFile) -> None:
    file.save(b'{"a":1}')
    file.save(b'{"a":2}')
    assert file.load() == b'{"a":2}'
    assert file.backup.read_bytes() == b'{"a":1}'
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["topics.json", "topics.json.bak"]


def test_dialect_of_java_is_readable(file: ConfigFile) -> None:
    file.save(b'{\n\t"offsetTable":{\n\t\t"T@g":{0:5,1:6\n\t\t}\n\t}\n}')
    assert file.load() is not None


@pytest.mark.parametrize("broken", [b"", b'{"a":', b"[1]", b"\xff\x00"])
def test_broken_file_falls_back_to_its_backup_and_says_so(
    file: ConfigFile, broken: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file.save(b'{"a":1}')
    file.save(b'{"a":2}')
    file.path.write_bytes(broken)
    with caplog.at_level(logging.WARNING, "flaremq"):
        assert file.load() == b'{"a":1}'
    assert "backup" in caplog.text


def test_missing_file_falls_back_to_its_backup(file: ConfigFile) -> None:
    file.save(b'{"a":1}')
    file.path.rename(file.backup)
    assert file.load() == b'{"a":1}'


@pytest.mark.parametrize("backup", [None, b"", b"{"])
def test_two_unreadable_files_are_an_error_that_names_them(file: ConfigFile, backup: bytes | None) -> None:
    file.save(b"{")
    if backup is not None:
        file.backup.write_bytes(backup)
    with pytest.raises(ConfigError, match=r"topics\.json.*move them away"):
        file.load()


def test_file_that_cannot_be_written_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(b"no folder")
    with pytest.raises(StoreError, match="cannot be written"):
        ConfigFile(tmp_path / "config" / "topics.json").save(b"{}")


class Table:
    """A number that is kept, and counts how often it was written."""

    def __init__(self, file: ConfigFile, offload: Offload) -> None:
        self.value = 0
        self.writes = 0
        self.saving = Saving(file, offload, self._take)

    def put(self, value: int) -> None:
        self.value = value
        self.saving.changes += 1

    def _take(self) -> Callable[[], bytes]:
        value = self.value
        self.writes += 1
        return lambda: b'{"value":%d}' % value


async def test_saves_that_wait_together_write_once_more_at_most(file: ConfigFile) -> None:
    offload = Offload(2)
    try:
        table = Table(file, offload)
        table.put(1)
        first = asyncio.create_task(table.saving.save())
        await asyncio.sleep(0)
        table.put(2)
        await asyncio.gather(first, *(table.saving.save() for _ in range(20)))
        assert table.writes == 2
        assert file.load() == b'{"value":2}'
        assert not table.saving.dirty
        await table.saving.save()
        assert table.writes == 2  # Nothing has changed since.
    finally:
        offload.close()


async def test_save_that_was_given_up_does_not_undo_the_next_one(file: ConfigFile) -> None:
    offload, may_go_on = Offload(2), threading.Event()
    try:
        table = Table(file, offload)
        slow, fast = iter([True]), table.saving._take

        def take() -> Callable[[], bytes]:
            text, wait = fast(), next(slow, False)
            return lambda: (may_go_on.wait(10) if wait else None, text())[1]

        table.saving._take = take
        table.put(1)
        given_up = asyncio.create_task(table.saving.save())
        await settle()
        given_up.cancel()
        await settle()
        table.put(2)
        next_one = asyncio.create_task(table.saving.save())
        await settle()
        may_go_on.set()
        await next_one
        assert file.load() == b'{"value":2}'
    finally:
        may_go_on.set()
        offload.close()
    assert file.load() == b'{"value":2}'


async def test_table_stays_dirty_when_it_could_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(b"no folder")
    offload = Offload(1)
    try:
        table = Table(ConfigFile(tmp_path / "config" / "x.json"), offload)
        table.put(1)
        with pytest.raises(StoreError):
            await table.saving.save()
        assert table.saving.dirty
        (tmp_path / "config").unlink()
        await table.saving.save()
        assert not table.saving.dirty
    finally:
        offload.close()


def test_lines_are_json_with_a_line_for_each_entry() -> None:
    value = {"version": {"counter": 1}, "table": {"a": {"n": 1}, "b\n": {"n": 2}}, "empty": {}}
    text = lines(value.items())
    assert fastjson.loads(text) == value
    assert b'\n\t"a":{"n":1},\n' in text


async def test_changes_close_together_are_saved_by_themselves_in_one_write(file: ConfigFile) -> None:
    offload, tasks = Offload(2), Owned()
    try:
        table = Table(file, offload)
        autosave = Autosave("numbers", table.saving, tasks)
        for value in range(1, 21):
            table.put(value)
            autosave.changed()
        while len(tasks):
            await asyncio.sleep(0)
        assert table.writes == 1
        assert file.load() == b'{"value":20}'
    finally:
        await tasks.aclose(timeout_s=5)
        offload.close()


async def test_autosave_survives_a_disk_that_takes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offload, tasks, folder = Offload(2), Owned(), tmp_path / "config"
    folder.write_bytes(b"no folder")
    try:
        table = Table(ConfigFile(folder / "topics.json"), offload)
        autosave = Autosave("numbers", table.saving, tasks)
        for value, is_sound in ((1, False), (2, True)):
            if is_sound:
                folder.unlink()
            table.put(value)
            autosave.changed()
            while len(tasks):
                await asyncio.sleep(0)
            assert table.saving.dirty is not is_sound
        assert "numbers are not saved yet" in caplog.text
    finally:
        await tasks.aclose(timeout_s=5)
        offload.close()


async def test_a_table_that_cannot_be_saved_keeps_no_other_from_being_saved(tmp_path: Path) -> None:
    offload = Offload(2)
    (tmp_path / "blocked").write_bytes(b"no folder")
    try:
        bad = Table(ConfigFile(tmp_path / "blocked" / "a.json"), offload)
        good = Table(ConfigFile(tmp_path / "b.json"), offload)
        for table in (bad, good):
            table.put(1)
        with pytest.raises(StoreError, match=r"a\.json"):
            await save_all((bad.saving, good.saving))
        assert bad.saving.dirty and not good.saving.dirty
    finally:
        offload.close()
