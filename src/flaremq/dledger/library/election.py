"""Elections as the library holds them: rounds of votes, heartbeats, and leadership that is taken over.

A candidate asks all others in its present term first, and raises the term only when a majority answers and
does not agree. A member that is asked for its vote in a later term enters it. The library does so a moment
later, and asks to be asked again; this member answers at once, which a candidate cannot tell from a member
that was in that term before.

A vote depends on the log before it depends on the term: who has the shorter log is refused whatever its term
is. So a member whose term is higher and whose log is shorter waits until the others elect anew. A leader of
ours enters such a term when it hears of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from flaremq.dledger.library.messages import (
    BeatCall,
    BeatReply,
    Result,
    TransferCall,
    TransferReply,
    VoteCall,
    VoteReply,
)
from flaremq.dledger.library.state import LibraryState
from flaremq.dledger.types import Ballot, Index, MemberId, Standing, Term

_LONGER_LOGS: Final = ("REJECT_EXPIRED_LEDGER_TERM", "REJECT_SMALL_LEDGER_END_INDEX")
_LATER_TERMS: Final = ("REJECT_TERM_SMALL_THAN_LEDGER", "REJECT_EXPIRED_VOTE_TERM")


@dataclass(slots=True)
class _Round:
    """Answers to the votes that were asked for at once."""

    term: Term
    ends_s: float
    results: dict[MemberId, str] = field(default_factory=dict)
    later_term: Term = -1

    def count(self, *results: str) -> int:
        return sum(each in results for each in self.results.values())


@dataclass(slots=True)
class _TakeOver:
    """What a leader has asked this member for."""

    ticket: object
    leader: MemberId
    term: Term
    """The leader's."""
    index: Index
    """What this member must have first."""
    until_s: float
    has_begun: bool = False


