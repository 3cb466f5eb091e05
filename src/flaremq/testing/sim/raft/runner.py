"""One run of a group: a time with faults, then all is healed and has to go on."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import Final

from flaremq.dledger.member import Member
from flaremq.testing.sim.checks import Violated
from flaremq.testing.sim.raft.group import SimGroup
from flaremq.testing.sim.raft.nemesis import GroupNemesis
from flaremq.testing.sim.raft.plan import GroupPlan, draw
from flaremq.testing.sim.raft.readings import Readings

_HEALED_S: Final = 20.0
"""So long it may take until there is a leader, or until all have what is committed."""
_APPENDS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class GroupResult:
    """What became of a run."""

    plan: GroupPlan
    check: str
    """The promise that was broken; empty if none was."""
    error: str
    virtual_s: float
    real_s: float
    events: int
    decided: int
    digest: str
    faults: Counter[str]
    last: tuple[str, ...]
    """The last events, of a run that failed."""

    def line(self) -> str:
        state = f"FAILED {self.error}" if self.check else "ok"
        return (
            f"seed={self.plan.seed} virtual={self.virtual_s:.1f}s real={self.real_s:.2f}s "
            f"events={self.events} decided={self.decided} hash={self.digest} {state}"
        )


class _Clients:
    """They append to whoever leads, as far as they know."""

    def __init__(self, group: SimGroup, plan: GroupPlan) -> None:
        self._group = group
        self._plan = plan
        self._rng = random.Random(f"raft/{plan.seed}/clients")
        self._next()

    def _next(self) -> None:
        delay_s = self._rng.expovariate(self._plan.appends_per_s)
        if self._group.now + delay_s < self._plan.length_s:
            self._group.after(delay_s, self._append)

    def _append(self) -> None:
        leading = [each for each in self._group.machines.values() if each.may_append]
        if leading:
            self._group.append(self._rng.choice(leading), self._rng.randint(1, _APPENDS_MAX))
        self._next()


def run_seed(seed: int, rules: type[Member] = Member) -> GroupResult:
    return run_plan(draw(seed), rules)


def run_plan(plan: GroupPlan, rules: type[Member] = Member) -> GroupResult:
    began_s = time.perf_counter()
    group = SimGroup(
        plan.size,
        plan.seed,
        pace=plan.pace,
        quality=plan.quality,
        drift=plan.drift,
        rules=rules,
        preferred=plan.preferred,
    )
    check = error = ""
    try:
        _run(group, plan)
    except Violated as violated:
        check, error = violated.check, str(violated)
    return GroupResult(
        plan=plan,
        check=check,
        error=error,
        virtual_s=group.now,
        real_s=time.perf_counter() - began_s,
        events=group.events.count,
        decided=len(group.promises.decided),
        digest=group.events.digest,
        faults=group.events.faults,
        last=tuple(group.events.last()) if check else (),
    )


def _run(group: SimGroup, plan: GroupPlan) -> None:
    for machine in group.machines.values():
        machine.sync_s = plan.sync_s
    group.start()
    nemesis = GroupNemesis(group, plan.faults)
    _Clients(group, plan)
    readings = Readings(group, plan.seed, plan.length_s)
    group.run(plan.length_s)
    nemesis.heal()
    _go_on(group)
    group.promises.at_the_end()
    readings.check()
    _repaired(group)


def _repaired(group: SimGroup) -> None:
    """What has rotted is there again in all members that run."""

    def damaged() -> list[str]:
        return [each.name for each in group.machines.values() if each.is_running and each.ledger.is_damaged]

    if not group.run(_HEALED_S, lambda: not damaged()):
        raise Violated("not repaired", f"{', '.join(damaged())} could ask the others at {group.now:.3f} s")


def _go_on(group: SimGroup) -> None:
    """There is a leader, and what it appends is committed everywhere. It may still hand over, or hear
    something late."""
    ends_at = group.now + _HEALED_S
    while group.now < ends_at:
        leader = group.run_to_leader(ends_at - group.now)
        last, term = group.append(leader), leader.ledger.last_term
        if last >= 0 and group.run_to_commit(last, ends_at - group.now, while_leads=leader):
            if group.promises.decided[last].term == term:
                return
        else:
            group.run(0.1)
    raise Violated("no progress", f"nothing is decided at {group.now:.3f} s")
