"""Telling every NameServer that we are here, and which topics we have.

    topics changed, or the period is over > [link of a NameServer] > REGISTER_BROKER > orders of topics

Each NameServer has a link with a task of its own, so one that is slow or gone delays no other. What is
sent over a link is sent one after the other: a whole table never overtakes a change that came after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias

from flaremq.base.clock import Clock, SystemClock
from flaremq.base.errors import FlareError
from flaremq.base.lifecycle import Owned
from flaremq.base.live import Live
from flaremq.base.logs import fields as logged
from flaremq.base.logs import logger
from flaremq.broker.features import Feature
from flaremq.broker.namesrvs import NameServers
from flaremq.broker.offload import Offload
from flaremq.broker.settings import BrokerSettings, Place
from flaremq.broker.tasks import Task
from flaremq.model.record import crc31
from flaremq.model.topic import PERM_READ, PERM_WRITE, DataVersion, TopicConfig
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.cluster import KVTable
from flaremq.protocol.bodies.route import (
    QueueData,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    TopicRouteData,
    encode_registration_compressed,
)
from flaremq.protocol.codes import RequestCode, ResponseCode, response_name
from flaremq.protocol.command import Command
from flaremq.protocol.headers import namesrv as headers

log = logger("broker.registration")

_UNREGISTER_TIMEOUT_S: Final = 3.0
_DOUBLED_MAX: Final = 6
_AGAIN_S: Final = 1.0
_TOLD_LIMIT_S: Final = 1.0  # Clients give a send 3 s: one that waits for us must be answered well before.
_FULL_PERM: Final = PERM_READ | PERM_WRITE

Sleep: TypeAlias = Callable[[float], Awaitable[None]]


class Calls(Protocol):
    """Somebody who calls servers by address: remoting's Caller."""

    async def call(self, address: str, request: Command, timeout_s: float) -> Command: ...


class TopicTable(Protocol):
    """The topics, as far as a NameServer is told of them."""

    version: DataVersion

    def get(self, name: str) -> TopicConfig | None: ...
    def all(self) -> Mapping[str, TopicConfig]: ...
    def put(self, config: TopicConfig) -> None: ...


