"""What a group does while all is well, and when one member is not: each rule by itself."""

from __future__ import annotations

import random

import pytest

from flaremq.base.errors import GroupUnsettled, InvalidParameter, NotMaster
from flaremq.dledger.member import Member
from flaremq.dledger.types import Empty, Heard, Message, Push, PushAnswer, Restart, TakeOver
from flaremq.testing.sim.raft.group import SimGroup
from flaremq.testing.sim.raft.ledger import members_of
from flaremq.testing.sim.raft.machine import SimMachine


def member(machine: SimMachine) -> Member:
    assert machine.member is not None
    return machine.member


def a_group() -> tuple[SimGroup, SimMachine]:
    """Three members that may all vote, and their leader."""
    group = SimGroup(3).start()
    leader = group.run_to_leader()
    assert group.run(2.0, lambda: all(each.is_voter for each in member(leader).peers(leader.clock())))
    return group, leader


def followers(group: SimGroup, leader: SimMachine) -> list[SimMachine]:
    return [each for each in group.machines.values() if each is not leader]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_new_group_elects_a_leader_and_all_its_members_may_vote_from_then_on(size: int) -> None:
    group = SimGroup(size).start()
    leader = group.run_to_leader(within_s=4.0)
    group.run(1.0)
    assert [member(each).leader for each in group.machines.values()] == [leader.name] * size
    assert all(each.ledger.ballot.is_voter for each in group.machines.values())


def test_a_new_group_begins_only_when_all_its_members_are_there() -> None:
    group = SimGroup(3)
    group.machines["n0"].start()
    group.machines["n1"].start()
    assert not group.run(20.0, lambda: group.leader is not None)
    group.machines["n2"].start()
    group.run_to_leader()


def test_what_is_appended_is_committed_everywhere_in_its_order() -> None:
    group, leader = a_group()
    last = group.append(leader, 50)
    group.run_to_commit(last, within_s=0.1)
    assert [entry.value for entry in group.promises.decided[-50:]] == [
        b"value %d" % number for number in range(1, 51)
    ]
    assert group.promises.acknowledged.keys() == set(range(last - 49, last + 1))


def test_followers_hear_of_a_commit_at_once_and_not_at_the_next_beat() -> None:
    group, leader = a_group()
    group.run(0.5)
    group.run_to_commit(group.append(leader), within_s=group.pace.heartbeat_s / 4)


def test_a_killed_leader_is_replaced_and_follows_when_it_is_back() -> None:
    group, old = a_group()
    group.run_to_commit(group.append(old, 10))
    old.kill()
    new = group.run_to_leader(within_s=4.0)
    last = group.append(new, 10)
    old.start()
    group.run_to_commit(last, within_s=3.0)
    assert member(old).leader == new.name


def test_a_leader_that_was_cut_off_stops_answering_before_another_one_is_elected() -> None:
    group, old = a_group()
    group.isolate(old.name)
    assert not group.run(group.pace.election_s, lambda: not old.answers) or not old.answers
    group.run(group.pace.election_s)
    assert not old.answers
    assert group.run_to_leader() is not old
    group.join()
    group.run(1.0)
    assert not old.is_leading


def test_a_leader_without_a_majority_steps_down() -> None:
    group, leader = a_group()
    for each in followers(group, leader):
        each.kill()
    assert group.run(2.5 * group.pace.election_s, lambda: not leader.is_leading)


def test_a_member_that_was_cut_off_does_not_unseat_the_leader_when_it_comes_back() -> None:
    group, leader = a_group()
    term = member(leader).term
    away = followers(group, leader)[0]
    group.isolate(away.name)
    group.run(30.0)
    group.join()
    group.run(3.0)
    assert leader.answers
    assert {member(each).term for each in group.machines.values()} == {term}


def test_leadership_is_handed_over_without_an_election_timeout() -> None:
    group, old = a_group()
    group.append(old, 20)
    to = followers(group, old)[1]
    assert group.transfer(old, to.name)
    assert not old.may_append
    assert group.run(0.1, lambda: to.answers)
    assert member(old).leader == to.name or group.run(0.1, lambda: member(old).leader == to.name)


def test_a_handover_to_a_member_that_does_not_answer_is_given_up() -> None:
    group, leader = a_group()
    to = followers(group, leader)[0]
    to.kill()
    assert group.transfer(leader, to.name)
    assert not leader.may_append
    assert group.run(2.5 * group.pace.election_s, lambda: leader.may_append and leader.answers)


