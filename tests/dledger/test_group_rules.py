"""Groups under faults: by seed, and the faults that a broker must survive by their numbers."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest

from flaremq.dledger.member import Member
from flaremq.dledger.types import Ballot, Heard, Push, Tell, Truncate, VoteAnswer, VoteRequest, Write
from flaremq.testing.sim.plan import Fault
from flaremq.testing.sim.raft.group import SimGroup, WayQuality
from flaremq.testing.sim.raft.ledger import SimEntry, members_of
from flaremq.testing.sim.raft.machine import SimMachine
from flaremq.testing.sim.raft.plan import LEADER, GroupPlan
from flaremq.testing.sim.raft.runner import GroupResult, run_plan, run_seed

PLAN = GroupPlan(seed=1, length_s=12.0)
CODE = "from flaremq.testing.sim.raft.runner import run_seed; print(run_seed(7).digest)"


def member(machine: SimMachine) -> Member:
    assert machine.member is not None
    return machine.member


def a_group(size: int = 3, seed: int = 0) -> tuple[SimGroup, SimMachine]:
    group = SimGroup(size, seed).start()
    leader = group.run_to_leader()
    assert group.run(2.0, lambda: all(each.is_voter for each in member(leader).peers(leader.clock())))
    return group, leader


def others(group: SimGroup, *those: SimMachine) -> list[SimMachine]:
    return [each for each in group.machines.values() if each not in those]


def holds(plan: GroupPlan, *kinds: str) -> GroupResult:
    result = run_plan(plan)
    assert not result.check, "\n".join((result.line(), *result.last[-50:]))
    assert all(result.faults[kind] for kind in kinds), (kinds, result.faults)
    return result


# By seed.


@pytest.mark.parametrize("ten", range(6))
def test_what_a_group_promises_holds(ten: int) -> None:
    for seed in range(10 * ten, 10 * ten + 10):
        result = run_seed(seed)
        assert not result.check, "\n".join((result.line(), *result.last[-50:]))


@pytest.mark.parametrize("seed", [471, 2058])
def test_logs_rot_where_disks_are_lost_and_a_copy_of_everything_is_left(seed: int) -> None:
    assert not run_seed(seed).check


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_what_a_group_promises_holds_for_many_seeds() -> None:
    failed = [result.line() for seed in range(60, 2000) if (result := run_seed(seed)).check]
    assert not failed, "\n".join(failed)


def test_a_seed_gives_the_same_events_in_another_process_with_other_hashes() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", CODE],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "77")
    }
    assert found == {f"{run_seed(7).digest}\n"}


# By number.


@pytest.mark.parametrize("target", [LEADER, 0, 1])
def test_faults_1_and_2_a_member_is_killed_or_loses_its_power(target: int) -> None:
    faults = (Fault(4.0, "kill", target, 1.0), Fault(6.0, "power", target, 1.0))
    holds(replace(PLAN, faults=faults), "kill", "power")


@pytest.mark.parametrize("kind", ["power all", "without leader"])
@pytest.mark.parametrize("size", [3, 5])
def test_fault_3_all_lose_their_power_at_once(kind: str, size: int) -> None:
    result = holds(replace(PLAN, size=size, sync_s=0.05, faults=(Fault(5.0, kind, 0, 1.0, 3),)), "power")
    assert result.faults["power"] == size


def test_fault_6_a_sync_that_fails_once_ends_leading() -> None:
    group, leader = a_group()
    leader.is_failed = True
    group.append(leader, 3)
    assert group.run(group.pace.election_s, lambda: not leader.is_leading)
    assert leader.ledger.synced_index < leader.ledger.last_index
    new = group.run_to_leader()
    leader.lose_power()
    leader.start()
    group.run_to_commit(group.append(new))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_faults_7_and_8_a_full_or_read_only_disk_ends_leading_and_nothing_is_half_done(number: int) -> None:
    faults = (Fault(4.0, "disk full", LEADER, 3.0, number), Fault(5.0, "disk full", 1, 3.0, number + 3))
    holds(replace(PLAN, faults=faults), "disk full", "not fit")


def test_fault_9_a_leader_with_a_slow_disk_answers_when_others_have_synced_or_not_at_all() -> None:
    group, leader = a_group()
    leader.sync_s = 2.0
    last = group.append(leader)
    assert group.run(0.5, lambda: last in group.promises.acknowledged)
    assert leader.ledger.synced_index < last


def test_faults_10_and_12_a_member_with_damaged_entries_does_not_lead_before_it_has_them_again() -> None:
    group, leader = a_group()
    last = group.append(leader, 50)
    group.run_to_commit(last)
    damaged, third = others(group, leader)
    damaged.lose_entries(last - 30)
    third.kill()
    damaged.start()
    group.run(3.0)
    assert not damaged.is_leading
    leader.kill()
    damaged.kill()
    damaged.start()
    third.start()
    group.run(5.0)
    assert not damaged.is_leading
    leader.start()
    group.run_to_leader()
    group.run_to_commit(last)


def test_fault_11_a_member_that_lost_its_ballot_elects_nobody() -> None:
    group, leader = a_group()
    lost, third = others(group, leader)
    lost.kill()
    lost.ledger.ballot, lost.ledger.has_ballot = Ballot(), False
    leader.kill()
    lost.start()
    assert not group.run(10.0, lambda: group.leader is not None)
    assert third.is_running
    leader.start()
    group.run_to_leader()


def test_faults_11_and_42_a_member_whose_ballot_is_older_than_its_log_elects_nobody() -> None:
    """It would vote once more in the term of the leader that it has followed."""
    group, first = a_group()
    first.kill()
    leader = group.run_to_leader()
    first.start()
    group.run_to_commit(group.append(leader, 10))
    old = next(each for each in others(group, leader) if each is not first)
    assert group.run(5.0, lambda: old.ledger.last_index == leader.ledger.last_index)
    old.kill()
    leader.kill()
    old.ledger.ballot = Ballot(leader.ledger.last_term - 1, first.name)
    old.start()
    assert not group.run(10.0, lambda: group.leader is not None)
    assert (member(old).term, member(old).is_voter) == (old.ledger.last_term, False)
    leader.start()
    group.run_to_leader()
    assert group.run(10.0, lambda: member(old).is_voter)


def test_a_lone_member_that_lost_its_ballot_leads_in_a_later_term_than_its_log() -> None:
    group, leader = a_group(1)
    for _ in range(3):
        leader.kill()
        leader.start()
        group.run_to_commit(group.append(group.run_to_leader()))
    before = leader.ledger.last_term
    leader.kill()
    leader.ledger.ballot, leader.ledger.has_ballot = Ballot(), False
    leader.start()
    group.run_to_commit(group.append(group.run_to_leader()))
    assert leader.ledger.last_term > before


def test_fault_13_a_member_restored_from_a_backup_gets_what_it_lacks_and_brings_nothing_back() -> None:
    group, leader = a_group()
    old = others(group, leader)[0]
    first = group.append(leader, 10)
    group.run_to_commit(first)
    backup = old.ledger.ballot
    last = group.append(leader, 10)
    group.run_to_commit(last)
    old.lose_entries(first + 1)
    old.ledger.ballot = backup
    old.start()
    group.run_to_commit(group.append(leader))
    assert [old.ledger.entry(at) for at in range(last)] == [leader.ledger.entry(at) for at in range(last)]


@pytest.mark.parametrize("way", ["in", "out", "both"])
def test_faults_14_and_16_a_leader_that_is_cut_off_answers_no_longer_than_its_lease(way: str) -> None:
    group, leader = a_group()
    rest = {each.name for each in others(group, leader)}
    if way == "in":
        group.cut(rest, {leader.name}, one_way=True)
    elif way == "out":
        group.cut({leader.name}, rest, one_way=True)
    else:
        group.isolate(leader.name)
    group.run(group.pace.lease_s)
    assert not leader.answers
    lonely = group.append(leader)
    group.run(4.0)
    assert lonely not in group.promises.acknowledged


@pytest.mark.parametrize("kind", ["halves", "bridge", "isolate", "link"])
def test_fault_15_partitions_of_five_leave_one_leader_and_heal(kind: str) -> None:
    faults = tuple(Fault(3.0 + 2 * number, kind, number, 1.5, number) for number in range(4))
    holds(replace(PLAN, size=5, faults=faults), "cut")


def test_fault_17_a_leader_that_stood_still_is_fenced_before_it_answers() -> None:
    group, leader = a_group()
    leader.pause()
    new = group.run_to_leader()
    group.run(30.0)
    leader.resume()
    assert not leader.answers
    group.run_to_commit(group.append(new))
    assert not leader.is_leading


def test_fault_18_a_partition_and_then_a_killed_majority() -> None:
    faults = (Fault(3.0, "isolate", LEADER, 2.0), Fault(3.5, "kill", 0, 2.0), Fault(3.6, "kill", 1, 2.0))
    holds(replace(PLAN, faults=faults), "cut", "kill")


@pytest.mark.parametrize("first", ["n0", "n1", "n2"])
def test_fault_19_whichever_members_start_first_keep_what_was_acknowledged(first: str) -> None:
    group, leader = a_group()
    late = others(group, leader)[0]
    late.pause()
    last = group.append(leader, 20)
    group.run(0.5)
    assert last in group.promises.acknowledged
    for each in group.machines.values():
        each.lose_power()
    group.machines[first].start()
    group.run(2.0)
    others(group, group.machines[first])[0].start()
    group.run(5.0)
    for each in group.machines.values():
        if not each.is_running:
            each.start()
    group.run_to_commit(group.append(group.run_to_leader()))
    group.promises.at_the_end()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fault_20_members_change_while_others_are_killed_and_cut_off(seed: int) -> None:
    faults = (
        Fault(3.0, "add", LEADER, 1.0, seed),
        Fault(3.1, "isolate", LEADER, 1.0),
        Fault(5.5, "remove", LEADER, 1.0, seed),
        Fault(5.6, "power", 0, 1.0),
        Fault(8.0, "add", LEADER, 1.0, seed + 1),
        Fault(8.05, "kill", LEADER, 1.0),
    )
    holds(replace(PLAN, seed=seed, faults=faults), "change")


def test_fault_22_clocks_that_drift_apart() -> None:
    holds(replace(PLAN, drift=0.05, faults=(Fault(4.0, "isolate", LEADER, 3.0),)), "cut")


def test_fault_23_late_lost_repeated_and_reordered_messages() -> None:
    quality = WayQuality(latency_s=0.1, loss=0.2, repeated=0.2, spike=0.1, in_order=False)
    result = holds(replace(PLAN, quality=quality, length_s=20.0))
    assert result.decided > 100


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_faults_30_43_and_45_leaders_in_turn_with_tails_that_are_given_up(seed: int) -> None:
    faults = tuple(Fault(3.0 + 3 * number, "short reigns", LEADER, 0.5, seed + number) for number in range(3))
    quality = WayQuality(latency_s=0.02)
    holds(replace(PLAN, seed=seed, size=5, quality=quality, faults=faults), "power")


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_fault_42_power_is_lost_between_a_vote_and_its_answer(seed: int) -> None:
    faults = tuple(Fault(2.0 + 4 * at, "power at votes", LEADER, 0.5, seed + at) for at in range(2))
    holds(replace(PLAN, seed=seed, sync_s=0.02, faults=faults), "power")


def test_fault_44_one_member_loses_its_tail_while_another_one_is_cut_off() -> None:
    group, leader = a_group()
    away, lost = others(group, leader)
    group.isolate(away.name)
    last = group.append(leader, 20)
    assert group.run(1.0, lambda: last in group.promises.acknowledged)
    lost.lose_entries(last - 10)
    lost.start()
    leader.kill()
    group.join()
    group.run(5.0)
    assert group.leader is None
    leader.start()
    group.run_to_commit(group.append(group.run_to_leader()))
    group.promises.at_the_end()


def test_fault_46_a_leader_whose_disk_stalls_steps_down_and_is_not_elected_while_it_lasts() -> None:
    group, leader = a_group()
    leader.stalled_until = group.now + 10.0
    group.append(leader)
    assert group.run(group.pace.election_s + group.pace.heartbeat_s, lambda: not leader.is_leading)
    assert group.run_to_leader() is not leader
    assert not group.run(5.0, lambda: leader.is_leading)


def test_fault_47_a_leader_of_an_old_term_is_told_so_and_follows() -> None:
    group, old = a_group()
    group.isolate(old.name)
    new = group.run_to_leader()
    group.join()
    assert group.run(1.0, lambda: member(old).leader == new.name)


def test_fault_50_members_that_are_configured_otherwise_do_not_count_each_other() -> None:
    group = SimGroup(3)
    group.build("n2", members_of(["n0", "n1", "n2", "n3"]))
    group.start()
    assert not group.run(10.0, lambda: group.leader is not None)
    for name, strangers in (("n0", ["n2"]), ("n1", ["n2"]), ("n2", ["n0", "n1"])):
        peers = member(group.machines[name]).peers(group.now)
        assert [each.member for each in peers if each.is_configured_otherwise] == strangers


# Rules that take a scenario of their own.


def test_an_entry_of_an_older_term_is_committed_only_behind_one_of_the_own_term() -> None:
    """Figure 8 of the Raft paper: on a majority is not enough for it."""
    group, old = a_group(size=3)
    a, b = others(group, old)
    group.cut({old.name}, {a.name, b.name})
    tail = group.append(old)
    group.run(0.1)
    old.kill()
    new = group.run_to_leader()
    group.run_to_commit(group.append(new))
    old.start()
    group.join()
    group.run_to_commit(group.append(new))
    assert old.ledger.entry(tail).value != b"value 1"


def test_a_vote_is_saved_before_it_is_told() -> None:
    group, leader = a_group()
    told: list[tuple[str, int, int]] = []

    def hear(sender: str, _to: str, message: object) -> bool:
        if isinstance(message, VoteAnswer) and message.is_granted and not message.is_poll:
            told.append((sender, message.term, group.machines[sender].ledger.ballot.term))
        return True

    group.heard_by = hear
    leader.kill()
    group.run_to_leader()
    assert told and all(term <= saved for _, term, saved in told)


def test_nobody_votes_within_an_election_timeout_of_hearing_a_leader() -> None:
    group, leader = a_group()
    voter, asking = others(group, leader)
    term = member(leader).term
    request = VoteRequest(term + 1, 1_000, term, is_poll=False, is_transfer=False)
    voter.heard(asking.name, request)
    voter.heard(asking.name, replace(request, is_poll=True))
    group.run(0.1)
    assert voter.ledger.ballot.term == term


def test_an_order_to_take_over_that_comes_late_elects_nobody() -> None:
    group, leader = a_group()
    to = others(group, leader)[0]
    term = member(leader).term
    late = VoteRequest(term + 1, 1_000, term, is_poll=False, is_transfer=True, round=0)
    others(group, leader)[1].heard(to.name, late)
    group.run(0.1)
    assert leader.answers and member(leader).term == term


def test_what_is_not_synced_is_not_acknowledged() -> None:
    group, leader = a_group()
    slow, other = others(group, leader)
    slow.stalled_until = other.stalled_until = group.now + 0.5
    last = group.append(leader)
    assert not group.run(0.4, lambda: last in group.promises.acknowledged)
    assert group.run(0.5, lambda: last in group.promises.acknowledged)


def test_a_member_whose_log_ends_with_a_long_wrong_tail_meets_the_leader_in_a_few_round_trips() -> None:
    group, old = a_group()
    group.isolate(old.name)
    group.append(old, 3000)
    new = group.run_to_leader()
    group.append(new, 10)
    group.run(1.0)
    pushes: list[Push] = []

    def hear(_sender: str, to: str, message: object) -> bool:
        if to == old.name and isinstance(message, Push) and message.run is None:
            pushes.append(message)
        return True

    group.heard_by = hear
    group.join()
    group.run_to_commit(new.ledger.last_index, within_s=1.0)
    assert len({push.previous_index for push in pushes}) <= 5


def test_a_member_refuses_to_give_up_what_is_committed_and_says_nothing_more() -> None:
    group, leader = a_group()
    follower = others(group, leader)[0]
    group.run_to_commit(group.append(leader, 5))
    committed = member(follower).commit
    foreign = SimGroup(3).machines["n0"].ledger
    for _ in range(committed + 1):
        foreign.append(SimEntry(99, b"foreign"))
    run = foreign.run(committed, 10_000)
    assert run is not None
    push = Push(99, committed - 1, 99, committed, 1, run)
    assert follower.member is not None
    actions = follower.member.step(Heard(leader.name, push), follower.clock(), random.Random(1))
    assert not any(isinstance(action, Truncate | Write | Tell) for action in actions)
    assert "is committed" in follower.member.why_silent
