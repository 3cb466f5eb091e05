"""Polls and votes: this member's own, and those that others ask for.

    patience ends > poll: would you vote for me? > [a majority would] > term + 1, election > [elected] > lead
    TakeOver ---------------------------------------------------------> term + 1, election

A poll begins no term, so a member that was cut off does not unseat a leader when it comes back. Nobody votes,
or says that it would, within an election timeout of hearing a leader: that makes the lease of a leader safe,
and the only exception is an election that this leader has asked for, after it has given its lease up.

An election lasts an election timeout at most, then votes count no more. A member that has forgotten its votes
relies on that (see vouching).

A member whose log is known to be damaged wins no election, whoever would vote for it: it could serve neither
consumers nor members that lack what it has lost. It is repaired by any other member, which need not lead.
"""

from __future__ import annotations

from flaremq.dledger.rules.membership import group_checksum
from flaremq.dledger.rules.state import MemberState
from flaremq.dledger.types import MemberId, Standing, TakeOver, VoteAnswer, VoteRequest


class Election:
    """What a member asks for and grants. Methods that return a bool say whether it has just been elected."""

    def __init__(self, state: MemberState) -> None:
        self._state = state
        self._grants: dict[MemberId, bool] = {}
        """Who would vote, or has voted, for this member, and whether it is a voter."""
        self._is_poll = True
        self._transfer_round: int | None = None
        self._began_at = self._ask_at = state.now

    @property
    def deadline(self) -> float:
        return min(self._ask_at, self._ends_at)

    @property
    def _ends_at(self) -> float:
        return self._began_at + self._state.pace.election_s

    # As a candidate.

    def wish(self) -> bool:
        """No leader was heard for too long: ask for another one."""
        s = self._state
        s.be_patient()
        if s.me not in s.members.addresses or s.must_not_lead:
            return False
        s.step_down(s.term)
        self._transfer_round = None
        return self._begin(is_poll=True)

    def take_over(self, sender: MemberId, asked: TakeOver) -> bool:
        """The leader wants this member to be leader."""
        s = self._state
        is_from_leader = asked.term == s.term and sender == s.leader and s.standing is Standing.FOLLOWER
        is_voter = s.ballot.is_voter and s.me in s.members.addresses
        if not is_from_leader or not is_voter or s.must_not_lead or asked.round < s.followed.round:
            return False
        self._transfer_round = asked.round
        return self._campaign()

    def tick(self) -> None:
        s = self._state
        if s.now >= self._ends_at:
            s.standing = Standing.FOLLOWER
            s.be_patient()
            s.election_at -= s.pace.election_s  # That long it has already waited.
        elif s.now >= self._ask_at:
            self._ask()

    def answered(self, sender: MemberId, answer: VoteAnswer) -> bool:
        s = self._state
        if s.standing is not Standing.CANDIDATE:
            return False
        if not answer.is_granted:
            if answer.term > s.term:
                s.enter(answer.term)
            return False
        asked_term = s.term + 1 if self._is_poll else s.term
        if answer.term != asked_term or answer.is_poll != self._is_poll or s.now >= self._ends_at:
            return False
        self._grants[sender] = answer.is_voter
        return self._count()

    def _begin(self, *, is_poll: bool) -> bool:
        s = self._state
        s.standing = Standing.CANDIDATE
        self._is_poll = is_poll
        self._began_at = s.now
        self._grants = {s.me: s.ballot.is_voter}
        if self._has_won():
            return self._count()
        self._ask()
        return False

    def _campaign(self) -> bool:
        s = self._state
        s.enter(s.term + 1, voted_for=s.me)
        return self._begin(is_poll=False)

    def _count(self) -> bool:
        if not self._has_won():
            return False
        return self._campaign() if self._is_poll else True

    def _has_won(self) -> bool:
        members = self._state.members
        if self._state.must_not_lead:
            return False
        voters = sum(self._grants.get(each, False) for each in members.addresses)
        return voters >= members.majority or all(each in self._grants for each in members.addresses)

    def _ask(self) -> None:
        """Ask everybody who has not granted it yet."""
        s = self._state
        self._ask_at = s.now + s.pace.heartbeat_s
        request = VoteRequest(
            term=s.term + 1 if self._is_poll else s.term,
            last_index=s.ledger.last_index,
            last_term=s.ledger.last_term,
            is_poll=self._is_poll,
            is_transfer=self._transfer_round is not None,
            round=self._transfer_round or 0,
            group=group_checksum(s.members),
        )
        for each in s.members.ids:
            if each not in self._grants:
                s.say(each, request)

    # As a voter.

    def requested(self, sender: MemberId, asked: VoteRequest, *, is_handed_over: bool) -> None:
        """Another member wants to lead. `is_handed_over`: this member leads, and has asked it to."""
        s = self._state
        is_current = asked.term > s.term or (asked.term == s.term and not asked.is_poll)
        if not is_current or not (is_handed_over or self._is_free(asked)):
            granted = False
        elif asked.is_poll:
            granted = self._is_as_good(asked)
        else:
            granted = self._vote(sender, asked)
        term = asked.term if granted else s.term
        s.say(sender, VoteAnswer(term, granted, asked.is_poll, s.ballot.is_voter))

    def _vote(self, candidate: MemberId, asked: VoteRequest) -> bool:
        s = self._state
        is_good = self._is_as_good(asked)
        if asked.term > s.term:
            s.enter(asked.term, voted_for=candidate if is_good else "")
        elif is_good and not s.ballot.voted_for and not s.leader:
            s.vote(candidate)
        return s.ballot.voted_for == candidate

    def _is_free(self, asked: VoteRequest) -> bool:
        """No leader relies on this member."""
        s = self._state
        if s.standing is Standing.LEADER:
            return False
        if asked.is_transfer and asked.term == s.term + 1 and s.leader and asked.round >= s.followed.round:
            return True
        return s.now >= s.heard_s + s.pace.election_s

    def _is_as_good(self, asked: VoteRequest) -> bool:
        """Its log has all that is committed, as far as this member can tell."""
        ledger = self._state.ledger
        return (asked.last_term, asked.last_index) >= (ledger.last_term, ledger.last_index)
