"""The calling side: connections to other servers, made when needed, kept, and renewed."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, cast

from flaremq.base.errors import CallTimeout, ConnectFailed, ConnectionLost
from flaremq.base.lifecycle import Owned
from flaremq.protocol.bulk.columns import Frame, Plain, Stored
from flaremq.protocol.bulk.receipts import parse_receipts
from flaremq.protocol.command import Command, oneway
from flaremq.remoting.connection import Connection
from flaremq.remoting.network import Network
from flaremq.remoting.router import Router
from flaremq.remoting.settings import CallerSettings
from flaremq.remoting.turn import Batch, Turn

_LEAVE_S: Final = 1.0
"""How long to wait for a peer that does not end its TLS session, or does not read what is left."""


class Caller:
    """Calls to addresses such as `10.0.0.1:9876`. Requests of the peer go to the router, if there is one."""

    def __init__(
        self,
        settings: CallerSettings | None = None,
        router: Router | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        network: Network | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock_s` tells how long turns take."""
        self._settings = settings or CallerSettings()
        self._tls = tls
        self._network = network or Network()
        self._clock_s = clock_s
        self._router = router
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection | ConnectFailed]] = {}
        self._looks: dict[Connection, asyncio.TimerHandle] = {}
        """When each open one is looked after next."""
        self._turn: Turn | None = None
        self._tasks = Owned()
        self._async_slots = asyncio.Semaphore(self._settings.async_max)
        self._oneway_slots = asyncio.Semaphore(self._settings.oneway_max)
        self.on_close: Callable[[str], None] | None = None
        self._closed = False

    async def call(self, address: str, request: Command, timeout_s: float) -> Command:
        """The answer to a request, whatever its code. Raises a subclass of Unreachable.

        The timeout covers everything: a free slot, the connection, the write and the answer.
        """
        deadline_s = self._now_s() + timeout_s
        async with self._slot(self._async_slots, address, timeout_s):
            connection = await self.connected(address, deadline_s - self._now_s())
            try:
                return await connection.call(request, deadline_s - self._now_s())
            except CallTimeout:
                if self._settings.close_on_timeout or connection.is_full:
                    connection.abort()
                raise

    async def send_oneway(self, address: str, request: Command, timeout_s: float) -> None:
        """Send a one-way request: whether it arrives is not known. Raises Unreachable if it cannot be
        written in time."""
        deadline_s = self._now_s() + timeout_s
        async with self._slot(self._oneway_slots, address, timeout_s):
            connection = await self.connected(address, deadline_s - self._now_s())
            if connection.is_full:
                await self._writable(connection, deadline_s - self._now_s())
            connection.send(oneway(replace(request, opaque=connection.pending.next_opaque())))

    @asynccontextmanager
    async def _slot(self, slots: asyncio.Semaphore, address: str, timeout_s: float) -> AsyncIterator[None]:
        if slots.locked():
            try:
                async with asyncio.timeout(timeout_s):
                    await slots.acquire()
            except TimeoutError:
                raise CallTimeout(
                    f"{address} was not called: all slots for calls were taken for {timeout_s:g} s"
                ) from None
        else:
            await slots.acquire()
        try:
            yield
        finally:
            slots.release()

    async def _writable(self, connection: Connection, limit_s: float) -> None:
        """Wait until the peer reads. If it does not, close the connection, for all calls that wait on it."""
        try:
            async with asyncio.timeout(limit_s):
                await connection.writable()
        except TimeoutError:
            connection.abort()
            host, port = connection.address
            raise CallTimeout(f"{host}:{port} has read nothing for {limit_s:.2g} s") from None
        if not connection.is_open:
            host, port = connection.address
            raise ConnectionLost(f"the connection to {host}:{port} is gone: nothing was sent")

    def open_connection(self, address: str) -> Connection | None:
        """The open connection to an address, if there is one."""
        connection = self._connections.get(address)
        return connection if connection is not None and connection.is_open else None

    def descriptors(self) -> list[int]:
        """The descriptors of all open sockets."""
        found = (connection.descriptor for connection in self._connections.values())
        return [number for number in found if number is not None]

    def release(self, address: str) -> None:
        """Close a connection that is no longer needed, unless a call waits on it."""
        connection = self.open_connection(address)
        if connection is not None and not len(connection.pending):
            connection.close()

    async def connected(self, address: str, timeout_s: float) -> Connection:
        """The connection to an address, made if there is none. Raises ConnectFailed.

        Callers of the same address share one attempt to connect, each until its own timeout.
        """
        connection = self.open_connection(address)
        if connection is not None:
            return connection
        connecting = self._connecting.get(address)
        if connecting is None:
            connecting = self._connecting[address] = self._tasks.spawn("connect", self._connect(address))
            connecting.add_done_callback(lambda _: self._connecting.pop(address, None))
        limit_s = min(timeout_s, self._settings.connect_timeout_ms / 1000)
        done, _ = await asyncio.wait([connecting], timeout=max(0.0, limit_s))
        if not done:
            raise ConnectFailed(f"{address} cannot be reached: no answer within {limit_s:.2g} s")
        if connecting.cancelled():
            raise ConnectFailed(f"{address} was not connected to: this client is closing")
        found = connecting.result()
        if isinstance(found, ConnectFailed):
            raise ConnectFailed(str(found)) from found
        return found

    async def _connect(self, address: str) -> Connection | ConnectFailed:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            return ConnectFailed(f"{address!r} is not an address: expected host:port")
        limit_s = self._settings.connect_timeout_ms / 1000
        if self._turn is None:
            self._turn = Turn(answers=take_receipts, now_s=self._clock_s, buffer_size=self._network.turn_size)
        turn = self._turn
        try:
            async with asyncio.timeout(limit_s):
                connection = await self._network.connect(
                    host.strip("[]"),
                    int(port),
                    lambda: Connection(turn, self._on_request, lambda gone: self._lost(address, gone)),
                    self._tls,
                )
        except (OSError, TimeoutError) as error:  # TLS errors are OSErrors too.
            why = str(error) or f"no answer within {limit_s:g} s"
            failed = ConnectFailed(f"{address} cannot be reached: {why}")
            failed.__cause__ = error
            return failed
        self._connections[address] = connection
        self._look_after(connection)
        return connection

    def _look_after(self, connection: Connection) -> None:
        """Close a connection that has been idle for too long, and check again when it could be."""
        left_s = self._settings.idle_max_s - connection.idle_s()
        if left_s <= 0 and not len(connection.pending):
            connection.close()
        elif connection.is_open:
            loop = asyncio.get_running_loop()
            self._looks[connection] = loop.call_later(max(left_s, 1.0), self._look_after, connection)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _lost(self, address: str, connection: Connection) -> None:
        look = self._looks.pop(connection, None)
        if look is not None:  # Else the loop would keep it, and megabytes of buffers with it, for minutes.
            look.cancel()
        if self.open_connection(address) is None:
            self._connections.pop(address, None)
        if self.on_close is not None:
            self.on_close(address)

    def _on_request(self, connection: Connection, request: Command) -> None:
        if self._router is not None and not self._closed:  # Requests read just before closing are not served.
            self._tasks.spawn("request", self._serve(self._router, connection, request))

    async def _serve(self, router: Router, connection: Connection, request: Command) -> None:
        response = await router.answer(connection, request)
        if response is not None:
            connection.send(response)

    async def aclose(self) -> None:
        """Close all connections, and return when they are closed: a loop that ends before that would leave
        TLS sessions half closed."""
        self._closed = True
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            connection.close()
        await self._tasks.aclose(timeout_s=5)
        if not await _are_gone(connections):
            for connection in connections:
                connection.abort()
            await _are_gone(connections)


