"""What a follower does with what its leader pushes.

    Push > [an old term?] > [does the entry before match?] > write > Synced > acknowledged
                                      no: where to try next

Nothing is acknowledged before it is synced. The logs of two members are equal up to an entry that has the
same index and term in both, so looking at the last entry of a run says whether the whole run is there.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from flaremq.dledger.rules.state import MemberState
from flaremq.dledger.rules.vouching import OwnDoubt
from flaremq.dledger.types import (
    Commit,
    Empty,
    EntryRun,
    Index,
    LedgerView,
    MemberId,
    Push,
    PushAnswer,
    Restart,
    Standing,
    Term,
    Truncate,
    Write,
)


def last_not_above(ledger: LedgerView, index: Index, term: Term, floor: Index) -> Index:
    """The last entry up to `index` whose term is not above this one; `floor` if all behind it are."""
    behind = range(floor + 1, index + 1)
    return floor + bisect_right(behind, term, key=ledger.term_at)


class FollowerRules:
    """A follower and its leader's log."""

    def __init__(self, state: MemberState, doubt: OwnDoubt) -> None:
        self._state = state
        self._doubt = doubt

    def pushed(self, sender: MemberId, push: Push) -> None:
        s = self._state
        if not self._hears(sender, push):
            return
        followed = s.followed
        if not self._matches(push.previous_index, push.previous_term):
            self._refuse(push.round, push.previous_index - 1, push.previous_term)
            return
        followed.verified = max(followed.verified, push.previous_index)
        is_answered = push.run is None or self._take(push.run, push.round)
        self._commit(push.commit)
        if push.vouched and push.vouched == self._doubt.shown(s.now) and not s.ballot.is_voter:
            followed.vouched_to = push.commit
        if is_answered:
            self.acknowledge(push.round)

    def restarted(self, sender: MemberId, restart: Restart) -> None:
        """Begin anew, if the logs really do not meet. A late copy of an order that was followed already must
        not destroy what has come since: the leader may count on that."""
        s = self._state
        if not self._hears(sender, restart):
            return
        followed, before = s.followed, restart.first - 1
        if 0 <= restart.previous_term == s.ledger.term_at(before):
            followed.verified = max(followed.verified, before)
        if followed.verified >= before:
            self.acknowledge(restart.round)
            return
        if not 0 <= followed.refused_round < restart.round:
            self._refuse(restart.round, s.ledger.last_index, s.ledger.last_term)
            return
        s.actions.append(Empty(restart.first, restart.position, restart.previous_term))
        followed.verified = s.commit = followed.acknowledged = before
        followed.refused_round = -1
        self._answer(restart.round, is_matching=True, place=before)

    def synced(self) -> None:
        """More is on the disk."""
        s = self._state
        followed = s.followed
        if s.leader and min(followed.verified, s.ledger.synced_index) > followed.acknowledged:
            self.acknowledge(followed.round)

    def acknowledge(self, round_: int) -> None:
        s = self._state
        followed = s.followed
        place = min(followed.verified, s.ledger.synced_index)
        followed.acknowledged = place
        if followed.vouched_to is not None and place >= followed.vouched_to:
            followed.vouched_to = None
            s.save(replace(s.ballot, is_voter=True, voted_for=s.ballot.voted_for or s.leader))
        self._answer(round_, is_matching=True, place=place)

    def _hears(self, sender: MemberId, said: Push | Restart) -> bool:
        """Whether this comes from the leader of the present term, or of a new one."""
        s = self._state
        if said.term < s.term:
            # The term in the answer is the message: who leads in an old one has to know.
            s.say(sender, PushAnswer(s.term, said.round, False, -1, -1, s.ballot.is_voter))
            return False
        if said.term > s.term:
            s.enter(said.term, leader=sender)
        elif s.standing is Standing.LEADER or (s.leader and s.leader != sender):
            s.end_of_group(f"{sender} leads in term {said.term}, and so does {s.leader}")
            return False
        s.hear(sender)
        s.followed.round = max(s.followed.round, said.round)
        return True

    # Where the logs meet.

    def _matches(self, index: Index, term: Term) -> bool:
        s = self._state
        return index <= s.followed.verified or (0 <= term == s.ledger.term_at(index))

    def _take(self, run: EntryRun, round_: int) -> bool:
        """Write what is not there yet. Whether there is something to acknowledge at once."""
        s, followed, last = self._state, self._state.followed, self._state.ledger.last_index
        if run.first <= followed.verified and not self._is_ours(run, min(run.last, followed.verified)):
            return False
        if run.last <= followed.verified:
            return True
        if run.first == last + 1:
            s.actions.append(Write(run))
            followed.verified = run.last
            return False
        if run.last <= last and s.ledger.term_at(run.last) == run.last_term:
            followed.verified = run.last
            return True
        return self._mend(run, round_)

    def _mend(self, run: EntryRun, round_: int) -> bool:
        """The run and the log overlap, and one of them is different or goes on where the other one ends."""
        s, followed, ledger = self._state, self._state.followed, self._state.ledger
        conflict = self._conflict(run)
        if conflict > ledger.last_index:
            followed.verified = ledger.last_index
            self._refuse(round_, ledger.last_index, ledger.last_term)
            return False
        followed.verified = conflict - 1
        s.actions.append(Truncate(conflict))
        if conflict == run.first:
            s.actions.append(Write(run))
            followed.verified = run.last
        else:
            self._refuse(round_, conflict - 1, ledger.term_at(conflict - 1))
        return False

    def _is_ours(self, run: EntryRun, index: Index) -> bool:
        """What this leader has pushed before, or the group has decided on, cannot be anything else now."""
        s = self._state
        known = s.ledger.term_at(index)
        behind = index - run.first
        for term, count in run.terms:
            if behind < count:
                if known in (term, -1):  # What is deleted is not known any more.
                    return True
                break
            behind -= count
        s.end_of_group(f"entry {index} is committed, and {s.leader}, who leads, has another one there")
        return False

    def _conflict(self, run: EntryRun) -> Index:
        """The first entry that differs; one behind the log if none does."""
        ledger, verified = self._state.ledger, self._state.followed.verified
        begin = run.first
        for term, count in run.terms:
            first = max(begin, verified + 1)
            end = min(begin + count, ledger.last_index + 1)
            if end > first and ledger.term_at(end - 1) != term:
                if ledger.term_at(first) != term:
                    return first
                return last_not_above(ledger, end - 1, term, first) + 1
            begin += count
        return ledger.last_index + 1

    def _refuse(self, round_: int, index: Index, term: Term) -> None:
        """The logs differ at the entry before: say where they may meet. Entries up to this place whose term
        is above the leader's there cannot be the leader's: one answer passes over all of them."""
        s = self._state
        place = min(index, s.ledger.last_index)
        if place > s.followed.verified:
            place = last_not_above(s.ledger, place, term, s.followed.verified)
        s.followed.refused_round = max(s.followed.refused_round, round_)
        self._answer(round_, is_matching=False, place=place)

    def _answer(self, round_: int, *, is_matching: bool, place: Index) -> None:
        s = self._state
        term = -1 if is_matching else s.ledger.term_at(place)
        is_voter = s.ballot.is_voter
        doubt = 0 if is_voter else self._doubt.shown(s.now)
        is_damaged = s.ledger.is_damaged
        s.say(s.leader, PushAnswer(s.term, round_, is_matching, place, term, is_voter, doubt, is_damaged))

    def _commit(self, committed: Index) -> None:
        s = self._state
        index = min(committed, s.followed.verified)
        if index > s.commit:
            s.commit = index
            s.actions.append(Commit(index))
