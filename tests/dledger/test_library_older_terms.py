"""Entries of older terms in a mixed group: what Java's leaders make of them, and what ours do.

Figure 8 of the Raft paper, with three members. A majority gets to have an entry of an old term, and yet it
can be taken back, as long as no entry of the leader's own term lies behind it:

    n0    a b [old]  leads first, is cut off with `old`, and leads again later
    n1    a b        is ours in every test, and gets `old` from n0 then
    n2    a b [new]  leads between, is cut off with `new`, and leads in the end
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.dledger.pretendgroup import PretendGroup, PretendMember

from flaremq.base.errors import GroupUnsettled
from flaremq.dledger.library.following import LibraryFollowing
from flaremq.dledger.library.messages import LibraryEntry
from flaremq.dledger.library.pushing import Pushing
from flaremq.dledger.library.rules import LibraryMember
from flaremq.dledger.types import Commit, Standing

SEEDS = 400


class JavaPushing(Pushing):
    """A leader that takes for decided what a majority has, of whatever term."""

    def _count(self) -> None:
        s = self._s
        if s.standing is not Standing.LEADER or not self._began:
            return
        known = [s.synced, *(-1 if each.matched is None else each.matched for each in self.peers.values())]
        index = sorted(known, reverse=True)[s.majority - 1]
        if index > s.commit:
            s.commit = index
            s.actions.append(Commit(index))


class JavaFollowing(LibraryFollowing):
    """A follower that gives up whatever its leader does not have."""

    def _why_not_cut(self, _first: int, _entry: LibraryEntry) -> str:
        return ""

    def _cut(self, first: int, entry: LibraryEntry) -> None:
        super()._cut(first, entry)
        self._s.commit = min(self._s.commit, self._s.end)


class JavaMember(LibraryMember):
    """It begins its terms without an entry, too: the pretended group knows."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._following = JavaFollowing(self._state)

    def _elected(self, is_elected: bool) -> None:
        super()._elected(is_elected)
        if is_elected:
            self._pushing = JavaPushing(self._state, self._limits)


@dataclass
class Figure8:
    """The scene when n0 leads again and n1 has got `old`, which is entry `at`."""

    group: PretendGroup
    at: int

    @property
    def first(self) -> PretendMember:
        return self.group.all["n0"]

    @property
    def ours(self) -> PretendMember:
        return self.group.all["n1"]

    @property
    def last(self) -> PretendMember:
        return self.group.all["n2"]

    def n2_comes_back(self, *, within_s: float = 60.0) -> bool:
        """Instead of n0. Whether it leads."""
        self.group.kill("n0")
        self.group.cut.clear()
        self.group.start("n2")
        return self.group.run(within_s, lambda: self.group.leader() is self.last)

    def has(self, member: PretendMember, body: bytes) -> bool:
        return member.ledger.last_index >= self.at and member.ledger.entry(self.at).data.endswith(body)


def scene(kinds: Mapping[str, type[LibraryMember]], is_there: Callable[[PretendGroup, int], bool]) -> Figure8:
    """Elections fall by chance, so this is played with one seed after another. `is_there` is asked, for the
    group and the index of `old`, whether the moment has come."""
    for seed in range(SEEDS):
        found = _played(PretendGroup(seed, kinds=kinds), is_there)
        if found is not None:
            return found
    raise AssertionError(f"none of {SEEDS} seeds comes to the scene")


def _played(group: PretendGroup, is_there: Callable[[PretendGroup, int], bool]) -> Figure8 | None:
    n0, n1, n2 = group.all.values()
    if not (_leads(group, n0) and group.put(b"a") and group.put(b"b") and group.run(30.0, group.settled)):
        return None
    at = n0.ledger.last_index + 1
    _part(group, "n0")
    if not group.put(b"old") or not group.run(1.0, lambda: n0.ledger.synced_index == at):
        return None
    group.kill("n0")
    if not group.run(60.0, lambda: group.leader() is n2) or n2.ledger.last_index != at - 1:
        return None
    _part(group, "n2")
    if not group.put(b"new") or not group.run(1.0, lambda: n2.ledger.synced_index == at):
        return None
    group.kill("n2")
    group.cut.clear()
    group.start("n0")
    if not group.run(60.0, lambda: is_there(group, at)) or n1.ledger.term_at(at) >= n2.ledger.term_at(at):
        return None
    _part(group, "n0")
    group.lose_what_is_under_way()
    return Figure8(group, at)


