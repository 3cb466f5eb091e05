"""Choosing servers, and asking all of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from flaremq.admin.values.outcome import Gathered
from flaremq.base.errors import FlareError, Hint, Incomplete, InvalidParameter, TopicNotFound, UsageError
from flaremq.client.api import Api
from flaremq.protocol.bodies.cluster import ClusterInfo
from flaremq.protocol.bodies.route import MASTER_ID, BrokerData

T = TypeVar("T")

_AT_ONCE_MAX: Final = 32  # Requests in flight: large clusters are asked in turns.


@dataclass(frozen=True, slots=True, order=True)
class ServerAddress:
    """A broker that can be asked."""

    name: str
    address: str
    cluster: str = ""
    id: int = MASTER_ID

    @property
    def title(self) -> str:
        """A name for each server: the broker name alone is shared by a master and its slaves."""
        return self.name if self.id == MASTER_ID else f"{self.name}:{self.id}"


class ServerCalls:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._closed = False
        self._slots = asyncio.Semaphore(_AT_ONCE_MAX)

    @property
    def api(self) -> Api:
        if self._closed:
            raise UsageError("this Admin is stopped: create another one")
        return self._api

    def close(self) -> None:
        """Refuse further calls: a connection made now would never be closed."""
        self._closed = True

    # Choosing.

    async def masters(
        self, cluster: str | None = None, broker: str | None = None
    ) -> tuple[ServerAddress, ...]:
        """The master of this broker, or all masters of this cluster, or all masters. An address of a slave
        means that slave."""
        found = [
            each for each in await self.all(cluster, broker) if each.id == MASTER_ID or each.address == broker
        ]
        if found:
            return tuple(found)
        where = f"broker {broker!r}" if broker else f"cluster {cluster!r}" if cluster else "any cluster"
        raise InvalidParameter(f"{where} has no master now").with_hint(Hint.START_BROKER)

    async def all(self, cluster: str | None = None, broker: str | None = None) -> tuple[ServerAddress, ...]:
        """The same, including slaves."""
        info = await self.api.cluster()
        if cluster is not None and cluster not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise InvalidParameter(f"unknown cluster {cluster!r}: expected a known one ({known})")
        found = [each for each in listed(info) if cluster is None or each.cluster == cluster]
        if broker is not None:
            found = _chosen(found, broker)
        return tuple(found)

    async def one(self, broker: str) -> ServerAddress:
        """The broker with this address, or the master of this name, or a slave if it has no master."""
        return (await self.all(None, broker))[0]

    async def of_topic(self, topic: str) -> tuple[ServerAddress, ...]:
        """The brokers of a topic: the master of each, or a slave if it is away. Raises TopicNotFound."""
        found = await self.of_topic_or_none(topic)
        if found is None:
            raise self.topic_not_found(topic)
        return found

    def topic_not_found(self, topic: str) -> TopicNotFound:
        return TopicNotFound(
            f"topic {topic!r} is unknown to the NameServer {self.api.namesrvs.chosen}"
        ).with_hint(Hint.LIST_TOPICS)

    async def of_topic_or_none(self, topic: str) -> tuple[ServerAddress, ...] | None:
        route = await self.api.route(topic)
        return None if route is None else tuple(_reachable(route.broker_datas))

    def namesrvs(self) -> tuple[ServerAddress, ...]:
        """The NameServers, each named by its address."""
        return tuple(ServerAddress(address, address) for address in self.api.namesrvs.addresses)

    # Asking.

    async def each(
        self, servers: Iterable[ServerAddress], ask: Callable[[ServerAddress], Awaitable[T]], what: str
    ) -> Gathered[T]:
        """The answers of all servers. Raises only if none of them answers."""
        gathered = await self.try_each(servers, ask)
        if gathered.failed and not gathered.found:
            raise _failure(what, (), gathered.failed)
        return gathered

    async def every(
        self, servers: Iterable[ServerAddress], ask: Callable[[ServerAddress], Awaitable[T]], what: str
    ) -> Mapping[str, T]:
        """The same for a change: raises if any of them fails."""
        gathered = await self.try_each(servers, ask)
        if gathered.failed:
            raise _failure(what, tuple(gathered.found), gathered.failed)
        return gathered.found

    async def try_each(
        self, servers: Iterable[ServerAddress], ask: Callable[[ServerAddress], Awaitable[T]]
    ) -> Gathered[T]:
        found: dict[str, T] = {}
        failed: dict[str, FlareError] = {}

        async def one(server: ServerAddress) -> None:
            try:
                async with self._slots:
                    found[server.title] = await ask(server)
            except FlareError as error:
                failed[server.title] = error

        listed = tuple(servers)
        async with asyncio.TaskGroup() as tasks:
            for server in listed:
                tasks.create_task(one(server))
        order = [server.title for server in listed]
        return Gathered(
            {title: found[title] for title in order if title in found},
            {title: failed[title] for title in order if title in failed},
        )


def _failure(what: str, done: tuple[str, ...], failed: Mapping[str, FlareError]) -> FlareError:
    if len(failed) == 1 and not done:
        return next(iter(failed.values()))
    return Incomplete(what, done, failed)


def listed(info: ClusterInfo) -> list[ServerAddress]:
    """All brokers, by cluster, name and id."""
    return [
        ServerAddress(name, data.broker_addrs[number], cluster, number)
        for cluster, names in sorted(info.cluster_addr_table.items())
        for name in sorted(names)
        if (data := info.broker_addr_table.get(name)) is not None
        for number in sorted(data.broker_addrs)
    ]


def _chosen(servers: list[ServerAddress], broker: str) -> list[ServerAddress]:
    found = [each for each in servers if broker in (each.name, each.address)]
    if found:
        return found
    host, _, port = broker.rpartition(":")
    if host and port.isdigit():
        return [ServerAddress(broker, broker)]  # A broker that no NameServer knows can still be asked.
    known = ", ".join(sorted({each.name for each in servers})) or "none"
    raise InvalidParameter(f"unknown broker {broker!r}: expected a known one ({known}) or host:port")


def _reachable(brokers: Iterable[BrokerData]) -> list[ServerAddress]:
    found = []
    for data in sorted(brokers, key=lambda each: each.broker_name):
        if data.broker_addrs:
            number = min(data.broker_addrs)
            found.append(
                ServerAddress(data.broker_name, data.broker_addrs[number], data.cluster or "", number)
            )
    return found
