"""A NameServer and a broker on real ports, and ways to be rude to them."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from flaremq.base.units import KiB
from flaremq.broker.app import Broker
from flaremq.broker.config import BrokerConfig
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings
from flaremq.model.message import StoredMessage
from flaremq.protocol.command import Command
from flaremq.protocol.frame import FrameDecoder, encode_frame
from flaremq.testing.cluster import Cluster, Process, eventually
from flaremq.testing.fakes.builders import small_settings
from flaremq.testing.fakes.wireclient import WireClient

BODY_MAX = 16 * KiB
TOPIC = "TopicLive"
DOORS = ("main", "vip", "namesrv")


@dataclass
class Live:
    """Where the servers are, and a topic that nobody else uses."""

    broker_port: int
    namesrv_port: int
    client: WireClient
    topic: str = TOPIC
    accepted: list[tuple[int, bytes]] = field(default_factory=list)
    """Offset and body of every message that was acknowledged, in queue 0."""

    def port(self, door: str) -> int:
        return {"main": self.broker_port, "vip": self.broker_port - 2, "namesrv": self.namesrv_port}[door]

    def address(self, door: str = "main") -> str:
        return f"127.0.0.1:{self.port(door)}"

    async def send(self, body: bytes, door: str = "main") -> None:
        sent = await self.client.send(self.address(door), self.topic, 0, body)
        self.accepted.append((sent.queue_offset, body))

    async def read(self, queue_id: int) -> list[StoredMessage]:
        return await self.client.read_all(self.address(), self.topic, queue_id)

    async def serves(self) -> None:
        """Every door does its work, and whatever was acknowledged is there, once."""
        await self.send(b"by the main port")
        await self.send(b"by the VIP port", "vip")
        stored = [(each.queue_offset, each.body) for each in await self.read(0)]
        assert set(self.accepted) <= set(stored)
        assert [offset for offset, _ in stored] == list(range(len(stored)))

        async def is_routed() -> bool:
            return await self.client.route(self.address("namesrv"), self.topic) is not None

        await eventually("the NameServer knows the topic", is_routed)


@dataclass(frozen=True)
class Servers:
    """As processes of their own, on the loop that they have in earnest."""

    broker: Process
    namesrv: Process

    @asynccontextmanager
    async def live(self, topic: str = TOPIC) -> AsyncIterator[Live]:
        async with WireClient() as client:
            yield Live(self.broker.port, self.namesrv.port, client, topic)

    def failures(self) -> list[str]:
        """What they have logged that nobody was ready for."""
        lines = self.broker.lines + self.namesrv.lines
        return [line for line in lines if "Traceback" in line or " ERROR " in line]


@contextmanager
def servers(folder: Path) -> Iterator[Servers]:
    with Cluster(folder) as cluster:
        # Who registers as a broker and then says nothing is rightly disconnected; here everything is asked.
        namesrv = cluster.namesrv(scanNotActiveBrokerInterval=3_600_000)
        broker = cluster.broker(namesrv=namesrv.address, maxMessageSize=BODY_MAX, shutdownWaitTimeSeconds=1)
        yield Servers(broker, namesrv)


@asynccontextmanager
async def inside(folder: Path, *, idle_max_s: int = 120) -> AsyncIterator[Broker]:
    """A broker in the loop of the test, whose inner parts can be reached."""
    broker = Broker(
        BrokerConfig(
            broker=BrokerSettings(ip1="127.0.0.1", ip2="127.0.0.1", broker_name="broker-a"),
            server=BrokerServerSettings(
                listen_port=0, bind_address="127.0.0.1", drain_s=1, idle_max_s=idle_max_s
            ),
            store=small_settings(folder / "store"),
        )
    )
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


class Rude:
    """A socket that is not used as it should be."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._decoder = FrameDecoder()
        self._answers: list[Command] = []

    @classmethod
    async def at(cls, port: int, *, receive_buffer: int = 0) -> Rude:
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        return cls(sock)

    async def say(self, data: bytes) -> None:
        """A peer that has closed already hears nothing, which is no matter here."""
        with suppress(ConnectionError):
            await self._loop.sock_sendall(self._sock, data)

    def say_no_more(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def try_to_say(self, data: bytes) -> int:
        """As much as can be written without waiting."""
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0

    async def hear(self) -> Command:
        """The next answer, in whatever order they come."""
        while not self._answers:
            data = await asyncio.wait_for(self._loop.sock_recv(self._sock, 65536), 60)
            assert data, "the other side has closed"
            self._answers += self._decoder.feed(data)
        return self._answers.pop(0)

    async def ask(self, *requests: Command) -> list[Command]:
        """Requests in one write, and as many answers."""
        await self.say(b"".join(map(encode_frame, requests)))
        return [await self.hear() for _ in requests]

    async def hears_the_end(self, limit_s: float = 30.0) -> bytes:
        """All that still comes until the other side closes."""
        heard = bytearray()
        with suppress(ConnectionError):
            while data := await asyncio.wait_for(self._loop.sock_recv(self._sock, 65536), limit_s):
                heard += data
        return bytes(heard)

    def hang_up(self, *, rudely: bool = False) -> None:
        """Rudely: with a reset, so that what is under way is lost."""
        if rudely:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()
