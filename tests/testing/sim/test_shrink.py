"""A failing plan becomes smaller, and a test that can be run."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

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
