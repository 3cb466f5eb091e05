"""Peers that are no slaves: whatever they send, nothing counts as copied that no slave can have."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.nobody import Nobody
from tests.ha.nodes import MASTER, Nodes, caught_up, until
from tests.ha.test_stream import dial, some

from flaremq.base.errors import InvalidParameter
from flaremq.ha.acks import SlaveAcks
from flaremq.ha.fit import checksums
from flaremq.ha.master import HaMaster, SlaveConnection
from flaremq.ha.settings import HaSettings
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.remoting.network import Network
from flaremq.remoting.settings import ServerSettings
from flaremq.store.api import Log
from flaremq.store.settings import BrokerRole


class Wire(asyncio.Transport):
    """Takes everything, and notes it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.9", 4711)})
        self.sent = bytearray()
        self.aborted = False

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.sent += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def abort(self) -> None:
        self.aborted = True

    def chunks(self) -> list[tuple[int, int]]:
        """Where each begins, and its size."""
        found, at = list[tuple[int, int]](), 0
        while at < len(self.sent):
            offset, size = struct.unpack_from(">qi", self.sent, at)
            found.append((offset, size))
            at += 12 + size
        return found


class ShortLog:
    """A log of zeros."""

    begin, file_size = 1000, 1000

    def __init__(self, confirmed: int) -> None:
        self.confirmed = confirmed

    def window(self, offset: int) -> tuple[memoryview, int] | None:
        return memoryview(bytes(1000)), offset // 1000 * 1000


@given(
    st.integers(1000, 5000),
    st.lists(
        st.one_of(
            st.binary(max_size=20),
            st.integers(-(2**63), 2**63 - 1).map(lambda number: struct.pack(">q", number)),
            st.integers(0, 6000).map(lambda number: struct.pack(">q", number)),
        )
    ),
)
def test_no_bytes_make_more_count_than_was_sent(end: int, pieces: Sequence[bytes]) -> None:
    async def play() -> None:
        log, acks, wire = ShortLog(end), SlaveAcks(1, 1 << 20), Wire()
        master = HaMaster(
            HaSettings(), cast(Log, log), acks, network=Network(), watch=lambda _callback: lambda: None
        )
        connection = SlaveConnection(master)
        connection.connection_made(wire)
        for piece in pieces:
            if piece and not wire.aborted:
                connection.get_buffer(-1)[: len(piece)] = piece
                connection.buffer_updated(len(piece))
        assert acks.replicated.value <= end
        first = _first_report(pieces)
        if first is None or not (first == 0 or 1000 <= first <= end):
            assert acks.replicated.value == 0 and not wire.sent

    asyncio.run(play())


def _first_report(pieces: Sequence[bytes]) -> int | None:
    """The first position that counts: of a read with several, the last one."""
    rest = b""
    for piece in pieces:
        rest += piece
        whole = len(rest) // 8 * 8
        if whole:
            return int(struct.unpack_from(">q", rest, whole - 8)[0])
    return None


@pytest.mark.parametrize(("is_awaited", "most"), [(True, 20), (False, 5)])
async def test_messages_that_nobody_waits_for_go_out_together(is_awaited: bool, most: int) -> None:
    log, grown, wire = ShortLog(1000), list[Callable[[], None]](), Wire()

    def watch(callback: Callable[[], None]) -> Callable[[], None]:
        grown.append(callback)
        return lambda: None

    master = HaMaster(
        HaSettings(),
        cast(Log, log),
        SlaveAcks(1, 1 << 20),
        network=Network(),
        watch=watch,
        is_awaited=is_awaited,
    )
    await master.start(ServerSettings(bind_address="127.0.0.1", listen_port=0))
    connection = SlaveConnection(master)
    connection.connection_made(wire)
    connection.get_buffer(-1)[:8] = struct.pack(">q", 1000)
    connection.buffer_updated(8)
    for _ in range(20):
        log.confirmed += 40
        grown[0]()
        await asyncio.sleep(0)
    await until(lambda: connection.follower(log.confirmed).sent == log.confirmed)
    chunks = wire.chunks()
    assert sum(size for _, size in chunks) == 800
    assert chunks[0] == (1000, 40), "the first goes at once"
    assert len(chunks) <= most
    await master.stop()


async def test_a_slave_that_knocks_as_its_master_stops_is_not_let_in() -> None:
    master = HaMaster(
        HaSettings(),
        cast(Log, ShortLog(1000)),
        SlaveAcks(1, 1 << 20),
        network=Network(),
        watch=lambda _callback: lambda: None,
    )
    await master.start(ServerSettings(bind_address="127.0.0.1", listen_port=0))
    connection, wire = (
        SlaveConnection(master),
        Wire(),
    )  # It was accepted, and is made a turn of the loop later.
    await master.stop()
    connection.connection_made(wire)
    assert wire.aborted


async def test_a_stray_byte_in_front_ends_the_connection_or_says_nothing(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(role=BrokerRole.SYNC_MASTER)
        end = master.put(*some(3))
        reader, writer = await dial(master)
        writer.write(b"\1" + struct.pack(">q", end))
        assert await reader.read() == b""
        (mark,) = master.replication.marks()
        assert mark.mark.value == 0
        writer.close()


async def test_many_connections_that_say_nothing_keep_no_slave_out(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master(ha={"heartbeat_ms": 100, "silence_ms": 300})
        idle = [await dial(master) for _ in range(140)]  # More than are taken.
        slave = await nodes.a_slave()
        master.put(*some(3))
        await caught_up(slave, master)  # Once the idle ones are closed.
        assert master.replication.master is not None and master.replication.master.status().refused > 0
        for _, writer in idle:
            writer.close()


async def test_nobody_speaks_for_the_connection_of_another_machine(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master()
        await nodes.a_slave()
        await until(lambda: master.replication.has_slaves)
        assert master.replication.master is not None
        (link,) = master.replication.master.status().followers
        fields = {"brokerId": "7", "address": link.address}
        request = Command(code=RequestCode.FLAREMQ_INTRODUCE_SLAVE, ext_fields=fields)
        stranger = Nobody()
        stranger.address = ("10.9.9.9", 1)
        answer = await master.replication.introduce_slave(stranger, request)
        assert answer.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("begin", "end", "piece"), [(0, 1 << 40, 1 << 30), (0, 1 << 20, 1), (-1, 10, 10), (0, 10, 0)]
)
async def test_no_request_for_checksums_reads_a_whole_disk(
    tmp_path: Path, begin: int, end: int, piece: int
) -> None:
    async with Nodes(tmp_path) as nodes:
        master = await nodes.a_master()
        with pytest.raises(InvalidParameter, match="expected at most"):
            checksums(master.replication._own, begin, end, piece)
        assert MASTER in nodes.names
