"""Raft groups of real brokers in the simulator: whatever happens, what was promised holds."""

from __future__ import annotations

import pytest

from flaremq.testing.sim.plan import Fault, Plan
from flaremq.testing.sim.runner import RunResult, run_plan, run_seed

QUICK = (1, 9, 23, 47, 137, 335)
MEMBERS = range(3)


def run(*faults: Fault, strict: bool = False) -> RunResult:
    plan = Plan(seed=7, replicas=3, clients=1, sends=20, length_s=15.0, faults=faults, strict_names=strict)
    result = run_plan(plan)
    assert not result.check, "\n".join((*result.last, result.line()))
    return result


@pytest.mark.parametrize("seed", QUICK)
def test_what_was_promised_holds_in_groups(seed: int) -> None:
    result = run_seed(seed, groups=True)
    assert not result.check, "\n".join((*result.last, result.line()))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fifty", range(10))
def test_what_was_promised_holds_in_groups_for_many_seeds(fifty: int) -> None:
    for seed in range(50 * fifty, 50 * fifty + 50):
        test_what_was_promised_holds_in_groups(seed)


def test_a_seed_of_a_group_gives_the_same_events_again() -> None:
    assert run_seed(2, groups=True).digest == run_seed(2, groups=True).digest


@pytest.mark.parametrize("kind", ["kill", "power", "pause", "cut", "one way"])
def test_each_member_in_turn_is_lost_for_a_while(kind: str) -> None:
    result = run(*(Fault(3.0 + 4 * member, kind, member, 3.0) for member in MEMBERS))
    assert sum(result.faults.values()) >= len(MEMBERS)


def test_fault_3_a_whole_group_loses_its_power_at_once() -> None:
    run(Fault(5.0, "power all", 0, 1.0), Fault(10.0, "power all", 0, 1.0), strict=True)


@pytest.mark.parametrize("kind", ["sync error", "disk full", "read only"])
def test_faults_6_7_and_8_the_disk_of_a_member_fails(kind: str) -> None:
    run(*(Fault(3.0 + 4 * member, kind, member, 2.0, number=1) for member in MEMBERS))


def test_fault_22_clocks_of_members_jump_apart() -> None:
    """Elections and leases rest on the time that passes, not on the time of day."""
    run(*(Fault(3.0 + member, "clock step", member, 1.0, (-1) ** member * 3_600_000) for member in MEMBERS))