def test_a_leader_does_not_answer_from_when_it_has_asked_another_one_to_take_over() -> None:
    group, leader = a_group()
    to = followers(group, leader)[0]
    group.heard_by = lambda _sender, _to, message: not isinstance(message, TakeOver)
    group.transfer(leader, to.name)
    assert group.run(0.1, lambda: not leader.answers)
    assert group.run(3 * group.pace.election_s, lambda: leader.answers and leader.may_append)


def test_a_preferred_member_leads_when_it_can() -> None:
    group = SimGroup(3, preferred=("n1",)).start()
    assert group.run(20.0, lambda: group.machines["n1"].answers)
    group.machines["n1"].kill()
    other = group.run_to_leader()
    assert other.name != "n1"
    group.machines["n1"].start()
    assert group.run(20.0, lambda: group.machines["n1"].answers)


def test_a_member_is_added_and_catches_up() -> None:
    group, leader = a_group()
    group.run_to_commit(group.append(leader, 100))
    four = members_of(["n0", "n1", "n2", "n3"])
    group.build("n3", four).start()
    leader.change(four)
    group.run_to_commit(leader.ledger.last_index)
    assert group.run(5.0, lambda: group.machines["n3"].ledger.ballot.is_voter)
    assert member(leader).membership.ids == ("n0", "n1", "n2", "n3")


def test_a_removed_leader_steps_down_and_another_one_leads_at_once() -> None:
    group, old = a_group()
    rest = [each.name for each in followers(group, old)]
    old.change(members_of(rest))
    assert group.run(0.2, lambda: group.leader is not None and group.leader.name in rest)
    assert not old.is_leading


def test_members_change_one_at_a_time() -> None:
    group, leader = a_group()
    with pytest.raises(InvalidParameter, match="one member added or removed"):
        leader.change(members_of(["n0", "n1", "n2", "n3", "n4"]))
    for each in followers(group, leader):
        group.isolate(each.name)
    leader.change(members_of(["n0", "n1", "n2", "n3"]))
    with pytest.raises(GroupUnsettled, match="has not decided on its last change"):
        leader.change(members_of(["n0", "n1", "n2"]))


def test_only_the_leader_changes_members_and_hands_over() -> None:
    group = SimGroup(3).start()
    other = followers(group, group.run_to_leader())[0]
    with pytest.raises(NotMaster, match="does not lead its group"):
        member(other).check_change(members_of(["n0", "n1"]))
    with pytest.raises(NotMaster, match="does not lead its group"):
        member(other).check_transfer("n0")


def test_a_member_that_lost_its_disk_may_vote_again_only_when_it_has_caught_up() -> None:
    group, leader = a_group()
    last = group.append(leader, 200)
    group.run_to_commit(last)
    lost = followers(group, leader)[0]
    lost.lose_disk()
    group.heard_by = lambda _sender, to, message: (
        not (to == lost.name and isinstance(message, Push) and message.run)
    )
    lost.start()
    group.run(5.0)
    assert not member(lost).is_voter
    group.heard_by = lambda _sender, _to, _message: True
    assert group.run(3.0, lambda: lost.ledger.ballot.is_voter)
    assert lost.ledger.synced_index >= last


def test_a_slow_member_is_caught_up_from_where_the_logs_meet_within_a_few_round_trips() -> None:
    group, leader = a_group()
    slow = followers(group, leader)[0]
    group.isolate(slow.name)
    group.append(leader, 5000)
    group.run(1.0)
    group.join()
    group.run_to_commit(leader.ledger.last_index, within_s=0.5)


def test_a_member_that_needs_what_is_deleted_begins_anew() -> None:
    group, leader = a_group()
    slow = followers(group, leader)[0]
    group.isolate(slow.name)
    group.append(leader, 100)
    group.run(1.0)
    leader.ledger.drop(50, knows_term=False)
    group.join()
    group.run_to_commit(leader.ledger.last_index, within_s=1.0)
    assert slow.ledger.first_index == 50


def test_a_member_that_began_anew_is_pushed_to_even_if_its_answer_was_lost() -> None:
    group, leader = a_group()
    slow = followers(group, leader)[0]
    group.isolate(slow.name)
    group.append(leader, 100)
    group.run(1.0)
    leader.ledger.drop(50, knows_term=False)
    group.heard_by = lambda sender, _to, message: (
        not (sender == slow.name and isinstance(message, PushAnswer) and message.is_matching)
    )
    group.join()
    assert group.run(2.0, lambda: slow.ledger.first_index == 50)
    group.run(0.1)
    group.heard_by = lambda _sender, _to, _message: True
    group.run_to_commit(leader.ledger.last_index, within_s=1.0)


