"""The group of this broker, as NameServers know it: who belongs to it, and that we are alive.

A NameServer that has just started knows only those members that have found it so far, so all of them are
asked, and what any of them knows counts. One that is too old to know groups is asked for the route of a topic
that each member has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from flaremq.base.errors import FlareError, Unreachable
from flaremq.base.live import Live
from flaremq.base.logs import Seldom, logger
from flaremq.base.logs import fields as logged
from flaremq.broker.namesrvs import NameServers
from flaremq.broker.settings import BrokerSettings, Place
from flaremq.model.names import sync_member_topic
from flaremq.model.topic import DataVersion
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.cluster import GetBrokerMemberGroupResponseBody
from flaremq.protocol.bodies.route import MASTER_ID, TopicRouteData
from flaremq.protocol.codes import RequestCode, ResponseCode, response_name
from flaremq.protocol.command import Command
from flaremq.protocol.headers import namesrv as headers

log = logger("broker.members")

_ASK_S: Final = 3.0
_TOLD_EVERY_S: Final = 60.0


class OneWayCalls(Protocol):
    """Calls to other servers by address: remoting's Caller."""

    async def call(self, address: str, request: Command, timeout_s: float) -> Command: ...
    async def send_oneway(self, address: str, request: Command, timeout_s: float) -> None: ...


class MemberGroup:
    def __init__(
        self,
        settings: Live[BrokerSettings],
        namesrvs: NameServers,
        caller: OneWayCalls,
        *,
        place: Callable[[], Place],
        version: Callable[[], DataVersion],
    ) -> None:
        """`version` is that of the topics that NameServers have of us."""
        self._live = settings
        self.namesrvs = namesrvs
        self._caller = caller
        self._place = place
        self._version = version
        self._old: set[str] = set()
        """NameServers that know no groups."""
        self._trouble = Seldom(_TOLD_EVERY_S)

    # Asking.

    async def ask(self) -> Mapping[int, str] | None:
        """The members by id that are alive as far as any NameServer knows; None if none of them answers."""
        answers = await asyncio.gather(*(self._answer(each) for each in self.namesrvs.addresses))
        told = [answer for answer in answers if answer is not None]
        if not told:
            return None
        return dict(sorted((id_, address) for answer in told for id_, address in answer.items()))

    async def masters(self) -> frozenset[str] | None:
        """The addresses of all that some NameServer holds for the master; None if none of them answers."""
        answers = await asyncio.gather(*(self._answer(each) for each in self.namesrvs.addresses))
        told = [answer for answer in answers if answer is not None]
        return frozenset(answer[MASTER_ID] for answer in told if MASTER_ID in answer) if told else None

    async def _answer(self, namesrv: str) -> Mapping[int, str] | None:
        try:
            found = await self._group(namesrv)
        except FlareError as error:
            self._old.discard(namesrv)  # Another version may be back.
            if self._trouble.due() is not None:
                log.warning(
                    "a NameServer could not be asked for the members of this group",
                    extra=logged(namesrv=namesrv, why=error),
                )
            return None
        return found

    async def _group(self, namesrv: str) -> Mapping[int, str]:
        settings = self._live.now
        if namesrv in self._old:
            return await self._by_route(namesrv)
        header = headers.GetBrokerMemberGroupRequestHeader(
            cluster_name=settings.cluster_name, broker_name=settings.broker_name
        )
        request = Command(code=RequestCode.GET_BROKER_MEMBER_GROUP, ext_fields=fields.encode(header))
        answer = await self._caller.call(namesrv, request, _ASK_S)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and settings.old_namesrvs:
            self._old.add(namesrv)
            return await self._by_route(namesrv)
        _check(answer, "the members of this group")
        group = beans.decode(GetBrokerMemberGroupResponseBody, answer.body).broker_member_group
        return group.broker_addrs if group is not None else {}

    async def _by_route(self, namesrv: str) -> Mapping[int, str]:
        settings = self._live.now
        header = headers.GetRouteInfoRequestHeader(
            topic=sync_member_topic(settings.broker_name), accept_standard_json_only=True
        )
        request = Command(code=RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=fields.encode(header))
        answer = await self._caller.call(namesrv, request, _ASK_S)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return {}
        _check(answer, "the route of the members of this group")
        mine = settings.cluster_name, settings.broker_name
        for data in beans.decode(TopicRouteData, answer.body).broker_datas:
            if (data.cluster, data.broker_name) == mine:
                return data.broker_addrs
        return {}

    # Being alive.

    async def say_alive(self) -> None:
        """Tell every NameServer that we are there. Nothing comes back."""
        request = self._heartbeat()
        limit_s = self._live.now.heartbeat_timeout_ms / 1000
        await asyncio.gather(*(self._say(each, request, limit_s) for each in self.namesrvs.addresses))

    def _heartbeat(self) -> Command:
        settings, address = self._live.now, self._place().address
        if settings.old_namesrvs:  # They know no heartbeats, but who asks them is alive.
            asks = headers.QueryDataVersionRequestHeader(
                broker_name=settings.broker_name,
                broker_addr=address,
                cluster_name=settings.cluster_name,
                broker_id=settings.broker_id,
            )
            body = beans.encode(self._version())
            return Command(code=RequestCode.QUERY_DATA_VERSION, ext_fields=fields.encode(asks), body=body)
        lives = headers.BrokerHeartbeatRequestHeader(
            cluster_name=settings.cluster_name, broker_addr=address, broker_name=settings.broker_name
        )
        return Command(code=RequestCode.BROKER_HEARTBEAT, ext_fields=fields.encode(lives))

    async def _say(self, namesrv: str, request: Command, limit_s: float) -> None:
        try:
            await self._caller.send_oneway(namesrv, request, limit_s)
        except Unreachable as error:
            if self._trouble.due() is not None:
                log.warning(
                    "a NameServer could not be told that this broker is alive",
                    extra=logged(namesrv=namesrv, why=error),
                )


def _check(answer: Command, what: str) -> None:
    if answer.code != ResponseCode.SUCCESS:
        raise FlareError(f"{what} were not told: {response_name(answer.code)}, {answer.remark}")