def _leads(group: PretendGroup, member: PretendMember) -> bool:
    group.run(60.0, group.settled)
    leader = group.leader()
    if leader is not None and leader is not member:
        try:
            group.transfer(member.name)
        except GroupUnsettled:
            return False
    return group.run(30.0, lambda: group.leader() is member) and group.run(30.0, group.settled)


def _part(group: PretendGroup, name: str) -> None:
    group.cut = {frozenset({name, each}) for each in group.ids if each != name}


def shown(group: PretendGroup, at: int) -> bool:
    return group.all["n1"].committed >= at


def stored(group: PretendGroup, at: int) -> bool:
    """Nothing behind it, and nobody has said that it is decided."""
    n1 = group.all["n1"]
    return n1.ledger.synced_index == n1.ledger.last_index == at > n1.committed


def told(group: PretendGroup, at: int) -> bool:
    """And its leader knows that a majority has it."""
    rules = group.all["n0"].rules
    peers = [] if rules is None else rules.peers(group.now)
    return stored(group, at) and any(each.member == "n1" and each.matched == at for each in peers)


def test_fault_43_what_a_java_leader_decided_by_counting_may_be_taken_back_but_not_from_our_member() -> None:
    """That is the library's own weakness, and nobody can mend it from beside. But our member has shown the
    entry as decided, so it keeps it, says why, and helps nobody to decide otherwise: two members of the
    library must agree on that, which do not know better."""
    scene_ = scene({"n0": JavaMember, "n2": JavaMember}, shown)
    group, ours, at = scene_.group, scene_.ours, scene_.at
    assert group.acknowledged[at].endswith(b"old")
    assert scene_.n2_comes_back()
    group.run(60.0)
    assert scene_.has(ours, b"old")
    assert ours.rules is not None and "the group has decided on all up to" in ours.rules.complaint
    assert scene_.last.committed < at and not group.taken_back
    group.start("n0")
    assert group.run(60.0, lambda: at in group.taken_back)
    assert scene_.has(scene_.first, b"new") and scene_.has(scene_.last, b"new")
    assert scene_.has(ours, b"old") and ours.committed == at


def test_fault_43_our_member_shows_no_more_of_an_older_term_than_its_java_leader_says_is_decided() -> None:
    """It has the entry, and nobody has said so: it shows nothing of it, and gives it up."""
    scene_ = scene({"n0": JavaMember, "n2": JavaMember}, stored)
    group, ours = scene_.group, scene_.ours
    assert scene_.n2_comes_back()
    assert group.run(60.0, lambda: scene_.has(ours, b"new"))
    assert ours.rules is not None and not ours.rules.complaint


def test_fault_43_our_leader_decides_on_an_older_term_only_under_an_entry_of_its_own() -> None:
    """A majority has the entry and nothing behind it: nobody was told that it is decided, and it goes."""
    scene_ = scene({"n2": JavaMember}, told)
    group, at = scene_.group, scene_.at
    assert scene_.first.committed < at and scene_.ours.committed < at
    assert scene_.n2_comes_back()
    group.run(60.0)
    assert scene_.has(scene_.ours, b"new")
    group.start("n0")
    assert group.run(60.0, group.settled)
    assert not group.taken_back and scene_.has(scene_.first, b"new")


def test_fault_43_what_our_leader_has_decided_under_an_entry_of_its_own_no_java_member_takes_back() -> None:
    scene_ = scene({"n2": JavaMember}, shown)
    group, at = scene_.group, scene_.at
    assert group.acknowledged[at].endswith(b"old")
    assert not scene_.n2_comes_back(within_s=120.0)
    group.start("n0")
    assert group.run(120.0, group.settled)
    assert scene_.has(scene_.last, b"old") and not group.taken_back
