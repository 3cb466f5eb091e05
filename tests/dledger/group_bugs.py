"""Planted bugs: each is a patch of the rules that breaks one of them, and the promises that must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from flaremq.dledger import member
from flaremq.dledger.rules.election import Election
from flaremq.dledger.rules.following import FollowerRules
from flaremq.dledger.rules.replication import LogReplication
from flaremq.dledger.rules.state import MemberState
from flaremq.dledger.types import (
    Ballot,
    EntryRun,
    MemberId,
    Push,
    Restart,
    SaveBallot,
    Standing,
    Truncate,
    Write,
)
from flaremq.testing.sim.raft.promises import Promises

Patch = pytest.MonkeyPatch


def vote_not_synced(patch: Patch) -> None:
    def save(self: MemberState, ballot: Ballot) -> None:
        self.ballot = ballot
        if not ballot.voted_for:
            self.actions.append(SaveBallot(ballot))

    patch.setattr(MemberState, "save", save)


def lease_off(patch: Patch) -> None:
    patch.setattr(LogReplication, "has_lease", lambda _self, _now: True)


def lease_off_and_only_readers_watch(patch: Patch) -> None:
    lease_off(patch)
    patch.setattr(Promises, "_one_answers", lambda _self, _everybody: None)


def votes_within_a_lease(patch: Patch) -> None:
    patch.setattr(Election, "_is_free", lambda self, _asked: self._state.standing is not Standing.LEADER)


def lease_kept_in_a_handover(patch: Patch) -> None:
    patch.setattr(LogReplication, "freeze", lambda self: self.round)


def older_term_counted(patch: Patch) -> None:
    patch.setattr(LogReplication, "_may_commit", lambda _self, _index: True)


def two_steps_at_once(patch: Patch) -> None:
    patch.setattr(member, "check_one_step", lambda _old, _new: None)


def acknowledged_before_it_is_synced(patch: Patch) -> None:
    plain, eager = FollowerRules._take, FollowerRules.acknowledge

    class Eager:
        """A log that calls everything synced."""

        synced_index = 1 << 60

        def __init__(self, ledger: Any) -> None:
            self._ledger = ledger

        def __getattr__(self, name: str) -> Any:
            return getattr(self._ledger, name)

    def take(self: FollowerRules, run: EntryRun, round_: int) -> bool:
        plain(self, run, round_)
        return True

    def acknowledge(self: FollowerRules, round_: int) -> None:
        ledger = self._state.ledger
        self._state.ledger = Eager(ledger)
        eager(self, round_)
        self._state.ledger = ledger

    patch.setattr(FollowerRules, "_take", take)
    patch.setattr(FollowerRules, "acknowledge", acknowledge)


def stale_leader_not_fenced(patch: Patch) -> None:
    plain = FollowerRules._hears

    def hears(self: FollowerRules, sender: MemberId, said: Push | Restart) -> bool:
        return plain(self, sender, replace(said, term=max(said.term, self._state.term)))

    patch.setattr(FollowerRules, "_hears", hears)


def previous_term_not_checked(patch: Patch) -> None:
    patch.setattr(
        FollowerRules, "_matches", lambda self, index, _term: index <= self._state.ledger.last_index
    )


def non_voter_counted(patch: Patch) -> None:
    plain = member.Member.__init__

    def init(self: member.Member, *given: Any, **named: Any) -> None:
        plain(self, *given, **{**named, "may_vote": True})

    patch.setattr(member.Member, "__init__", init)


def truncated_below_what_matches(patch: Patch) -> None:
    def take(self: FollowerRules, run: EntryRun, _round: int) -> bool:
        s = self._state
        if run.first <= s.ledger.last_index:
            s.actions.append(Truncate(run.first))
        s.actions.append(Write(run))
        s.followed.verified = run.last
        return False

    patch.setattr(FollowerRules, "_take", take)


def shorter_log_may_lead(patch: Patch) -> None:
    patch.setattr(Election, "_is_as_good", lambda _self, _asked: True)


def damaged_log_may_lead(patch: Patch) -> None:
    patch.setattr(MemberState, "must_not_lead", False)


@dataclass(frozen=True)
class PlantedRule:
    plant: Callable[[Patch], None]
    checks: frozenset[str]
    """The promises that are then seen to be broken."""
    seed: int
    """The first seed that finds it."""

    @property
    def name(self) -> str:
        return self.plant.__name__


DIFFERENT = frozenset({"leader lacks", "two values", "lost append", "truncated", "broken group"})
"""Logs of members say different things."""

PLANTED = [
    PlantedRule(vote_not_synced, frozenset({"two leaders"}), 291),
    PlantedRule(lease_off, frozenset({"two answer"}), 7),
    PlantedRule(lease_off_and_only_readers_watch, frozenset({"stale read"}), 63),
    PlantedRule(votes_within_a_lease, frozenset({"two answer"}), 28),
    PlantedRule(lease_kept_in_a_handover, frozenset({"two answer"}), 111),
    PlantedRule(older_term_counted, DIFFERENT, 19),
    PlantedRule(two_steps_at_once, DIFFERENT | {"two leaders"}, 21),
    PlantedRule(acknowledged_before_it_is_synced, DIFFERENT, 83),
    PlantedRule(stale_leader_not_fenced, DIFFERENT | {"two leaders"}, 11),
    PlantedRule(previous_term_not_checked, DIFFERENT | {"foreign entries"}, 7),
    PlantedRule(non_voter_counted, DIFFERENT | {"two leaders"}, 120),
    PlantedRule(truncated_below_what_matches, DIFFERENT, 3),
    PlantedRule(shorter_log_may_lead, DIFFERENT, 1),
    PlantedRule(damaged_log_may_lead, frozenset({"damaged leader"}), 11),
]
