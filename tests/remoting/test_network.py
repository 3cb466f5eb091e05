"""The door to the network: what a composition root gives is what servers and callers use."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from flaremq.protocol.command import Command, response_to
from flaremq.remoting.caller import Caller
from flaremq.remoting.network import Listening, Network, P
from flaremq.remoting.router import Family, Peer, Router
from flaremq.remoting.server import Server
from flaremq.remoting.settings import ServerSettings


class Noted(Network):
    """The system's network, with a small buffer, and a note of each use."""

    turn_size = 1 << 17

    def __init__(self) -> None:
        self.notes: list[str] = []

    async def listen(self, settings: ServerSettings, accept: Callable[[], asyncio.BaseProtocol]) -> Listening:
        self.notes.append("listen")
        return await super().listen(settings, accept)

    async def connect(self, host: str, port: int, protocol: Callable[[], P], tls: ssl.SSLContext | None) -> P:
        self.notes.append("connect")
        return await super().connect(host, port, protocol, tls)


async def echo(_peer: Peer, request: Command) -> Command:
    return response_to(request, 0, body=request.body)


async def test_servers_and_callers_use_the_network_that_they_are_given() -> None:
    network, router = Noted(), Router()
    router.serve(Family("echo", 10), {7: echo})
    server = Server(ServerSettings(bind_address="127.0.0.1", drain_s=1), router, network=network)
    await server.start()
    caller = Caller(network=network)
    try:
        answer = await caller.call(f"127.0.0.1:{server.port}", Command(code=7, body=bytes(300_000)), 10)
        assert len(answer.body or b"") == 300_000  # More than a turn holds.
    finally:
        await caller.aclose()
        await server.stop()
    assert network.notes == ["listen", "connect"]


def test_a_server_that_cannot_be_found_leaves_a_client_its_local_address() -> None:
    assert Network().own_ip("no.such.host.invalid:9876") == "127.0.0.1"
    assert Network().own_ip("127.0.0.1:9876") == "127.0.0.1"
