"""The ports of a broker: the one that clients connect to, and the VIP port, which serves no pulls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from flaremq.base.logs import logger
from flaremq.broker.features import Feature, Requests
from flaremq.broker.pull.lane import CODES as PULLS
from flaremq.broker.pull.lane import PullLane
from flaremq.broker.routing import Families
from flaremq.broker.send.acks import Acks
from flaremq.broker.send.lane import CODES as SENDS
from flaremq.broker.send.lane import SendLane
from flaremq.broker.settings import BrokerServerSettings
from flaremq.remoting.connection import Connection
from flaremq.remoting.gate import Gate
from flaremq.remoting.network import Network
from flaremq.remoting.ports import VIP
from flaremq.remoting.server import Server
from flaremq.remoting.tls import TlsSettings
from flaremq.remoting.turn import Lane

log = logger("broker.doors")


class Doors(Feature):
    """The listening ports. Opened once everything else is ready to serve clients, and closed first."""

    def __init__(
        self,
        settings: BrokerServerSettings,
        tls: TlsSettings,
        *,
        sends: SendLane,
        pulls: PullLane,
        others: Sequence[Lane],
        acks: Acks,
        families: Families,
        served: Callable[[], Iterable[Requests]],
        closed: Callable[[Connection], None],
        gate: Gate | None = None,
        network: Network | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`settings` has the port that clients connect to; `served` returns the requests of all features,
        those of the lanes in `others` among them."""
        self._settings = settings
        self._tls = tls
        self._sends = sends
        self._pulls = pulls
        self._others = others
        self._acks = acks
        self._families = families
        self._served = served
        self._closed = closed
        self._gate = gate
        self._network = network
        self._now_s = now_s
        self.open: list[Server] = []
        self.step = f"listening on {settings.bind_address}:{settings.listen_port}"

    async def start(self) -> None:
        port = self._settings.listen_port
        try:
            await self._listen(port, (self._sends, self._pulls, *self._others), SENDS | PULLS)
            if port + VIP > 0:
                await self._listen(port + VIP, (self._sends, *self._others), SENDS)
        except BaseException:
            await self._close()
            raise

    def shut(self, gate: Gate) -> None:
        """Serve only what this gate lets pass from now on, and answer all pulls that wait."""
        for door in self.open:
            door.guard(gate)
        self._pulls.parked.close()

    async def _listen(self, port: int, lanes: Sequence[Lane], codes: frozenset[int]) -> None:
        server = Server(
            replace(self._settings, listen_port=port),
            self._families.router(self._served(), codes),
            lanes=lanes,
            tls=self._tls,
            on_close=self._closed,
            gate=self._gate,
            network=self._network,
            now_s=self._now_s,
        )
        await server.start()
        self.open.append(server)

    async def stop(self) -> None:
        """Answer parked pulls, refuse new requests, and answer the sends that wait for the disk."""
        self._pulls.parked.close()
        for door in self.open:
            await door.let_in()
        for door in self.open:
            door.drain()
        try:
            await asyncio.wait_for(self._acks.drain(), self._settings.drain_s or None)
        except TimeoutError:
            log.warning("%d sends are not on the disk yet and get no answer", len(self._acks))
        await self._close()

    async def _close(self) -> None:
        await asyncio.gather(*(door.stop() for door in self.open))
        self.open.clear()
