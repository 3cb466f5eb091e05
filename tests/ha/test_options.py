"""The options of replication: each has an effect."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest
from tests.ha.nodes import HOST, Nodes, caught_up, until
from tests.ha.test_stream import dial, some

from flaremq.base.errors import ConfigError
from flaremq.ha.settings import HaSettings
from flaremq.remoting.ports import free_port
from flaremq.servers.config import flags, load_broker
from flaremq.servers.together import Broker
from flaremq.store.settings import BrokerRole


async def test_the_ha_port_may_be_another_one(tmp_path: Path) -> None:
    ha_port = free_port(HOST)
    given = {
        "storePathRootDir": tmp_path, "brokerIP1": HOST, "brokerIP2": HOST, "bindAddress": HOST,
        "listenPort": 0, "haListenPort": ha_port, "namesrvAddr": "", "mappedFileSizeCommitLog": 1 << 20,
        "maxMessageSize": 1 << 16, "maxHashSlotNum": 100, "maxIndexNum": 400, "timerWheelEnable": False,
    }  # fmt: skip
    broker = Broker(load_broker(None, {}, flags(given)))
    await broker.start()
    try:
        _, writer = await asyncio.open_connection(HOST, ha_port)
        writer.close()
    finally:
        await broker.stop()


async def test_a_slave_follows_the_master_that_it_was_told_of(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master()
        master.put(*some(5))
        nodes.by_port(master)
        slave = await nodes.a_slave(follow=False, ha={"master_address": master.ha_address})
        await caught_up(slave, master)


async def test_heartbeats_come_as_often_as_was_set(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(ha={"heartbeat_ms": 10})
        end = master.put(*some(1))
        reader, writer = await dial(master)
        writer.write(struct.pack(">q", end))
        async with asyncio.timeout(4.5):
            assert await reader.readexactly(12) == struct.pack(">qi", end, 0)
        writer.close()


async def test_a_silent_slave_is_disconnected_after_the_time_that_was_set(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(ha={"heartbeat_ms": 5, "silence_ms": 10})
        reader, writer = await dial(master)
        writer.write(struct.pack(">q", 0))
        async with asyncio.timeout(10):
            await reader.read()  # Until it is closed.
        writer.close()


async def test_no_chunk_is_larger_than_was_set(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(ha={"chunk_size": 100})
        end = master.put(*some(5))
        reader, writer = await dial(master)
        writer.write(struct.pack(">q", 0))
        at = 0
        while at < end:
            offset, size = struct.unpack(">qi", await reader.readexactly(12))
            assert offset == at and 0 < size <= 100
            await reader.readexactly(size)
            at += size
        writer.close()


async def test_a_slave_counts_as_near_within_the_gap_that_was_set(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(role=BrokerRole.SYNC_MASTER, ha={"gap_max": 100})
        (mark,) = master.replication.marks()
        await nodes.a_slave()
        end = master.put(*some(1))
        assert await mark.mark.wait(end, 10)
        assert mark.absent(end + 99) is None
        assert mark.absent(end + 100) is not None


async def test_under_flow_control_a_slave_gets_no_more_than_was_set(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(ha={"flow_control": True, "bytes_per_s_max": 500})
        end = master.put(*some(20))
        reader, writer = await dial(master)
        writer.write(struct.pack(">q", 0))
        offset, size = struct.unpack(">qi", await reader.readexactly(12))
        assert (offset, size) == (0, 500) and end > 2000
        await reader.readexactly(500)
        links = master.replication.master.status().followers  # type: ignore[union-attr]
        assert [link.sent for link in links] == [500]
        writer.close()


async def test_an_answer_waits_for_slaves_as_long_as_was_set(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(role=BrokerRole.SYNC_MASTER, ha={"slave_timeout_ms": 70})
        (mark,) = master.replication.marks()
        assert mark.timeout_s == 0.07


@pytest.mark.parametrize(("replicas", "waits"), [(1, False), (2, True)])
async def test_an_answer_waits_for_as_many_slaves_as_were_set(
    tmp_path: Path, replicas: int, waits: bool
) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(role=BrokerRole.SYNC_MASTER, ha={"in_sync_replicas": replicas})
        marks = list(master.replication.marks())
        assert bool(marks) is waits
        assert all(mark.absent(100) is None for mark in marks)  # A number that is set is waited for in full.


def test_silence_must_be_longer_than_the_pause_between_heartbeats() -> None:
    with pytest.raises(ConfigError, match="haHousekeepingInterval=5000 is not above haSendHeartbeatInterval"):
        HaSettings(silence_ms=5000)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"brokerRole": "SLAVE"}, "give each of its slaves a number of its own"),
        ({"brokerId": 1}, "a master has the id 0"),
    ],
)
def test_role_and_id_must_agree(option: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_broker(None, {}, flags(option))


async def test_a_log_of_no_messages_is_followed_too(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        await nodes.a_master()
        slave = await nodes.a_slave()
        await until(slave.replication.is_following)
