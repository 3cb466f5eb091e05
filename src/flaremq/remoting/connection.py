"""One socket: bytes to its turn, answers back, and back-pressure both ways.

A peer that does not read its answers is not read from either: while its write buffer is above the high-water
mark, its requests stay in the kernel, which slows it down. A caller goes on reading however much it has to
write: it reads the answers to its own requests, and two ends that each wait for the other to read would wait
for ever.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Final, cast

from flaremq.base.errors import CallTimeout, ConnectionLost, Malformed
from flaremq.model.columns import Bytes
from flaremq.protocol.command import Command
from flaremq.protocol.frame import encode_head
from flaremq.remoting.handshake import Doorway
from flaremq.remoting.pending import Pending
from flaremq.remoting.turn import Turn

log = logging.getLogger(__name__)

OnRequest = Callable[["Connection", Command], None]
OnClose = Callable[["Connection"], None]

_UNDER_WAY_MAX: Final = 1024
_LINGER_S: Final = 3.0
"""A closing connection whose peer has read nothing for this long is aborted."""
_LINGER_MAX_S: Final = 60.0
"""The limit for a peer that reads, but so slowly that it would hold its descriptor for ever."""
_LAST_DATA_RECEIVED: Final = struct.Struct("@52xI")  # In tcp_info: milliseconds since the peer last sent.


class Connection(asyncio.BufferedProtocol):
    """One socket. Requests go to `on_request`, responses to the calls that wait for them."""

    def __init__(
        self,
        turn: Turn,
        on_request: OnRequest,
        on_close: OnClose | None = None,
        *,
        water_marks: tuple[int, int] | None = None,
        doorway: Doorway | None = None,
        calls: asyncio.Semaphore | None = None,
        admits: Callable[[int], bool] | None = None,
    ) -> None:
        """`doorway` is for accepted connections. `calls` limits the concurrent calls of all connections of a
        port to their peers; `admits` returns whether a connection with this descriptor may stay."""
        self._turn = turn
        self._is_accepted = doorway is not None
        self._on_request = on_request
        self._on_close = on_close
        self._water_marks = water_marks
        self._doorway = doorway
        self._calls = calls
        self._admits = admits
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._loop = asyncio.get_running_loop()
        self._finishing = self._crowded = self._unwanted = False
        self._lingering: asyncio.TimerHandle | None = None
        self._gone: asyncio.Future[None] | None = None
        inlet = self.inlet = turn.inlet(self, shut=doorway is not None)
        # Bound straight to the inlet, because the loop calls them for every read.
        self.get_buffer = inlet.get_buffer  # type: ignore[method-assign]
        self.buffer_updated = inlet.buffer_updated  # type: ignore[method-assign]
        self.host = bytes(8)
        self.is_full = False
        """The write buffer is above its high-water mark: do no more work for this peer now."""
        self.left_much = False
        """Once it is closed: whether much was still to be read or written."""
        self._waiting: deque[Callable[[], None]] = deque()
        self.under_way = 0  # Requests of the peer that are not answered yet.
        self.pending = Pending()
        self.address: tuple[str, int] = ("", 0)
        self._reads_seen, self._active_s = 0, self._loop.time()
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._unwanted:  # Its server was stopped between accepting it and this.
            self._transport.abort()
            return
        peer = transport.get_extra_info("peername")
        if peer:
            self.comes_from(str(peer[0]), int(peer[1]))
        sock = transport.get_extra_info("socket")
        if sock is not None and self._admits is not None and not self._admits(sock.fileno()):
            self._transport.abort()
            return
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = sock
        if self._water_marks is not None:
            self._transport.set_write_buffer_limits(*self._water_marks)

    def comes_from(self, address: str, port: int) -> None:
        """Set the peer's address, as given by the socket, or by the proxy in front of it."""
        self.address = (address, port)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        packed = socket.inet_pton(family, address.partition("%")[0])
        if packed[:12] == b"\0" * 10 + b"\xff\xff":
            packed = packed[12:]  # An IPv4 address mapped to IPv6: a record keeps it as IPv4.
        self.host = packed + port.to_bytes(4, "big")

    def entered(self, data: bytes) -> None:
        """Take bytes of a shut inlet: the first ones of a connection, and under TLS all of them."""
        doorway = self._doorway
        assert doorway is not None
        try:
            plain = doorway.feed(data)
        except Malformed as error:
            self._write_out(doorway)
            self.broken(error)
            return
        self._write_out(doorway)
        if doorway.peer is not None:
            self.comes_from(*doorway.peer)
            doorway.peer = None
        if doorway.is_open:
            self._doorway, self.inlet.shut = None, False
        if plain:
            self._turn.deliver(self, plain)
        if doorway.ended:
            self.close()

    def _write_out(self, doorway: Doorway) -> None:
        out = doorway.outgoing()
        if out and self._transport is not None:
            self._transport.write(out)

    def broken(self, error: Malformed) -> None:
        """The peer's bytes make no sense: read no more, and close once earlier requests are answered."""
        log.warning("connection of %s:%d is closed: %s", *self.address, error)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._finishing = True
        if not self.under_way:
            self.close()

    def begun(self) -> None:
        """A request of this peer is under way. A peer with very many of them is paused."""
        self.under_way += 1
        if self.under_way == _UNDER_WAY_MAX and self._transport is not None:
            self._crowded = True
            self._transport.pause_reading()

    def ended(self) -> None:
        self.under_way -= 1
        if self._crowded and self.under_way <= _UNDER_WAY_MAX // 2:
            self._crowded = False
            self._read_on()
        if self._finishing and not self.under_way:
            self.close()

    def _read_on(self) -> None:
        """Resume reading, unless there is another reason to pause."""
        if self._transport is None or self._transport.is_closing():
            return
        if not (self.is_full or self._crowded or self._finishing):
            self._transport.resume_reading()

    def received(self, command: Command) -> None:
        if not command.is_response:
            self._on_request(self, command)
        elif not self.pending.answer(command):
            log.debug("an answer from %s:%d came too late: %s", *self.address, command)

    def waited_ms(self) -> int:
        """How long ago the youngest bytes of this peer reached the kernel; 0 if unknown."""
        if self._socket is None or not hasattr(socket, "TCP_INFO"):
            return 0
        try:
            raw = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_RECEIVED.size)
        except OSError:
            return 0
        return int(_LAST_DATA_RECEIVED.unpack(raw)[0]) if len(raw) == _LAST_DATA_RECEIVED.size else 0

    def pause_writing(self) -> None:
        self.is_full = True
        if self._is_accepted and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.is_full = False
        while self._waiting and not self.is_full:
            self._waiting.popleft()()
        self._read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._socket = None
        if self._lingering is not None:
            self._lingering.cancel()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
        inlet = self.inlet
        self.left_much = self.is_full or inlet.large is not None
        inlet.rest, inlet.large = b"", None
        # Break the reference cycle, so that this is freed at once and not by the garbage collector.
        inlet.source = None
        del self.get_buffer, self.buffer_updated
        self.is_full = False
        while self._waiting:
            self._waiting.popleft()()
        why = exc or "it was closed"
        self.pending.fail(
            ConnectionLost(f"the connection to {self.address[0]}:{self.address[1]} is gone: {why}")
        )
        if not self.closed.done():
            self.closed.set_result(None)
        if self._on_close is not None:
            self._on_close(self)

    # Called by its owner.

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def descriptor(self) -> int | None:
        """The descriptor of its socket, while it is open."""
        number = -1 if self._socket is None else self._socket.fileno()
        return number if number >= 0 else None

    def idle_s(self) -> float:
        """For how long nothing was read or sent. A read counts from the first call that notices it."""
        if self.inlet.count != self._reads_seen:
            self._reads_seen, self._active_s = self.inlet.count, self._loop.time()
        return self._loop.time() - self._active_s

    def send(self, command: Command) -> None:
        """Write a command; does nothing if the peer is gone."""
        self._active_s = self._loop.time()
        body = command.body
        self.send_bytes(encode_head(command, len(body) if body is not None else 0))
        if body is not None:
            self.send_bytes(body)

    async def call(self, request: Command, timeout_s: float) -> Command:
        """Send a request to the peer and wait for the answer. Raises ConnectionLost or CallTimeout."""
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.address[0]}:{self.address[1]} is closed")
        opaque = self.pending.next_opaque()
        future = self.pending.expect(opaque)
        try:
            async with asyncio.timeout(timeout_s), self._calls or nullcontext():
                self.send(replace(request, opaque=opaque))
                return await future
        except TimeoutError:
            raise CallTimeout(
                f"{self.address[0]}:{self.address[1]} did not answer {request} within {timeout_s:g} s: "
                "it may have been done all the same"
            ) from None
        finally:
            self.pending.forget(opaque)

    def send_bytes(self, data: Bytes) -> None:
        transport = self._transport
        if transport is not None:
            transport.write(data if self._doorway is None else self._doorway.seal(data))

    def send_parts(self, parts: Sequence[Bytes]) -> None:
        """Write many parts at once, without a copy where the loop can gather them."""
        transport = self._transport
        if transport is None:
            return
        if self._doorway is None:
            transport.writelines(parts)
        else:
            transport.write(b"".join(map(self._doorway.seal, parts)))

    def when_writable(self, work: Callable[[], None]) -> None:
        """Call `work` once the peer has read enough of what was written, or is gone."""
        self._waiting.append(work)

    async def writable(self) -> None:
        """Wait until the peer reads; returns at once if it does, or is gone."""
        if self.is_full:
            reads = asyncio.Event()
            self.when_writable(reads.set)
            await reads.wait()

    def close(self) -> None:
        """Write what is left to write, then close. A peer that stops reading is not waited for."""
        transport = self._transport
        if transport is None or transport.is_closing():
            self._unwanted = True
            return
        transport.close()
        waiting = transport.get_write_buffer_size()
        if waiting:
            self._linger(waiting, self._loop.time() + _LINGER_MAX_S)

    def _linger(self, waiting: int, until_s: float) -> None:
        self._lingering = self._loop.call_later(_LINGER_S, self._look_after_closing, waiting, until_s)

    def _look_after_closing(self, before: int, until_s: float) -> None:
        if self._transport is None:
            return
        waiting = self._transport.get_write_buffer_size()
        if waiting < before and self._loop.time() < until_s:
            self._linger(waiting, until_s)
            return
        log.info("connection of %s:%d is aborted: it has left %d bytes unread", *self.address, waiting)
        self.abort()

    async def gone(self) -> None:
        """Return when the socket is closed: a TLS session is ended with its peer before that."""
        if self._transport is not None:
            self._gone = self._gone or self._loop.create_future()
            await asyncio.shield(self._gone)

    def abort(self) -> None:
        """Close now; what is left to write is lost."""
        if self._transport is not None:
            self._transport.abort()