async def _are_gone(connections: list[Connection]) -> bool:
    """Whether all of them were closed within the time that peers are given."""
    try:
        async with asyncio.timeout(_LEAVE_S):
            await asyncio.gather(*(connection.gone() for connection in connections))
    except TimeoutError:
        return False
    return True


_WIDTH: Final = Stored.WIDTH
_PLAIN: Final = Frame.PLAIN
_FRAME_WIDTH: Final = Frame.WIDTH


def take_receipts(batch: Batch) -> int:
    """Hand receipts to their takers, and return how many. All other answers go the plain way."""
    sources = batch.sources
    if not any(cast(Connection, source).pending.taken_by for source in sources):
        return 0
    rows = parse_receipts(batch.data, batch.chunks, batch.frames, batch.pairs)
    data, frames, taken = batch.data, batch.frames, 0
    for at in range(0, len(rows), _WIDTH):
        frame, chunk, opaque, queue_id, queue_offset, id_at, id_size, region_at, region_size = rows[
            at : at + _WIDTH
        ]
        taker = cast(Connection, sources[chunk]).pending.taken_by.pop(opaque, None)
        if taker is not None:
            offset_id = str(data[id_at : id_at + id_size], "utf-8")
            region = str(data[region_at : region_at + region_size], "utf-8") if region_size else None
            taker.stored(opaque, queue_id, queue_offset, offset_id, region)
            frames[frame * _FRAME_WIDTH + _PLAIN] = Plain.TAKEN
            taken += 1
    return taken