def test_a_late_copy_of_an_order_to_begin_anew_destroys_nothing() -> None:
    group, leader = a_group()
    slow = followers(group, leader)[0]
    group.isolate(slow.name)
    group.append(leader, 100)
    group.run(1.0)
    leader.ledger.drop(50, knows_term=False)
    orders: list[Restart] = []

    def noted(_sender: str, _to: str, message: Message) -> bool:
        orders.extend([message] if isinstance(message, Restart) else [])
        return True

    group.heard_by = noted
    group.join()
    group.run_to_commit(group.append(leader, 10), within_s=1.0)
    late = Heard(leader.name, orders[0])
    actions = member(slow).step(late, slow.clock(), random.Random(0))
    assert not any(isinstance(action, Empty) for action in actions)


def test_a_leader_whose_disk_fails_steps_down_and_is_silent() -> None:
    group, old = a_group()
    old.is_failed = True
    assert group.run(group.pace.election_s, lambda: not old.is_leading)
    new = group.run_to_leader()
    assert new is not old
    old.kill()
    old.start()
    group.run_to_commit(group.append(new, 10), within_s=3.0)


# Damage.


def test_a_member_that_knows_of_damage_in_its_log_leaves_the_lead_to_another_one() -> None:
    group, old = a_group()
    group.run_to_commit(group.append(old, 10))
    damaged, sound = followers(group, old)
    damaged.ledger.is_damaged = True
    old.kill()
    assert group.run_to_leader(within_s=6.0) is sound
    group.run_to_commit(group.append(sound, 10))


def test_a_damaged_member_with_the_longest_log_leads_as_soon_as_it_is_repaired() -> None:
    group, old = a_group()
    damaged, short = followers(group, old)
    group.isolate(short.name)
    last = group.append(old, 10)
    assert group.run(1.0, lambda: damaged.committed >= last)
    damaged.ledger.is_damaged = True
    old.kill()
    group.join()
    assert not group.run(20.0, lambda: group.leader is not None)
    damaged.ledger.is_damaged = False
    assert group.run_to_leader(within_s=6.0) is damaged


def test_a_damaged_member_votes_and_counts() -> None:
    group, leader = a_group()
    damaged, other = followers(group, leader)
    damaged.ledger.is_damaged = True
    other.kill()
    group.run_to_commit(group.append(leader, 10), within_s=2.0)
    assert leader.answers


def test_leadership_is_not_handed_over_to_a_member_that_is_silent() -> None:
    group, leader = a_group()
    dead = followers(group, leader)[0]
    dead.kill()
    group.run(2.0)
    with pytest.raises(GroupUnsettled, match=f"{dead.name} has not been heard of lately: start it"):
        member(leader).check_transfer(dead.name)


def test_leadership_is_not_handed_over_to_a_damaged_member() -> None:
    group, leader = a_group()
    damaged = followers(group, leader)[0]
    damaged.ledger.is_damaged = True
    group.run(1.0)
    with pytest.raises(GroupUnsettled, match="damaged"):
        member(leader).check_transfer(damaged.name)
    assert [each.is_damaged for each in member(leader).peers(0.0)].count(True) == 1


def test_a_preferred_member_leads_only_when_it_is_repaired() -> None:
    group = SimGroup(3, preferred=("n1",))
    group.machines["n1"].ledger.is_damaged = True
    group.start()
    assert not group.run(20.0, lambda: group.machines["n1"].is_leading)
    leader = group.leader
    assert leader is not None
    term = member(leader).term
    group.machines["n1"].ledger.is_damaged = False
    assert group.run(20.0, lambda: group.machines["n1"].answers)
    assert member(group.machines["n1"]).term == term + 1  # Nothing was tried in vain before.


def test_a_damaged_member_that_is_asked_to_take_over_does_not() -> None:
    group, leader = a_group()
    to = followers(group, leader)[0]
    to.ledger.is_damaged = True  # Its leader has not heard of that yet.
    assert group.transfer(leader, to.name)
    assert group.run(3 * group.pace.election_s, lambda: leader.answers and leader.may_append)
    assert not to.is_leading


def test_a_group_of_one_is_led_by_its_only_member_damaged_or_not() -> None:
    group = SimGroup(1)
    group.machines["n0"].ledger.is_damaged = True
    group.start()
    group.run_to_leader(within_s=4.0)


def test_a_leader_that_finds_damage_serves_on_until_another_one_takes_over() -> None:
    group, leader = a_group()
    leader.ledger.is_damaged = True
    group.run_to_commit(group.append(leader, 10), within_s=1.0)
    to = followers(group, leader)[0]
    assert group.transfer(leader, to.name)
    assert group.run(1.0, lambda: to.answers)
