"""Topic routes: fetched from NameServers, cached, refreshed and turned into queues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from flaremq.base.errors import FlareError, NoRoute, TopicNotFound
from flaremq.client.api import Api
from flaremq.model.message import MessageQueue
from flaremq.model.names import AUTO_CREATE_TOPIC
from flaremq.protocol.bodies.route import MASTER_ID, BrokerData, TopicRouteData

log = logging.getLogger(__name__)

READ: Final = 4
WRITE: Final = 2
_AT_ONCE: Final = 8
"""How many routes are requested at a time."""

OnChange = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Route:
    """One topic, as a producer and a consumer see it."""

    topic: str
    data: TopicRouteData = field(repr=False)
    writable: tuple[MessageQueue, ...]
    """Queues of brokers that have a master, in the order of the brokers' names."""
    readable: tuple[MessageQueue, ...]
    is_guess: bool = False
    """Made from the template for new topics: the topic itself does not exist yet."""


def route_of(topic: str, data: TopicRouteData, *, is_guess: bool = False) -> Route:
    masters = {each.broker_name for each in data.broker_datas if MASTER_ID in each.broker_addrs}
    known = {each.broker_name for each in data.broker_datas if each.broker_addrs}
    if data.order_topic_conf:
        writable = _ordered(topic, data.order_topic_conf)
    else:
        writable = tuple(
            MessageQueue(topic, each.broker_name, number)
            for each in sorted(data.queue_datas, key=lambda queues: queues.broker_name)
            if each.perm & WRITE and each.broker_name in masters
            for number in range(each.write_queue_nums)
        )
    readable = tuple(
        MessageQueue(topic, each.broker_name, number)
        for each in sorted(data.queue_datas, key=lambda queues: queues.broker_name)
        if each.perm & READ and each.broker_name in known
        for number in range(each.read_queue_nums)
    )
    return Route(topic, data, writable, readable, is_guess)


def _ordered(topic: str, conf: str) -> tuple[MessageQueue, ...]:
    """`broker-a:4;broker-b:4`: an ordered topic keeps its queues, even while a broker is away."""
    pairs = (part.partition(":") for part in conf.split(";") if part.strip())
    return tuple(
        MessageQueue(topic, name.strip(), number)
        for name, _, count in pairs
        if count.strip().isdigit()
        for number in range(int(count))
    )


def guessed(topic: str, template: TopicRouteData, queues_max: int) -> Route:
    """The route that a topic will have once a first send has created it."""
    queues = tuple(
        replace(
            each,
            read_queue_nums=min(each.write_queue_nums, queues_max),
            write_queue_nums=min(each.write_queue_nums, queues_max),
        )
        for each in template.queue_datas
    )
    return route_of(topic, replace(template, queue_datas=queues), is_guess=True)


