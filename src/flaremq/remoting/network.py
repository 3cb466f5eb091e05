"""The one door to the network: ports that are listened on, and connections that are made.

Servers, callers and clients are given a `Network` by their composition root. This one is the system's; a
simulator gives them another, whose wires are in memory.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Protocol, TypeVar

from flaremq.base.units import MiB
from flaremq.remoting.settings import ServerSettings

P = TypeVar("P", bound=asyncio.BaseProtocol)


class Listening(Protocol):
    """A port that is listened on."""

    @property
    def port(self) -> int: ...

    async def let_in(self) -> None:
        """Until all whom the system has accepted so far have their protocols. Await this before `close`:
        asyncio forgets others, and leaves their connections open (Server._attach)."""

    def close(self) -> None:
        """Accept no more connections; those accepted stay."""


class Network:
    """The system's sockets."""

    turn_size: int = 4 * MiB
    """The size of the buffer that a port, or a caller, reads all its connections into."""

    async def listen(self, settings: ServerSettings, accept: Callable[[], asyncio.BaseProtocol]) -> Listening:
        """Listen as the settings say; `accept` makes the protocol of each connection. Raises OSError."""
        sock = _listening_socket(settings)
        server = await asyncio.get_running_loop().create_server(accept, sock=sock, backlog=settings.backlog)
        return _SystemPort(server, sock.getsockname()[1])

    async def connect(self, host: str, port: int, protocol: Callable[[], P], tls: ssl.SSLContext | None) -> P:
        """Connect, and return the protocol of the connection. Raises OSError."""
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(protocol, host, port, ssl=tls)
        return made

    def own_ip(self, towards: str) -> str:
        """Our own address on the way to a server. Nothing is sent to find it."""
        host, _, port = towards.rpartition(":")
        try:
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
            family, kind, _, _, address = found[0]
            with socket.socket(family, kind) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0]).partition("%")[0]
        except (OSError, ValueError):
            return "127.0.0.1"  # No network, or no such name yet: the id need only be unique.


class _SystemPort:
    def __init__(self, server: asyncio.Server, port: int) -> None:
        self._server = server
        self.port = port

    async def let_in(self) -> None:
        await asyncio.sleep(1e-6)  # A timer is the last of its turn.

    def close(self) -> None:
        self._server.close()


def _listening_socket(settings: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.bind_address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Before listen: accepted sockets inherit them, and the TCP window is agreed at the start.
        if settings.send_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer)
        if settings.receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer)
        sock.bind((settings.bind_address, settings.listen_port))
        sock.listen(settings.backlog)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock
