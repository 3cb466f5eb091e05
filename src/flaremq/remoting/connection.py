"""One socket: bytes in, commands out, and back-pressure both ways.

A peer that does not read its answers is not read from either: what waits to be written to it has a
high-water mark, and while that is passed its requests stay in the kernel, where they slow it down.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import cast

from flaremq.base.errors import ConnectionLost, Malformed
from flaremq.protocol.command import Command
from flaremq.protocol.frame import FrameDecoder, encode_head
from flaremq.remoting.pending import Pending

log = logging.getLogger(__name__)

OnRequest = Callable[["Connection", Command], None]
OnClose = Callable[["Connection"], None]


class Connection(asyncio.Protocol):
    """Frames of one peer. Requests go to `on_request`, responses to those who wait for them."""

    def __init__(
        self,
        on_request: OnRequest,
        on_close: OnClose | None = None,
        water_marks: tuple[int, int] | None = None,
    ) -> None:
        self._on_request = on_request
        self._on_close = on_close
        self._water_marks = water_marks
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._finishing = False
        self.under_way = 0  # Requests of the peer that are not answered yet.
        self.pending = Pending()
        self.address: tuple[str, int] = ("", 0)
        self.last_active_s = self._loop.time()
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self.address = (str(peer[0]), int(peer[1]))
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._water_marks is not None:
            self._transport.set_write_buffer_limits(*self._water_marks)

    def data_received(self, data: bytes) -> None:
        self.last_active_s = self._loop.time()
        try:
            for command in self._decoder.feed(data):
                self._received(command)
            if self._decoder.broken is not None:
                raise self._decoder.broken
        except Malformed as error:
            log.warning("connection of %s:%d is closed: %s", *self.address, error)
            self._finish()

    def _finish(self) -> None:
        """Read no more; close when what came before is answered."""
        if self._transport is not None:
            self._transport.pause_reading()
        self._finishing = True
        if not self.under_way:
            self.close()

    def begun(self) -> None:
        """A request of this peer is under way."""
        self.under_way += 1

    def ended(self) -> None:
        self.under_way -= 1
        if self._finishing and not self.under_way:
            self.close()

    def _received(self, command: Command) -> None:
        if not command.is_response:
            self._on_request(self, command)
        elif not self.pending.answer(command):
            log.debug("an answer from %s:%d comes too late: %s", *self.address, command)

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None and not self._finishing and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.pending.fail(
            ConnectionLost(f"the connection to {self.address[0]}:{self.address[1]} is gone: {exc}")
        )
        if not self.closed.done():
            self.closed.set_result(None)
        if self._on_close is not None:
            self._on_close(self)

    # What its owner calls.

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, command: Command) -> None:
        """Write a command; nothing happens if the peer is gone, as nobody could tell it so."""
        body = command.body
        self.send_bytes(encode_head(command, len(body) if body is not None else 0))
        if body is not None:
            self.send_bytes(body)

    def send_bytes(self, data: bytes | memoryview) -> None:
        if self._transport is not None:
            self.last_active_s = self._loop.time()
            self._transport.write(data)

    def close(self) -> None:
        """Write what waits to be written, then close."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
