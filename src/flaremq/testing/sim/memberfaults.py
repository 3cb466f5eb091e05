"""What befalls members of Raft groups alone: operators change who leads and who belongs, and disks are lost.

A group survives as much as this: at any time less than half of its members may lack something that they had
on the disk, those that have just come among them. What crashes, cuts and slow disks do costs nothing of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

from flaremq.base.errors import FlareError, InvalidParameter
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers.replicas import ChangeMembersHeader, TransferLeadershipHeader
from flaremq.servers.groupbroker import GroupBroker
from flaremq.testing.sim.plan import Fault
from flaremq.testing.sim.world import Machine, Simulation

_AGAIN_S: Final = 0.3
_TRIES_S: Final = 8.0
_SMALLEST: Final = 2


class MemberFaults:
    """Runs outside all nodes. What it asks of a group, an operator asks from a machine of his own."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._operator: Machine | None = None

    async def do(self, machine: Machine, fault: Fault) -> None:
        match fault.kind:
            case "transfer":
                await self._transfer(machine)
            case "add member":
                await self._add(_group(machine))
            case "remove member":
                await self._remove(machine, fault)
            case "disk lost":
                await self._lose(machine, fault.span_s)
            case "slow disk":
                await self._hang(machine, fault.span_s)

    def settle(self) -> None:
        """End those that belong to no group, when its leader knows who does."""
        for name in self._sim.names if self._sim.members else ():
            leader = self._sim.leader(name)
            ids = leader.node.status().membership.ids if leader is not None else ()
            for machine in self._sim.members_of(name):
                if ids and _id(machine) not in ids:
                    self._leave(machine)

    # Operators.

    async def _transfer(self, machine: Machine) -> None:
        leader = self._leader(_group(machine))
        others = [each for each in self._sim.members_of(_group(machine)) if each is not leader]
        target = machine if machine is not leader else others[0]
        self._sim.events.fault("transfer", target.name)
        await self._ask(
            _group(machine),
            RequestCode.FLAREMQ_GROUP_TRANSFER,
            TransferLeadershipHeader(member=_id(target)),
            tries_s=0.0,
        )

    async def _add(self, group: str) -> None:
        leader = self._leader(group)
        if leader is None:
            return
        made = self._sim.new_member(group)
        self._sim.events.fault("add member", made.name)
        address = f"{made.ip}:40911"
        asked = self._change(group, ChangeMembersHeader(member=_id(made), address=address))
        await asyncio.gather(asked, self._start(made))

    async def _remove(self, machine: Machine, fault: Fault) -> None:
        group = _group(machine)
        leader = self._member(self._leader(group))
        if leader is None or len(leader.node.status().membership.ids) <= _SMALLEST:
            return
        self._sim.events.fault("remove member", machine.name)
        if await self._change(group, ChangeMembersHeader(member=_id(machine))):
            await asyncio.sleep(fault.span_s)  # Until then it may trouble the others.
            self._leave(machine)

    async def _change(self, group: str, header: ChangeMembersHeader) -> bool:
        return await self._ask(group, RequestCode.FLAREMQ_GROUP_CHANGE, header, tries_s=_TRIES_S)

    async def _ask(self, group: str, code: RequestCode, header: Any, *, tries_s: float) -> bool:
        """Whether the group has decided on it. An answer may be lost, so it is asked for again."""
        ends_s, is_repeated = self._sim.loop.now_s + tries_s, False
        while True:
            leader = self._leader(group)
            if leader is not None:
                try:
                    await self._ask_at(leader, code, header)
                    return True
                except InvalidParameter:
                    return is_repeated  # It is so already.
                except FlareError as error:
                    is_repeated = True
                    self._sim.events.add(leader.name, f"operator refused: {type(error).__name__}")
            if self._sim.loop.now_s >= ends_s:
                return False
            await asyncio.sleep(_AGAIN_S)

    async def _ask_at(self, leader: Machine, code: RequestCode, header: Any) -> None:
        operator = self._operator
        if operator is None:
            operator = self._operator = self._sim.client_machine("operator")
        if not operator.is_running:
            await operator.start()

        async def ask() -> None:
            async with self._sim.client(operator) as client:
                await client.api.ask(f"{leader.ip}:10911", code, header)

        await operator.do(ask())

    def _leave(self, machine: Machine) -> None:
        machine.kill()
        if machine in self._sim.members:
            self._sim.members.remove(machine)
        self._sim.lost.pop(machine.name, None)

    # Disks.

    async def _lose(self, machine: Machine, span_s: float) -> None:
        sim = self._sim
        if not self.may_lose(machine):
            return
        sim.events.fault("disk lost", machine.name)
        store = sim.store_of(machine)
        sim.lost[machine.name] = store.log.flushed.value if store is not None else 0
        machine.kill()
        machine.disk.lose_all()
        sim.rotten -= {each for each in sim.rotten if each[0] == machine.name}
        await asyncio.sleep(span_s)
        if machine in sim.members and not machine.is_running:
            await self._start(machine)

    def may_lose(self, machine: Machine, away: Collection[Machine] = ()) -> bool:
        """Whether enough other members have what this one has, and those who are away."""
        sim, lacking, sizes = self._sim, {machine.name, *(each.name for each in away)}, list[int]()
        rotten = {name for name, _ in sim.rotten}
        for each in sim.members_of(_group(machine)):
            member = self._member(each)
            if each.is_running and member is not None and member.takes_part:
                status = member.node.status()
                sizes.append(len(status.membership.ids))
                if status.may_vote:
                    sim.lost.pop(each.name, None)
                if not status.may_vote or status.damage:
                    lacking.add(each.name)
            if each.name in sim.lost or each.name in rotten or not each.lives:
                lacking.add(each.name)
        return bool(sizes) and len(lacking) <= (min(sizes) - 1) // 2

    async def _hang(self, machine: Machine, span_s: float) -> None:
        node = machine.node
        if node is None:
            return
        self._sim.events.fault("slow disk", machine.name)
        node.disk_hangs = True
        await asyncio.sleep(span_s)
        node.disk_hangs = False

    # Who is who.

    def _leader(self, group: str) -> Machine | None:
        found = self._sim.leader(group)
        of = self._sim.members_of(group)
        return next((each for each in of if found is not None and self._member(each) is found), None)

    def _member(self, machine: Machine | None) -> GroupBroker | None:
        return None if machine is None else self._sim.running_members.get(machine.name)

    async def _start(self, machine: Machine) -> None:
        try:
            await machine.start()
        except (FlareError, OSError) as error:
            self._sim.events.add(machine.name, f"does not start: {type(error).__name__}")


def _group(machine: Machine) -> str:
    return machine.name.rpartition("-")[0]


def _id(machine: Machine) -> str:
    return machine.name.rpartition("-")[2]