class Registration(Feature):
    """Keeps the broker known. Whatever NameServers do, `start` and `stop` come back in time."""

    def __init__(
        self,
        settings: Live[BrokerSettings],
        topics: TopicTable,
        namesrvs: NameServers,
        caller: Calls,
        aside: Offload,
        *,
        port: Callable[[], int],
        sleep: Sleep = asyncio.sleep,
        clock: Clock | None = None,
    ) -> None:
        """`port` is asked when the broker starts: port 0 becomes another when it is bound."""
        self._live = settings
        self.topics = topics
        self.caller = caller
        self._aside = aside
        self._port = port
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._namesrvs = namesrvs
        self._links: dict[str, _Link] = {}
        self._tasks = Owned()
        self._running = False
        self._encoded: tuple[object, list[bytes]] = (None, [])
        self.place = Place("", "")

    @property
    def settings(self) -> BrokerSettings:
        return self._live.now

    async def start(self) -> None:
        """Register everywhere; whoever does not answer in time is tried again while the broker runs."""
        self.place = Place.of(self._live.now, self._port())
        await self._namesrvs.refresh()
        self._running = True
        self._namesrvs.listeners.append(self._namesrvs_changed)
        self._namesrvs_changed(self._namesrvs.addresses)
        if not self._links:
            log.warning("there is no NameServer to register with: set namesrvAddr=host:port;host:port")
            return
        tried = [asyncio.ensure_future(link.tried.wait()) for link in self._links.values()]
        _, waiting = await asyncio.wait(tried, timeout=self._live.now.register_timeout_ms / 1000)
        for each in waiting:
            each.cancel()
        if waiting:
            log.warning("%d NameServers have not answered yet: the broker starts without them", len(waiting))

    async def stop(self) -> None:
        """Leave every NameServer that knows us."""
        self._running = False
        if self._namesrvs_changed in self._namesrvs.listeners:
            self._namesrvs.listeners.remove(self._namesrvs_changed)
        await self._tasks.aclose(timeout_s=5)
        known = [link for link in self._links.values() if link.registered]
        self._links.clear()
        await asyncio.gather(*(link.unregister() for link in known))

    def topics_changed(self, changed: Sequence[TopicConfig]) -> None:
        """Tell these at once. All changes of one turn of the event loop go out together."""
        names = [config.topic_name for config in changed]
        for link in self._links.values():
            link.topics_changed(names)

    def told(self) -> asyncio.Future[Any] | None:
        """Done when every NameServer that knows us has heard of all changes so far, or has had its time.

        None if there is nobody to wait for: who does not answer anyway is not waited for.
        """
        known = [link for link in self._links.values() if link.registered]
        if not known or not self._running:
            return None
        rounds = [link.next_round() for link in known]
        return self._tasks.spawn("told", asyncio.wait(rounds, timeout=_TOLD_LIMIT_S))

    def register_now(self) -> None:
        """Register everything again: what all topics have in common has changed. Without a new version
        a NameServer would not look at them."""
        self.topics.version = self.topics.version.next(self._clock.now_ms())
        for link in self._links.values():
            link.register_now()

    def settings_changed(self, names: frozenset[str]) -> None:
        if "namesrvAddr" in names:
            self._namesrvs.set(self.settings.namesrv)
            self._tasks.spawn("refresh-namesrvs", self._namesrvs.refresh())
        if "brokerPermission" in names:
            self.register_now()

    def tasks(self) -> Iterable[Task]:
        yield Task("refresh-namesrvs", 10, self.settings.namesrv_refresh_ms / 1000, self._namesrvs.refresh)

    def connection_lost(self, address: str) -> None:
        """A NameServer forgets a broker whose connection ends: tell it again soon, not at the next period."""
        link = self._links.get(address)
        if link is not None and self._running:
            link.lost()

    def _namesrvs_changed(self, addresses: tuple[str, ...]) -> None:
        for address in self._links.keys() - set(addresses):
            link = self._links.pop(address)
            link.stop()
            if link.registered:
                self._tasks.spawn(f"unregister at {address}", link.unregister())
        for address in addresses:
            if address not in self._links:
                link = self._links[address] = _Link(address, self, self._sleep)
                link.task = self._tasks.spawn(f"register at {address}", link.run())

    # What the links ask for.

    async def whole(self, *, may_split: bool) -> list[bytes]:
        """The bodies that tell all topics; the same as last time if nothing has changed."""
        settings, version = self._live.now, self.topics.version
        size_max = settings.split_registration_size if settings.split_registration and may_split else None
        key = version, settings.permission, settings.compressed_register, size_max
        if self._encoded[0] != key:
            configs = list(self.topics.all().values())
            self._encoded = key, await self._aside.run(lambda: self._bodies(configs, version, size_max))
        return self._encoded[1]

    async def partial(self, names: Sequence[str]) -> bytes | None:
        """The body that tells these topics; None if none of them is left."""
        version = self.topics.version
        configs = [config for config in map(self.topics.get, names) if config is not None]
        if not configs:
            return None
        return (await self._aside.run(lambda: self._bodies(configs, version, None)))[0]

    def _bodies(
        self, configs: Sequence[TopicConfig], version: DataVersion, size_max: int | None
    ) -> list[bytes]:
        step = size_max or max(1, len(configs))
        pieces = [configs[at : at + step] for at in range(0, len(configs), step)] or [[]]
        return [self._body(piece, version) for piece in pieces]

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
        """A broker that may not be read, or not written, says so for each topic."""
        permission = self._live.now.permission
        if permission & _FULL_PERM == _FULL_PERM:
            return config
        return replace(config, perm=config.perm & permission)

    def ordered(self, orders: Mapping[str, str]) -> None:
        """The NameServer knows which topics are ordered."""
        for name in orders:
            config = self.topics.get(name)
            if config is not None and not config.order:
                self.topics.put(replace(config, order=True))


