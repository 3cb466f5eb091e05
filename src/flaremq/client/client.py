"""A client: connections, routes and heartbeats that producers and consumers share.

Each producer or consumer makes its own client unless it is given one, so most programs never need this
class. Sharing one saves connections if a program has many producers and consumers.

Time and chance come in here too: producers and consumers take both from the client's `clock`, `sleep` and
`rng`, so a seeded simulator that makes the client owns them. Deadlines that asyncio keeps (`asyncio.timeout`,
`call_later`, and the `loop.time()` that pipelines compare with them) belong to the event loop, which a
simulator provides as well.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final, Self

from flaremq.base.clock import Clock, SystemClock
from flaremq.base.errors import FlareError, UsageError
from flaremq.base.files import Files
from flaremq.base.lifecycle import Owned, Sleep, repeat
from flaremq.client import forks
from flaremq.client.api import Api
from flaremq.client.incoming import Incoming
from flaremq.client.members import ConsumerMember, Members
from flaremq.client.namesrvs import NameServerPool
from flaremq.client.routes import RouteCache
from flaremq.client.settings import ClientSettings
from flaremq.model.msgid import UniqueIds
from flaremq.protocol.bodies.route import MASTER_ID
from flaremq.protocol.headers.group import UnregisterClientRequestHeader
from flaremq.remoting.caller import Caller
from flaremq.remoting.network import Network
from flaremq.remoting.settings import CallerSettings

log = logging.getLogger(__name__)

_SOON_S = 1.0  # Between two rounds of heartbeats that errors have requested.


class Client:
    """Lives in one event loop, from `start` to `stop`; `async with` does both."""

    def __init__(
        self,
        namesrv: str | None = None,
        *,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
        network: Network | None = None,
        files: Files | None = None,
        pid: int | None = None,
        run_job: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """`network`, `files` (for offsets that are kept here) and `pid` (a part of ids) are the system's
        unless they are given. `run_job` runs plain handlers; without it they have threads."""
        self.run_job = run_job
        self.settings = settings_of(namesrv, settings)
        self.clock = clock or SystemClock()
        self.sleep = sleep
        self.rng = rng or random.Random()
        self.files = files or Files()
        network, pid = network or Network(), os.getpid() if pid is None else pid
        self.members = Members()
        self.caller = Caller(
            CallerSettings(connect_timeout_ms=round(self.settings.connect_timeout_s * 1000)),
            Incoming(self.members).router(),
            self.settings.tls,
            network=network,
            clock_s=self.clock.monotonic_s,
        )
        self.caller.on_close = self._lost
        self.namesrvs = NameServerPool(self.settings.addresses, self.caller, self.rng)
        self.api = Api(self.caller, self.namesrvs, self.settings.timeout_s)
        self.routes = RouteCache(self.api)
        self.routes.on_change.append(self._route_changed)
        self.routes.on_gone.append(self._gone)
        ip = network.own_ip(self.namesrvs.chosen)
        self.client_id = client_id(ip, self.clock, pid, self.settings.instance_name, self.settings.unit_name)
        self.message_ids = UniqueIds(self.clock, ip=ip, pid=pid, salt=self.rng.getrandbits(32))
        self._tasks = Owned()
        self._refresh_now, self._beat_now = asyncio.Event(), asyncio.Event()
        self._known_at: set[str] = set()  # Brokers that know this client, over the connection of now.
        self._silent: set[str] = set()  # Brokers that did not take the last heartbeat.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False

    async def start(self) -> None:
        """Connect when needed, and begin to refresh routes and to send heartbeats. Idempotent."""
        if self._stopped:
            raise UsageError("this client was stopped: create a new one")
        loop = asyncio.get_running_loop()
        if self._loop is not None:
            if self._loop is not loop:
                raise UsageError(
                    "a client belongs to the event loop it was started in: create one for this loop"
                )
            return
        self._loop = loop
        forks.note(self.caller)
        refresh_s, heartbeat_s = self.settings.refresh_s, self.settings.heartbeat_s
        self._tasks.spawn(
            "refresh-routes",
            repeat("refreshing routes", self._refresh, refresh_s, sleep=partial(_woken, self._refresh_now)),
        )
        self._tasks.spawn(
            "heartbeats",
            repeat("sending heartbeats", self._beat_due, heartbeat_s, sleep=partial(_woken, self._beat_now)),
        )

    async def stop(self) -> None:
        """Close all connections. Stop the producers and consumers that use it first."""
        if self._stopped:
            return
        self._stopped = True
        await self._tasks.aclose(timeout_s=5)
        await self.caller.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task that ends with the client at the latest."""
        return self._tasks.spawn(name, work)

    # Producers and consumers.

    def add_producer(self, group: str) -> None:
        self.members.add_producer(group)
        self._beat_now.set()

    async def remove_producer(self, group: str) -> None:
        if self.members.remove_producer(group):
            await self._unregister(producer_group=group)

    async def add_consumer(self, consumer: ConsumerMember) -> None:
        """Look up its topics and register it with the brokers that can be reached."""
        self.members.add_consumer(consumer)
        await self.routes.refresh_all(consumer.topics())
        await self.beat()

    async def remove_consumer(self, group: str) -> None:
        self.members.remove_consumer(group)
        await self._unregister(consumer_group=group)

    async def _unregister(
        self, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        header = UnregisterClientRequestHeader(
            client_id=self.client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        for address, _ in self._addresses():
            if self.caller.open_connection(address) is None:
                continue  # A broker without our connection does not count us as alive.
            try:
                await self.api.unregister(address, header)
            except FlareError as error:
                log.info("could not unregister from %s: %s", address, error)

    # Heartbeats.

    def beat_soon(self) -> None:
        self._beat_now.set()

    async def be_known(self) -> None:
        """Send heartbeats unless all brokers know this client: they call only clients that they know."""
        if any(address not in self._known_at for address, is_master in self._addresses() if is_master):
            await self.beat()

    async def beat(self) -> None:
        """Send a heartbeat to every broker now."""
        await asyncio.gather(*(self._beat(address, is_master) for address, is_master in self._addresses()))

    async def _beat(self, address: str, is_master: bool) -> None:
        data = self.members.heartbeat(self.client_id, to_master=is_master)
        if data is None:
            return
        try:
            await self.api.heartbeat(address, data)
        except FlareError as error:
            if address not in self._silent:
                self._silent.add(address)
                log.warning("broker %s did not accept a heartbeat: %s", address, error)
                self.refresh_soon()
            return
        self._known_at.add(address)
        if address in self._silent:
            self._silent.discard(address)
            log.warning("broker %s accepts heartbeats again", address)

    def _addresses(self) -> Iterable[tuple[str, bool]]:
        """The address of each broker in any route, and whether it is a master."""
        found = {
            address: number == MASTER_ID
            for broker in self.routes.brokers.values()
            for number, address in broker.broker_addrs.items()
        }
        return found.items()

    async def _beat_due(self) -> None:
        try:
            await self.beat()
        finally:
            await self.sleep(min(_SOON_S, self.settings.heartbeat_s))

    # Routes.

    def refresh_soon(self) -> None:
        self._refresh_now.set()

    async def _refresh(self) -> None:
        try:
            await self.routes.refresh_all(self.members.topics())
        finally:
            await self.sleep(min(_SOON_S, self.settings.refresh_s))

    def _route_changed(self, topic: str) -> None:
        self._beat_now.set()  # A broker may be new, and must know us before it serves a pull.
        for consumer in self.members.consumers.values():
            if topic in consumer.topics():
                consumer.rebalance_soon()

    def _gone(self, address: str) -> None:
        """No route names this broker any more."""
        self._silent.discard(address)
        self.caller.release(address)

    def _lost(self, address: str) -> None:
        """A connection was lost. The next heartbeat and route show whether the broker is still there."""
        self._known_at.discard(address)
        if self._stopped or self._loop is None:
            return
        if address in (known for known, _ in self._addresses()):
            if address not in self._silent:
                log.warning("lost the connection to broker %s", address)
        elif address not in self.namesrvs.addresses:
            return  # No route names it any more, so there is nothing to repair.
        self._beat_now.set()
        self._refresh_now.set()


def settings_of(namesrv: str | None, settings: ClientSettings | None) -> ClientSettings:
    """The settings that a program gave: an address, whole settings, or both."""
    if settings is None:
        return ClientSettings() if namesrv is None else ClientSettings(namesrv=namesrv)
    return settings if namesrv is None else replace(settings, namesrv=namesrv)


def client_of(
    namesrv: str | None, client: Client | ClientSettings | None, *, broadcasting: bool = False
) -> tuple[Client, bool]:
    """The client of a producer or consumer, and whether they must start and stop it.

    A broadcasting consumer's own client has Java's default name instead of a new one at every start, because
    the path of its offsets file contains that name.
    """
    if isinstance(client, Client):
        if namesrv is not None:
            raise UsageError(
                f"got namesrv={namesrv!r} and a client, which has its own NameServers: give only one of them"
            )
        return client, False
    settings = settings_of(namesrv, client)
    if broadcasting and not settings.instance_name:
        settings = replace(settings, instance_name=DEFAULT_INSTANCE)
    return Client(settings=settings), True


async def _woken(event: asyncio.Event, limit_s: float) -> None:
    """Wait for the event, at most this long."""
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        pass
    event.clear()


DEFAULT_INSTANCE: Final = "DEFAULT"
"""Java's name for a client without one, used where it must be the same after a restart."""
_counter = itertools.count()


def client_id(ip: str, clock: Clock, pid: int, instance_name: str = "", unit_name: str = "") -> str:
    """`ip@instance`, which tells members of a group apart. Default instance: process, time and a number."""
    name = instance_name or f"{pid}#{round(clock.monotonic_s() * 1e9)}{next(_counter):02d}"
    return f"{ip}@{name}@{unit_name}" if unit_name else f"{ip}@{name}"
