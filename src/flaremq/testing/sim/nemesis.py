"""Carries out the faults of a plan, each at its moment, and heals everything in the end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Final

from flaremq.base.errors import FlareError
from flaremq.dledger.ledger.raftlog import RaftLog
from flaremq.testing.sim.memberfaults import MemberFaults
from flaremq.testing.sim.plan import LEADER, MEMBER_KINDS, NAMESRV, PARTITIONS, Fault
from flaremq.testing.sim.world import Machine, Simulation

_CRC_AT: Final = 40  # In the head of an entry.
_SOON_S: Final = 20.0


class Nemesis:
    """Runs outside all nodes."""

    def __init__(self, sim: Simulation, clients: Sequence[Machine]) -> None:
        self._sim = sim
        self._clients = clients
        self._tasks: list[asyncio.Task[None]] = []
        self._of_members = MemberFaults(sim)

    async def run(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            await asyncio.sleep(max(0.0, fault.at_s - self._sim.loop.now_s))
            self._tasks.append(asyncio.create_task(self._do(fault)))

    async def heal(self) -> None:
        """End every fault, set clocks right, and start again what is dead or has stopped taking messages."""
        for task in self._tasks:
            task.cancel()
        sim = self._sim
        sim.wires.heal()
        for machine in sim.machines.values():
            machine.disk.disarm()
            _repair(machine)
            if machine.skew_ms:
                machine.step_clock(
                    -machine.skew_ms
                )  # Else a timer may wait for an hour that has been before.
            if machine.node is not None:
                machine.node.disk_hangs = False
                if machine.node.paused:
                    machine.resume()
        await asyncio.gather(*(self._up(machine) for machine in sim.namesrvs))
        for machine in (*sim.brokers, *sim.slaves):
            await self._up(machine)
        await asyncio.gather(*(self._up(machine) for machine in sim.members))

    async def leave(self, faults: Sequence[Fault]) -> None:
        """Break what the others can do without, until all is healed again."""
        away = list[Machine]()
        for fault in faults:
            machine = self._sim.namesrvs[-1] if fault.target == NAMESRV else self._broker(fault.target)
            if not await self._can_go(machine, away):
                continue
            away.append(machine)
            match fault.kind:
                case "kill":
                    machine.kill()
                case "pause":
                    machine.pause()
                case "cut":
                    self._sim.events.fault("cut", machine.name)
                    self._sim.wires.cut([machine.ip], [each.ip for each in self._sim.machines.values()])

    async def _can_go(self, machine: Machine, away: Sequence[Machine]) -> bool:
        """Members that were away or have lost their disks need a moment until they count."""
        limit_s = self._sim.loop.now_s + _SOON_S
        while machine in self._sim.members and not self._of_members.may_lose(machine, away):
            if self._sim.loop.now_s > limit_s:
                return False
            await asyncio.sleep(0.5)
        return machine.is_running and machine not in away

    def settle(self) -> None:
        """Who belongs to no group any more is gone, from when each group has a leader."""
        self._of_members.settle()

    async def _up(self, machine: Machine) -> None:
        store = self._sim.store_of(machine)
        if machine.is_running and store is not None and store.flags.failure is not None:
            machine.lose_power()
        if not machine.is_running:
            await machine.start()

    async def _do(self, fault: Fault) -> None:
        sim = self._sim
        brokers = sim.servers
        broker = self._broker(fault.target)
        match fault.kind:
            case "kill" | "power":
                await self._ended([broker], fault, power=fault.kind == "power")
            case "kill within" | "power within":
                broker.kill_within(fault.number, power=fault.kind == "power within")
                while broker.is_running:
                    await asyncio.sleep(0.1)
                await self._again([broker], fault.span_s)
            case "power all":
                await self._ended(brokers, fault, power=True)
            case "namesrv kill":
                await self._ended([sim.namesrvs[fault.target % len(sim.namesrvs)]], fault, power=False)
            case "client kill":
                self._clients[fault.target % len(self._clients)].kill()
            case "pause" | "client pause":
                machine = (
                    broker if fault.kind == "pause" else self._clients[fault.target % len(self._clients)]
                )
                machine.pause()
                await asyncio.sleep(fault.span_s)
                machine.resume()
            case "cut" | "one way" | "clog" | "reset":
                await self._network(broker, fault)
            case kind if kind in PARTITIONS:
                await self._partition(broker, fault)
            case kind if kind in MEMBER_KINDS:
                await self._of_members.do(broker, fault)
            case "truncate":
                broker.kill()
                self._truncate(broker, fault.number)
                await self._again([broker], fault.span_s)
            case "rot":
                self._rot(broker, fault.number)
            case "clock step":
                broker.step_clock(fault.number)
            case _:
                await self._disk(broker, fault)

    def _broker(self, target: int) -> Machine:
        servers = self._sim.servers
        for machine in servers if target == LEADER else ():
            member = self._sim.running_members.get(machine.name)
            if member is not None and member is self._sim.leader(machine.name.rpartition("-")[0]):
                return machine
        return servers[max(0, target) % len(servers)]

    def _rot(self, machine: Machine, number: int) -> None:
        """Flip a bit in the head of an entry that was decided on: nobody but a scrub reads it."""
        member = self._sim.running_members.get(machine.name)
        if member is None or not machine.is_running or not member.takes_part:
            return
        if not self._of_members.may_lose(machine):
            return
        ledger = member.store.log
        assert isinstance(ledger, RaftLog)
        count = ledger.committed_index + 1 - ledger.first_index
        unit = ledger.unit(ledger.first_index + number % count) if count > 0 else None
        file = ledger.files.find(unit.position) if unit is not None else None
        if unit is None or file is None:
            return
        at = unit.position - file.offset + _CRC_AT + number % 4
        with file.path.open("r+b") as opened:
            opened.seek(at)
            (old,) = opened.read(1)
            opened.seek(at)
            opened.write(bytes([old ^ 1 << number % 7]))
        self._sim.rotten.add((machine.name, unit.index))
        self._sim.events.fault("rot", machine.name, unit.index)

    def _truncate(self, broker: Machine, number: int) -> None:
        """Cut one file of queues or index, to half if the number is odd."""
        folders = (broker.folder / "consumequeue", broker.folder / "index")
        files = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
        if files:
            path = files[number // 2 % len(files)]
            os.truncate(path, path.stat().st_size // 2 if number % 2 else 0)
            self._sim.events.fault("truncate", broker.name, number)

    async def _ended(self, machines: Sequence[Machine], fault: Fault, *, power: bool) -> None:
        for machine in machines:
            if machine.is_running:
                (machine.lose_power if power else machine.kill)()
        await self._again(machines, fault.span_s)

    async def _again(self, machines: Sequence[Machine], after_s: float) -> None:
        await asyncio.sleep(after_s)
        for machine in machines:
            if not machine.is_running and machine in self._sim.servers + self._sim.namesrvs:
                await self._try(machine)

    async def _try(self, machine: Machine) -> None:
        """Start a server that may be kept from it by another fault. Healing starts it for good."""
        try:
            await machine.start()
        except (FlareError, OSError) as error:
            self._sim.events.add(machine.name, f"does not start: {type(error).__name__}")

    async def _network(self, broker: Machine, fault: Fault) -> None:
        sim, others = self._sim, [each.ip for each in self._sim.machines.values()]
        sim.events.fault(fault.kind, broker.name)
        if fault.kind == "reset":
            sim.wires.reset(broker.ip)
            return
        if fault.kind == "clog":  # Links stop one by one, and come back in another order.
            for ip in others:
                sim.wires.cut([ip], [broker.ip])
                await asyncio.sleep(0.1)
            await asyncio.sleep(fault.span_s)
            for ip in sorted(others, key=lambda ip: (len(ip) * 7 + ord(ip[-1]) * fault.number) % 13):
                sim.wires.heal([(ip, broker.ip), (broker.ip, ip)])
                await asyncio.sleep(0.1)
            return
        sim.wires.cut([broker.ip], others, one_way=fault.kind == "one way")
        await asyncio.sleep(fault.span_s)
        sim.wires.heal()

    async def _partition(self, member: Machine, fault: Fault) -> None:
        """Members see each other no more, and clients see all of them."""
        sim, group = self._sim, member.name.rpartition("-")[0]
        members = [each.ip for each in sim.members if each.name.rpartition("-")[0] == group]
        at = members.index(member.ip)
        sim.events.fault(fault.kind, member.name)
        pairs = _cut_pairs(fault.kind, members[at:] + members[:at])
        for source, target in pairs:
            sim.wires.cut([source], [target], one_way=True)
        await asyncio.sleep(fault.span_s)
        sim.wires.heal(pairs)

    async def _disk(self, broker: Machine, fault: Fault) -> None:
        sim, disk = self._sim, broker.disk
        sim.events.fault(fault.kind, broker.name)
        if fault.kind == "sync error":
            disk.fail_next_sync()
        elif fault.kind == "disk full":
            disk.free_bytes = fault.number * 100
        elif fault.kind == "slow disk":
            disk.sync_s = float(fault.number)
        else:
            disk.read_only = True
        await asyncio.sleep(fault.span_s)
        _repair(broker)
        store = sim.store_of(broker)
        if broker.is_running and store is not None and store.flags.failure is not None:
            # A supervisor starts it again, or an operator boots the machine, and its kernel forgets pages
            # that never reached the disk.
            (broker.lose_power if fault.number % 2 else broker.kill)()
        if not broker.is_running and broker in sim.servers:  # Else it has left its group.
            await self._try(broker)


def _cut_pairs(kind: str, ips: Sequence[str]) -> list[tuple[str, str]]:
    """From where to where nothing comes through; the first one is the target."""
    target, half, size = ips[0], len(ips) // 2, len(ips)
    match kind:
        case "members deaf":
            return [(each, target) for each in ips[1:]]
        case "members cut":
            cut = [(target, each) for each in ips[1:]]
        case "halves":
            cut = [(one, other) for one in ips[:half] for other in ips[half:]]
        case "bridge":
            cut = [(one, other) for one in ips[1 : 1 + half] for other in ips[1 + half :]]
        case _:
            apart = range(2, size - 1)
            cut = [(one, ips[(at + step) % size]) for at, one in enumerate(ips) for step in apart]
    return [*cut, *((other, one) for one, other in cut)]


def _repair(machine: Machine) -> None:
    machine.disk.repair_syncs()
    machine.disk.free_bytes = None
    machine.disk.read_only = False
    machine.disk.sync_s = 0.0