class _Link:
    """One NameServer: what it knows of us, and the task that keeps that right."""

    def __init__(self, address: str, owner: Registration, sleep: Sleep) -> None:
        self.address = address
        self.registered = False
        self.tried = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self._owner = owner
        self._sleep = sleep
        self._changed: dict[str, None] = {}
        self._due = True
        self._force = False
        self._failures = 0
        self._woken = asyncio.Event()
        self._awaited: list[asyncio.Future[None]] = []

    def next_round(self) -> asyncio.Future[None]:
        """Done when the round that tells the newest changes has ended, however it ended."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited.append(future)
        self._woken.set()
        return future

    def topics_changed(self, names: Sequence[str]) -> None:
        self._changed.update(dict.fromkeys(names))
        self._woken.set()

    def register_now(self) -> None:
        self._due = self._force = True
        self._woken.set()

    def lost(self) -> None:
        if self.registered:
            self.registered = False
            self._woken.set()

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        while True:
            self._woken.clear()
            awaited, self._awaited = self._awaited, []
            try:
                await self._round()
            except FlareError as error:
                self.registered = False
                log.warning(
                    "registering failed and is tried again", extra=logged(namesrv=self.address, error=error)
                )
            except Exception:
                self.registered = False
                log.exception("registering at %s failed and is tried again", self.address)
            finally:
                for future in awaited:
                    if not future.done():
                        future.set_result(None)
            self.tried.set()
            await self._rest()

    async def _rest(self) -> None:
        """Until the period is over, or somebody has something to tell. A NameServer that does not know us
        is asked sooner, and then ever less often: who is gone is not there again at once."""
        self._failures = 0 if self.registered else self._failures + 1
        rest_s = self._owner.settings.register_period_s
        if not self.registered:
            rest_s = min(rest_s, _AGAIN_S * 2 ** min(self._failures, _DOUBLED_MAX))
        period = asyncio.ensure_future(self._sleep(rest_s))
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait((period, woken), return_when=asyncio.FIRST_COMPLETED)
            self._due = self._due or period.done()
            if not self.registered and not period.done():
                await self._sleep(_AGAIN_S)
        finally:
            period.cancel()
            woken.cancel()

    async def _round(self) -> None:
        """Tell what is due. A NameServer that does not know us is told everything: of a broker that is
        new to it and has only one topic it would not hear."""
        names, self._changed = list(self._changed), {}
        if names and self.registered and not self._due:
            await self._tell_changed(names)
            if self.registered:
                return
        self._due = False
        force, self._force = self._force or self._owner.settings.force_register, False
        if self.registered and not force and not await self._is_behind():
            return
        for body in await self._owner.whole(may_split=self.registered):
            await self._register(body)
        if not self.registered:
            log.info("the broker is registered", extra=logged(namesrv=self.address))
        self.registered = True

    async def _tell_changed(self, names: Sequence[str]) -> None:
        try:
            if self._owner.settings.single_topic_register:
                await self._register_topics(names)
            else:
                body = await self._owner.partial(names)
                if body is not None:
                    await self._register(body)
        except FlareError as error:
            self.registered = False
            log.info(
                "a NameServer took no change: all is told", extra=logged(namesrv=self.address, error=error)
            )

    async def _register(self, body: bytes) -> None:
        owner = self._owner
        settings, place = owner.settings, owner.place
        header = headers.RegisterBrokerRequestHeader(
            broker_name=settings.broker_name,
            broker_addr=place.address,
            cluster_name=settings.cluster_name,
            ha_server_addr=place.ha_address,
            broker_id=settings.broker_id,
            enable_acting_master=False,
            compressed=settings.compressed_register,
            body_crc32=crc31(body),
        )
        answer = await self._ask(RequestCode.REGISTER_BROKER, header, body)
        if answer.body:
            owner.ordered(beans.decode(KVTable, answer.body).table)

    async def _register_topics(self, names: Sequence[str]) -> None:
        """The other way to tell a change: it leaves alone what a NameServer knows of other topics."""
        for config in filter(None, map(self._owner.topics.get, names)):
            config = self._owner.masked(config)
            queues = QueueData(
                broker_name=self._owner.settings.broker_name,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm,
                topic_sys_flag=config.topic_sys_flag,
            )
            header = headers.RegisterTopicRequestHeader(topic=config.topic_name)
            body = beans.encode(TopicRouteData(queue_datas=(queues,)))
            await self._ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, body)

    async def _is_behind(self) -> bool:
        """Whether the NameServer has another table of ours than we have."""
        version = self._owner.topics.version
        header = headers.QueryDataVersionRequestHeader(**self._identity())
        answer = await self._ask(RequestCode.QUERY_DATA_VERSION, header, beans.encode(version))
        told = fields.decode(headers.QueryDataVersionResponseHeader, answer.fields)
        known = beans.decode(DataVersion, answer.body) if answer.body else None
        return told.changed or (known is not None and known != version)

    async def unregister(self) -> None:
        header = headers.UnRegisterBrokerRequestHeader(**self._identity())
        try:
            await self._ask(RequestCode.UNREGISTER_BROKER, header, None, _UNREGISTER_TIMEOUT_S)
        except FlareError as error:
            log.warning("unregistering failed", extra=logged(namesrv=self.address, error=error))

    async def _ask(
        self, code: RequestCode, header: fields.Header, body: bytes | None, timeout_s: float | None = None
    ) -> Command:
        owner = self._owner
        limit_s = owner.settings.register_timeout_ms / 1000 if timeout_s is None else timeout_s
        request = Command(code=code, ext_fields=fields.encode(header), body=body)
        answer = await owner.caller.call(self.address, request, limit_s)
        if answer.code != ResponseCode.SUCCESS:
            raise FlareError(f"{code.name} was refused: {response_name(answer.code)}, {answer.remark}")
        return answer

    def _identity(self) -> dict[str, Any]:
        settings = self._owner.settings
        return {
            "broker_name": settings.broker_name,
            "broker_addr": self._owner.place.address,
            "cluster_name": settings.cluster_name,
            "broker_id": settings.broker_id,
        }
