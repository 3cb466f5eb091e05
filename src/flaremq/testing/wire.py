"""Wires to servers that a test can cut: small TCP proxies, all in one thread.

    client > [wire] > server

A cut wire is silent, like a failed network: data waits without an error, and arrives when the wire is
repaired, unless an end has given up meanwhile. Or it resets connections and refuses new ones, like a
firewall: then both ends notice at once.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Final, Self

from flaremq.base.lifecycle import Owned
from flaremq.client.blocking import LoopThread

_PIECE: Final = 64 << 10
_BACKLOG: Final = 128
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class Wire:
    """A proxy with its own address to a server."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._whole = asyncio.Event()
        self._whole.set()
        self._resets = False
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks = Owned()

    @property
    def address(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def open(self, host: str, port: int) -> None:
        self._server = await asyncio.start_server(self._accepted, host, port, backlog=_BACKLOG)

    async def aclose(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut(resets=True)  # Releases tasks that wait to write to a peer that does not read.
        await self._tasks.aclose(timeout_s=5)
        await asyncio.sleep(0)  # An aborted transport closes its socket in the next turn of the loop.

    def cut(self, *, resets: bool) -> None:
        self._whole.clear()
        self._resets = resets
        if resets:
            self._reset_all()

    def mend(self) -> None:
        self._resets = False
        self._whole.set()

    def _reset_all(self) -> None:
        for end in self._ends:
            _reset(end)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._resets:
            _reset(writer)
            return
        self._ends.add(writer)
        self._tasks.spawn("wire", self._join(reader, writer))

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, from its first byte to its last."""
        ends = [writer]
        try:
            await self._whole.wait()
            there, far = await asyncio.open_connection(*self._target)
            ends.append(far)
            self._ends.add(far)
            pumps = [asyncio.ensure_future(self._pump(*each)) for each in ((reader, far), (there, writer))]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass  # The server is away: the client sees its connection end.
        finally:
            for end in ends:
                end.close()
            for end in ends:
                with suppress(OSError):
                    await end.wait_closed()
            self._ends.difference_update(ends)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass data on. Data, and the end of it, that arrive while the wire is cut wait for the repair."""
        data = b"-"
        while data:
            try:
                data = await reader.read(_PIECE)
            except OSError:
                data = b""
            await self._whole.wait()
            writer.write(data)
            await writer.drain()


def _reset(end: asyncio.StreamWriter) -> None:
    """End a connection so that the peer sees an error, not an orderly end."""
    if not end.transport.is_closing():
        end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    end.transport.abort()


class Wires:
    """All wires of a test. Thread-safe."""

    def __init__(self) -> None:
        self._portal = LoopThread("flaremq-wires")
        self._wires: list[Wire] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for wire in self._wires:
            self._portal.run(wire.aclose())
        self._portal.close()

    def lay(self, target: tuple[str, int], host: str, port: int = 0) -> Wire:
        """Add a wire: connections to host and port reach the target."""

        async def laid() -> Wire:
            wire = Wire(target)
            await wire.open(host, port)
            return wire

        wire = self._portal.run(laid())
        self._wires.append(wire)
        return wire

    def cut(self, wire: Wire, *, resets: bool) -> None:
        async def cut() -> None:
            wire.cut(resets=resets)

        self._portal.run(cut())

    def mend(self, wire: Wire) -> None:
        async def mend() -> None:
            wire.mend()

        self._portal.run(mend())
