"""A very small HTTP server for scrapers and health checks: one GET per connection.

Anything else is answered with an error or closed: nonsense, endless headers, a peer that sends a byte a
minute. It runs in the event loop of a broker, so everything has a tight limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeAlias

from flaremq.base.errors import ConfigError
from flaremq.base.lifecycle import Owned

log = logging.getLogger(__name__)

_PLAIN: Final = "text/plain; charset=utf-8"
_HEAD_MAX: Final = 8 * 1024
_CONNECTIONS_MAX: Final = 16
_READ_S: Final = 5.0  # For the whole head of a request.
_WRITE_S: Final = 10.0
_METHODS: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Answer:
    body: str
    content_type: str = _PLAIN
    status: HTTPStatus = HTTPStatus.OK


Page: TypeAlias = Callable[[], Awaitable[Answer]]
"""Makes the content of a page. Slow work must be done in a thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Limits per peer and in total."""

    head_max: int = _HEAD_MAX
    connections_max: int = _CONNECTIONS_MAX
    read_s: float = _READ_S
    write_s: float = _WRITE_S


class HttpServer:
    """One port, a few pages. Every answer closes its connection."""

    def __init__(
        self, host: str, port: int, pages: Mapping[str, Page], *, limits: HttpLimits | None = None
    ) -> None:
        self._host = host
        self.port = port
        self._pages = pages
        self._limits = limits or HttpLimits()
        self._tasks = Owned()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._stopping = False

    async def start(self) -> None:
        try:
            self._server = await asyncio.start_server(
                self._accept, self._host, self.port, limit=self._limits.head_max
            )
        except OSError as error:
            raise ConfigError(
                f"metricsPromExporterPort={self.port}: {error.strerror or error} on {self._host}: stop "
                "the process that has it, or choose another port"
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._stopping = True
        if self._server is not None:
            self._server.close()
        await self._tasks.aclose(timeout_s=5)
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)  # An aborted transport closes its socket in the next turn of the loop.

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._stopping or len(self._writers) >= self._limits.connections_max:
            writer.transport.abort()
            return
        self._writers.add(writer)
        self._tasks.spawn("http", self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            method, answer = await self._answer(reader)
            if answer is not None:
                writer.write(_encoded(method, answer))
                async with asyncio.timeout(self._limits.write_s):
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        except (OSError, TimeoutError):
            log.debug("a peer of the metrics port has gone, or does not read")
        finally:
            self._writers.discard(writer)
            writer.transport.abort()  # Does nothing if it is closed already.

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[str, Answer | None]:
        """The method and its answer; None for a peer that left without sending anything."""
        try:
            async with asyncio.timeout(self._limits.read_s):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            return "GET", _error(HTTPStatus.BAD_REQUEST) if error.partial else None
        except asyncio.LimitOverrunError:
            return "GET", _error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except TimeoutError:
            return "GET", _error(HTTPStatus.REQUEST_TIMEOUT)
        line = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(line) != 3 or not line[2].startswith("HTTP/1."):
            return "GET", _error(HTTPStatus.BAD_REQUEST)
        return line[0], await self._page(line[0], line[1])

    async def _page(self, method: str, target: str) -> Answer:
        if method not in _METHODS:
            return _error(HTTPStatus.METHOD_NOT_ALLOWED)
        page = self._pages.get(target.partition("?")[0])
        if page is None:
            return _error(HTTPStatus.NOT_FOUND)
        try:
            return await page()
        except Exception:
            log.exception("page %s failed", target.partition("?")[0])
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR)


def _error(status: HTTPStatus) -> Answer:
    return Answer(f"{status.value} {status.phrase}\n", status=status)


def _encoded(method: str, answer: Answer) -> bytes:
    body = answer.body.encode("utf-8", "replace")
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    head = "\r\n".join((*lines, "", "")).encode("latin-1")
    return head if method == "HEAD" else head + body
