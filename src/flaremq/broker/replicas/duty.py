"""Whether this broker does what only one member of its group may do: deliver what waits, check transactions.

    master                                                     always
    slave, the lowest id of its group, and no master to follow while enableSlaveActingMaster is on

A slave acts only as long as it knows, from NameServers, that nobody with a lower id is there: news that are
older than the time after which NameServers drop a member are none. And it never acts while it follows a
master: that one is alive, whatever NameServers say. A moment in which nobody acts delays messages; one in
which two act delivers them twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError
from flaremq.base.live import Live
from flaremq.base.logs import fields as logged
from flaremq.base.logs import logger
from flaremq.broker.features import Feature, Requests
from flaremq.broker.replicas.exchange import HaInfo
from flaremq.broker.replicas.members import MemberGroup
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tasks import Task
from flaremq.protocol import fields
from flaremq.protocol.bodies.route import MASTER_ID
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader
from flaremq.remoting.router import Peer

log = logger("broker.duty")

_FIRST_S: Final = 1.0


class Lowest(NamedTuple):
    """The member with the lowest id."""

    broker_id: int
    address: str


OnMaster: TypeAlias = Callable[[str, str], None]
"""Called with the addresses of the master that is back, for clients and for slaves; with empty texts when it
is gone."""


class Duty(Feature):
    """Asked by those who deliver, each time. Listeners are told when the answer changes."""

    def __init__(
        self,
        settings: Live[BrokerSettings],
        members: MemberGroup,
        *,
        is_slave: bool,
        is_following: Callable[[], bool],
        ha_info: Callable[[str], Awaitable[HaInfo]],
        clock: Clock,
    ) -> None:
        """`ha_info` asks a master where slaves connect to it."""
        self._live = settings
        self._members = members
        self._is_slave = is_slave
        self._is_following = is_following
        self._ha_info = ha_info
        self._clock = clock
        self._asking = asyncio.Lock()
        self._heard_s: float | None = None
        self._told = (False, False)
        """Whether it acts, and whether it serves, when that was said last."""
        self._alive = 1
        self._announced: tuple[str, str] | None = None
        self.isolated = settings.now.acting_master and not settings.now.skip_pre_online
        """Whether this member has still to exchange with the others what they know."""
        self.lowest: Lowest | None = None
        self.listeners: list[Callable[[bool], None]] = []
        self.on_master: list[OnMaster] = []

    # What others ask.

    def serves(self) -> bool:
        if self.isolated:
            return False
        return not self._is_slave or (self.acts and self._live.now.remote_escape)

    @property
    def acts(self) -> bool:
        """Whether this is a slave that does what its missing master would do."""
        settings, lowest = self._live.now, self.lowest
        if not self._is_slave or self.isolated or not settings.acting_master or self._heard_s is None:
            return False
        is_lowest = lowest is not None and lowest.broker_id == settings.broker_id
        is_news = self._clock.monotonic_s() - self._heard_s <= settings.not_active_ms / 1000
        return is_lowest and is_news and not self._is_following()

    @property
    def alive_count(self) -> int:
        """How many members of the group are alive, this one among them."""
        return self._alive

    def begin(self) -> None:
        """The exchange with the other members is through."""
        self.isolated = False
        self._tell()

    # Life.

    def tasks(self) -> Iterable[Task]:
        settings = self._live.now
        if settings.acting_master:
            yield Task("ask-members", _FIRST_S, settings.ask_members_ms / 1000, self.ask)
            yield Task("say-alive", _FIRST_S, settings.heartbeat_ms / 1000, self._say_alive)

    def handlers(self) -> Iterable[Requests]:
        yield "adminBroker", {RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: self.notified}

    async def notified(self, _peer: Peer, request: Command) -> Command:
        """A NameServer says that another member has the lowest id. All are asked whether that is so."""
        header = fields.decode(NotifyMinBrokerIdChangeRequestHeader, request.fields)
        log.info(
            "a NameServer says that another member has the lowest id",
            extra=logged(id=header.min_broker_id, address=header.min_broker_addr),
        )
        if self._live.now.acting_master and not self._asking.locked():
            await self.ask()
        return response_to(request)

    async def _say_alive(self) -> None:
        if not self.isolated:
            await self._members.say_alive()

    async def ask(self) -> None:
        """Learn who has the lowest id. Without an answer, what was known before holds for a while."""
        async with self._asking:
            began_s = self._clock.monotonic_s()
            found = await self._members.ask()
            if found and not self.isolated:
                self._heard_s = began_s
                self._alive = len(found.keys() | {self._live.now.broker_id})
                lowest_id = min(found)
                self._learn(Lowest(lowest_id, found[lowest_id]))
                if self._is_slave:
                    await self._announce()
        self._tell()

    def _learn(self, lowest: Lowest) -> None:
        if lowest != self.lowest:
            self.lowest = lowest
            log.info("the lowest id of this group is", extra=logged(id=lowest[0], address=lowest[1]))

    async def _announce(self) -> None:
        """Tell those who follow the master that it is back, or gone."""
        assert self.lowest is not None
        addresses = "", ""
        if self.lowest.broker_id == MASTER_ID:
            if self._announced is not None and self._announced[0] == self.lowest.address:
                return
            try:
                found = await self._ha_info(self.lowest.address)
            except FlareError as error:  # It is asked again with the next round.
                log.warning("the master does not say where to follow it", extra=logged(why=error))
                return
            addresses = self.lowest.address, found.ha_address
        if addresses != self._announced:
            self._announced = addresses
            for listener in self.on_master:
                listener(*addresses)

    def _tell(self) -> None:
        before, self._told = self._told, (self.acts, self.serves())
        if self._told == before:
            return
        acts, serves = self._told
        if acts and serves:
            log.warning("there is no master: this slave delivers in its place, to other brokers")
        elif acts:
            log.warning(
                "there is no master, and this slave delivers nothing in its place: delayed messages wait "
                "until the master is back, or set enableRemoteEscape=true"
            )
        elif before[0]:
            log.info("this slave no longer acts for its master")
        for listener in self.listeners if serves != before[1] else ():
            listener(serves)