class RouteCache:
    """Routes of all topics in use."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._routes: dict[str, Route] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._asking: dict[str, asyncio.Task[Route | None]] = {}
        self.on_change: list[OnChange] = []
        """Called with a topic whose route has changed."""
        self.on_gone: list[OnChange] = []
        """Called with the address of a broker that no route names any more."""

    def known(self, topic: str) -> Route | None:
        """The cached route, without a request."""
        return self._routes.get(topic)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._routes)

    async def get(self, topic: str) -> Route:
        """The cached route, or the NameServer's. Raises TopicNotFound if there is none."""
        route = self._routes.get(topic)
        if route is None or route.is_guess:
            route = await self.refresh(topic) or route
        if route is None:
            raise TopicNotFound(
                f"topic {topic!r} is unknown to NameServer {self._api.namesrvs.chosen}: "
                "create it, or send to it if brokers create topics automatically"
            )
        return route

    async def get_for_send(self, topic: str, queues_max: int) -> Route:
        """The same for a producer, whose first send may create the topic."""
        route = self._routes.get(topic)
        if route is not None and route.writable:
            return route
        route = await self.refresh(topic)
        if route is None:
            template = await self._api.route(AUTO_CREATE_TOPIC)
            if template is None:
                raise TopicNotFound(
                    f"topic {topic!r} is unknown to NameServer {self._api.namesrvs.chosen}, "
                    "and no broker there creates topics automatically: create it first"
                )
            route = guessed(topic, template, queues_max)
            self._keep(route)
        if not route.writable:
            raise NoRoute(
                f"topic {topic!r} has no queue that can be written to: "
                "check that one of its masters is running and that it has write permission"
            )
        return route

    async def refresh(self, topic: str) -> Route | None:
        """Ask the NameServer now; concurrent calls share the answer. None if the topic is unknown."""
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = asyncio.create_task(self._ask(topic), name=f"route-{topic}")
            asking.add_done_callback(lambda task: self._asked(topic, task))
        return await asyncio.shield(asking)

    def _asked(self, topic: str, task: asyncio.Task[Route | None]) -> None:
        self._asking.pop(topic, None)
        if not task.cancelled():
            task.exception()  # Waiters have seen it; without any, it is not needed.

    async def _ask(self, topic: str) -> Route | None:
        data = await self._api.route(topic)
        if data is None:
            return None
        route = route_of(topic, data)
        self._keep(route)
        return route

    async def refresh_all(self, topics: Iterable[str] = ()) -> None:
        """Refresh all known routes and those of these topics. If one fails, its topic keeps the old route and
        the others are still refreshed."""
        waiting = iter(sorted({*self._routes, *topics}))
        failed: list[tuple[str, FlareError]] = []
        answered = 0

        async def ask() -> None:
            nonlocal answered
            for topic in waiting:
                try:
                    if await self.refresh(topic) is None:
                        log.debug("topic %s is unknown to the NameServer", topic)
                    answered += 1
                except FlareError as error:
                    failed.append((topic, error))
                    if len(failed) >= _AT_ONCE and not answered:
                        return  # No NameServer answers: the others would fail as well.

        await asyncio.gather(*(ask() for _ in range(_AT_ONCE)))
        if failed:
            topic, error = failed[0]
            more = len(failed) - 1
            others = f" and {more} other{'' if more == 1 else 's'}" if more else ""
            log.warning("could not refresh the route of %s%s: %s", topic, others, error)

    def _keep(self, route: Route) -> None:
        before = self._routes.get(route.topic)
        self._routes[route.topic] = route
        addresses = self._addresses()
        for broker in route.data.broker_datas:
            self._brokers[broker.broker_name] = broker
        if before is not None and before.data.broker_datas != route.data.broker_datas:
            self._forget_unnamed()
        for address in addresses - self._addresses():
            for gone in self.on_gone:
                gone(address)
        if before is None or (before.writable, before.readable, before.data.broker_datas) != (
            route.writable,
            route.readable,
            route.data.broker_datas,
        ):
            for notify in list(self.on_change):
                notify(route.topic)

    def _forget_unnamed(self) -> None:
        """Brokers that no route names get no more heartbeats, as in Java."""
        named = {broker.broker_name for route in self._routes.values() for broker in route.data.broker_datas}
        for name in self._brokers.keys() - named:
            del self._brokers[name]

    def _addresses(self) -> set[str]:
        return {address for broker in self._brokers.values() for address in broker.broker_addrs.values()}

    # Brokers.

    @property
    def brokers(self) -> Mapping[str, BrokerData]:
        """All brokers that any route names, by name."""
        return self._brokers

    def master(self, broker_name: str) -> str | None:
        """The address of a broker's master, if it has one now."""
        found = self._brokers.get(broker_name)
        return None if found is None else found.broker_addrs.get(MASTER_ID)

    def address(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        """The address of a broker's member with this id; without one, of the next slave, or of any member."""
        found = self._brokers.get(broker_name)
        addresses = {} if found is None else found.broker_addrs
        if broker_id in addresses:
            return addresses[broker_id]
        if broker_id != MASTER_ID and broker_id + 1 in addresses:
            return addresses[broker_id + 1]
        return next(iter(addresses.values()), None)

    def members(self, broker_name: str) -> list[str]:
        """The addresses of a broker's members, by id."""
        found = self._brokers.get(broker_name)
        return [] if found is None else [address for _, address in sorted(found.broker_addrs.items())]
