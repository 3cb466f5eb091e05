"""A slave behind a master over real sockets: the same bytes, and nothing that does not fit."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest
from tests.ha.nodes import HOST, MASTER, Node, Nodes, caught_up, until

from flaremq.base.units import KiB
from flaremq.ha.states import FollowState
from flaremq.store.settings import BrokerRole, FlushDisk

FILE_SIZE = 64 * KiB


def some(count: int, size: int = 100, begin: int = 0) -> list[bytes]:
    return [f"message {number} ".encode().ljust(size, b".") for number in range(begin, begin + count)]


async def test_a_slave_has_what_its_master_has_and_shows_it(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master, slave = await nodes.a_master(), await nodes.a_slave()
        bodies = some(50)
        master.put(*bodies)
        await caught_up(slave, master)
        assert slave.log == master.log
        assert slave.bodies() == bodies


async def test_an_empty_slave_gets_the_whole_log_file_after_file(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master()
        bodies = some(3 * FILE_SIZE // 250)
        master.put(*bodies)
        assert len(master.store.log.starts()) > 2
        slave = await nodes.a_slave()
        await caught_up(slave, master)
        assert slave.log == master.log
        assert slave.bodies() == bodies
        assert list(slave.store.log.starts()) == list(master.store.log.starts())


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
async def test_chunks_of_any_size_show_whole_messages_only(tmp_path: Path, size: int) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(ha={"chunk_size": size})
        slave = await nodes.a_slave()
        bodies = some(12)
        master.put(*bodies)
        await caught_up(slave, master)
        assert slave.bodies() == bodies
        assert slave.store.log.confirmed == slave.store.log.end


async def test_a_slave_that_was_away_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master()
        async with Nodes(tmp_path) as first:
            first.master = master
            slave = await first.a_slave()
            master.put(*some(20))
            await caught_up(slave, master)
        master.put(*some(20, begin=20))
        slave = await nodes.a_slave()
        await caught_up(slave, master)
        assert slave.log == master.log and slave.bodies() == some(40)


async def test_a_slave_finds_a_master_that_was_started_again(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        async with Nodes(tmp_path) as first:
            master = await first.a_master()
            nodes.master = master
            slave = await nodes.a_slave()
            master.put(*some(20))
            await caught_up(slave, master)
        master = await nodes.a_master()
        slave.replication.master_is(MASTER, master.ha_address)
        master.put(*some(20, begin=20))
        await caught_up(slave, master)
        assert slave.log == master.log and slave.bodies() == some(40)


async def test_a_slave_acknowledges_what_it_has_and_the_mark_follows(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(role=BrokerRole.SYNC_MASTER)
        (mark,) = master.replication.marks()
        end = master.put(*some(3))
        assert not await mark.mark.wait(end, 0.05)
        assert mark.absent(end) is not None
        await nodes.a_slave()
        assert await mark.mark.wait(end, 10)
        assert mark.absent(end) is None


async def test_under_sync_flush_a_slave_acknowledges_what_is_on_its_disk(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(role=BrokerRole.SYNC_MASTER)
        slave = await nodes.a_slave(flush_disk=FlushDisk.SYNC_FLUSH)
        (mark,) = master.replication.marks()
        end = master.put(*some(3))
        assert await mark.mark.wait(end, 10)
        assert slave.store.flushed.value >= end


async def test_a_master_sends_under_sync_flush_only_what_is_on_its_disk(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(flush_disk=FlushDisk.SYNC_FLUSH)
        slave = await nodes.a_slave()
        end = master.put(*some(30))
        await until(lambda: slave.store.log.end == end)
        assert master.store.flushed.value >= end


async def test_two_slaves_are_two_also_on_one_machine(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(role=BrokerRole.SYNC_MASTER, ha={"in_sync_replicas": 3})
        (mark,) = master.replication.marks()
        await nodes.a_slave("first", 1)
        end = master.put(*some(3))
        assert not await mark.mark.wait(end, 0.2)
        await nodes.a_slave("second", 2)
        assert await mark.mark.wait(end, 10)


# Logs that do not fit.


async def test_a_slave_below_the_oldest_file_is_refused_and_says_so(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master()
        async with Nodes(tmp_path) as first:
            first.master = master
            slave = await first.a_slave()
            master.put(*some(5))
            await caught_up(slave, master)
        master.put(*some(3 * FILE_SIZE // 250))
        master.store.log.files.drop_first(master.store.log.files.files[0])
        slave = await nodes.a_slave()
        await until(lambda: state(slave) is FollowState.REFUSED)
        assert "what lies between is gone" in why(slave)


async def test_a_slave_with_another_file_size_is_refused_and_says_so(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master()
        master.put(*some(5))
        slave = await nodes.a_slave(commitlog_file_size=2 * FILE_SIZE)
        await until(lambda: state(slave) is FollowState.REFUSED)
        assert f"mappedFileSizeCommitLog={FILE_SIZE}" in why(slave)


async def test_a_slave_of_another_broker_is_refused_and_keeps_what_it_has(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        other = await nodes.a_master("other")
        slave = await nodes.a_slave()
        other.put(*some(20))
        await caught_up(slave, other)
        before = slave.log
        master = await nodes.a_master("master")
        master.put(*some(30, size=50))
        slave.replication.master_is(MASTER, master.ha_address)
        await until(lambda: state(slave) is FollowState.REFUSED)
        assert "nothing in common" in why(slave)
        assert slave.log == before


async def a_pair_that_parted(
    nodes: Nodes, tmp_path: Path, role: BrokerRole, common_count: int = 20
) -> tuple[Node, Node]:
    """The master lost its last messages, and took others; the slave still has the lost ones."""
    async with Nodes(tmp_path) as first:
        master = await first.a_master()
        first.master = master
        slave = await first.a_slave()
        common = master.put(*some(common_count))
        master.put(*some(10, begin=900))
        await caught_up(slave, master)
    store = Node(nodes, tmp_path / "master", BrokerRole.SLAVE, 0).store
    store.open()
    store.cut(common)
    store.close()
    master = await nodes.a_master(role=role)
    master.put(*some(5, size=60, begin=500))
    return master, await nodes.a_slave()


async def test_where_no_producer_relies_on_slaves_a_parted_slave_is_cut_and_goes_on(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master, slave = await a_pair_that_parted(nodes, tmp_path, BrokerRole.ASYNC_MASTER)
        await caught_up(slave, master)
        assert slave.log == master.log
        assert slave.bodies() == [*some(20), *some(5, size=60, begin=500)]
        cut = slave.replication.slave.status().cut_bytes  # type: ignore[union-attr]
        (kept,) = (tmp_path / "slave" / "cut").iterdir()
        assert cut == kept.stat().st_size > 0
        assert b"message 900" in kept.read_bytes()
        master.put(*some(5, begin=700))
        await caught_up(slave, master)
        assert slave.bodies() == master.bodies()


@pytest.mark.parametrize("common_count", [1, 2, 20])
async def test_no_more_is_cut_than_what_the_master_does_not_have(tmp_path: Path, common_count: int) -> None:
    async with Nodes(tmp_path) as nodes:
        master, slave = await a_pair_that_parted(nodes, tmp_path, BrokerRole.ASYNC_MASTER, common_count)
        await caught_up(slave, master)
        assert slave.bodies() == [*some(common_count), *some(5, size=60, begin=500)]
        (kept,) = (tmp_path / "slave" / "cut").iterdir()
        assert kept.read_bytes().count(b"message ") == kept.read_bytes().count(b"message 9") == 10


async def test_where_producers_rely_on_slaves_a_parted_slave_keeps_what_it_has(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master, slave = await a_pair_that_parted(nodes, tmp_path, BrokerRole.SYNC_MASTER)
        before = slave.log
        await until(lambda: state(slave) is FollowState.REFUSED)
        assert "Promote this slave to keep them" in why(slave)
        assert slave.log == before and slave.bodies()[-1] == some(1, begin=909)[0]
        (mark,) = master.replication.marks()
        assert mark.absent(master.store.log.end) is not None


# Peers that are no slaves.


async def dial(node: Node) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = node.ha_address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def test_a_report_above_the_end_is_refused_and_acknowledges_nothing(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(role=BrokerRole.SYNC_MASTER)
        (mark,) = master.replication.marks()
        end = master.put(*some(3))
        reader, writer = await dial(master)
        writer.write(struct.pack(">q", end + 1))
        assert await reader.read() == b""
        assert mark.mark.value == 0 and mark.absent(end) is not None
        leading = master.replication.master.status()  # type: ignore[union-attr]
        assert leading.refused == 1 and f"its log ends at {end + 1}" in leading.last_refusal
        writer.close()


@pytest.mark.parametrize("position", [-1, -(2**63), 2**63 - 1])
async def test_a_position_that_cannot_be_is_refused(tmp_path: Path, position: int) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master()
        master.put(*some(3))
        reader, writer = await dial(master)
        writer.write(struct.pack(">q", position))
        assert await reader.read() == b""
        writer.close()


async def test_a_report_of_what_was_never_sent_is_refused(tmp_path: Path) -> None:
    """A peer that reports more than it can have got would vouch for bytes that it never saw."""
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(
            role=BrokerRole.SYNC_MASTER, ha={"flow_control": True, "bytes_per_s_max": 10}
        )
        end = master.put(*some(3))
        reader, writer = await dial(master)
        writer.write(struct.pack(">q", 0))
        await reader.readexactly(12)
        writer.write(struct.pack(">q", end))
        assert len(await reader.read()) < end
        (mark,) = master.replication.marks()
        assert mark.mark.value == 0
        writer.close()


async def test_a_silent_peer_is_sent_nothing_and_counts_for_nothing(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(ha={"heartbeat_ms": 10, "silence_ms": 1000})
        master.put(*some(3))
        reader, writer = await dial(master)
        assert await reader.read() == b""  # Closed after its time of silence, without a byte.
        assert not master.replication.has_slaves
        writer.close()


async def test_an_idle_master_sends_heartbeats_and_an_idle_slave_reports(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(ha={"heartbeat_ms": 10, "silence_ms": 5000})
        end = master.put(*some(1))
        reader, writer = await dial(master)
        writer.write(struct.pack(">q", end))
        assert await reader.readexactly(24) == struct.pack(">qi", end, 0) * 2
        writer.close()


async def test_a_chunk_at_another_offset_ends_the_connection_and_changes_nothing(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master()
        slave = await nodes.a_slave()
        master.put(*some(3))
        await caught_up(slave, master)
        before = slave.log
        asked = asyncio.Event()

        async def liar(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(8)
            writer.write(struct.pack(">qi", len(before) + 8, 4) + b"evil")
            assert await reader.read() == b""
            asked.set()
            writer.close()

        server = await asyncio.start_server(liar, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        slave.replication.master_is(MASTER, f"{HOST}:{port}")
        await asyncio.wait_for(asked.wait(), 60)
        await until(lambda: "the logs are not the same" in why(slave))
        assert slave.log == before
        server.close()


def state(slave: Node) -> FollowState:
    assert slave.replication.slave is not None
    return slave.replication.slave.status().state


def why(slave: Node) -> str:
    assert slave.replication.slave is not None
    return slave.replication.slave.status().why
