"""Raft groups of real brokers in the simulator: whatever happens, what was promised holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flaremq.testing.sim.plan import KINDS, LEADER, MEMBER_KINDS, Fault, Plan, draw_group
from flaremq.testing.sim.runner import RunResult, run_plan, run_seed

QUICK = (1, 9, 23, 335)
MEMBERS = range(3)
HOUR_MS = 3_600_000


@pytest.fixture(
    params=[7, *(pytest.param(each, marks=pytest.mark.slow) for each in (8, 9, 10))],
)
def seed(request: pytest.FixtureRequest) -> int:
    """Of all that is left to chance."""
    found: int = request.param
    return found


def run(seed: int, *faults: Fault, strict: bool = False, timers: bool = False) -> RunResult:
    plan = Plan(seed=seed, replicas=3, clients=1, sends=20, length_s=15.0, faults=faults)
    result = run_plan(replace(plan, strict_names=strict, timers=timers))
    assert not result.check, "\n".join((*result.last, result.line()))
    return result


@pytest.mark.parametrize("seed", QUICK)
def test_what_was_promised_holds_in_groups(seed: int) -> None:
    result = run_seed(seed, groups=True)
    assert not result.check, "\n".join((*result.last, result.line()))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fifty", range(2))
def test_what_was_promised_holds_in_groups_for_many_seeds(fifty: int) -> None:
    for seed in range(50 * fifty, 50 * fifty + 50):
        test_what_was_promised_holds_in_groups(seed)


def test_a_seed_of_a_group_gives_the_same_events_again() -> None:
    assert run_seed(2, groups=True).digest == run_seed(2, groups=True).digest


@pytest.mark.parametrize("kind", ["kill", "power", "pause", "cut", "one way"])
def test_each_member_in_turn_is_lost_for_a_while(kind: str, seed: int) -> None:
    result = run(seed, *(Fault(3.0 + 4 * member, kind, member, 3.0) for member in MEMBERS))
    assert sum(result.faults.values()) >= len(MEMBERS)


def test_fault_3_a_whole_group_loses_its_power_at_once(seed: int) -> None:
    run(seed, Fault(5.0, "power all", 0, 1.0), Fault(10.0, "power all", 0, 1.0), strict=True)


@pytest.mark.parametrize("kind", ["sync error", "disk full", "read only"])
def test_faults_6_7_and_8_the_disk_of_a_member_fails(kind: str, seed: int) -> None:
    run(seed, *(Fault(3.0 + 4 * member, kind, member, 2.0, number=1) for member in MEMBERS))


@pytest.mark.parametrize("ahead_ms", [5000, HOUR_MS])
def test_fault_22_clocks_of_members_jump_apart(ahead_ms: int, seed: int) -> None:
    """Elections and leases rest on the time that passes, not on the time of day. Messages that name their
    moment all come, too; those that are sent while the clock is an hour ahead would come an hour later."""
    steps = (Fault(3.0 + at, "clock step", at, 1.0, -HOUR_MS if at % 2 else ahead_ms) for at in MEMBERS)
    run(seed, *steps, timers=ahead_ms < HOUR_MS)


def test_fault_9_each_member_in_turn_has_a_disk_that_hangs(seed: int) -> None:
    run(seed, *(Fault(3.0 + 4 * member, "slow disk", member, 3.0) for member in MEMBERS))


@pytest.mark.parametrize("target", MEMBERS)
def test_a_member_that_lost_its_disk_gets_all_again(target: int, seed: int) -> None:
    result = run(seed, Fault(5.0, "disk lost", target, 1.0), Fault(11.0, "disk lost", LEADER, 1.0))
    assert result.faults["disk lost"] == 2


@pytest.mark.parametrize("kind", ["kill", "cut", "pause"])
def test_three_of_five_do_all_the_work_while_two_stay_away(kind: str, seed: int) -> None:
    stays = (Fault(0.0, kind, LEADER, 0.0), Fault(0.0, kind, 1, 0.0))
    result = run_plan(Plan(seed=seed, replicas=5, clients=1, sends=20, length_s=8.0, stays=stays))
    assert not result.check, "\n".join((*result.last, result.line()))
    assert result.faults[kind] >= len(stays)


def test_fault_20_members_come_and_go_and_lead_in_turn(seed: int) -> None:
    faults = (
        Fault(3.0, "add member", 0, 1.0),
        Fault(5.0, "transfer", 1, 1.0),
        Fault(7.0, "remove member", LEADER, 1.0),
        Fault(10.0, "add member", 0, 1.0),
        Fault(12.0, "remove member", 0, 0.5),
    )
    result = run(seed, *faults)
    assert result.faults["add member"] == result.faults["remove member"] == 2


def test_mixed_plans_hold_every_kind_of_fault_and_strike_leaders() -> None:
    faults = [fault for seed in range(200) for fault in draw_group(seed).faults]
    assert {fault.kind for fault in faults} >= {*KINDS, *MEMBER_KINDS, "rot", "client kill"}
    assert {fault.kind for fault in faults if fault.target == LEADER} >= {"kill", "power", *MEMBER_KINDS}
    assert any(draw_group(seed).asks for seed in range(10))
    assert any(draw_group(seed).stays for seed in range(10))
