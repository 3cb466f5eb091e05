"""What must hold of Raft groups at every moment of a run, and when all is healed.

at every moment   one leader in a term; one that may answer; one entry for each index that anybody knows to be
                  decided on
in the end        every member has the same log and the same tables, shows the same messages, and has repaired
                  what has rotted on its disk
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from flaremq.dledger.ledger.entryindex import EntryUnit
from flaremq.dledger.ledger.raftlog import RaftLog
from flaremq.dledger.types import Standing
from flaremq.servers.groupbroker import GroupBroker
from flaremq.testing.sim.checks import Violated
from flaremq.testing.sim.world import Simulation

_SETTLE_S: Final = 120.0


class GroupChecks:
    """Runs outside all nodes."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._leaders: dict[tuple[str, int], str] = {}
        self._decided: dict[tuple[str, int], tuple[int, int]] = {}
        """By group and index: the term, and the checksum of the entry."""
        self._seen: dict[str, tuple[GroupBroker, int]] = {}
        """Of each member: its life, and how far it was compared."""

    def look(self) -> None:
        answering: dict[str, list[str]] = {}
        for name, group, member in self._members():
            node = member.node
            if node.rules.standing is Standing.LEADER:
                known = self._leaders.setdefault((group, node.term), name)
                if known != name:
                    raise Violated("two leaders in a term", f"{known} and {name} lead in term {node.term}")
            if node.may_answer():
                answering.setdefault(group, []).append(name)
            self._compare(name, group, member)
        for names in answering.values():
            if len(names) > 1:
                raise Violated("two leaders", f"{' and '.join(names)} may answer at one moment")

    def _members(self) -> Iterator[tuple[str, str, GroupBroker]]:
        for machine in self._sim.members:
            member = self._sim.running_members.get(machine.name)
            if machine.is_running and member is not None and member.takes_part:
                yield machine.name, machine.name.rpartition("-")[0], member

    def _compare(self, name: str, group: str, member: GroupBroker) -> None:
        ledger = _ledger(member)
        life, seen = self._seen.get(name, (member, -1))
        begin = max(ledger.first_index, seen + 1 if life is member else 0)
        for index in range(begin, ledger.committed_index + 1):
            if (name, index) in self._sim.rotten:
                continue
            unit = ledger.unit(index)
            data = _entry(ledger, unit) if unit is not None else None
            if unit is None or data is None:
                raise Violated("lost entry", f"{name} does not have entry {index}, which was decided on")
            found = unit.term, zlib.crc32(data)
            known = self._decided.setdefault((group, index), found)
            if known != found:
                raise Violated(
                    "two values", f"entry {index} of {name} has term {found[0]}, and had {known[0]} elsewhere"
                )
        self._seen[name] = member, max(seen, ledger.committed_index)

    def _rotten(self, name: str, group: str, member: GroupBroker) -> str:
        """What has rotted on the disk of a member, and is not yet what the others have."""
        ledger = _ledger(member)
        for index in sorted(index for of, index in self._sim.rotten if of == name):
            unit = ledger.unit(index)
            data = _entry(ledger, unit) if unit is not None else None
            known = self._decided.get((group, index))
            is_same = unit is not None and data is not None and (unit.term, zlib.crc32(data)) == known
            if index >= ledger.first_index and not is_same:
                return f"{name} has not repaired entry {index}: {member.scrub.repairs.why_not}"
            self._sim.rotten.discard((name, index))
        if member.scrub.damaged_entries:
            return f"{name} knows of damage: {ledger.known_damage}"
        return ""

    async def led(self) -> None:
        """Every group gets a leader."""
        await self._until(lambda group: "" if self._sim.leader(group) is not None else "it has no leader")

    async def settle(self) -> None:
        """Every member gets to where the leader is now: that goes on a little even when nobody sends."""
        await self.led()
        ends = {}
        for group in self._sim.names if self._sim.members else ():
            leader = self._sim.leader(group)
            ends[group] = -1 if leader is None else _ledger(leader).last_index
        await self._until(lambda group: self._unsettled(group, ends[group]))
        self.look()

    async def _until(self, why_not: Callable[[str], str]) -> None:
        limit_s = self._sim.loop.now_s + _SETTLE_S
        for group in self._sim.names if self._sim.members else ():
            while why := why_not(group):
                if self._sim.loop.now_s > limit_s:
                    raise Violated("not settled", f"{group}: {why}")
                await asyncio.sleep(0.5)

    def _unsettled(self, group: str, end: int) -> str:
        leader = self._sim.leader(group)
        if leader is None:
            return "it has no leader"
        for name, of, member in self._members():
            if of != group:
                continue
            ledger = _ledger(member)
            if ledger.committed_index < end:
                last, committed = ledger.last_index, ledger.committed_index
                return f"{name} has {last} and knows {committed} to be decided on, of {end}"
            if rotten := self._rotten(name, group, member):
                return rotten
            if member.tables.topics.all() != leader.tables.topics.all():
                return f"{name} knows other topics than the leader"
        return ""


def _entry(ledger: RaftLog, unit: EntryUnit) -> memoryview | None:
    """As it lies there, sound or not."""
    file = ledger.files.find(unit.position)
    return None if file is None else file.view[unit.position - file.offset : unit.end - file.offset]


def _ledger(member: GroupBroker) -> RaftLog:
    log = member.store.log
    assert isinstance(log, RaftLog)
    return log
