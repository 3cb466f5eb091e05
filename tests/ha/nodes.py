"""A master and slaves without their brokers: stores, the HA port, and requests handed over in process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from tests.broker.nobody import Nobody

from flaremq.base.clock import SystemClock
from flaremq.base.errors import ConnectFailed
from flaremq.base.live import Live
from flaremq.broker.offload import Offload
from flaremq.broker.replicas.mastership import Mastership
from flaremq.broker.replicas.replication import Replication
from flaremq.broker.settings import BrokerSettings, Place
from flaremq.ha.settings import HaSettings
from flaremq.model.record import decode_many
from flaremq.protocol.codes import ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.remoting.network import Network
from flaremq.remoting.ports import free_port
from flaremq.remoting.settings import ServerSettings
from flaremq.store.settings import BrokerRole
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import a_message, small_settings

HOST = "127.0.0.1"
MASTER = "master:10911"
QUICK: dict[str, Any] = {"heartbeat_ms": 200, "silence_ms": 5000}


class Calls:
    """Hands requests to the master in process."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    async def call(self, address: str, request: Command, timeout_s: float) -> Command:
        master = self._nodes.master
        if address not in self._nodes.names or master is None:
            raise ConnectFailed(f"{address}: nobody is there")
        served = {
            code: handler for _, table in master.replication.handlers() for code, handler in table.items()
        }
        handler = served.get(request.code)
        if handler is None:
            return response_to(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported")
        answer = await handler(Nobody(), request)
        assert answer is not None
        return answer


class Node:
    """A store and its replication."""

    def __init__(self, nodes: Nodes, folder: Path, role: BrokerRole, broker_id: int, **other: Any) -> None:
        ha = {**QUICK, **other.pop("ha", {})}
        port = free_port(HOST)
        self.ha_address = f"{HOST}:{port}"
        self.store = MessageStore(small_settings(folder, role=role, **other), owner_dispatches=True)
        self.offload = Offload(1)
        self.mastership = Mastership(folder)
        self.replication = Replication(
            HaSettings(**ha),
            Live(BrokerSettings(broker_id=broker_id, ip1=HOST, ip2=HOST)),
            self.store,
            place=lambda: Place(MASTER, self.ha_address),
            server=ServerSettings(bind_address=HOST, listen_port=port),
            calls=Calls(nodes),
            offload=self.offload,
            network=Network(),
            clock=SystemClock(),
            mastership=self.mastership,
        )
        self.replication.shown = lambda: self.store.show(wait=False)

    async def start(self) -> None:
        await self.offload.run(self.store.open)
        await self.replication.start()

    async def stop(self) -> None:
        await self.replication.stop()
        await self.offload.run(self.store.close)
        self.offload.close()

    @property
    def log(self) -> bytes:
        """All bytes of the log."""
        store, found, at = self.store.log, bytearray(), self.store.log.begin
        while at < store.end:
            size = min(store.end - at, store.file_size - at % store.file_size)
            piece = store.slice(at, size)
            assert piece is not None
            found += piece
            at += size
        return bytes(found)

    def bodies(self, topic: bytes = b"TopicTest") -> list[bytes]:
        self.store.show()
        found: list[bytes] = []
        at = self.store.min_offset(topic, 0)
        while at < self.store.max_offset(topic, 0):
            result = self.store.get(topic, 0, at, 32)
            found += [message.body for record in result.records for message in decode_many(bytes(record))]
            assert result.next_offset > at
            at = result.next_offset
        return found

    def put(self, *bodies: bytes) -> int:
        """Put messages, and return where the log ends then."""
        for body in bodies:
            self.store.put(a_message(body), wait=False)
        return self.store.log.end


class Nodes:
    """A context: everything that was started is stopped with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = AsyncExitStack()
        self.master: Node | None = None
        self.names = {MASTER}
        """The addresses that are answered."""

    def by_port(self, node: Node) -> None:
        """Let it answer at the port below its HA port, where a broker listens."""
        host, _, port = node.ha_address.rpartition(":")
        self.names.add(f"{host}:{int(port) - 1}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    async def a_master(
        self, name: str = "master", role: BrokerRole = BrokerRole.ASYNC_MASTER, **other: Any
    ) -> Node:
        self.master = await self._started(Node(self, self._folder / name, role, 0, **other))
        return self.master

    async def a_slave(
        self, name: str = "slave", broker_id: int = 1, *, follow: bool = True, **other: Any
    ) -> Node:
        node = await self._started(Node(self, self._folder / name, BrokerRole.SLAVE, broker_id, **other))
        if follow:
            assert self.master is not None
            node.replication.master_is(MASTER, self.master.ha_address)
        return node

    async def _started(self, node: Node) -> Node:
        await node.start()
        self._running.push_async_callback(node.stop)
        return node


async def until(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait until something is true: look again and again, and leave the processor to others meanwhile."""
    async with asyncio.timeout(timeout_s):
        while not holds():
            await asyncio.sleep(0.002)


async def caught_up(slave: Node, master: Node) -> None:
    await until(lambda: slave.store.log.end == master.store.log.confirmed)
