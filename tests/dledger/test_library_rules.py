"""The library's rules on a pretend network: who leads, what is decided on, and that it stays."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from tests.dledger.pretendgroup import FILE, PACE, MemoryLedger, PretendGroup, an_entry

from flaremq.base.errors import GroupUnsettled, InvalidParameter, NotMaster
from flaremq.dledger.library.messages import BeatCall, LibraryCall, LibraryEntry, PushCall, PushReply, Result
from flaremq.dledger.library.rules import LibraryMember
from flaremq.dledger.library.state import Asked, Drain, ReplyTo
from flaremq.dledger.types import Ballot, Membership, Standing, Synced, Tick, Truncate, Write


def settled(group: PretendGroup, for_s: float = 60.0) -> None:
    assert group.run(for_s, group.settled), "the group does not settle"


def votes(group: PretendGroup, name: str) -> bool:
    rules = group.all[name].rules
    return rules is not None and rules.is_voter


def fill(group: PretendGroup, number: int, body: bytes = b"message") -> None:
    settled(group)
    for n in range(number):
        assert group.put(b"%s %d" % (body, n))
    settled(group)


@pytest.mark.parametrize("batch_bytes", [0, 4096])
def test_a_new_group_elects_a_leader_and_everybody_gets_its_entries(batch_bytes: int) -> None:
    group = PretendGroup(1, batch_bytes=batch_bytes)
    fill(group, 300)
    logs = [each.ledger.entries for each in group.all.values()]
    assert logs[0] == logs[1] == logs[2]
    assert len(logs[0]) == 301


def test_when_the_leader_dies_another_one_leads_within_ten_seconds_and_keeps_all() -> None:
    group = PretendGroup(2)
    fill(group, 20)
    first = group.leader()
    assert first is not None
    group.kill(first.name)
    assert group.run(10.0, lambda: group.leader() not in (None, first))
    fill(group, 20, b"later")
    group.start(first.name)
    settled(group)
    assert first.ledger.last_index == 41


def test_entries_that_only_a_lost_leader_had_are_given_up() -> None:
    group = PretendGroup(3)
    fill(group, 5)
    lost = group.leader()
    assert lost is not None
    others = [each for each in group.ids if each != lost.name]
    group.cut = {frozenset({lost.name, each}) for each in others}
    assert group.put(b"nobody hears this")
    assert group.run(30.0, lambda: group.leader() not in (None, lost))
    assert lost.ledger.entries[-1].data.endswith(b"nobody hears this")
    group.cut = set()
    fill(group, 3, b"new")
    assert not any(each.data.endswith(b"nobody hears this") for each in lost.ledger.entries)


def test_a_leader_that_a_majority_does_not_answer_leaves_clients_unanswered_and_then_leads_no_more() -> None:
    group = PretendGroup(4)
    fill(group, 1)
    lost = group.leader()
    assert lost is not None and lost.rules is not None
    group.cut = {frozenset({lost.name, each}) for each in group.ids}
    since = group.now
    assert group.run(30.0, lambda: lost.rules is not None and not lost.rules.may_answer(group.now))
    assert group.now - since < 6.5
    assert group.run(30.0, lambda: lost.rules is not None and lost.rules.standing is not Standing.LEADER)
    assert group.now - since < 9.0


def test_a_leader_hands_over_when_it_is_asked_to_and_takes_no_messages_meanwhile() -> None:
    group = PretendGroup(5)
    fill(group, 10)
    old = group.leader()
    assert old is not None and old.rules is not None
    to = next(each for each in group.ids if each != old.name)
    with pytest.raises(InvalidParameter, match="n7 is not another member"):
        old.rules.check_transfer("n7")
    since = group.now
    group.transfer(to)
    assert not old.rules.may_append
    with pytest.raises(GroupUnsettled, match="already hands over"):
        old.rules.check_transfer(to)
    assert group.run(5.0, lambda: (leader := group.leader()) is not None and leader.name == to)
    assert group.now - since < 1.0
    with pytest.raises(NotMaster, match="does not lead its group"):
        old.rules.check_transfer(to)
    fill(group, 10)


def test_a_member_that_cannot_be_reached_is_not_handed_over_to() -> None:
    group = PretendGroup(6)
    fill(group, 1)
    leader = group.leader()
    assert leader is not None and leader.rules is not None
    gone = next(each for each in group.ids if each != leader.name)
    group.kill(gone)
    group.run(10.0)
    with pytest.raises(GroupUnsettled, match="cannot be reached"):
        leader.rules.check_transfer(gone)


def test_a_leader_that_is_not_preferred_hands_over_to_one_that_is() -> None:
    group = PretendGroup(7, preferred=("n2",))
    assert group.run(60.0, lambda: (leader := group.leader()) is not None and leader.name == "n2")
    settled(group)
    group.kill("n2")
    assert group.run(20.0, lambda: group.leader() is not None)
    fill(group, 10)
    group.start("n2")
    assert group.run(60.0, lambda: (leader := group.leader()) is not None and leader.name == "n2")


def test_a_member_with_an_empty_folder_votes_only_after_it_has_followed_for_a_while() -> None:
    group = PretendGroup(8)
    fill(group, 30)
    leader = group.leader()
    assert leader is not None
    wiped, other = (each for each in group.ids if each != leader.name)
    group.wipe(wiped)
    group.start(wiped)
    settled(group)
    assert not votes(group, wiped)
    assert group.all[wiped].ledger.entries == leader.ledger.entries
    group.run(13.0)
    fill(group, 1)
    assert votes(group, wiped)
    ballot = group.all[wiped].ballot
    assert ballot is not None and ballot.is_voter
    group.kill(other)
    group.kill(leader.name)
    group.start(leader.name)
    assert group.run(30.0, lambda: group.leader() is not None)


class Alone:
    """One member, and a test that is its leader."""

    def __init__(self, entries: int, *, may_vote: bool = True) -> None:
        members = Membership({"n0": "a:1", "n1": "b:1", "n2": "c:1"})
        self.ledger = MemoryLedger(members)
        for n in range(entries):
            self.ledger.append(1, b"%d" % n)
        self.ledger.synced_index = self.ledger.last_index
        self.now = 0.0
        self.rng = random.Random(1)
        ballot = Ballot(1)
        self.rules = LibraryMember(
            *("n0", self.ledger, ballot, PACE, 0.0),
            members=members.addresses,
            rng=self.rng,
            may_vote=may_vote,
        )
        self.asked(BeatCall(1, "n1"))

    def asked(self, call: LibraryCall) -> list[Any]:
        """What it does."""
        done = list(self.rules.step(Asked("n1", call, "ticket"), self.now, self.rng))
        done += self.rules.step(Drain(), self.now, self.rng)
        for each in done:
            if isinstance(each, Write):
                self.ledger.append_run(each.run)
            elif isinstance(each, Truncate):
                self.ledger.truncate_from(each.first)
        return done

    def push(self, kind: str, *entries: LibraryEntry, commit: int = -1) -> list[Any]:
        return self.asked(PushCall(1, "n1", kind, commit, entries))

    def codes(self, done: list[Any]) -> list[int]:
        return [code for code, _ in answers(done)]


def answers(done: Iterable[Any]) -> list[tuple[int, int]]:
    """What pushes are answered with, and their first entries."""
    replies = (each.reply for each in done if isinstance(each, ReplyTo))
    return [(each.code, each.index) for each in replies if isinstance(each, PushReply)]


def test_a_member_that_has_forgotten_its_votes_gets_none_while_it_lacks_what_is_decided() -> None:
    member = Alone(3, may_vote=False)
    member.push("COMPARE", member.ledger.entry(2))
    member.now = 60.0
    member.push("COMMIT", commit=9)
    assert not member.rules.is_voter
    assert member.rules.commit == 2
    member.push("COMMIT", commit=2)
    assert member.rules.is_voter


def test_nothing_is_appended_before_the_logs_were_compared_or_behind_what_was_not() -> None:
    member = Alone(3)
    following = an_entry(3, 1, member.ledger.end)
    assert member.codes(member.push("APPEND", following)) == [Result.INCONSISTENT_STATE]
    assert member.codes(member.push("COMPARE", member.ledger.entry(1))) == [Result.SUCCESS]
    assert member.push("APPEND", following) == []
    assert member.ledger.last_index == 2
    assert member.codes(member.push("COMPARE", member.ledger.entry(2))) == [Result.SUCCESS]
    member.push("APPEND", following)
    assert member.ledger.last_index == 3


def test_an_entry_is_acknowledged_when_it_is_on_the_disk() -> None:
    member = Alone(3)
    member.push("COMPARE", member.ledger.entry(2))
    assert member.codes(member.push("APPEND", an_entry(3, 1, member.ledger.end))) == []
    member.ledger.synced_index = 3
    done = member.rules.step(Synced(), member.now, member.rng)
    assert answers(done) == [(Result.SUCCESS, 3)]


def test_a_truncation_that_comes_late_does_not_take_what_was_compared_since() -> None:
    member = Alone(5)
    late = member.ledger.entry(1)
    member.push("COMPARE", member.ledger.entry(4))
    assert member.codes(member.push("TRUNCATE", late)) == [Result.SUCCESS]
    assert member.ledger.last_index == 4


def test_entries_come_in_any_order_and_a_gap_that_stays_is_told() -> None:
    member = Alone(1)
    member.push("COMPARE", member.ledger.entry(0))
    entries = [an_entry(1, 1, member.ledger.end)]
    for n in range(2, 5):
        entries.append(an_entry(n, 1, entries[-1].end))
    member.push("APPEND", entries[2])
    member.push("APPEND", entries[1])
    assert member.ledger.last_index == 0
    member.push("APPEND", entries[0])
    assert member.ledger.last_index == 3
    later = an_entry(7, 1, 10_000)
    assert member.push("APPEND", later) == []
    assert member.codes(member.push("APPEND", later)) == [Result.REPEATED_PUSH]
    member.now += 1.5
    done = member.rules.step(Tick(), member.now, member.rng)
    assert answers(done) == [(Result.INCONSISTENT_STATE, 7)]


def test_a_member_that_was_away_for_longer_than_entries_are_kept_begins_anew() -> None:
    group = PretendGroup(9)
    fill(group, 3)
    leader = group.leader()
    assert leader is not None
    away, other = (each for each in group.ids if each != leader.name)
    group.kill(away)
    fill(group, 200, b"x" * 100)
    for each in (leader.name, other):
        group.all[each].ledger.expire(100)
    assert leader.ledger.first_index > 3 and leader.ledger.entries[0].position % FILE == 0
    group.start(away)
    settled(group)
    assert group.all[away].ledger.first_index == leader.ledger.first_index
    assert group.all[away].ledger.entries == leader.ledger.entries


def test_a_member_that_was_told_to_give_up_what_is_decided_says_so_and_keeps_it() -> None:
    group = PretendGroup(10)
    fill(group, 5)
    leader = group.leader()
    assert leader is not None
    keeps = group.all[next(each for each in group.ids if each != leader.name)]
    for each in group.all.values():
        if each is not keeps:
            group.kill(each.name)
    kept = list(keeps.ledger.entries)
    for each in group.all.values():
        if each is not keeps:  # As Java's members that lost their page caches.
            each.ledger.truncate_from(3)
            each.ledger.append(5, b"another history")
            each.ledger.append(6, b"another history")
            each.ledger.synced_index = each.ledger.last_index
            each.ballot = Ballot(6, "", True)
            each.committed = 2
            group.start(each.name)
    group.acknowledged = {at: entry for at, entry in group.acknowledged.items() if at < 3}
    assert group.run(60.0, lambda: keeps.rules is not None and bool(keeps.rules.complaint))
    assert keeps.rules is not None
    assert "the group has decided on all up to" in keeps.rules.complaint
    assert keeps.ledger.entries == kept


@pytest.mark.parametrize("seed", range(24))
def test_whatever_the_network_and_the_power_do_what_was_decided_stays(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.choice((3, 3, 5))
    group = PretendGroup(seed, ids=tuple(f"n{n}" for n in range(size)), batch_bytes=rng.choice((0, 4096)))
    group.run(30.0, lambda: group.leader() is not None)
    puts = 0
    for _ in range(40):
        group.loss = rng.choice((0.0, 0.0, 0.05, 0.3))
        group.repeats = rng.choice((0.0, 0.2))
        group.slow_s = rng.choice((0.005, 0.05, 0.5))
        match rng.randrange(9):
            case 4:
                leader = group.leader()
                others = [each for each in group.ids if leader is not None and each != leader.name]
                if others:
                    with suppress(GroupUnsettled):
                        group.transfer(rng.choice(others))
            case 5:
                group.fail(rng.choice(group.ids), fit_after_s=rng.uniform(0.1, 10.0))
            case 6:
                member = group.all[rng.choice(group.ids)]
                member.ledger.expire(member.committed - 20)
            case 0:
                name = rng.choice(group.ids)
                group.kill(name, with_power=rng.random() < 0.5)
                group.after(rng.uniform(0.1, 10.0), lambda name=name: _again(group, name))  # type: ignore[misc]
            case 1:
                one, other = rng.sample(group.ids, 2)
                group.cut.add(frozenset({one, other}))
            case 2:
                group.cut.clear()
            case 3:
                group.cut = {frozenset({rng.choice(group.ids), each}) for each in group.ids}
        for _ in range(rng.randrange(30)):
            puts += group.put(b"message %d" % puts)
            group.run(rng.uniform(0.0, 0.1))
        group.run(rng.uniform(0.0, 5.0))
    group.loss = group.repeats = 0.0
    group.slow_s = 0.01
    group.cut.clear()
    for name in group.ids:
        _again(group, name)
    assert group.run(200.0, group.settled)
    assert puts > 10
    leader = group.leader()
    assert leader is not None
    for at in range(leader.ledger.first_index, leader.committed + 1):
        assert leader.ledger.entry(at).data == group.acknowledged[at]


def _again(group: PretendGroup, name: str) -> None:
    if group.all[name].rules is None:
        group.start(name)
