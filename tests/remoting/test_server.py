"""Servers and callers on real sockets of this machine."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from collections.abc import AsyncIterator, Callable

import pytest
from tests.remoting.live import Rude

from flaremq.base.errors import CallTimeout, ConfigError, ConnectFailed, ConnectionLost, MessageIllegal
from flaremq.base.units import MiB
from flaremq.protocol.codes import ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.frame import encode_frame
from flaremq.remoting import connection as connections
from flaremq.remoting.caller import Caller
from flaremq.remoting.connection import Connection
from flaremq.remoting.router import Family, Peer, Router
from flaremq.remoting.server import Server
from flaremq.remoting.settings import CallerSettings, ServerSettings
from flaremq.testing.clock import settle

ECHO, BOOM, ILLEGAL, SILENT, HOLD = 9001, 9002, 9003, 9004, 9005


class Service:
    """A few handlers to call."""

    def __init__(self) -> None:
        self.held = asyncio.Event()
        self.seen: list[Command] = []
        self.router = Router()
        self.router.serve(
            Family("test", limit=3),
            {ECHO: self.echo, BOOM: self.boom, ILLEGAL: self.illegal, SILENT: self.silent, HOLD: self.hold},
        )

    async def echo(self, peer: Peer, request: Command) -> Command:
        self.seen.append(request)
        return response_to(request, ext_fields=dict(request.fields), body=request.body)

    async def boom(self, peer: Peer, request: Command) -> Command:
        raise RuntimeError("no luck")

    async def illegal(self, peer: Peer, request: Command) -> Command:
        raise MessageIllegal("body of 5 bytes, limit is 4")

    async def silent(self, peer: Peer, request: Command) -> None:
        return None

    async def hold(self, peer: Peer, request: Command) -> Command:
        await self.held.wait()
        return response_to(request)


@pytest.fixture
async def service() -> Service:
    return Service()


@pytest.fixture
async def server(service: Service) -> AsyncIterator[Server]:
    server = Server(ServerSettings(bind_address="127.0.0.1", drain_s=1), service.router)
    await server.start()
    yield server
    service.held.set()
    await server.stop()


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    caller = Caller(CallerSettings())
    yield caller
    await caller.aclose()


async def until(true: Callable[[], bool]) -> None:
    """Let the loop run until something is so."""
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0)


def address(server: Server) -> str:
    return f"127.0.0.1:{server.port}"


async def test_a_call_gets_its_answer(server: Server, caller: Caller) -> None:
    request = Command(code=ECHO, ext_fields={"a": "1"}, body=b"hello")
    answer = await caller.call(address(server), request, timeout_s=5)
    assert (answer.code, answer.fields["a"], answer.body) == (0, "1", b"hello")


async def test_answers_find_their_calls_in_any_order(
    service: Service, server: Server, caller: Caller
) -> None:
    slow = asyncio.create_task(caller.call(address(server), Command(code=HOLD), timeout_s=5))
    quick = [
        caller.call(address(server), Command(code=ECHO, body=bytes([i])), timeout_s=5) for i in range(1, 3)
    ]
    assert [answer.body for answer in await asyncio.gather(*quick)] == [b"\x01", b"\x02"]
    assert not slow.done()
    service.held.set()
    assert (await slow).code == 0
    assert len(server.connections) == 1


@pytest.mark.parametrize(
    ("code", "answer", "remark"),
    [
        (BOOM, ResponseCode.SYSTEM_ERROR, "RuntimeError, no luck"),
        (ILLEGAL, ResponseCode.MESSAGE_ILLEGAL, "body of 5 bytes, limit is 4"),
        (8888, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 8888 not supported"),
    ],
)
async def test_whatever_goes_wrong_is_answered(
    server: Server, caller: Caller, code: int, answer: int, remark: str
) -> None:
    got = await caller.call(address(server), Command(code=code), timeout_s=5)
    assert (got.code, got.remark) == (answer, remark)
    assert (await caller.call(address(server), Command(code=ECHO), timeout_s=5)).code == 0


async def test_a_full_family_refuses_more_and_says_so(
    service: Service, server: Server, caller: Caller
) -> None:
    held = [
        asyncio.create_task(caller.call(address(server), Command(code=HOLD), timeout_s=5)) for _ in range(3)
    ]
    while service.router._routes[HOLD][1].under_way < 3:
        await asyncio.sleep(0)
    refused = await caller.call(address(server), Command(code=ECHO), timeout_s=5)
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert refused.remark is not None
    assert refused.remark.startswith("[OVERLOAD]system busy")
    service.held.set()
    assert [answer.code for answer in await asyncio.gather(*held)] == [0, 0, 0]


async def test_a_oneway_request_is_done_and_never_answered(
    service: Service, server: Server, caller: Caller
) -> None:
    await caller.send_oneway(address(server), Command(code=ECHO, body=b"x"), timeout_s=5)
    answer = await caller.call(address(server), Command(code=ECHO, body=b"y"), timeout_s=5)
    assert answer.body == b"y"
    assert [request.body for request in service.seen] == [b"x", b"y"]


async def test_a_call_that_is_not_answered_times_out_and_closes_its_connection(
    server: Server, caller: Caller
) -> None:
    with pytest.raises(CallTimeout, match="did not answer"):
        await caller.call(address(server), Command(code=SILENT), timeout_s=0.05)
    assert (await caller.call(address(server), Command(code=ECHO), timeout_s=5)).code == 0


async def test_a_lost_connection_is_told_to_who_waits(server: Server, caller: Caller) -> None:
    waiting = asyncio.create_task(caller.call(address(server), Command(code=HOLD), timeout_s=5))
    while not server._under_way:
        await asyncio.sleep(0)
    for connection in server.connections:
        connection.abort()
    with pytest.raises(ConnectionLost):
        await waiting


async def test_nobody_there_is_told_at_once(caller: Caller) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(ConnectFailed, match="cannot be reached"):
        await caller.call(f"127.0.0.1:{port}", Command(code=ECHO), timeout_s=5)
    with pytest.raises(ConnectFailed, match="not an address"):
        await caller.call("nonsense", Command(code=ECHO), timeout_s=5)


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 20, b"\x00\x00\x00\x02xx", bytes(40)]
)
async def test_garbage_closes_its_connection_and_no_other(
    server: Server, caller: Caller, garbage: bytes
) -> None:
    assert (await caller.call(address(server), Command(code=ECHO), timeout_s=5)).code == 0
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(encode_frame(Command(code=ECHO, opaque=7)) + garbage)
    data = await asyncio.wait_for(reader.read(), 60)  # Until the server closes.
    assert data[8:].startswith(b"{")  # What came before the garbage was answered.
    writer.close()
    assert (await caller.call(address(server), Command(code=ECHO), timeout_s=5)).code == 0


async def test_frames_may_come_byte_by_byte(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for byte in encode_frame(Command(code=ECHO, opaque=3, body=b"slow")):
        writer.write(bytes([byte]))
        await writer.drain()
    length = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), 60), "big")
    assert (await reader.readexactly(length)).endswith(b"slow")
    writer.close()


async def test_socket_buffers_are_those_of_the_settings(service: Service) -> None:
    server = Server(ServerSettings(bind_address="127.0.0.1", drain_s=0), service.router)
    await server.start()
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    while not any(connection.is_open for connection in server.connections):
        await asyncio.sleep(0)
    (connection,) = server.connections
    assert connection._transport is not None
    sock = connection._transport.get_extra_info("socket")
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        assert sock.getsockopt(socket.SOL_SOCKET, option) == 2 * 131072  # Linux doubles what it is told.
    writer.close()
    await server.stop()


async def test_a_port_that_is_taken_is_named(service: Service, server: Server) -> None:
    second = Server(ServerSettings(bind_address="127.0.0.1", listen_port=server.port), service.router)
    with pytest.raises(ConfigError, match=f"listenPort={server.port}"):
        await second.start()


async def test_who_is_accepted_as_the_server_stops_is_not_left_open(server: Server) -> None:
    class Wire(asyncio.Transport):
        aborted = False

        def abort(self) -> None:
            self.aborted = True

    connection, wire = server._accept(), Wire()  # asyncio makes the connection a turn of its loop later.
    await server.stop()
    connection.connection_made(wire)
    assert wire.aborted
    connection.connection_lost(None)


async def test_a_stop_waits_for_what_is_under_way(service: Service, caller: Caller) -> None:
    server = Server(ServerSettings(bind_address="127.0.0.1", drain_s=5), service.router)
    await server.start()
    held = asyncio.create_task(caller.call(address(server), Command(code=HOLD), timeout_s=5))
    while not server._under_way:
        await asyncio.sleep(0)
    stopping = asyncio.create_task(server.stop())
    late = await caller.call(address(server), Command(code=ECHO), timeout_s=5)
    assert late.code == ResponseCode.GO_AWAY
    service.held.set()
    assert (await held).code == 0
    await stopping


async def test_a_peer_with_very_many_requests_under_way_is_not_read_from_until_they_are_fewer() -> None:
    service = Service()
    service.router = Router()
    service.router.serve(Family("test", limit=100_000), {ECHO: service.echo, HOLD: service.hold})
    server = Server(ServerSettings(bind_address="127.0.0.1", drain_s=1), service.router)
    await server.start()
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(b"".join(encode_frame(Command(code=HOLD, opaque=n)) for n in range(1024)))
        await until(lambda: any(each.under_way == 1024 for each in server.connections))
        writer.write(encode_frame(Command(code=ECHO, opaque=9999)))
        await writer.drain()
        await settle()
        assert service.seen == []
        service.held.set()
        await until(lambda: bool(service.seen))
    finally:
        service.held.set()
        writer.close()
        await server.stop()


async def test_a_connection_that_nobody_uses_is_closed_and_the_next_call_makes_another(
    server: Server,
) -> None:
    caller = Caller(CallerSettings(idle_max_s=1))
    try:
        await caller.call(address(server), Command(code=ECHO), timeout_s=5)
        (connection,) = caller._connections.values()
        connection.idle_s()
        connection._active_s -= 2  # As if so much time had passed.
        caller._look_after(connection)
        assert not connection.is_open
        assert (await caller.call(address(server), Command(code=ECHO), timeout_s=5)).code == 0
    finally:
        await caller.aclose()


async def test_a_caller_that_is_closed_leaves_no_connection_and_no_buffers_behind(server: Server) -> None:
    """Each caller reads into megabytes: whoever makes many for one call each must not pile them up."""
    caller = Caller(CallerSettings())
    await caller.call(address(server), Command(code=ECHO), timeout_s=5)
    (connection,) = caller._connections.values()
    left = weakref.ref(connection)
    await caller.aclose()
    del caller, connection
    await settle()
    gc.collect()
    assert left() is None


async def test_a_server_asks_its_peers_no_more_at_a_time_than_it_may() -> None:
    asked: list[Command] = []
    server = Server(ServerSettings(bind_address="127.0.0.1", drain_s=1, async_max=2), Router())
    await server.start()
    router = Router()

    async def silent(_peer: Peer, request: Command) -> None:
        asked.append(request)

    router.serve(Family("test", 100), {SILENT: silent})
    caller = Caller(CallerSettings(), router)
    try:
        await caller.send_oneway(address(server), Command(code=ECHO), timeout_s=5)
        await until(lambda: bool(server.connections))
        (peer,) = server.connections
        calls = [asyncio.create_task(peer.call(Command(code=SILENT), timeout_s=0.2)) for _ in range(3)]
        await until(lambda: len(asked) == 2)
        await settle()
        assert len(asked) == 2
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, CallTimeout) for result in results)
    finally:
        await caller.aclose()
        await server.stop()


async def test_an_answer_that_no_frame_can_hold_is_told_instead(caller: Caller) -> None:
    router = Router()

    async def huge(_peer: Peer, request: Command) -> Command:
        return response_to(request, body=bytes(17 << 20))

    router.serve(Family("test", 10), {ECHO: huge})
    server = Server(ServerSettings(bind_address="127.0.0.1", drain_s=1), router)
    await server.start()
    try:
        answer = await caller.call(address(server), Command(code=ECHO), timeout_s=5)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "too large" in (answer.remark or "")
    finally:
        await server.stop()


async def peer_of(server: Server, rude: Rude, size: int) -> Connection:
    """Ask for more than the kernel takes, so that the rest waits in the server."""
    await rude.say(encode_frame(Command(code=ECHO, body=bytes(size))))
    await until(lambda: any(each.is_full for each in server.connections))
    (connection,) = server.connections
    return connection


async def test_a_closing_connection_whose_peer_does_not_read_is_aborted(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_LINGER_S", 0.1)
    rude = await Rude.at(server.port, receive_buffer=4096)
    connection = await peer_of(server, rude, 8 * MiB)
    connection.close()
    async with asyncio.timeout(60):
        await connection.closed
    assert not server.connections
    rude.hang_up()


async def test_a_closing_connection_whose_peer_reads_slowly_gets_everything(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_LINGER_S", 0.2)
    rude = await Rude.at(server.port, receive_buffer=4096)
    connection = await peer_of(server, rude, 8 * MiB)
    connection.close()
    heard = await rude.hears_the_end()
    assert len(heard) > 8 * MiB
    rude.hang_up()


async def test_a_peer_that_never_reads_is_gone_soon_after_it_was_idle_for_too_long(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_LINGER_S", 0.1)
    server = Server(ServerSettings(bind_address="127.0.0.1", drain_s=1, idle_max_s=1), service.router)
    await server.start()
    rude = await Rude.at(server.port, receive_buffer=4096)
    connection = await peer_of(server, rude, 8 * MiB)
    async with asyncio.timeout(60):
        await connection.closed
    assert not server.connections
    rude.hang_up()
    await server.stop()
