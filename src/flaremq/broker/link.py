"""Registration with one NameServer: what it knows of this broker, and the task that keeps it up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from flaremq.base.errors import FlareError
from flaremq.base.lifecycle import Sleep
from flaremq.base.logs import fields as logged
from flaremq.base.logs import logger
from flaremq.broker.settings import BrokerSettings, Place
from flaremq.model.record import crc31
from flaremq.model.topic import DataVersion, TopicConfig
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.cluster import KVTable
from flaremq.protocol.bodies.route import (
    QueueData,
    TopicRouteData,
)
from flaremq.protocol.codes import RequestCode, ResponseCode, response_name
from flaremq.protocol.command import Command
from flaremq.protocol.headers import namesrv as headers

log = logger("broker.link")

_UNREGISTER_TIMEOUT_S: Final = 3.0
_DOUBLED_MAX: Final = 6
_AGAIN_S: Final = 1.0
_MASTERLESS_S: Final = 5.0
"""Between two registrations of a slave without a master: only their answers say that one is back."""


class Calls(Protocol):
    """Calls servers by address: remoting's Caller."""

    async def call(self, address: str, request: Command, timeout_s: float) -> Command: ...


class TopicTable(Protocol):
    """The topics that are registered."""

    version: DataVersion

    def get(self, name: str) -> TopicConfig | None: ...
    def all(self) -> Mapping[str, TopicConfig]: ...
    def put(self, config: TopicConfig) -> None: ...


class Registrant(Protocol):
    """The broker, as a link sees it."""

    topics: TopicTable
    caller: Calls
    place: Place

    @property
    def settings(self) -> BrokerSettings: ...
    async def whole(self, *, may_split: bool) -> list[bytes]:
        """The bodies that register all topics."""

    async def partial(self, names: Sequence[str]) -> bytes | None:
        """The body that registers these topics; None if none of them exists any more."""

    def masked(self, config: TopicConfig) -> TopicConfig:
        """A topic with its permissions limited to the broker's."""

    def ordered(self, orders: Mapping[str, str]) -> None:
        """Mark the topics as ordered that the NameServer has an order for."""

    def master_named(self, namesrv: str, address: str, ha_address: str) -> None:
        """What a NameServer says where the master of this slave is; empty texts if it knows none."""

    @property
    def lacks_master(self) -> bool:
        """Whether this is a slave that no NameServer knows a master of."""


class NameServerLink:
    """Keeps one NameServer up to date about the broker."""

    def __init__(self, address: str, owner: Registrant, sleep: Sleep) -> None:
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
        """Done when the round that sends the newest changes has ended, successful or not."""
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
                    "registration failed and will be retried", extra=logged(namesrv=self.address, error=error)
                )
            except Exception:
                self.registered = False
                log.exception("registration with %s failed and will be retried", self.address)
            finally:
                for future in awaited:
                    if not future.done():
                        future.set_result(None)
            self.tried.set()
            await self._rest()

    async def _rest(self) -> None:
        """Wait until the period is over or there is a change to send. A NameServer that does not know us is
        tried again sooner, with a delay that doubles each time."""
        self._failures = 0 if self.registered else self._failures + 1
        rest_s = self._owner.settings.register_period_s
        if self._owner.lacks_master:
            rest_s = min(rest_s, _MASTERLESS_S)
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
        """Send what is due. A NameServer that does not know us is sent everything: it ignores a broker that
        is new to it and registers a single topic."""
        names, self._changed = list(self._changed), {}
        if names and self.registered and not self._due:
            await self._tell_changed(names)
            if self.registered:
                return
        self._due = False
        settings = self._owner.settings
        # A slave always registers: only the answer to that says where its master is.
        force, self._force = self._force or settings.force_register or not settings.is_master, False
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
                "a NameServer did not take a change: everything is sent again",
                extra=logged(namesrv=self.address, error=error),
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
            heartbeat_timeout_millis=settings.not_active_ms if settings.acting_master else None,
            enable_acting_master=settings.acting_master,
            compressed=settings.compressed_register,
            body_crc32=crc31(body),
        )
        answer = await self._ask(RequestCode.REGISTER_BROKER, header, body)
        if answer.body:
            owner.ordered(beans.decode(KVTable, answer.body).table)
        if not settings.is_master:
            said = fields.decode(headers.RegisterBrokerResponseHeader, answer.fields)
            owner.master_named(self.address, said.master_addr or "", said.ha_server_addr or "")

    async def _register_topics(self, names: Sequence[str]) -> None:
        """The other way to send a change: it leaves the NameServer's other topics as they are."""
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
        """Whether the NameServer has another version of our topics than we have."""
        version = self._owner.topics.version
        header = headers.QueryDataVersionRequestHeader(**self._identity())
        answer = await self._ask(RequestCode.QUERY_DATA_VERSION, header, beans.encode(version))
        found = fields.decode(headers.QueryDataVersionResponseHeader, answer.fields)
        known = beans.decode(DataVersion, answer.body) if answer.body else None
        return found.changed or (known is not None and known != version)

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
