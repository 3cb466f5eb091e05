"""A listening port: accepts connections, lets the router answer, drains before it stops."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from flaremq.base import descriptors
from flaremq.base.errors import ConfigError, UsageError
from flaremq.base.lifecycle import Owned, repeat
from flaremq.base.logs import Seldom, fields
from flaremq.base.memory import trim
from flaremq.protocol.codes import ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.remoting.connection import Connection
from flaremq.remoting.gate import Gate
from flaremq.remoting.handshake import Doorway
from flaremq.remoting.network import Listening, Network
from flaremq.remoting.router import Router
from flaremq.remoting.settings import ServerSettings
from flaremq.remoting.tls import TlsMode, TlsSettings
from flaremq.remoting.turn import Lane, Turn

log = logging.getLogger(__name__)

_TURNED_AWAY_S = 60.0  # How often connections that are closed at once are logged.
_GO_AWAY_FROM_VERSION = 475  # Peers above it know GO_AWAY: they reconnect elsewhere and ask again.


class Server:
    """A listening port. Every request that the router serves runs in its own task."""

    def __init__(
        self,
        settings: ServerSettings,
        router: Router,
        *,
        lanes: Sequence[Lane] = (),
        tls: TlsSettings | None = None,
        on_close: Callable[[Connection], None] | None = None,
        gate: Gate | None = None,
        network: Network | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now_s` tells how late requests are."""
        self._settings = settings
        self._network = network or Network()
        self._now_s = now_s
        self._gate = gate
        self._router = router
        self._lanes = lanes
        self._tls_mode = tls.effective_mode if tls is not None else TlsMode.DISABLED
        self._tls_context = tls.context() if tls is not None else None
        self._turn: Turn | None = None
        self._calls = asyncio.Semaphore(settings.async_max)
        self._on_close = on_close
        self._connections: dict[Connection, None] = {}  # In the order in which they came.
        self._tasks = Owned()
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._listening: Listening | None = None
        self._stopping = False
        self._descriptors_max = descriptors.for_sockets(descriptors.limit())
        self._turned_away = Seldom(_TURNED_AWAY_S)
        self.turned_away = 0
        """Connections closed at once because the process has no descriptors to spare."""
        self._left_much = False
        self.port = settings.listen_port

    @property
    def connections(self) -> frozenset[Connection]:
        return frozenset(self._connections)

    async def start(self) -> None:
        settings = self._settings
        self._turn = Turn(
            self._lanes, gate=self._gate, now_s=self._now_s, buffer_size=self._network.turn_size
        )
        try:
            self._listening = await self._network.listen(settings, self._accept)
        except OSError as error:
            raise ConfigError(
                f"listenPort={settings.listen_port}: {error.strerror} on {settings.bind_address}: "
                "stop the process that has it, or choose another port"
            ) from error
        self.port = self._listening.port
        period_s = min(settings.idle_max_s / 4, 10)
        self._tasks.spawn("close-idle", repeat("closing idle connections", self._close_idle, period_s))

    def guard(self, gate: Gate) -> None:
        """Ask this gate, and no other, from the next turn on."""
        self._gate = gate
        if self._turn is not None:
            self._turn.gate = gate

    def _accept(self) -> Connection:
        assert self._turn is not None
        connection = Connection(
            self._turn,
            self._on_request,
            self._closed,
            water_marks=self._settings.water_marks,
            doorway=Doorway(self._tls_mode, self._tls_context),
            calls=self._calls,
            admits=self._admits,
        )
        self._connections[connection] = None
        return connection

    def _admits(self, descriptor: int) -> bool:
        """Whether enough descriptors are left for the store if a connection has this one."""
        if descriptor < self._descriptors_max:
            return True
        self.turned_away += 1
        if self._turned_away.due() is not None:
            log.warning(
                "too many connections, new ones are closed: this process may have %d descriptors, and those "
                "from %d on are kept for files; raise the limit (ulimit -n), or close connections",
                *(descriptors.limit(), self._descriptors_max),
                extra=fields(port=self.port, connections=len(self._connections), closed=self.turned_away),
            )
        return False

    def _closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._left_much = self._left_much or connection.left_much
        if self._on_close is not None:
            self._on_close(connection)

    def _on_request(self, connection: Connection, request: Command) -> None:
        if self._stopping and request.wants_answer and request.version > _GO_AWAY_FROM_VERSION:
            connection.send(response_to(request, ResponseCode.GO_AWAY, "this server is shutting down"))
            return
        self._under_way += 1
        connection.begun()
        self._idle.clear()
        self._tasks.spawn("request", self._serve(connection, request))

    async def _serve(self, connection: Connection, request: Command) -> None:
        try:
            if connection.is_full:
                await connection.writable()  # No more answers for a peer that does not read them.
                if request.wants_answer and not connection.is_open:
                    return  # It is gone: thousands of its requests would keep others waiting.
            response = await self._router.answer(connection, request)
            if response is not None:
                self._send(connection, request, response)
        finally:
            self._under_way -= 1
            connection.ended()
            if not self._under_way:
                self._idle.set()

    def _send(self, connection: Connection, request: Command, response: Command) -> None:
        try:
            connection.send(response)
        except UsageError as error:  # The answer does not fit into a frame; silence would be worse.
            connection.send(
                response_to(request, ResponseCode.SYSTEM_ERROR, f"the answer is too large: {error}")
            )

    async def _close_idle(self) -> None:
        """Close idle connections, and return the memory of closed ones to the system."""
        limit_s = self._settings.idle_max_s
        for connection in list(self._connections):
            if connection.is_open and connection.idle_s() > limit_s:
                log.info("connection of %s:%d was idle for %d s and is closed", *connection.address, limit_s)
                connection.close()
        if self._left_much:
            self._left_much = False
            await asyncio.to_thread(trim)

    async def let_in(self) -> None:
        """See Listening: before `drain`."""
        if self._listening is not None:
            await self._listening.let_in()

    def drain(self) -> None:
        """Take no more connections and no new requests; those under way go on."""
        self._stopping = True
        if self._turn is not None:
            self._turn.draining = True
        if self._listening is not None:
            self._listening.close()

    async def stop(self) -> None:
        """Drain, wait for the requests under way, then close all connections."""
        self.drain()
        try:
            await asyncio.wait_for(self._idle.wait(), self._settings.drain_s)
        except TimeoutError:
            log.warning("%d requests are still under way after %d s", self._under_way, self._settings.drain_s)
        for connection in list(self._connections):
            connection.close()
        await self._tasks.aclose(timeout_s=5)
