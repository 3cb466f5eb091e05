"""Raft groups of real brokers, for scenarios: who leads, what clients get acknowledged, what members have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from flaremq import Message, Producer
from flaremq.base.errors import FlareError, NoRoute
from flaremq.client.message import SendStatus
from flaremq.client.settings import ProducerSettings
from flaremq.dledger.ledger.raftlog import RaftLog
from flaremq.model.record import decode_many
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers.replicas import ChangeMembersHeader
from flaremq.servers.groupbroker import GroupBroker
from flaremq.store.api import GetStatus
from flaremq.testing.sim.groupchecks import GroupChecks
from flaremq.testing.sim.wires import LinkQuality
from flaremq.testing.sim.world import Machine, Simulation

T = TypeVar("T")

TOPIC, ELECTION_S, LEASE_S = "Orders", 1.0, 0.8


class Group:
    """One group, and one client machine."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.client = sim.client_machine("shop")
        self._checks = GroupChecks(sim)

    @property
    def members(self) -> list[Machine]:
        return self.sim.members

    def of(self, machine: Machine) -> GroupBroker:
        return self.sim.running_members[machine.name]

    def log(self, machine: Machine) -> RaftLog:
        log = self.of(machine).store.log
        assert isinstance(log, RaftLog)
        return log

    # Life.

    async def start(self) -> None:
        await self.sim.start()
        await self.client.start()
        await self.led()

    async def led(self, *, but_not_by: Machine | None = None, within_s: float = 30.0) -> Machine:
        """Wait for a leader that serves."""
        await self.until(lambda: self.leader not in (None, but_not_by), within_s)
        assert self.leader is not None
        return self.leader

    @property
    def leader(self) -> Machine | None:
        found = self.sim.leader("broker-a")
        return next((each for each in self.members if self.sim.running_members.get(each.name) is found), None)

    async def until(self, is_so: Callable[[], bool], within_s: float = 30.0) -> None:
        limit_s = self.sim.loop.now_s + within_s
        while not is_so():
            assert self.sim.loop.now_s < limit_s, "it does not come"
            self._checks.look()
            await self.sim.passes(0.02)

    async def never(self, is_so: Callable[[], bool], for_s: float) -> None:
        limit_s = self.sim.loop.now_s + for_s
        while self.sim.loop.now_s < limit_s:
            assert not is_so()
            self._checks.look()
            await self.sim.passes(0.02)

    def others(self, *machines: Machine) -> list[Machine]:
        return [each for each in self.members if each not in machines]

    def cut_off(self, machine: Machine, *, one_way_in: bool = False) -> None:
        """From the other members; clients reach it."""
        ips = [each.ip for each in self.others(machine)]
        if one_way_in:
            self.sim.wires.cut(ips, [machine.ip], one_way=True)
        else:
            self.sim.wires.cut([machine.ip], ips)

    def ids(self) -> set[str]:
        """Who belongs to the group, as its leader knows it."""
        assert self.leader is not None
        return set(self.of(self.leader).node.status().membership.ids)

    def voters(self) -> set[str]:
        """Other members that the leader knows to vote."""
        if self.leader is None:
            return set()
        return {each.member for each in self.of(self.leader).node.status().peers if each.is_voter}

    async def change(self, member: str, address: str) -> None:
        """A member comes, or goes without an address. Raises a FlareError if it could not be done now."""
        await self.client.do(self._change(member, address))

    async def _change(self, member: str, address: str) -> None:
        async with self.sim.client(self.client) as client:
            header = ChangeMembersHeader(member=member, address=address)
            leader = self.leader
            if leader is None:
                raise NoRoute("the group has no leader at the moment: try again")
            await client.api.ask(f"{leader.ip}:10911", RequestCode.FLAREMQ_GROUP_CHANGE, header)

    # What clients do, and get.

    async def send(self, *bodies: str, limit_s: float = 4.0, attempts: int = 3) -> list[str]:
        """Those that are acknowledged."""
        return await self.client.do(self._sends(bodies, limit_s, attempts))

    async def _sends(self, bodies: Sequence[str], limit_s: float, attempts: int) -> list[str]:
        settings = ProducerSettings(timeout_s=limit_s, attempts=attempts)
        found = []
        async with (
            self.sim.client(self.client, refresh_s=1.0) as client,
            Producer("p", settings=settings, client=client) as producer,
        ):
            for body in bodies:
                with suppress(FlareError):
                    receipt = await producer.send(Message(TOPIC, body.ljust(300).encode()))
                    if receipt.status is SendStatus.OK:
                        found.append(body)
        return found

    async def sent(self, *bodies: str) -> list[str]:
        """All of them, by trying again and again."""
        for body in bodies:
            while not await self.send(body):
                await self.sim.passes(0.1)
        return list(bodies)

    def bodies(self, machine: Machine) -> list[str]:
        """What a member shows."""
        store, found = self.of(machine).store, list[str]()
        store.show()
        for queue_id in range(16):
            at = 0
            while (result := store.get(TOPIC.encode(), queue_id, at, 32)).status is GetStatus.FOUND:
                found += [each.body.decode().strip() for each in decode_many(result.gathered())]
                at = result.next_offset
        return sorted(found)

    async def agree(self) -> list[str]:
        """Heal all, and start all again. Returns what all members show in the end."""
        self.sim.wires.heal()
        for machine in self.members:
            machine.disk.disarm()
            if machine.node is not None and machine.node.paused:
                machine.resume()
        await asyncio.gather(*(each.start() for each in self.members if not each.is_running))
        await self._checks.settle()
        shown = {machine.name: self.bodies(machine) for machine in self.members}
        leader = await self.led()
        assert all(each == shown[leader.name] for each in shown.values()), shown
        return shown[leader.name]


def play(
    scenario: Callable[[Group], Coroutine[Any, Any, T]],
    seed: int = 1,
    replicas: int = 3,
    namesrvs: int = 1,
    options: Mapping[str, object] | None = None,
    quality: LinkQuality | None = None,
) -> T:
    with Simulation(seed, replicas=replicas, namesrvs=namesrvs, options=options, quality=quality) as sim:

        async def whole() -> T:
            group = Group(sim)
            await group.start()
            return await scenario(group)

        return sim.run(whole())
