"""Registers the broker and its topics with every NameServer.

    topics changed, or the period is over > [link of a NameServer] > REGISTER_BROKER > orders of topics

Each NameServer has a link with its own task, so one that is slow or gone delays no other. A link sends one
request at a time: a whole table never overtakes a change that came after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from flaremq.base.clock import Clock, SystemClock
from flaremq.base.lifecycle import Owned, Sleep
from flaremq.base.live import Live
from flaremq.base.logs import fields, logger
from flaremq.broker.features import Feature
from flaremq.broker.link import Calls, NameServerLink, TopicTable
from flaremq.broker.namesrvs import NameServers
from flaremq.broker.offload import Offload
from flaremq.broker.settings import BrokerSettings, Place
from flaremq.broker.tasks import Task
from flaremq.model.topic import PERM_READ, PERM_WRITE, DataVersion, TopicConfig
from flaremq.protocol import beans
from flaremq.protocol.bodies.route import (
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    encode_registration_compressed,
)

log = logger("broker.registration")

_TOLD_LIMIT_S: Final = 1.0  # Clients give a send 3 s: one that waits for this must be answered well before.
_FULL_PERM: Final = PERM_READ | PERM_WRITE
_NO_MASTER: Final = ("", "")

OnMaster: TypeAlias = Callable[[str, str], None]
"""Called with the address of the master and its HA address; with empty texts when no NameServer knows it."""


class Registration(Feature):
    """Keeps the broker registered. Whatever NameServers do, `start` and `stop` return in time."""

    step = "registration"

    def __init__(
        self,
        settings: Live[BrokerSettings],
        topics: TopicTable,
        namesrvs: NameServers,
        caller: Calls,
        offload: Offload,
        *,
        place: Callable[[], Place],
        on_master: OnMaster = lambda _address, _ha_address: None,
        sleep: Sleep = asyncio.sleep,
        clock: Clock | None = None,
    ) -> None:
        """`place` is called when the broker starts: its port may be known only then. `on_master` is called,
        for a slave, whenever NameServers name another master than before."""
        self._live = settings
        self.topics = topics
        self.caller = caller
        self._offload = offload
        self._place_of = place
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._namesrvs = namesrvs
        self._links: dict[str, NameServerLink] = {}
        self._tasks = Owned()
        self._running = False
        self._encoded: tuple[object, list[bytes]] = (None, [])
        self.place = Place("", "")
        self._on_master = on_master
        self._named: dict[str, tuple[str, str]] = {}
        """What each NameServer said last about the master, the newest change last."""
        self._master = _NO_MASTER

    @property
    def settings(self) -> BrokerSettings:
        return self._live.now

    async def start(self) -> None:
        """Register everywhere; a NameServer that does not answer in time is retried while the broker runs."""
        self.place = self._place_of()
        await self._namesrvs.refresh()
        self._running = True
        self._namesrvs.listeners.append(self._namesrvs_changed)
        self._namesrvs_changed(self._namesrvs.addresses)
        if not self._links:
            log.warning("no NameServer to register with: set namesrvAddr=host:port;host:port")
            return
        tried = [asyncio.ensure_future(link.tried.wait()) for link in self._links.values()]
        _, waiting = await asyncio.wait(tried, timeout=self._live.now.register_timeout_ms / 1000)
        for each in waiting:
            each.cancel()
        if waiting:
            log.warning("%d NameServers have not answered yet: the broker starts without them", len(waiting))

    async def stop(self) -> None:
        """Unregister from every NameServer that knows us."""
        self._running = False
        if self._namesrvs_changed in self._namesrvs.listeners:
            self._namesrvs.listeners.remove(self._namesrvs_changed)
        await self._tasks.aclose(timeout_s=5)
        known = [link for link in self._links.values() if link.registered]
        self._links.clear()
        await asyncio.gather(*(link.unregister() for link in known))

    def topics_changed(self, changed: Sequence[TopicConfig]) -> None:
        """Send these at once. All changes made in one turn of the event loop go out together."""
        names = [config.topic_name for config in changed]
        for link in self._links.values():
            link.topics_changed(names)

    def told(self) -> asyncio.Future[Any] | None:
        """Done when every NameServer that knows us has been sent all changes so far, or its time is up.

        None if there is none to wait for: NameServers that do not know us are not waited for.
        """
        known = [link for link in self._links.values() if link.registered]
        if not known or not self._running:
            return None
        rounds = [link.next_round() for link in known]
        return self._tasks.spawn("told", asyncio.wait(rounds, timeout=_TOLD_LIMIT_S))

    def register_now(self) -> None:
        """Register everything again, because a setting that applies to all topics has changed. Without a new
        version a NameServer would ignore it."""
        self.topics.version = self.topics.version.next(self._clock.now_ms())
        for link in self._links.values():
            link.register_now()

    def again(self) -> None:
        """Register soon, although nothing has changed here: a NameServer may have forgotten us, or hold
        another broker for us."""
        for link in self._links.values():
            link.register_now()

    def withdraw(self) -> None:
        """Register no more. NameServers are not told: old ones would forget whoever serves in our place."""
        self._running = False
        for link in self._links.values():
            link.stop()
        self._links.clear()

    def settings_changed(self, names: frozenset[str]) -> None:
        if "namesrvAddr" in names:
            self._namesrvs.set(self.settings.namesrv)
            self._tasks.spawn("refresh-namesrvs", self._namesrvs.refresh())
        if "brokerPermission" in names:
            self.register_now()

    def tasks(self) -> Iterable[Task]:
        yield Task("refresh-namesrvs", 10, self.settings.namesrv_refresh_ms / 1000, self._namesrvs.refresh)

    def connection_lost(self, address: str) -> None:
        """A NameServer forgets a broker whose connection ends: register again soon, not after the period."""
        link = self._links.get(address)
        if link is not None and self._running:
            link.lost()

    def _namesrvs_changed(self, addresses: tuple[str, ...]) -> None:
        for address in self._links.keys() - set(addresses):
            link = self._links.pop(address)
            link.stop()
            self._named.pop(address, None)
            if link.registered:
                self._tasks.spawn(f"unregister at {address}", link.unregister())
        for address in addresses if self._running else ():
            if address not in self._links:
                link = self._links[address] = NameServerLink(address, self, self._sleep)
                link.task = self._tasks.spawn(f"register at {address}", link.run())

    # Called by the links.

    async def whole(self, *, may_split: bool) -> list[bytes]:
        """The bodies that register all topics; encoded again only if something has changed."""
        settings, version = self._live.now, self.topics.version
        size_max = settings.split_registration_size if settings.split_registration and may_split else None
        key = version, settings.permission, settings.compressed_register, size_max
        if self._encoded[0] != key:
            configs = list(self.topics.all().values())
            self._encoded = key, await self._offload.run(lambda: self._bodies(configs, version, size_max))
        return self._encoded[1]

    async def partial(self, names: Sequence[str]) -> bytes | None:
        """The body that registers these topics; None if none of them exists any more."""
        version = self.topics.version
        configs = [config for config in map(self.topics.get, names) if config is not None]
        if not configs:
            return None
        return (await self._offload.run(lambda: self._bodies(configs, version, None)))[0]

    def _bodies(
        self, configs: Sequence[TopicConfig], version: DataVersion, size_max: int | None
    ) -> list[bytes]:
        step = size_max or max(1, len(configs))
        parts = [configs[at : at + step] for at in range(0, len(configs), step)] or [[]]
        return [self._body(part, version) for part in parts]

    def _body(self, configs: Sequence[TopicConfig], version: DataVersion) -> bytes:
        table = {config.topic_name: self.masked(config) for config in configs}
        wrapper = TopicConfigSerializeWrapper(
            data_version=version,
            topic_config_table=table,
            mapping_data_version=DataVersion(),
            topic_queue_mapping_detail_map={},
            topic_queue_mapping_info_map={},
        )
        body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
        return (
            encode_registration_compressed(body) if self._live.now.compressed_register else beans.encode(body)
        )

    def masked(self, config: TopicConfig) -> TopicConfig:
        """A topic with its permissions limited to the broker's."""
        permission = self._live.now.permission
        if permission & _FULL_PERM == _FULL_PERM:
            return config
        return replace(config, perm=config.perm & permission)

    def ordered(self, orders: Mapping[str, str]) -> None:
        """Mark the topics as ordered that the NameServer has an order for."""
        for name in orders:
            config = self.topics.get(name)
            if config is not None and not config.order:
                self.topics.put(replace(config, order=True))

    def master_named(self, namesrv: str, address: str, ha_address: str) -> None:
        """Follow the newest answer that names a master.

        NameServers may disagree for a while, as each forgets and learns a master by itself. Only a changed
        answer is news: two that each repeat their own are not followed in turn.
        """
        named = address, ha_address
        if self._named.get(namesrv, _NO_MASTER) == named:
            return
        self._named.pop(namesrv, None)
        self._named[namesrv] = named
        newest = next((each for each in reversed(self._named.values()) if each != _NO_MASTER), _NO_MASTER)
        if newest != self._master:
            self._master = newest
            log.info("the master of this slave is", extra=fields(address=newest[0], ha_address=newest[1]))
            self._on_master(*newest)

    @property
    def lacks_master(self) -> bool:
        """Whether this is a slave that no NameServer knows a master of."""
        return self._master == _NO_MASTER and not self._live.now.is_master
