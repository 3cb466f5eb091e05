"""Carries out the faults of a plan, and what operators do meanwhile.

What a group can survive is a budget: at any time less than half of its members may lack something that they
had synced. Crashes, lost power, cut ways and slow disks cost nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from flaremq.base.errors import FlareError
from flaremq.dledger.types import MemberId
from flaremq.testing.sim.plan import Fault
from flaremq.testing.sim.raft.group import SimGroup
from flaremq.testing.sim.raft.ledger import members_of
from flaremq.testing.sim.raft.machine import SimMachine
from flaremq.testing.sim.raft.plan import LEADER

_IDS_MAX: Final = 8
_ASKED_S: Final = 0.5
_LOST_AT_ONCE: Final = 40
"""Entries of a damaged tail, at most."""


class GroupNemesis:
    """The faults of one run."""

    def __init__(self, group: SimGroup, faults: tuple[Fault, ...]) -> None:
        self._group = group
        self._calm = group.quality
        self._is_healed = False
        for fault in faults:
            group.after(fault.at_s, self._later(fault))

    def _later(self, fault: Fault) -> Callable[[], None]:
        return lambda: None if self._is_healed else self._strike(fault)

    def _strike(self, fault: Fault) -> None:
        rng = random.Random(fault.number)
        machine = self._target(fault.target, rng)
        self._FAULTS[fault.kind](self, machine, fault.span_s, rng)

    def _target(self, target: int, rng: random.Random) -> SimMachine:
        group = self._group
        leading = [each for each in group.machines.values() if each.is_leading]
        if target == LEADER and leading:
            return leading[-1]
        ids = group.members().ids if any(each.is_running for each in group.machines.values()) else ()
        names = [each for each in ids if each in group.machines] or list(group.machines)
        return group.machines[names[target % len(names)] if target >= 0 else rng.choice(names)]

    def _back(self, machine: SimMachine, span_s: float) -> None:
        def start() -> None:
            if not machine.is_running and not machine.is_gone:
                machine.start()

        self._group.after(span_s, start)

    # Processes and power.

    def _kill(self, machine: SimMachine, span_s: float, _rng: random.Random) -> None:
        if machine.is_running:
            machine.kill()
            self._back(machine, span_s)

    def _power(self, machine: SimMachine, span_s: float, _rng: random.Random) -> None:
        if machine.is_running and not self._is_healed:
            machine.lose_power()
            self._back(machine, span_s)

    def _power_all(self, _machine: SimMachine, span_s: float, rng: random.Random) -> None:
        for machine in self._group.machines.values():
            self._power(machine, span_s * rng.uniform(0.1, 1.0), rng)

    def _without_leader(self, _machine: SimMachine, span_s: float, rng: random.Random) -> None:
        """All lose their power, and who led comes back last."""
        for machine in self._group.machines.values():
            self._power(machine, span_s + 4 if machine.is_leading else rng.uniform(0.0, 0.1), rng)

    def _short_reigns(self, _machine: SimMachine, span_s: float, rng: random.Random) -> None:
        """Whoever is elected is cut off soon after it, or loses its power."""
        group, latency_s = self._group, self._group.quality.latency_s

        def end(name: MemberId) -> None:
            machine = group.machines[name]
            if machine.is_leading and rng.random() < 0.5:
                self._power(machine, rng.uniform(0.0, 2.0), rng)
            elif machine.is_leading:
                self._isolate(machine, rng.uniform(0.5, 3.0), rng)

        def noticed(what: str, name: MemberId) -> None:
            if what == "lead" and not self._is_healed:
                group.after(rng.uniform(0, 12) * latency_s, lambda: end(name))

        self._notice(noticed, 3 * span_s + 2)
        for machine in group.machines.values():
            end(machine.name)

    def _figure_eight(self, machine: SimMachine, span_s: float, rng: random.Random) -> None:
        """As in the Raft paper: a leader with a tail of its own is cut off, the next one when it has only
        begun, then the first may push its tail, and the second comes back."""
        group, latency_s, cut_off = self._group, self._group.quality.latency_s, list[MemberId]()

        def turn(name: MemberId) -> None:
            if not self._is_healed:
                group.join()
                group.isolate(name)

        def noticed(what: str, name: MemberId) -> None:
            if what == "lead" and name not in cut_off:
                cut_off.append(name)
                if len(cut_off) == 1:
                    turn(name)
            elif what == "lead" and len(cut_off) == 1:
                cut_off.append(name)
            if what == "lead" and len(cut_off) == 2:
                group.after(rng.uniform(2, 10) * latency_s, lambda: turn(name))

        machine = self._target(LEADER, rng)
        if machine.is_leading and not self._is_healed:
            turn(machine.name)
            group.append(machine, rng.randint(1, 3))
            self._notice(noticed, span_s + 8)
            group.after(span_s + 9, group.join)

    def _power_at_votes(self, _machine: SimMachine, span_s: float, rng: random.Random) -> None:
        """Who saves a ballot loses its power before that is done, or just after it."""
        group = self._group

        def noticed(what: str, name: MemberId) -> None:
            machine = group.machines[name]
            if what == "save" and rng.random() < 0.4 and not self._is_healed:
                delay_s = rng.uniform(0, 3) * machine.sync_s
                group.after(delay_s, lambda: self._power(machine, rng.uniform(0, 0.5), rng))

        self._notice(noticed, 3 * span_s + 2)
        for machine in group.machines.values():
            if machine.is_leading:
                self._power(machine, span_s, rng)

    def _notice(self, noticed: Callable[[str, MemberId], None], span_s: float) -> None:
        group, before = self._group, self._group.noticed
        group.noticed = noticed

        def end() -> None:
            group.noticed = before

        group.after(span_s, end)

    def _pause(self, machine: SimMachine, span_s: float, _rng: random.Random) -> None:
        life = machine.life
        if machine.is_running and not machine.is_paused:
            machine.pause()
            self._group.after(span_s, lambda: machine.resume() if machine.life == life else None)

    # The network.

    def _cut(
        self, some: set[MemberId], others: set[MemberId], span_s: float, *, one_way: bool = False
    ) -> None:
        group = self._group
        if self._is_healed:
            return
        before = set(group.blocked)
        group.cut(some, others, one_way=one_way)
        fresh = group.blocked - before

        def join() -> None:
            group.blocked -= fresh

        group.after(span_s, join)

    def _isolate(self, machine: SimMachine, span_s: float, _rng: random.Random) -> None:
        self._cut({machine.name}, self._group.machines.keys() - {machine.name}, span_s)

    def _halves(self, _machine: SimMachine, span_s: float, rng: random.Random) -> None:
        names = sorted(self._group.machines)
        some = set(rng.sample(names, len(names) // 2))
        self._cut(some, set(names) - some, span_s)

    def _bridge(self, machine: SimMachine, span_s: float, _rng: random.Random) -> None:
        """Two halves that only this one can reach."""
        others = sorted(self._group.machines.keys() - {machine.name})
        half = len(others) // 2
        self._cut(set(others[:half]), set(others[half:]), span_s)

    def _one_way(self, machine: SimMachine, span_s: float, rng: random.Random) -> None:
        others = self._group.machines.keys() - {machine.name}
        some, rest = ({machine.name}, others) if rng.random() < 0.5 else (others, {machine.name})
        self._cut(set(some), set(rest), span_s, one_way=True)

    def _link(self, machine: SimMachine, span_s: float, rng: random.Random) -> None:
        """Two members do not reach each other, and both reach the others."""
        other = rng.choice(sorted(self._group.machines.keys() - {machine.name}))
        self._cut({machine.name}, {other}, span_s + 1)

    def _lossy(self, _machine: SimMachine, span_s: float, _rng: random.Random) -> None:
        group = self._group
        group.events.fault("lossy", "network")
        group.quality = replace(self._calm, loss=0.3, repeated=0.2, spike=0.3)

        def calm() -> None:
            if not self._is_healed:
                group.quality = self._calm

        group.after(span_s, calm)

    # Disks.

    def _stall(self, machine: SimMachine, span_s: float, _rng: random.Random) -> None:
        self._group.events.fault("stall", machine.name)
        machine.stalled_until = self._group.now + span_s

    def _sync_error(self, machine: SimMachine, span_s: float, _rng: random.Random) -> None:
        """The process gives up, and is started again on what the disk has."""
        if not machine.is_running:
            return
        self._group.events.fault("sync error", machine.name)
        machine.is_failed = True
        life = machine.life

        def restart() -> None:
            if machine.life == life:
                machine.lose_power()
                self._back(machine, 0.2)

        self._group.after(span_s, restart)

    def _disk_full(self, machine: SimMachine, span_s: float, rng: random.Random) -> None:
        self._group.events.fault("disk full", machine.name)
        machine.refusing = rng.choice([0.1, 0.5, 1.0])

        def free() -> None:
            machine.refusing = 0.0

        self._group.after(span_s, free)

    def _may_lose(self, machine: SimMachine) -> bool:
        """Whether enough members still have what this one has."""
        group = self._group
        ids = {each for other in group.machines.values() for each in other.ledger.membership.ids}
        lacking = {
            each
            for each in ids
            if group.machines[each].has_lost or not group.machines[each].ledger.ballot.is_voter
            or not group.machines[each].ledger.has_ballot or group.machines[each].ledger.is_damaged
        }  # fmt: skip
        smallest = min(
            len(each.ledger.membership.ids) for each in group.machines.values() if each.name in ids
        )
        return len(lacking | {machine.name}) <= (smallest - 1) // 2

    def _disk_lost(self, machine: SimMachine, span_s: float, _rng: random.Random) -> None:
        if self._may_lose(machine):
            machine.lose_disk()
            self._back(machine, span_s)

    def _copy_lost(self, machine: SimMachine, span_s: float, rng: random.Random) -> None:
        """What only the leader and this member have is left with the leader, and that is away."""
        group, leader = self._group, self._target(LEADER, rng)
        rest = group.machines.keys() - {machine.name, leader.name}
        if machine is leader or not leader.is_leading or self._is_healed:
            return
        self._cut(set(rest), {machine.name, leader.name}, 0.6)
        group.append(leader, 3)

        def lose() -> None:
            if not self._is_healed and self._may_lose(machine):
                self._power(leader, span_s + 5, rng)
                machine.lose_disk()
                self._back(machine, 0.05)

        group.after(0.5, lose)

    def _entries_lost(self, machine: SimMachine, span_s: float, rng: random.Random) -> None:
        ledger = machine.ledger
        first = max(ledger.first_index, ledger.last_index - rng.randrange(_LOST_AT_ONCE))
        if self._may_lose(machine) and first <= ledger.last_index:
            machine.lose_entries(first)
            self._back(machine, span_s)

    def _rot(self, machine: SimMachine, span_s: float, rng: random.Random) -> None:
        """A scrub finds damage. It is repaired as soon as a member that has the same entry can be asked, and
        stands in the way of nothing when that member has deleted it."""
        group, ledger = self._group, machine.ledger
        others = [each for each in group.machines.values() if each is not machine]
        last = min(machine.committed, ledger.last_index)  # It may have lost some of what it knew.
        if last < ledger.first_index or ledger.is_damaged or not self._may_lose(machine):
            return
        group.events.fault("rot", machine.name)
        ledger.is_damaged, index = True, rng.randint(ledger.first_index, last)
        entry = ledger.entry(index)

        def has_it(other: SimMachine) -> bool:
            theirs = other.ledger
            return index < theirs.first_index or (index <= theirs.last_index and theirs.entry(index) == entry)

        def look() -> None:
            if not ledger.is_damaged:
                return  # Its disk was replaced.
            helped = any(
                each.is_running and has_it(each) and not group.are_apart(machine.name, each.name)
                for each in others
            )
            if helped and machine.is_running:
                group.events.add(machine.name, "repaired", index)
                ledger.is_damaged = False
            else:
                group.after(_ASKED_S, look)

        group.after(span_s, look)

    # Operators.

    def _transfer(self, machine: SimMachine, span_s: float, rng: random.Random) -> None:
        """Half of them from a leader that is cut off before it hears what becomes of it."""
        machine = self._target(LEADER, rng)
        if machine.is_leading and not machine.is_paused:
            self._group.transfer(machine, rng.choice(machine.ledger.membership.ids))
            if rng.random() < 0.5:
                others = self._group.machines.keys() - {machine.name}
                delay_s = 5 * rng.random() * self._group.quality.latency_s
                self._group.after(delay_s, lambda: self._cut({machine.name}, set(others), max(span_s, 0.5)))

    def _swap(self, machine: SimMachine, span_s: float, rng: random.Random) -> None:
        """An operator wants two other members at once, and the old ones are cut off. It must be refused."""
        machine = self._target(LEADER, rng)
        ids = machine.ledger.membership.ids
        free = [f"n{number}" for number in range(_IDS_MAX) if f"n{number}" not in ids]
        others = rng.sample(free, min(2, len(free)))
        old = [each for each in ids if each != machine.name]
        new = [machine.name, *old[2:], *others]
        if self._change(machine, new):
            for each in others:
                if each not in self._group.machines:
                    self._group.build(each, members_of(sorted(new))).sync_s = machine.sync_s
                self._back(self._group.machines[each], 0.01)
            self._cut(set(old), {machine.name, *others}, span_s + 4)

    def _add(self, machine: SimMachine, _span_s: float, rng: random.Random) -> None:
        machine = self._target(LEADER, rng)
        group, ids = self._group, machine.ledger.membership.ids
        name = rng.choice([f"n{number}" for number in range(_IDS_MAX) if f"n{number}" not in ids] or ["n0"])
        if not self._change(machine, [*ids, name]):
            return
        if name not in group.machines:
            group.build(name, members_of([*ids, name])).sync_s = machine.sync_s
        group.machines[name].is_gone = False
        self._back(group.machines[name], 0.01)

    def _remove(self, machine: SimMachine, span_s: float, rng: random.Random) -> None:
        machine = self._target(LEADER, rng)
        ids = machine.ledger.membership.ids
        name = rng.choice(ids)
        if len(ids) <= 2 or not self._change(machine, [each for each in ids if each != name]):
            return
        index, term = machine.ledger.last_index, machine.ledger.last_term

        def stop() -> None:
            decided = self._group.promises.decided
            if index < len(decided) and decided[index].term == term:
                gone = self._group.machines[name]
                if name not in self._group.members().addresses:
                    gone.is_gone = True
                    if gone.is_running:
                        gone.kill()

        self._group.after(span_s, stop)

    def _change(self, machine: SimMachine, ids: list[MemberId]) -> bool:
        if not machine.may_append or machine.is_paused:
            return False
        try:
            machine.change(members_of(sorted(ids)))
        except FlareError:
            return False
        self._group.events.fault("change", machine.name, len(ids))
        return True

    def _expire(self, machine: SimMachine, _span_s: float, rng: random.Random) -> None:
        first = min(machine.committed, machine.ledger.synced_index) - rng.randrange(10)
        if first > machine.ledger.first_index:
            self._group.events.fault("expire", machine.name, first)
            machine.ledger.drop(first, knows_term=rng.random() < 0.5)

    _FAULTS: Final[dict[str, Callable[[GroupNemesis, SimMachine, float, random.Random], None]]] = {
        "kill": _kill,
        "power": _power,
        "power all": _power_all,
        "pause": _pause,
        "isolate": _isolate,
        "halves": _halves,
        "bridge": _bridge,
        "one way": _one_way,
        "lossy": _lossy,
        "stall": _stall,
        "sync error": _sync_error,
        "disk full": _disk_full,
        "disk lost": _disk_lost,
        "copy lost": _copy_lost,
        "entries lost": _entries_lost,
        "transfer": _transfer,
        "add": _add,
        "remove": _remove,
        "expire": _expire,
        "link": _link,
        "without leader": _without_leader,
        "short reigns": _short_reigns,
        "power at votes": _power_at_votes,
        "swap": _swap,
        "figure eight": _figure_eight,
        "rot": _rot,
    }

    def heal(self) -> None:
        """All is well from now on: every member runs, on a disk that works."""
        group = self._group
        self._is_healed = True
        group.events.add("group", "healed")
        group.join()
        group.quality = replace(self._calm, latency_s=0.001, loss=0.0, repeated=0.0, spike=0.0)
        ids = {each for machine in group.machines.values() for each in machine.ledger.membership.ids}
        for machine in group.machines.values():
            machine.refusing, machine.stalled_until, machine.sync_s = 0.0, 0.0, 0.001
            if machine.is_paused:
                machine.resume()
            if machine.is_failed and machine.is_running:
                machine.lose_power()
            if machine.name in ids and not machine.is_running:
                machine.is_gone = False
                machine.start()
