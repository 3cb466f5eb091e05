"""The small HTTP server on a real port, and the peers it has to put up with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from http import HTTPStatus

import pytest

from flaremq.base.errors import ConfigError
from flaremq.remoting.http import Answer, HttpLimits, HttpServer


async def metrics() -> Answer:
    return Answer("a_total 1\n", "text/plain; version=0.0.4; charset=utf-8")


async def sick() -> Answer:
    return Answer("no disk\n", status=HTTPStatus.SERVICE_UNAVAILABLE)


async def broken() -> Answer:
    raise RuntimeError("a bug")


PAGES = {"/metrics": metrics, "/health": sick, "/broken": broken}
LIMITS = HttpLimits(head_max=1024, connections_max=2)


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, PAGES, limits=LIMITS)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def impatient() -> AsyncIterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, PAGES, limits=HttpLimits(read_s=0.01))
    await server.start()
    yield server
    await server.stop()


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def told(server: HttpServer, pieces: Iterable[bytes], *, end: bool = False) -> bytes:
    """Everything that the server says until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if end:
            writer.write_eof()
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        return b"closed"
    finally:
        await closed(writer)


async def get(server: HttpServer, target: str, method: str = "GET") -> bytes:
    return await told(server, [f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode()])


async def test_a_page_is_served_with_its_type_and_size(server: HttpServer) -> None:
    head, _, body = (await get(server, "/metrics")).partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"Content-Type: text/plain; version=0.0.4; charset=utf-8",
        b"Content-Length: 10",
        b"Connection: close",
    ]
    assert body == b"a_total 1\n"


async def test_a_head_request_gets_no_body(server: HttpServer) -> None:
    answer = await get(server, "/metrics", "HEAD")
    assert b"Content-Length: 10" in answer and answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("target", "method", "status"),
    [
        ("/metrics?format=text", "GET", b"200 OK"),
        ("/health", "GET", b"503 Service Unavailable"),
        ("/broken", "GET", b"500 Internal Server Error"),
        ("/", "GET", b"404 Not Found"),
        ("/../etc/passwd", "GET", b"404 Not Found"),
        ("/metrics", "POST", b"405 Method Not Allowed"),
        ("/metrics", "get", b"405 Method Not Allowed"),
    ],
)
async def test_every_request_has_its_status(
    server: HttpServer, target: str, method: str, status: bytes
) -> None:
    assert (await get(server, target, method)).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"\x16\x03\x01\x00\xff\r\n\r\n",
        b"GET /a b HTTP/1.1\r\n\r\n",
    ],
)
async def test_nonsense_is_answered_as_such(server: HttpServer, nonsense: bytes) -> None:
    assert (await told(server, [nonsense])).startswith(b"HTTP/1.1 400 Bad Request")
    assert (await get(server, "/metrics")).startswith(b"HTTP/1.1 200")


async def test_a_request_that_ends_too_early_is_answered(server: HttpServer) -> None:
    assert (await told(server, [b"GET / HT"], end=True)).startswith(b"HTTP/1.1 400")
    assert await told(server, [], end=True) == b""


async def test_headers_without_end_are_cut_off(server: HttpServer) -> None:
    answer = await told(server, [b"GET / HTTP/1.1\r\n", b"X: " + b"y" * 4000])
    assert answer.startswith(b"HTTP/1.1 431") or answer == b"closed"
    assert (await get(server, "/metrics")).startswith(b"HTTP/1.1 200")


async def test_a_slow_drip_is_ended(impatient: HttpServer) -> None:
    assert (await told(impatient, [b"GET / HTTP/1.1\r\n"])).startswith(b"HTTP/1.1 408")


async def test_too_many_at_once_are_not_let_in(server: HttpServer) -> None:
    first = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
    while len(server._writers) < 2:
        await asyncio.sleep(0)
    assert await told(server, [], end=True) in (b"", b"closed")
    for reader, writer in first:
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        await closed(writer)
    assert (await get(server, "/metrics")).startswith(b"HTTP/1.1 200")


async def test_a_port_that_is_taken_is_told(server: HttpServer) -> None:
    with pytest.raises(ConfigError, match=f"metricsPromExporterPort={server.port}"):
        await HttpServer("127.0.0.1", server.port, PAGES).start()


async def test_stopping_ends_those_who_are_still_there() -> None:
    server = HttpServer("127.0.0.1", 0, PAGES)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    while not server._writers:
        await asyncio.sleep(0)
    await asyncio.wait_for(server.stop(), 60)
    with suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 60) == b""
    await closed(writer)
