"""A failing plan becomes smaller, and a test that can be run."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flaremq.testing.sim.plan import Fault, Plan
from flaremq.testing.sim.runner import RunResult
from flaremq.testing.sim.shrink import Shrinker, write_test

KINDS = ("kill", "power", "cut", "reset", "pause")
FAULTS = tuple(Fault(float(at), kind, 0, 1.0) for at, kind in enumerate(KINDS))
PLAN = Plan(seed=5, clients=3, brokers=3, sends=40, drift=0.001, faults=FAULTS)


def run(plan: Plan) -> RunResult:
    """Fails while the power loss is there and at least ten messages are sent."""
    failed = any(fault.kind == "power" for fault in plan.faults) and plan.sends >= 10
    other = not failed and plan.clients == 1
    check = "lost send" if failed else "stuck" if other else ""
    return RunResult(plan, check, check, 1.0, 0.1, 10, "00", Counter(), ("the last event",))


def test_only_what_the_failure_needs_is_left() -> None:
    small = Shrinker(run).smallest(run(PLAN)).plan
    assert [fault.kind for fault in small.faults] == ["power"]
    assert (small.clients, small.brokers, small.sends, small.drift) == (1, 1, 10, 0.0)
    assert small.quality.steady


def failing(needs: Callable[[Plan], bool]) -> Callable[[Plan], RunResult]:
    """A run that fails as long as a plan has what the failure needs."""

    def run(plan: Plan) -> RunResult:
        check = "no copy" if needs(plan) else ""
        return RunResult(plan, check, check, 1.0, 0.1, 10, "00", Counter())

    return run


def shrunk(plan: Plan, needs: Callable[[Plan], bool]) -> Plan:
    run = failing(needs)
    return Shrinker(run).smallest(run(plan)).plan


REPLICATED = replace(PLAN, slaves=2, copies=2, role="SYNC_MASTER", timers=True)


def test_slaves_copies_and_timers_that_the_failure_does_not_need_are_left_out() -> None:
    small = shrunk(REPLICATED, lambda _plan: True)
    assert (small.slaves, small.copies, small.role, small.timers) == (0, 1, "ASYNC_MASTER", False)


def test_one_slave_is_left_where_one_is_needed_and_one_copy_with_it() -> None:
    small = shrunk(REPLICATED, lambda plan: plan.slaves >= 1)
    assert (small.slaves, small.copies, small.role) == (1, 1, "SYNC_MASTER")


def test_copies_and_timers_that_are_needed_stay() -> None:
    small = shrunk(REPLICATED, lambda plan: plan.copies == 2 and plan.timers)
    assert (small.slaves, small.copies, small.timers, small.brokers) == (2, 2, True, 1)


@pytest.mark.parametrize(("needed", "left"), [(1, 1), (2, 3), (5, 5)])
def test_a_group_becomes_smaller_as_long_as_the_failure_is_there(needed: int, left: int) -> None:
    assert shrunk(replace(PLAN, replicas=5), lambda plan: plan.replicas >= needed).replicas == left


def test_a_plan_whose_faults_need_a_group_keeps_one() -> None:
    plan = replace(PLAN, replicas=5, faults=(Fault(3.0, "halves", 0, 1.0),))
    assert shrunk(plan, lambda plan: bool(plan.faults)).replicas == 3


def test_the_runs_are_limited() -> None:
    shrinker = Shrinker(run, runs_max=3)
    assert shrinker.smallest(run(PLAN)).check == "lost send"
    assert shrinker.runs == 3


def test_a_failure_is_written_as_a_test_that_runs(tmp_path: Path) -> None:
    path = tmp_path / "test_seed.py"
    write_test(run(replace(PLAN, clients=1, brokers=1, sends=10, faults=PLAN.faults[1:2])), path, "abc123")
    assert "abc123" in path.read_text() and "# the last event" in path.read_text()
    ran = subprocess.run([sys.executable, "-m", "pytest", "-q", str(path)], capture_output=True, text=True)
    assert "1 passed" in ran.stdout, ran.stdout
