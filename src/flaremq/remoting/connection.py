"""One socket: bytes to its turn, answers back, and back-pressure both ways.

A peer that does not read its answers is not read from either: what waits to be written to it has a
high-water mark, and while that is passed its requests stay in the kernel, where they slow it down. A
caller reads on whatever it has to write: what comes are the answers to its own questions, and two ends
that each wait for the other to read would wait for ever.
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
"""The same for a peer that reads, but so slowly that it would hold its descriptor for ever."""
_LAST_DATA_RECEIVED: Final = struct.Struct("@52xI")  # In tcp_info: milliseconds since the peer last sent.


class Connection(asyncio.BufferedProtocol):
    """Frames of one peer. Requests go to `on_request`, responses to those who wait for them."""

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
        """`doorway` is for accepted connections. `calls` bounds what all connections of a port ask of their
        peers at a time; `admits` is asked whether a connection with this descriptor may stay."""
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
        self._finishing = self._crowded = False
        self._lingering: asyncio.TimerHandle | None = None
        self._gone: asyncio.Future[None] | None = None
        inlet = self.inlet = turn.inlet(self, shut=doorway is not None)
        # Straight to the inlet: the loop calls these for every read.
        self.get_buffer = inlet.get_buffer  # type: ignore[method-assign]
        self.buffer_updated = inlet.buffer_updated  # type: ignore[method-assign]
        self.host = bytes(8)
        self.is_full = False
        """More waits to be written than the peer has earned: do no more work for it now."""
        self.left_much = False
        """Once it is gone: whether much was still to be read or written."""
        self._waiting: deque[Callable[[], None]] = deque()
        self.under_way = 0  # Requests of the peer that are not answered yet.
        self.pending = Pending()
        self.address: tuple[str, int] = ("", 0)
        self._reads_seen, self._active_s = 0, self._loop.time()
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
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
        """Who the peer is: as the socket says, or the proxy before it."""
        self.address = (address, port)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        packed = socket.inet_pton(family, address.partition("%")[0])
        if packed[:12] == b"\0" * 10 + b"\xff\xff":
            packed = packed[12:]  # IPv4 in the clothes of IPv6: a record keeps it as what it is.
        self.host = packed + port.to_bytes(4, "big")

    def entered(self, data: bytes) -> None:
        """The first bytes tell who comes and how; under TLS all bytes pass here."""
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
        """Nothing that comes can be believed: read no more; close when what came before is answered."""
        log.warning("connection of %s:%d is closed: %s", *self.address, error)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._finishing = True
        if not self.under_way:
            self.close()

    def begun(self) -> None:
        """A request of this peer is under way. One with very many of them is not read from meanwhile."""
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
        """Read again, if nothing else stands against it."""
        if self._transport is None or self._transport.is_closing():
            return
        if not (self.is_full or self._crowded or self._finishing):
            self._transport.resume_reading()

    def received(self, command: Command) -> None:
        if not command.is_response:
            self._on_request(self, command)
        elif not self.pending.answer(command):
            log.debug("an answer from %s:%d comes too late: %s", *self.address, command)

    def waited_ms(self) -> int:
        """How long ago the youngest bytes of this peer came to the kernel, if that can be told."""
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
        # What leads back to us: without a circle we are gone at once, and not when somebody collects garbage.
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

    # What its owner calls.

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def descriptor(self) -> int | None:
        """Of its socket, while it is open."""
        number = -1 if self._socket is None else self._socket.fileno()
        return number if number >= 0 else None

    def idle_s(self) -> float:
        """For how long nothing has come or gone, as far as whoever asks now and then can tell."""
        if self.inlet.count != self._reads_seen:
            self._reads_seen, self._active_s = self.inlet.count, self._loop.time()
        return self._loop.time() - self._active_s

    def send(self, command: Command) -> None:
        """Write a command; nothing happens if the peer is gone, as nobody could tell it so."""
        self._active_s = self._loop.time()
        body = command.body
        self.send_bytes(encode_head(command, len(body) if body is not None else 0))
        if body is not None:
            self.send_bytes(body)

    async def call(self, request: Command, timeout_s: float) -> Command:
        """Ask the peer something of our own. Raises ConnectionLost or CallTimeout."""
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
        """Write many pieces at once, none of them copied where the loop can gather them."""
        transport = self._transport
        if transport is None:
            return
        if self._doorway is None:
            transport.writelines(parts)
        else:
            transport.write(b"".join(map(self._doorway.seal, parts)))

    def when_writable(self, work: Callable[[], None]) -> None:
        """Do this when the peer has read what was written before; or when it is gone."""
        self._waiting.append(work)

    async def writable(self) -> None:
        """Wait until the peer reads; at once if it does, or is gone."""
        if self.is_full:
            reads = asyncio.Event()
            self.when_writable(reads.set)
            await reads.wait()

    def close(self) -> None:
        """Write what waits to be written, then close. A peer that stops reading is not waited for."""
        transport = self._transport
        if transport is None or transport.is_closing():
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
        """Return when it is closed for good: a TLS session takes leave of its peer before that."""
        if self._transport is not None:
            self._gone = self._gone or self._loop.create_future()
            await asyncio.shield(self._gone)

    def abort(self) -> None:
        """Close now; what waits to be written is lost."""
        if self._transport is not None:
            self._transport.abort()
