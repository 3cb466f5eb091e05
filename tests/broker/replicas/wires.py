"""Servers that answer as told, reached by address, and what they were asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from flaremq.base.errors import ConnectFailed
from flaremq.base.live import Live
from flaremq.broker.namesrvs import NameServers
from flaremq.broker.replicas.duty import Duty
from flaremq.broker.replicas.exchange import HaInfo, MemberCalls
from flaremq.broker.replicas.members import MemberGroup
from flaremq.broker.replicas.rivals import Rivals
from flaremq.broker.settings import BrokerSettings, Place
from flaremq.model.topic import DataVersion
from flaremq.protocol import beans
from flaremq.protocol.bodies.cluster import BrokerMemberGroup, GetBrokerMemberGroupResponseBody
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.testing.clock import ManualClock, settle

Reply: TypeAlias = Callable[[Command], Command]


class Wires:
    """A caller whose peers are functions. An address without any cannot be reached."""

    def __init__(self) -> None:
        self.peers: dict[str, dict[int, Reply]] = {}
        self.asked: list[tuple[str, Command]] = []
        self.said: list[tuple[str, Command, float]] = []
        """One-way requests, with the time that they were given."""

    async def call(self, address: str, request: Command, timeout_s: float) -> Command:
        self.asked.append((address, request))
        if address not in self.peers:
            raise ConnectFailed(f"{address} cannot be reached")
        reply = self.peers[address].get(request.code)
        if reply is None:
            return response_to(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported")
        return reply(request)

    async def send_oneway(self, address: str, request: Command, timeout_s: float) -> None:
        if address not in self.peers:
            raise ConnectFailed(f"{address} cannot be reached")
        self.said.append((address, request, timeout_s))

    def requests(self, code: int, address: str | None = None) -> list[Command]:
        return [each for at, each in self.asked if each.code == code and address in (None, at)]

    def knows_group(self, namesrv: str, members: Mapping[int, str]) -> None:
        """A NameServer that knows these members, and nothing else has changed."""
        group = BrokerMemberGroup(cluster="C", broker_name="broker-a", broker_addrs=members)
        body = beans.encode(GetBrokerMemberGroupResponseBody(broker_member_group=group))
        peer = self.peers.setdefault(namesrv, {})
        peer[RequestCode.GET_BROKER_MEMBER_GROUP] = lambda request: response_to(request, body=body)


class Naps:
    """A sleep that moves the clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.slept: list[float] = []
        self.each: Callable[[], None] = lambda: None
        """Called after each."""

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance_ms(round(seconds * 1000))
        self.each()
        await asyncio.sleep(0)


@dataclass
class Replicas:
    """The way of the log between members."""

    followed_by: set[str] = field(default_factory=set)
    following: bool = False
    masters: list[tuple[str, str]] = field(default_factory=list)
    rivals: Rivals | None = None

    def is_followed_by(self, host: str) -> bool:
        return host in self.followed_by

    def is_following(self) -> bool:
        return self.following

    def master_is(self, address: str, ha_address: str) -> None:
        self.masters.append((address, ha_address))


def settings(**other: Any) -> BrokerSettings:
    given = {
        "broker_name": "broker-a", "cluster_name": "C", "ip1": "10.0.0.1", "ip2": "10.0.0.1",
        "acting_master": True,
    }  # fmt: skip
    return BrokerSettings(**{**given, **other})


class MemberBench:
    """One member of a group, with everything around it that a test looks at."""

    def __init__(self, broker_id: int, namesrvs: str = "n:1", **other: Any) -> None:
        self.wires, self.clock, self.replicas = Wires(), ManualClock(), Replicas()
        self.naps = Naps(self.clock)
        self.live = Live(settings(broker_id=broker_id, **other))
        self.members = MemberGroup(
            self.live,
            NameServers(namesrvs),
            self.wires,
            place=lambda: Place("10.0.0.1:10911", "10.0.0.1:10912"),
            version=lambda: DataVersion(0, 3, 7),
        )
        self.calls = MemberCalls(self.wires)
        self.duty = Duty(
            self.live,
            self.members,
            is_slave=broker_id != 0,
            is_following=self.replicas.is_following,
            ha_info=self.calls.ha_info,
            clock=self.clock,
        )
        self.duty.on_master.append(self.replicas.master_is)

    async def learn(self, members: Mapping[int, str], namesrv: str = "n:1") -> None:
        """What a NameServer knows, and the next time that it is asked."""
        self.wires.knows_group(namesrv, members)
        await self.duty.ask()
        await settle()

    def takes_slaves(self, master: str, ha_address: str | None) -> None:
        """A master that says where slaves connect to it."""
        fields = {"masterAddress": master, "masterFlushOffset": "0"}
        if ha_address is not None:
            fields["masterHaAddress"] = ha_address
        self.wires.peers.setdefault(master, {})[RequestCode.EXCHANGE_BROKER_HA_INFO] = lambda request: (
            response_to(request, ext_fields=fields)
        )


OWN = HaInfo("10.0.0.1:10911", "10.0.0.1:10912", 4096)
