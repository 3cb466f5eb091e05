"""What a broker needs to act for its missing master, to return as one, or to yield to another one: the rooms
of it, put together."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Protocol

from flaremq.base.clock import Clock
from flaremq.base.lifecycle import Sleep
from flaremq.base.live import Live
from flaremq.broker.deliveries import Deliveries
from flaremq.broker.features import Feature
from flaremq.broker.namesrvs import NameServers
from flaremq.broker.offload import Offload
from flaremq.broker.replicas.copyback import CopyBack, TimerProgress
from flaremq.broker.replicas.duty import Duty
from flaremq.broker.replicas.escape import Escape
from flaremq.broker.replicas.exchange import HaInfo, MemberCalls
from flaremq.broker.replicas.mastership import Mastership
from flaremq.broker.replicas.members import MemberGroup, OneWayCalls
from flaremq.broker.replicas.preonline import PreOnline, Replicas
from flaremq.broker.replicas.rivals import Rivals
from flaremq.broker.role import Role
from flaremq.broker.settings import BrokerSettings, Place
from flaremq.broker.tables.tables import Tables
from flaremq.model.topic import DataVersion
from flaremq.store.store import MessageStore


class MemberLog(Replicas, Protocol):
    """The log's way between members, which tells operators of other masters."""

    rivals: Rivals | None


class Seat:
    def __init__(
        self,
        settings: Live[BrokerSettings],
        role: Role,
        namesrvs: NameServers,
        caller: OneWayCalls,
        replicas: MemberLog,
        *,
        store: MessageStore,
        place: Callable[[], Place],
        version: Callable[[], DataVersion],
        mastership: Mastership,
        offload: Offload,
        clock: Clock,
        rng: random.Random,
        sleep: Sleep = asyncio.sleep,
        in_group: bool = False,
    ) -> None:
        """`in_group`: a Raft group decides who is the master."""
        self._settings = settings
        self._may_act = settings.now.acting_master
        self._role = role
        self._replicas = replicas
        self._store = store
        self._place = place
        self._clock = clock
        self._sleep = sleep
        self._calls = MemberCalls(caller)
        self.members = MemberGroup(settings, namesrvs, caller, place=place, version=version)
        self.duty = Duty(
            settings,
            self.members,
            is_slave=role.is_slave,
            is_following=replicas.is_following,
            ha_info=self._calls.ha_info,
            clock=clock,
        )
        self.rivals = replicas.rivals = Rivals(
            *(settings, mastership, self.members, caller, offload),
            role=role,
            address=lambda: place().address,
            clock=clock,
            rng=rng,
            in_group=in_group,
        )
        self.duty.on_master += [role.learn, replicas.master_is]
        self._escape = Escape(
            settings, namesrvs, caller, acts=lambda: self.duty.acts, clock=clock, sleep=sleep
        )

    @property
    def deliveries(self) -> Deliveries:
        return Deliveries(lambda: self.duty.serves() and not self._role.displaced, self._escape.deliver)

    def master_named(self, address: str, ha_address: str) -> None:
        """What the registration of a slave is told of its master. Where slaves may act, their duty tells the
        role instead: it asks each second, and news that come late would have a master's progress copied
        before it has taken over ours."""
        if not self._may_act:
            self._role.learn(address, ha_address)
        self._replicas.master_is(address, ha_address)

    def pre_online(
        self, registration: Feature, tables: Tables, timers: TimerProgress, offload: Offload
    ) -> Feature:
        """Starts the registration when this member may be found."""
        return PreOnline(
            self._settings,
            self.duty,
            self.members,
            self._calls,
            registration=registration,
            replicas=self._replicas,
            own=self._own,
            copy_back=CopyBack(self._calls, tables, timers, offload).copy_from,
            clock=self._clock,
            sleep=self._sleep,
        )

    def _own(self) -> HaInfo:
        place = self._place()
        return HaInfo(place.address, place.ha_address, self._store.log.end)
