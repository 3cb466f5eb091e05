"""Members of a group, the network between them, and their clients, in virtual time and from one seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from flaremq.base.errors import FlareError
from flaremq.dledger.member import Member
from flaremq.dledger.types import Index, MemberId, Membership, Message, Pace, Push, Transfer
from flaremq.testing.sim.checks import Violated
from flaremq.testing.sim.events import EventStream
from flaremq.testing.sim.raft.ledger import append_value, members_of
from flaremq.testing.sim.raft.machine import SimMachine
from flaremq.testing.sim.raft.promises import Promises, Watched

_BYTES_PER_S: Final = 100e6


@dataclass(frozen=True, slots=True)
class WayQuality:
    """Of the way from any member to any other."""

    latency_s: float = 0.001
    loss: float = 0.0
    repeated: float = 0.0
    spike: float = 0.0
    """The part of all messages that is late by up to `spike_s`."""
    spike_s: float = 1.0
    in_order: bool = True
    """Between two members, as long as neither is started again."""


class SimGroup:
    """A group. Nothing happens in it but by `run`."""

    def __init__(
        self,
        size: int = 3,
        seed: object = 0,
        *,
        pace: Pace | None = None,
        quality: WayQuality | None = None,
        drift: float = 0.0,
        rules: type[Member] = Member,
        preferred: tuple[MemberId, ...] = (),
    ) -> None:
        self.now = 0.0
        self.pace = pace or Pace()
        self.quality = quality or WayQuality()
        self.rules = rules
        self.preferred = preferred
        self.promises = Promises()
        self.events = EventStream()
        self.events.now_s = lambda: self.now
        self.blocked: set[tuple[MemberId, MemberId]] = set()
        """Ways on which nothing arrives."""
        self.noticed: Callable[[str, MemberId], None] = lambda _what, _name: None
        """For faults that wait for a moment: a member saves a ballot, or begins to lead."""
        self.heard_by: Callable[[MemberId, MemberId, Message], bool] = lambda _from, _to, _message: True
        """For tests: whether this message may pass."""
        self._seed = f"raft/{seed}"
        self._rng = random.Random(f"{self._seed}/network")
        self._drift = drift
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._arrived: dict[tuple[MemberId, MemberId], float] = {}
        self._connections: set[tuple[MemberId, int, MemberId, int]] = set()
        self.begun_s: dict[int, float] = {}
        """When each append was written, by its number."""
        self.appended = 0
        """The number of the last append that was tried."""
        self.machines: dict[MemberId, SimMachine] = {}
        configured = members_of([f"n{number}" for number in range(size)])
        for name in configured.ids:
            self.build(name, configured)

    def build(self, name: MemberId, configured: Membership) -> SimMachine:
        """A new machine, not yet started."""
        machine = SimMachine(name, self, configured, self._seed)
        machine.drift = self._drift * self._rng.uniform(-1, 1)
        self.machines[name] = machine
        return machine

    def everybody(self) -> list[Watched]:
        return list(self.machines.values())

    # Time.

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (self.now + delay_s, self._count, call))

    def run(self, span_s: float, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass. With `until`, whether it came true within this time."""
        end = self.now + span_s
        while self._due and self._due[0][0] <= end:
            if until is not None and until():
                return True
            at, _, call = heapq.heappop(self._due)
            self.now = max(self.now, at)
            call()
        if until is not None and until():
            return True
        self.now = end
        return until is None

    def start(self) -> SimGroup:
        for machine in self.machines.values():
            machine.start()
        return self

    # The network.

    def send(self, sender: MemberId, to: MemberId, message: Message) -> None:
        machine, quality, rng = self.machines.get(to), self.quality, self._rng
        if machine is None or not machine.is_running or (sender, to) in self.blocked:
            return
        copies = 2 if rng.random() < quality.repeated else 1
        for _ in range(copies):
            if rng.random() >= quality.loss:
                self._deliver(sender, machine, message)

    def _deliver(self, sender: MemberId, machine: SimMachine, message: Message) -> None:
        quality, rng, life = self.quality, self._rng, machine.life
        delay_s = quality.latency_s * (0.5 + rng.expovariate(1.0))
        if rng.random() < quality.spike:
            delay_s += rng.uniform(0, quality.spike_s)
        if isinstance(message, Push) and message.run is not None:
            delay_s += len(message.run.data) / _BYTES_PER_S
        way = sender, machine.name
        at = self.now + delay_s
        if quality.in_order:
            at = self._arrived[way] = max(at, self._arrived.get(way, 0.0))

        def arrive() -> None:
            # A message belongs to a connection, and that ends with the process.
            if life == machine.life and way not in self.blocked and self._may_hear(sender, machine, message):
                machine.heard(sender, message)

        self.after(at - self.now, arrive)

    def _may_hear(self, sender: MemberId, machine: SimMachine, message: Message) -> bool:
        """A connection stays open however the members change later. Who says that they have changed is let in
        by a member that does not know it: that one may have been away, or have lost its disk. So is who is in
        its configuration: a removal that was not decided on may stand in its log."""
        other = self.machines[sender]
        connection = sender, other.life, machine.name, machine.life
        if connection not in self._connections:
            has_changed = other.ledger.membership.index >= 0
            ledger = machine.ledger
            if has_changed or sender in {*ledger.membership.addresses, *ledger.configured.addresses}:
                self._connections.add(connection)
        return connection in self._connections and self.heard_by(sender, machine.name, message)

    def cut(self, some: set[MemberId], others: set[MemberId], *, one_way: bool = False) -> None:
        """Nothing arrives any more from some at others; nor, unless `one_way`, back."""
        self.events.fault("one way" if one_way else "cut", "-".join(sorted(some)))
        for a in sorted(some):
            for b in sorted(others):
                self.blocked.add((a, b))
                if not one_way:
                    self.blocked.add((b, a))

    def isolate(self, name: MemberId) -> None:
        self.cut({name}, self.machines.keys() - {name})

    def are_apart(self, one: MemberId, other: MemberId) -> bool:
        """Whether nothing arrives on one way, or the other, between these two."""
        return not self.blocked.isdisjoint({(one, other), (other, one)})

    def join(self) -> None:
        """All ways are open again."""
        self.blocked.clear()

    # What is asked of it.

    @property
    def leader(self) -> SimMachine | None:
        """Who may answer clients."""
        return next((each for each in self.machines.values() if each.answers and each.is_leading), None)

    def run_to_leader(self, within_s: float = 30.0) -> SimMachine:
        """Until somebody leads and has committed an entry of its term."""
        self.run(within_s, lambda: self._settled() is not None)
        leader = self._settled()
        if leader is None:
            raise Violated("no progress", f"nobody leads at {self.now:.3f} s")
        return leader

    def _settled(self) -> SimMachine | None:
        leader = self.leader
        if (
            leader is None
            or leader.member is None
            or leader.ledger.term_at(leader.committed) != leader.member.term
        ):
            return None
        return leader

    def append(self, machine: SimMachine, count: int = 1) -> Index:
        """Messages with values of their own. Returns the place of the last one, or -1 if it takes none."""
        for _ in range(count):
            self.appended += 1
            if not machine.append(append_value(self.appended)):
                return -1
            self.begun_s[self.appended] = self.now
        return machine.ledger.last_index

    def transfer(self, leader: SimMachine, to: MemberId) -> bool:
        """Whether it may begin."""
        if leader.member is None:
            return False
        try:
            leader.member.check_transfer(to)
        except FlareError:
            return False
        leader.happens(Transfer(to))
        return True

    def run_to_commit(
        self, index: Index, within_s: float = 30.0, *, while_leads: SimMachine | None = None
    ) -> bool:
        """Until all running members know that this is committed; False if that one leads no more before."""
        ids = self.members().ids
        there = [self.machines[each] for each in ids if self.machines[each].is_running]

        def is_over() -> bool:
            is_lost = while_leads is not None and not while_leads.is_leading
            return is_lost or all(each.committed >= index for each in there)

        if not self.run(within_s, is_over):
            behind = ", ".join(f"{each.name} {each.committed}" for each in there if each.committed < index)
            raise Violated("no progress", f"{index} is not committed everywhere: {behind}")
        return all(each.committed >= index for each in there)

    def members(self) -> Membership:
        """As who leads knows them, or else who has the longest log."""
        everybody = list(self.machines.values())
        running = [each for each in everybody if each.is_running] or everybody
        newest = max(
            running, key=lambda each: (each.is_leading, each.ledger.last_term, each.ledger.last_index)
        )
        return newest.ledger.membership
