"""Options of sockets and calls that no other test would miss: each is set, and what it changes is seen."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from flaremq.base.errors import CallTimeout, ConnectFailed, Unreachable
from flaremq.protocol.command import Command
from flaremq.remoting.caller import Caller
from flaremq.remoting.router import Family, Peer, Router
from flaremq.remoting.server import Server
from flaremq.remoting.settings import CallerSettings, ServerSettings

ECHO, SILENT = 9001, 9002


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0)


class Asked:
    """What a server was asked; it echoes, or says nothing for as long as it lives."""

    def __init__(self) -> None:
        self.count = 0
        self.router = Router()
        self.router.serve(Family("test", 1000), {ECHO: self.echo, SILENT: self.silent})
        self._never = asyncio.Event()

    async def echo(self, _peer: Peer, request: Command) -> Command:
        return Command(code=0, opaque=request.opaque, flag=1, body=request.body)

    async def silent(self, _peer: Peer, _request: Command) -> None:
        self.count += 1
        await self._never.wait()


@asynccontextmanager
async def serving(**other: Any) -> AsyncIterator[tuple[Server, Asked]]:
    asked = Asked()
    server = Server(ServerSettings(**{"bind_address": "127.0.0.1", "drain_s": 0, **other}), asked.router)
    await server.start()
    try:
        yield server, asked
    finally:
        await server.stop()


@asynccontextmanager
async def calling(**other: Any) -> AsyncIterator[Caller]:
    caller = Caller(CallerSettings(**other))
    try:
        yield caller
    finally:
        await caller.aclose()


def free_port(address: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


# The listening side.


async def test_a_server_listens_where_it_was_told() -> None:
    port = free_port("127.0.0.2")
    async with serving(bind_address="127.0.0.2", listen_port=port), calling() as caller:
        assert (await caller.call(f"127.0.0.2:{port}", Command(code=ECHO), 5)).code == 0
        with pytest.raises(ConnectFailed):
            await caller.call(f"127.0.0.1:{port}", Command(code=ECHO), 5)


async def test_no_more_connections_wait_to_be_accepted_than_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    backlogs: list[int] = []
    listen = socket.socket.listen

    def noted(sock: socket.socket, size: int) -> None:
        backlogs.append(size)
        listen(sock, size)

    monkeypatch.setattr(socket.socket, "listen", noted)
    async with serving(backlog=7):
        assert backlogs and set(backlogs) == {7}


async def test_a_silent_connection_is_closed_when_its_time_is_over() -> None:
    async with serving(idle_max_s=1) as (server, _):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await until(lambda: server.connections)
        (connection,) = server.connections
        connection._active_s -= 2  # As if so much time had passed.
        await until(lambda: not server.connections)
        writer.close()


@pytest.mark.parametrize(
    ("name", "option"), [("send_buffer", socket.SO_SNDBUF), ("receive_buffer", socket.SO_RCVBUF)]
)
async def test_sockets_have_buffers_of_the_size_that_was_set(name: str, option: int) -> None:
    async with serving(**{name: 32768}) as (server, _):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await until(lambda: any(each.is_open for each in server.connections))
        (connection,) = server.connections
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, option) == 2 * 32768  # Linux doubles what it is told.
        writer.close()


async def test_reading_stops_and_starts_again_at_the_marks_that_were_set() -> None:
    async with serving(write_high_water=5000, write_low_water=3000) as (server, _):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await until(lambda: any(each.is_open for each in server.connections))
        (connection,) = server.connections
        assert connection._transport is not None
        assert connection._transport.get_write_buffer_limits() == (3000, 5000)
        writer.close()


async def test_a_stop_gives_up_waiting_when_its_time_is_over() -> None:
    asked = Asked()
    server = Server(ServerSettings(bind_address="127.0.0.1", drain_s=0), asked.router)
    await server.start()
    async with calling() as caller:
        call = asyncio.create_task(caller.call(f"127.0.0.1:{server.port}", Command(code=SILENT), 60))
        await until(lambda: asked.count)
        await asyncio.wait_for(server.stop(), 10)  # The default would be half a minute.
        with pytest.raises(Unreachable):
            await call


# The calling side.


async def test_connecting_is_given_up_after_the_time_that_was_set() -> None:
    with socket.socket() as full:  # Its place for those who wait is taken: nobody else gets an answer.
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        with contextlib.ExitStack() as held:
            for _ in range(2):
                sock = held.enter_context(socket.socket())
                sock.setblocking(False)
                sock.connect_ex(("127.0.0.1", port))
            async with calling(connect_timeout_ms=50) as caller:
                with pytest.raises(ConnectFailed, match=r"0\.05 s"):
                    await caller.call(f"127.0.0.1:{port}", Command(code=ECHO), 60)


async def test_no_more_calls_wait_for_their_answer_than_was_set() -> None:
    async with serving() as (server, asked), calling(async_max=2) as caller:
        calls = [
            asyncio.create_task(caller.call(f"127.0.0.1:{server.port}", Command(code=SILENT), 60))
            for _ in range(3)
        ]
        await until(lambda: asked.count == 2)
        with pytest.raises(CallTimeout):  # All places are taken.
            await caller.call(f"127.0.0.1:{server.port}", Command(code=ECHO), 0.05)
        assert asked.count == 2
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_no_more_one_way_sends_are_under_way_than_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    async with calling(oneway_max=1) as caller:
        blocked = asyncio.Event()

        async def never(*_given: object) -> None:
            blocked.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(caller, "connected", never)
        first = asyncio.create_task(caller.send_oneway("a:1", Command(code=ECHO), 60))
        await blocked.wait()
        blocked.clear()
        second = asyncio.create_task(caller.send_oneway("a:1", Command(code=ECHO), 60))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not blocked.is_set()
        for each in (first, second):
            each.cancel()
        await asyncio.gather(first, second, return_exceptions=True)


@pytest.mark.parametrize("closes", [True, False])
async def test_whether_a_call_that_timed_out_costs_its_connection_is_an_option(closes: bool) -> None:
    async with serving() as (server, _), calling(close_on_timeout=closes) as caller:
        address = f"127.0.0.1:{server.port}"
        assert (await caller.call(address, Command(code=ECHO), 5)).code == 0
        first = caller.open_connection(address)
        with pytest.raises(CallTimeout):
            await caller.call(address, Command(code=SILENT), 0.02)
        assert (caller.open_connection(address) is first) is not closes
