"""A slave whose folder lost a part of its log copies that part again, and mixes nothing."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.ha.nodes import Node, Nodes, caught_up
from tests.ha.test_stream import FILE_SIZE, some

from flaremq.base.errors import CorruptStore

COUNT = 5 * FILE_SIZE // 250


def deleted(path: Path) -> None:
    path.unlink()


def shortened(path: Path) -> None:
    os.truncate(path, FILE_SIZE // 3)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


async def a_stopped_slave(folder: Path, master: Node) -> list[Path]:
    """One that has all of the master's log. Returns its log files."""
    async with Nodes(folder) as nodes:
        nodes.master = master
        slave = await nodes.a_slave()
        await caught_up(slave, master)
        assert slave.bodies() == some(COUNT)
    return sorted((folder / "slave" / "commitlog").iterdir())


@pytest.mark.parametrize(
    ("number", "harm"),
    # Without its first file, a log only begins later, as after a deletion by age.
    [(1, deleted), (2, deleted), (0, shortened), (1, shortened), (2, shortened), (0, emptied), (2, emptied)],
)
async def test_what_is_gone_in_the_midst_of_a_log_is_copied_again_with_all_that_follows(
    tmp_path: Path, number: int, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master()
        master.put(*some(COUNT))
        files = await a_stopped_slave(tmp_path, master)
        behind = {path.name: path.read_bytes() for path in files[number + 1 :]}
        harm(files[number])
        master.put(*some(10, begin=COUNT))
        with caplog.at_level(logging.ERROR, "flaremq.store.holes"):
            slave = await nodes.a_slave()
        (told,) = (each for each in caplog.records if each.name == "flaremq.store.holes")
        assert files[number].name in str(told.__dict__) and "From there on it is copied again" in told.message
        await caught_up(slave, master)
        assert slave.log == master.log
        assert slave.bodies() == some(COUNT + 10)
        assert slave.store.max_offset(b"TopicTest", 0) == COUNT + 10
        aside = {path.name.split("-")[0]: path for path in (tmp_path / "slave" / "cut").iterdir()}
        assert behind.items() <= {name: path.read_bytes() for name, path in aside.items()}.items()
        assert slave.replication.slave is not None
        given_up = slave.replication.slave.status().cut_bytes
        assert given_up == sum(path.stat().st_size for path in aside.values()) > 0


async def test_a_master_with_a_hole_in_its_log_does_not_start(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master()
        master.put(*some(COUNT))
    deleted(sorted((tmp_path / "master" / "commitlog").iterdir())[1])
    async with Nodes(tmp_path) as nodes:
        with pytest.raises(CorruptStore, match="a file is missing"):
            await nodes.a_master()
    assert not (tmp_path / "master" / "cut").exists()


async def test_another_file_size_is_no_hole(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master()
        master.put(*some(COUNT))
        await a_stopped_slave(tmp_path, master)
        with pytest.raises(CorruptStore, match="mapped file size"):
            await nodes.a_slave(commitlog_file_size=2 * FILE_SIZE, follow=False)
    assert not (tmp_path / "slave" / "cut").exists()
