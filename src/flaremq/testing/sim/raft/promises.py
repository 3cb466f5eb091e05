"""What must hold of a group at every moment. Each promise has a name.

two leaders      a term has one leader at most
two answer       of all members at most one may answer clients, at one true moment
two values       an entry that one member has committed is the same wherever it is committed
leader lacks     who is elected has every entry that was committed before
damaged leader   who is elected knows of no damage in its log, unless it is alone
truncated        no member gives up what it has committed
beyond the log   no member commits what it does not have
lost append      what was acknowledged is committed, where its receipt says
foreign entries  no member writes what does not belong at the end of its log
broken group     no member finds that the group cannot be what it should be
not repaired     once all is well, members whose logs were damaged have them repaired
stale read       what clients read from leaders can be explained by one order of it and of all appends
no progress      once all is well, there is a leader, and appends are committed everywhere
"""

from __future__ import annotations

from typing import Protocol

from flaremq.dledger.member import Member
from flaremq.dledger.types import Index, MemberId, Standing, Term
from flaremq.testing.sim.checks import Violated
from flaremq.testing.sim.raft.ledger import SimEntry, SimLedger, append_number


class Watched(Protocol):
    """A member's process, as the promises see it."""

    name: MemberId
    ledger: SimLedger
    committed: Index
    member: Member | None

    @property
    def is_broken(self) -> bool:
        """Whether it says so itself."""

    @property
    def answers(self) -> bool:
        """Whether a client that asked it right now would be answered."""


class Promises:
    """Looks at each step of each member."""

    def __init__(self) -> None:
        self.decided: list[SimEntry] = []
        """What was committed, by index."""
        self.acknowledged: dict[Index, bytes] = {}
        self.acknowledged_s: dict[int | None, float] = {}
        """When, by the number of the append."""
        self._leaders: dict[Term, MemberId] = {}

    def elected(self, machine: Watched, term: Term) -> None:
        known = self._leaders.setdefault(term, machine.name)
        if known != machine.name:
            raise Violated("two leaders", f"{known} and {machine.name} lead in term {term}")
        ledger = machine.ledger
        if ledger.is_damaged and len(ledger.membership.ids) > 1:
            raise Violated("damaged leader", f"{machine.name} leads in term {term}, and its log is damaged")
        for index in range(ledger.first_index, len(self.decided)):
            if index > ledger.last_index or ledger.entry(index) != self.decided[index]:
                raise Violated(
                    "leader lacks",
                    f"{machine.name} leads in term {term} without entry {index}, {self.decided[index]}",
                )

    def committed(self, machine: Watched, index: Index) -> None:
        ledger = machine.ledger
        if index > ledger.last_index:
            raise Violated(
                "beyond the log", f"{machine.name} commits {index}, and has entries up to {ledger.last_index}"
            )
        for at in range(max(machine.committed + 1, ledger.first_index), index + 1):
            entry = ledger.entry(at)
            if at == len(self.decided):
                self.decided.append(entry)
            elif at > len(self.decided) or entry != self.decided[at]:
                known = self.decided[at] if at < len(self.decided) else "nothing"
                raise Violated("two values", f"{machine.name} commits {entry} at {at}: {known} is there")

    def truncated(self, machine: Watched, first: Index) -> None:
        if first <= machine.committed:
            raise Violated(
                "truncated", f"{machine.name} gives up {first}, and has committed {machine.committed}"
            )

    def acknowledge(self, index: Index, value: bytes, at_s: float) -> None:
        self.acknowledged[index] = value
        self.acknowledged_s[append_number(value)] = at_s

    def after_step(self, machine: Watched, everybody: list[Watched]) -> None:
        member = machine.member
        if member is not None and member.standing is Standing.LEADER:
            known = self._leaders.setdefault(member.term, machine.name)
            if known != machine.name:
                raise Violated("two leaders", f"{known} and {machine.name} lead in term {member.term}")
        if machine.is_broken:
            why = member.why_silent if member is not None else ""
            raise Violated("broken group", f"{machine.name}: {why}")
        if machine.answers:
            self._one_answers(everybody)

    def _one_answers(self, everybody: list[Watched]) -> None:
        answering = [each.name for each in everybody if each.answers]
        if len(answering) > 1:
            raise Violated("two answer", f"{' and '.join(answering)} may answer at once")

    def at_the_end(self) -> None:
        for index, value in self.acknowledged.items():
            if index >= len(self.decided) or self.decided[index].value != value:
                raise Violated("lost append", f"{value!r} was acknowledged at {index}, and is not there")