class LibraryElection:
    """This member's own rounds, and the votes that others ask for."""

    def __init__(self, state: LibraryState) -> None:
        self._s = state
        self.vote_at = state.now
        self._raises = False
        self._round: _Round | None = None
        self._taking: _TakeOver | None = None

    @property
    def deadline(self) -> float:
        s, taking = self._s, self._taking
        if s.standing is Standing.FOLLOWER:
            lost_at = s.heard_s + s.pace.lost_s
            return min(lost_at, taking.until_s) if taking is not None and not taking.has_begun else lost_at
        return self.vote_at if self._round is None else self._round.ends_s

    def tick(self) -> bool:
        """Whether this member is elected."""
        s = self._s
        self._look_at_take_over()
        if s.standing is Standing.FOLLOWER:
            if s.now < s.heard_s + s.pace.lost_s:
                return False
            s.stand_down()
            self.vote_at = s.now
        if s.standing is not Standing.CANDIDATE:
            return False
        if self._round is not None:
            return s.now >= self._round.ends_s and self._conclude(self._round)
        return s.now >= self.vote_at and self._begin_round()

    # Own rounds.

    def _begin_round(self) -> bool:
        s = self._s
        if not s.ballot.is_voter or s.ledger.is_damaged:
            self.vote_at = s.now + s.pace.lost_s  # It waits for a leader.
            return False
        ballot = s.ballot
        if self._raises or ballot.term < s.end_term:
            ballot = Ballot(max(ballot.term + 1, s.end_term), "", ballot.is_voter)
            self._raises = False
        if not ballot.voted_for:
            ballot = replace(ballot, voted_for=s.me)
        s.save(ballot)
        own = "ACCEPT" if ballot.voted_for == s.me else "REJECT_ALREADY_VOTED"
        self._round = _Round(s.term, s.between(s.pace.round_s), {s.me: own})
        for each in s.others:
            s.ask(each, VoteCall(s.term, s.me, s.end, s.end_term))
        return self._is_decided(self._round) and self._conclude(self._round)

    def answered(self, member: MemberId, call: VoteCall, reply: VoteReply | None) -> bool:
        """Whether this member is elected."""
        asked = self._round
        if asked is None or call.term != asked.term or self._s.standing is not Standing.CANDIDATE:
            return False
        if asked.results.get(member, "UNKNOWN") != "UNKNOWN":
            return False
        asked.results[member] = "UNKNOWN" if reply is None else reply.result
        if reply is not None and reply.result in _LATER_TERMS:
            asked.later_term = max(asked.later_term, reply.term)
        return self._is_decided(asked) and self._conclude(asked)

    def _is_decided(self, asked: _Round) -> bool:
        agreed = asked.count("ACCEPT", "REJECT_TERM_NOT_READY")
        is_led = asked.count("REJECT_ALREADY_HAS_LEADER") > 0
        return is_led or agreed >= self._s.majority or len(asked.results) == len(self._s.members)

    def _conclude(self, asked: _Round) -> bool:
        """What follows from the answers, judged in the library's order."""
        s, self._round = self._s, None
        answers = len(asked.results) - asked.count("UNKNOWN")
        self.vote_at = s.between(self._wait_s())
        if asked.later_term > s.term:
            s.enter(asked.later_term)
        elif asked.count("REJECT_ALREADY_HAS_LEADER"):
            self.vote_at += s.pace.lost_s
        elif answers < s.majority:
            return False  # A lonely member does not raise the term.
        elif answers - asked.count(*_LONGER_LOGS) < s.majority:
            self.vote_at += s.pace.vote_wait_s[1]
        elif asked.count("ACCEPT") >= s.majority:
            return True
        elif asked.count("ACCEPT", "REJECT_TERM_NOT_READY") >= s.majority:
            self.vote_at = s.now + s.pace.revote_s
            return False
        else:
            self._raises = True
        self._fail_take_over()
        return False

    def _wait_s(self) -> tuple[float, float]:
        return self._s.pace.take_over_wait_s if self._taking is not None else self._s.pace.vote_wait_s

    def begin_anew(self) -> None:
        """This member has entered a term, or leads no more: it gives others the time to ask first."""
        self._round = None
        self.vote_at = self._s.between(self._wait_s())

    # Votes of others.

    def asked(self, call: VoteCall, ticket: object) -> None:
        s = self._s
        result, term = self._judged(call)
        if result == "ACCEPT":
            s.save(replace(s.ballot, voted_for=call.leader))
        s.reply(ticket, VoteReply(result, s.term if term < 0 else term))

    def _judged(self, call: VoteCall) -> tuple[str, Term]:
        """The vote, and the term to answer with; -1 for this member's own."""
        s = self._s
        if call.leader not in s.members:
            return "REJECT_UNKNOWN_LEADER", -1
        if call.leader == s.me:
            return "REJECT_UNEXPECTED_LEADER", -1
        if call.last_term < s.end_term:
            return "REJECT_EXPIRED_LEDGER_TERM", -1
        if call.last_term == s.end_term and call.last_index < s.end:
            return "REJECT_SMALL_LEDGER_END_INDEX", -1
        if call.term < s.term:
            return "REJECT_EXPIRED_VOTE_TERM", -1
        if call.term > s.term:
            s.enter(call.term)
            self._fail_take_over()
            self.begin_anew()
        elif s.ballot.voted_for not in ("", call.leader):
            return ("REJECT_ALREADY_HAS_LEADER" if s.leader else "REJECT_ALREADY_VOTED"), -1
        if call.term < s.end_term:
            return "REJECT_TERM_SMALL_THAN_LEDGER", s.end_term
        if not s.ballot.is_voter:
            return "UNKNOWN", -1  # As if it could not be reached: it does not know what it has promised.
        if self._taking is not None and self._taking.has_begun and call.last_index <= s.end:
            return "REJECT_TAKING_LEADERSHIP", -1
        return "ACCEPT", -1

    # Heartbeats, and pushes that are as good.

    def heard(self, leader: MemberId, term: Term) -> Result:
        """Somebody says that it leads in this term."""
        s = self._s
        if leader not in s.members:
            return Result.UNKNOWN_MEMBER
        if leader == s.me:
            return Result.UNEXPECTED_MEMBER
        if term < s.term:
            return Result.EXPIRED_TERM
        if term > s.term:
            s.enter(term)
            self._fail_take_over()
        elif s.leader not in ("", leader):
            return Result.INCONSISTENT_LEADER
        if s.leader != leader:
            self._round, self._raises = None, False
            s.follow(leader)
            if self._taking is not None and self._taking.has_begun:
                self._fail_take_over()
        return Result.SUCCESS

    def beat(self, call: BeatCall, ticket: object) -> None:
        s = self._s
        code = self.heard(call.leader, call.term)
        if code is Result.SUCCESS:
            s.heard_s = s.now
        s.reply(ticket, BeatReply(code, -1 if code is Result.SUCCESS else s.term))

    # Leadership that is handed to this member.

    def take_over(self, call: TransferCall, ticket: object) -> None:
        s = self._s
        code = Result.SUCCESS
        if call.transfer != s.leader or s.standing is not Standing.FOLLOWER:
            code = Result.INCONSISTENT_LEADER
        elif call.term != s.term:
            code = Result.INCONSISTENT_TERM
        elif not s.ballot.is_voter or s.ledger.is_damaged:
            code = Result.TAKE_LEADERSHIP_FAILED
        if code is not Result.SUCCESS:
            s.reply(ticket, TransferReply(code, s.term))
            return
        self._fail_take_over()
        until_s = s.now + s.pace.take_over_s
        self._taking = _TakeOver(ticket, call.transfer, call.term, call.take_over_index, until_s)
        self._look_at_take_over()

    def _look_at_take_over(self) -> None:
        """Begin the election once this member has the whole log."""
        s, taking = self._s, self._taking
        if taking is None or taking.has_begun:
            return
        if (s.term, s.leader) != (taking.term, taking.leader) or s.now > taking.until_s:
            self._fail_take_over()
        elif s.end >= taking.index:
            taking.has_begun = True
            s.enter(taking.term + 1)
            self._round, self._raises = None, False
            self.vote_at = s.now

    grown = _look_at_take_over

    def elected(self) -> None:
        if self._taking is not None:
            self._s.reply(self._taking.ticket, TransferReply(Result.SUCCESS, self._s.term))
            self._taking = None

    def _fail_take_over(self) -> None:
        if self._taking is not None:
            failed = TransferReply(Result.TAKE_LEADERSHIP_FAILED, self._s.term)
            self._s.reply(self._taking.ticket, failed)
            self._taking = None
