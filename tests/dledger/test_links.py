"""Links between members, over real sockets: who may connect, and what is sent again after a loss."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from flaremq.dledger.frames import MAGIC, Hello, encode
from flaremq.dledger.links import Links
from flaremq.dledger.types import EntryRun, MemberId, Message, Push, RepairMessage, TakeOver
from flaremq.remoting.network import Network
from flaremq.remoting.ports import free_port
from flaremq.remoting.settings import ServerSettings
from flaremq.testing.cluster import eventually


class Host:
    """A member without rules: notes what it hears."""

    def __init__(self, me: MemberId, *, group: str = "g", refuses: str = "") -> None:
        self.me = me
        self.group = group
        self.refuses = refuses
        self.said: list[tuple[MemberId, Message | RepairMessage]] = []
        self.port = free_port("127.0.0.1")
        self.links = Links(self, Network())

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def hello(self, to: MemberId) -> Hello:
        return Hello(self.group, self.me, to, "", False)

    def why_not(self, hello: Hello) -> str:
        return self.refuses

    def heard(self, sender: MemberId, message: Message | RepairMessage) -> None:
        if isinstance(message, Push) and message.run is not None:
            message = replace(message, run=replace(message.run, data=bytes(message.run.data)))
        self.said.append((sender, message))

    async def start(self) -> None:
        await self.links.start(ServerSettings(listen_port=self.port, bind_address="127.0.0.1"))


@asynccontextmanager
async def met(*hosts: Host) -> AsyncIterator[None]:
    for host in hosts:
        await host.start()
    for host in hosts:
        host.links.reach({other.me: other.address for other in hosts if other is not host})
    try:
        yield
    finally:
        for host in hosts:
            await host.links.stop()


async def reached(host: Host, other: Host) -> None:
    async def can() -> bool:
        return not host.links.complaint(other.me)

    await eventually(f"{host.me} reaches {other.me}", can)


async def heard(host: Host, count: int) -> None:
    async def has() -> bool:
        return len(host.said) >= count

    await eventually(f"{host.me} hears {count}", has)


async def test_what_a_member_says_arrives_in_order_and_whole() -> None:
    a, b = Host("n0"), Host("n1")
    async with met(a, b):
        await reached(a, b)
        data = bytes(range(256)) * 8192
        said: list[Message] = [Push(3, 1, 2, 0, n, EntryRun(2, 96, ((3, 1),), data)) for n in range(8)]
        for each in (*said, TakeOver(4)):
            a.links.send("n1", each)
        await heard(b, 9)
        assert b.said == [("n0", each) for each in (*said, TakeOver(4))]


async def test_a_member_that_comes_later_is_reached_by_itself() -> None:
    a, b = Host("n0"), Host("n1")
    async with met(a):
        a.links.reach({"n1": b.address})
        await asyncio.sleep(0)
        assert a.links.complaint("n1")
        async with met(b):
            await reached(a, b)
            a.links.send("n1", TakeOver(1))
            await heard(b, 1)


async def test_a_refused_member_hears_why_and_is_named() -> None:
    a, b = Host("n0"), Host("n1", refuses="it belongs to group h, and this is g")
    async with met(a, b):

        async def knows() -> bool:
            return "belongs to group h" in a.links.complaint("n1")

        await eventually("the refusal is told", knows)
        a.links.send("n1", TakeOver(1))
        assert "n0 at 127.0.0.1" in b.links.refused
        assert not b.said


async def test_whoever_knocks_at_the_moment_of_a_stop_is_let_go() -> None:
    """Whether accepted or not: none of our ends stays open."""
    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always", ResourceWarning)
        for turns in [0, 1, 2, 3] * 5:
            host = Host("n0")
            await host.start()
            with socket.socket() as knocking:
                knocking.setblocking(False)
                assert knocking.connect_ex(("127.0.0.1", host.port)) in (0, errno.EINPROGRESS)
                for _ in range(turns):
                    await asyncio.sleep(0)
                await host.links.stop()
        gc.collect()
    assert [str(each.message) for each in left_open] == []


async def test_a_link_that_was_renewed_works_again() -> None:
    a, b = Host("n0"), Host("n1")
    async with met(a, b):
        await reached(a, b)
        a.links.renew("n1")
        await asyncio.sleep(0)

        async def works() -> bool:
            a.links.send("n1", TakeOver(7))
            return bool(b.said)

        await eventually("it works again", works)


async def test_a_member_that_has_left_is_not_spoken_to() -> None:
    a, b = Host("n0"), Host("n1")
    async with met(a, b):
        await reached(a, b)
        a.links.reach({})
        a.links.send("n1", TakeOver(1))
        assert a.links.complaint("n1") == ""
        assert not b.said


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x40\x00\x00\x00\x20{}",
        MAGIC + b"\xff\xff\xff\xff",
        MAGIC + b"\x00\x00\x00\x01\x63",
        MAGIC + b"".join(bytes(piece) for piece in encode(TakeOver(1))),
    ],
    ids=["http", "remoting", "size", "kind", "no-hello"],
)
async def test_whoever_is_no_member_is_cut_off_and_named(first: bytes) -> None:
    a = Host("n0")
    async with met(a):
        reader, writer = await asyncio.open_connection("127.0.0.1", a.port)
        writer.write(first)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(reader.readexactly(1), 10)
        writer.close()
        assert a.links.refused.startswith("127.0.0.1:")
        assert not a.said
