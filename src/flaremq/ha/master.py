"""The HA port of a master: each slave that connects is sent the log, from where its first report says.

    log grew > [pump: chunk after chunk, as views of the map] > socket      while the socket takes more
    socket > reports > acks

The problem
-----------
The stream has no handshake: the first thing that a slave says is a number, and whatever it says is where it
wants to go on. RocketMQ believes it. A slave whose log is longer than its master's then acknowledges bytes
that do not exist yet, and later gets them appended behind others: two histories under one offset.

How it works
------------
Only what consumers may see is sent (`Log.confirmed`). Under SYNC_FLUSH that is what is on the disk, so a
master that loses its power never comes back with a log shorter than its slaves'.

A report is believed only within the log: one above its end, or a first one below its beginning, closes the
connection, is shown in the status, and acknowledges nothing. A first report of 0 comes from an empty slave
and gets the whole log. (RocketMQ sends such a slave the newest file only.)

Where no producer waits for slaves, a message does not go out by itself when many come: it would cost master
and slave a turn each. Some chunks leave at once in each millisecond, and the rest of it together at its end.

A chunk is a view of the map, so the log is copied by the kernel alone. It never crosses the end of a file: a
slave puts it into one file of its own. A slave that does not read fills its socket, and then costs nothing
until it reads again, or is closed after its time of silence.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Final, cast

from flaremq.base.errors import ConfigError
from flaremq.base.lifecycle import Owned, repeat
from flaremq.base.logs import Seldom, fields
from flaremq.base.units import KiB
from flaremq.ha.acks import SlaveAcks
from flaremq.ha.settings import HaSettings
from flaremq.ha.states import MasterStatus, SlaveLink
from flaremq.ha.wire import Reports, encode_header
from flaremq.remoting.network import Listening, Network
from flaremq.remoting.settings import ServerSettings
from flaremq.store.api import Log

log = logging.getLogger(__name__)

_WATCH_S: Final = 1.0  # How often silence is looked at, and rates are taken.
_REPORTS_SIZE: Final = 4 * KiB
_BEHIND_IN_SOCKET: Final = 4  # So many chunks may wait to be written to a slave.
_CONNECTIONS_MAX: Final = 128  # No master has so many slaves; descriptors are for files and clients.
_SPAN_S: Final = 0.001  # Unless producers wait for slaves, so many rounds of chunks go out in each such span,
_ROUNDS: Final = 2  # and what comes after them goes out at its end.
_TOLD_S: Final = 10.0


class HaMaster:
    """The HA port, and the slaves that are connected to it."""

    def __init__(
        self,
        settings: HaSettings,
        source: Log,
        acks: SlaveAcks,
        *,
        network: Network,
        watch: Callable[[Callable[[], None]], Callable[[], None]],
        is_awaited: bool = True,
    ) -> None:
        """`watch` calls back, in any thread, whenever `source.confirmed` may have grown; it returns what
        ends that. `is_awaited`: whether producers wait for slaves."""
        self.settings = settings
        self.source = source
        self.acks = acks
        self._network = network
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._connections: dict[SlaveConnection, None] = {}
        self._listening: Listening | None = None
        self._unwatch: Callable[[], None] = lambda: None
        self._tasks = Owned()
        self._asked = self._stopped = False
        self._is_awaited = is_awaited
        self._rounds = 0  # In this span.
        self._span: asyncio.TimerHandle | None = None
        self._refused = 0
        self.bytes_total = 0
        """Sent to slaves since the start."""
        self._last_refusal = ""
        self._told = Seldom(_TOLD_S)

    async def start(self, server: ServerSettings) -> None:
        """Listen where `server` says."""
        try:
            self._listening = await self._network.listen(server, lambda: SlaveConnection(self))
        except OSError as error:
            raise ConfigError(
                f"haListenPort={server.listen_port}: {error.strerror} on {server.bind_address}: "
                "stop the process that has it, or choose another port"
            ) from error
        self._unwatch = self._watch(self._grown)
        self._tasks.spawn("watch-slaves", repeat("watching slaves", self._look, _WATCH_S))

    async def stop(self) -> None:
        """Once it is stopped, doing so again changes nothing."""
        self._unwatch()
        self._unwatch = lambda: None
        if self._span is not None:
            self._span.cancel()
        listening, self._listening = self._listening, None
        self._stopped = True
        if listening is not None:
            await listening.let_in()
            listening.close()
        for connection in list(self._connections):
            connection.close()
        await self._tasks.aclose(timeout_s=5)

    def status(self) -> MasterStatus:
        """The state of now."""
        end = self.source.confirmed
        followers = tuple(connection.follower(end) for connection in self._connections)
        return MasterStatus(
            end, self.acks.replicated.value, followers, self.bytes_total, self._refused, self._last_refusal
        )

    def introduced(self, address: str, broker_id: int) -> bool:
        """A slave has said that the connection from this address is its own."""
        for connection in self._connections:
            if connection.address == address:
                connection.broker_id = broker_id
                self.acks.moved()
                return True
        return False

    def is_followed_by(self, host: str) -> bool:
        """Whether a slave on this machine is connected and has reported."""
        return any(each.host == host and each.acked >= 0 for each in self._connections)

    @property
    def has_slaves(self) -> bool:
        return any(each.acked >= 0 for each in self._connections)

    # Called by the connections.

    def joined(self, connection: SlaveConnection) -> bool:
        """Whether it may stay."""
        if self._stopped:
            return False  # It was accepted just before that.
        if len(self._connections) >= _CONNECTIONS_MAX:
            self.refused(connection, f"{_CONNECTIONS_MAX} slaves are connected, and no more are taken")
            return False
        self._connections[connection] = None
        self.acks.joined(connection)
        log.info("a slave has connected", extra=fields(address=connection.address))
        return True

    def left(self, connection: SlaveConnection) -> None:
        if connection not in self._connections:
            return
        del self._connections[connection]
        self.acks.left(connection)
        log.info("a slave has left", extra=fields(address=connection.address, acked=connection.acked))

    def refused(self, connection: SlaveConnection, why: str) -> None:
        self._refused += 1
        self._last_refusal = f"{connection.address}: {why}"
        if self._told.due() is not None:
            log.error("a slave is refused: %s", why, extra=fields(address=connection.address))

    # Sending.

    def _grown(self) -> None:
        if self._asked or not self._connections or self._rounds >= _ROUNDS:
            return
        self._asked = True
        if threading.get_ident() == self._thread:
            self._loop.call_soon(self._pump)
            return
        try:
            self._loop.call_soon_threadsafe(self._pump)
        except RuntimeError:  # The loop has ended, and with it the connections.
            self._asked = False

    def _pump(self) -> None:
        self._asked = False
        if not self._is_awaited:
            self._rounds += 1
            if self._span is None:
                self._span = self._loop.call_later(_SPAN_S, self._end_span)
        for connection in list(self._connections):
            connection.pump()

    def _end_span(self) -> None:
        self._span = None
        was_full, self._rounds = self._rounds >= _ROUNDS, 0
        if was_full:  # There may be more.
            self._pump()

    def _look(self) -> None:
        for connection in list(self._connections):
            connection.look(self._loop.time())


class SlaveConnection(asyncio.BufferedProtocol):
    """One connection of a slave."""

    def __init__(self, master: HaMaster) -> None:
        self._master = master
        self._settings = master.settings
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(_REPORTS_SIZE))
        self._reports = Reports()
        self._full = False
        self._next = -1  # Where the next chunk begins; -1 until the first report.
        self._heard_s = self._wrote_s = self._loop.time()
        self._budget = self._settings.bytes_per_s_max
        self._counted = self._rate = 0
        self.acked = -1
        self.broker_id: int | None = None
        self.host = self.address = ""

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_BEHIND_IN_SOCKET * self._settings.chunk_size)
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self.host, self.address = str(host), f"{host}:{port}"
        if not self._master.joined(self):
            self._transport.abort()

    def get_buffer(self, _hint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        self._heard_s = self._loop.time()
        position = self._reports.feed(self._buffer[:size])
        if position is None:
            return
        why = self._why_not(position)
        if why:
            self._refuse(why)
            return
        is_first = self._next < 0
        if is_first:
            self._next = position or self._master.source.begin
        self.acked = position
        self._master.acks.moved()
        if is_first:
            self.pump()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self._master.left(self)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self.pump()

    # Reports.

    def _why_not(self, position: int) -> str:
        """What is wrong with a report; empty if it is to be believed."""
        source = self._master.source
        if not 0 <= position <= source.confirmed:
            return (
                f"its log ends at {position}, ours at {source.confirmed}: it has what its master does not "
                "have, and acknowledges nothing; see `flaremq cluster ha`"
            )
        if self._next < 0 and 0 < position < source.begin:
            return (
                f"its log ends at {position}, and our oldest file begins at {source.begin}: what lies "
                "between is gone; empty the slave's store, so that it is copied anew"
            )
        if position < self.acked or (self._next >= 0 and position > self._next):
            return (
                f"it reports {position}, after {self.acked} and with bytes sent up to {self._next}: "
                "it is no slave, or another program writes to its connection"
            )
        return ""

    def _refuse(self, why: str) -> None:
        self._master.refused(self, why)
        self.acked = -1
        self._next = -1
        if self._transport is not None:
            self._transport.abort()

    # Sending.

    def pump(self) -> None:
        """Send what there is, as far as the socket takes it."""
        while self._next >= 0 and not self._full and self._transport is not None:
            piece = self._piece()
            if piece is None:
                return
            self._send(self._next, piece)
            self._next += len(piece)

    def _piece(self) -> memoryview | None:
        """The next bytes, at most a chunk of them, and all of one file."""
        source = self._master.source
        size = min(self._settings.chunk_size, source.confirmed - self._next)
        if self._settings.flow_control:
            size = min(size, self._budget)
        if size <= 0:
            return None
        found = source.window(self._next)
        if found is None:  # Its file was deleted while the slave lagged.
            self._refuse(f"the log begins at {source.begin} now, and the slave is at {self._next}")
            return None
        view, base = found
        at = self._next - base
        return view[at : at + size] or None

    def _send(self, offset: int, piece: memoryview) -> None:
        assert self._transport is not None
        self._transport.writelines((encode_header(offset, len(piece)), piece))
        self._wrote_s = self._loop.time()
        self._counted += len(piece)
        self._master.bytes_total += len(piece)
        self._budget -= len(piece)

    def look(self, now_s: float) -> None:
        """Once a second: close a silent one, send a heartbeat, begin a new second of its budget."""
        self._rate, self._counted = self._counted, 0
        self._budget = self._settings.bytes_per_s_max
        if now_s - self._heard_s > self._settings.silence_ms / 1000:
            log.warning("a slave has said nothing for %.0f s and is disconnected", now_s - self._heard_s,
                        extra=fields(address=self.address))  # fmt: skip
            self.close()
            return
        if self._next >= 0 and not self._full and now_s - self._wrote_s >= self._settings.heartbeat_ms / 1000:
            self._send(self._next, memoryview(b""))
        self.pump()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def follower(self, end: int) -> SlaveLink:
        lag = end - max(0, self.acked)
        return SlaveLink(
            address=self.address,
            broker_id=self.broker_id,
            acked=self.acked,
            sent=max(0, self._next),
            lag=lag,
            bytes_per_s=self._rate,
            silent_s=self._loop.time() - self._heard_s,
            is_near=self.acked >= 0 and lag < self._settings.gap_max,
        )
