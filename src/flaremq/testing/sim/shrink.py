"""A plan that fails, made smaller while the same check still fails, and written as a test.

Draws come from one stream for each node and purpose, so dropping one fault does not shift all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from flaremq.testing.sim.plan import PARTITIONS, Plan
from flaremq.testing.sim.runner import RunResult, run_plan
from flaremq.testing.sim.wires import LinkQuality

RUNS_MAX: Final = 150
_STEADY: Final = LinkQuality(steady=True)
_OF_GROUPS: Final = frozenset({*PARTITIONS, "rot"})
"""Faults that mean nothing where there are no groups."""


class Shrinker:
    """Tries smaller plans, the largest steps first, until none of them fails or the runs are used up."""

    def __init__(self, run: Callable[[Plan], RunResult] = run_plan, runs_max: int = RUNS_MAX) -> None:
        self._run = run
        self._left = runs_max
        self.runs = 0

    def smallest(self, failed: RunResult) -> RunResult:
        """The smallest failing run that was found; the given one if it is."""
        best = failed
        while True:
            for plan in _smaller(best.plan):
                if not self._left:
                    return best
                self._left -= 1
                self.runs += 1
                result = self._run(plan)
                if result.check == failed.check:  # Another failure is another bug.
                    best = result
                    break
            else:
                return best


def _smaller(plan: Plan) -> Iterator[Plan]:
    faults = plan.faults
    if faults:
        last_s = faults[-1].at_s + faults[-1].span_s + 5
        if last_s < plan.length_s:
            yield replace(plan, length_s=last_s)
    size = len(faults)
    while size := size // 2:  # Halves of the faults, then quarters, down to single ones.
        for at in range(0, len(faults), size):
            yield replace(plan, faults=faults[:at] + faults[at + size :])
    if len(faults) == 1:
        yield replace(plan, faults=())
    if plan.stays:
        yield replace(plan, stays=())
    if plan.clients > 1:
        yield replace(plan, clients=plan.clients - 1)
    yield from _with_fewer_servers(plan)
    if plan.timers:
        yield replace(plan, timers=False)
    if plan.drift:
        yield replace(plan, drift=0.0)
    if plan.sends > 5:
        yield replace(plan, sends=plan.sends // 2)
    if plan.quality.spike or plan.quality.split:
        yield replace(plan, quality=replace(plan.quality, spike=0.0, split=0.0))
    if plan.quality != _STEADY:
        yield replace(plan, quality=_STEADY)


def _with_fewer_servers(plan: Plan) -> Iterator[Plan]:
    """A master that waits for slaves waits for no more than there are, and one without slaves for none."""
    if plan.stays:  # They are among those that would go.
        return
    if plan.brokers > 1:
        yield replace(plan, brokers=plan.brokers - 1)
    if plan.replicas > 3:
        yield replace(plan, replicas=3)
    if plan.replicas > 1 and not any(fault.kind in _OF_GROUPS for fault in plan.faults):
        yield replace(plan, replicas=1)
    if plan.slaves:
        left = plan.slaves - 1
        role = plan.role if left else "ASYNC_MASTER"
        yield replace(plan, slaves=left, copies=min(plan.copies, max(1, left)), role=role)
    if plan.copies > 1:
        yield replace(plan, copies=1)
    if plan.namesrvs > 1:
        yield replace(plan, namesrvs=1)


def write_test(result: RunResult, path: Path, commit: str = "") -> None:
    """Write a test that runs this plan, with the last events as a comment."""
    known = f", at commit {commit}" if commit else ""
    events = "".join(f"# {line}\n" for line in result.last[-100:])
    path.write_text(
        f'"""Seed {result.plan.seed}{known}: {result.check}."""\n\n'
        f"from flaremq.testing.sim.plan import {'Fault, ' if result.plan.faults else ''}Plan\n"
        "from flaremq.testing.sim.runner import run_plan\n"
        "from flaremq.testing.sim.wires import LinkQuality\n\n"
        f"PLAN = {result.plan!r}\n\n\n"
        f"def test_seed_{result.plan.seed}() -> None:\n"
        "    result = run_plan(PLAN)\n"
        '    assert not result.check, "\\n".join((result.line(), *result.last))\n\n\n'
        f"# The last events:\n{events}"
    )
