"""One member of a mixed group, as rules: what happens goes in, and what has to be done comes out.

    Tick, Asked, Answered, Drain, Appended, Synced, Transfer, Failing, Fit > [step] > Ask, ReplyTo, Write, ...

As pure as the rules of our own groups: no clock, no I/O and no chance of their own. They are the library's,
so that its members can be followed and led; where they are stricter, no member of the library can tell.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from flaremq.base.errors import GroupUnsettled, InvalidParameter, NotMaster
from flaremq.dledger.library.election import LibraryElection
from flaremq.dledger.library.following import LibraryFollowing
from flaremq.dledger.library.messages import (
    BeatCall,
    BeatReply,
    LibraryCall,
    PushCall,
    PushReply,
    Result,
    TransferCall,
    TransferReply,
    VoteCall,
    VoteReply,
)
from flaremq.dledger.library.pushing import Pushing
from flaremq.dledger.library.state import (
    Answered,
    Asked,
    Drain,
    LibraryAction,
    LibraryPace,
    LibraryState,
    PushLimits,
)
from flaremq.dledger.types import (
    Appended,
    Ballot,
    Failing,
    Fit,
    Index,
    LedgerView,
    MemberId,
    PeerStatus,
    Standing,
    Synced,
    Term,
    Tick,
    Transfer,
)

_NOT_LEADER_CODE: Final = 1  # SYSTEM_ERROR, as for members of our own groups.


class LibraryMember:
    """The rules of one member."""

    def __init__(
        self,
        me: MemberId,
        ledger: LedgerView,
        ballot: Ballot,
        pace: LibraryPace,
        now: float,
        *,
        members: Mapping[MemberId, str],
        rng: random.Random,
        may_vote: bool = True,
        preferred: tuple[MemberId, ...] = (),
        limits: PushLimits | None = None,
    ) -> None:
        """`may_vote` is False if the ballot or entries of the log were lost; that is remembered."""
        known = ballot.at_start(ledger.last_term, may_vote=may_vote)
        self._state = LibraryState(
            me, ledger, known, pace, now, members=members, rng=rng, preferred=preferred
        )
        self._must_save = known != ballot
        self._limits = limits or PushLimits()
        self._election = LibraryElection(self._state)
        self._following = LibraryFollowing(self._state)
        self._pushing: Pushing | None = None
        self._led: tuple[Term, MemberId] = (known.term, "")
        self._heard_s: dict[MemberId, float] = {}
        self._commit_before = self._state.commit

    # What this member is.

    @property
    def standing(self) -> Standing:
        return self._state.standing

    @property
    def term(self) -> Term:
        return self._state.term

    @property
    def leader(self) -> MemberId:
        """Empty while nobody is known to lead."""
        return self._state.leader

    @property
    def commit(self) -> Index:
        return self._state.commit

    @property
    def is_voter(self) -> bool:
        return self._state.ballot.is_voter

    @property
    def why_silent(self) -> str:
        """Why it takes no part at the moment; empty if it does."""
        return self._state.why_silent

    @property
    def complaint(self) -> str:
        """Why it does not do what its leader wants; empty if it does."""
        return self._state.complaint

    @property
    def deadline(self) -> float:
        """When the next Tick is due."""
        s = self._state
        if self._must_save:
            return s.now
        if s.why_silent:
            return s.now + s.pace.lost_s
        if self._pushing is not None:
            return self._pushing.deadline
        return min(self._election.deadline, self._following.deadline)

    @property
    def may_append(self) -> bool:
        """Whether it leads, and will go on leading as far as it knows."""
        return self._pushing is not None and not self._pushing.target

    def may_answer(self, now: float) -> bool:
        """Whether a majority has followed lately. Unlike a lease of our own groups this does not rule out
        that another member was elected: the library's members vote whomever they follow."""
        s, leads = self._state, self._pushing
        return leads is not None and leads.heard_within(s.pace.answers_s, now) >= s.majority

    def peers(self, now: float) -> list[PeerStatus]:
        s, leads, found = self._state, self._pushing, []
        for each in s.others:
            matched = leads.peers[each].matched if leads is not None else None
            behind = s.ledger.last_index - matched if matched is not None else None
            heard_at = self._heard_s.get(each)
            heard_s = None if heard_at is None else now - heard_at
            found.append(PeerStatus(each, True, False, matched, behind, heard_s, False))
        return found

    def check_transfer(self, to: MemberId) -> None:
        """Raise a FlareError if this member cannot begin to hand over to that one now."""
        s, leads = self._state, self._pushing
        if leads is None:
            who = f"ask {s.leader}" if s.leader else "no leader is known: ask again when there is one"
            raise NotMaster(
                f"{s.me} does not lead its group, so it cannot hand over: {who}", _NOT_LEADER_CODE
            )
        if leads.target:
            raise GroupUnsettled(f"{s.me} already hands over to {leads.target}: wait some seconds")
        if to not in leads.peers:
            others = ", ".join(s.others) or "nobody"
            raise InvalidParameter(f"{to} is not another member: expected one of {others}")
        if not leads.is_near(to):
            raise GroupUnsettled(
                f"{to} cannot be reached, or lacks {self._limits.behind_max} entries or more: it may lead "
                "when it has caught up (see `flaremq cluster group`)"
            )

    # What happens to it.

    def step(self, event: Any, now: float, rng: random.Random) -> Sequence[LibraryAction]:
        s = self._state
        s.begin_step(now, rng)
        if isinstance(event, Failing):
            self._fail(event)
            return s.actions
        if s.why_silent and not isinstance(event, Fit):
            return ()
        self._commit_before = s.commit
        if self._must_save:
            self._must_save = False
            s.save_again()
        self._HAPPENS[type(event)](self, event)
        self._settle()
        return s.actions

    def _settle(self) -> None:
        """Whoever led before this step may lead no more."""
        s = self._state
        led = s.term, s.leader
        if led != self._led:
            if self._led[1] == s.me:
                self._pushing = None
                self._election.begin_anew()
            self._following.begin_anew()
            self._led = led

    def _fail(self, event: Failing) -> None:
        """The last step may not have been carried out: what it took for done is taken back."""
        s = self._state
        s.commit = self._commit_before
        s.stand_down()
        s.why_silent = s.why_silent or event.reason or "its disk fails"
        self._pushing = None
        self._following.begin_anew()
        self._election.begin_anew()
        self._led = s.term, s.leader

    def _fit(self, _event: Fit) -> None:
        s = self._state
        s.why_silent = ""
        s.save_again()
        self._election.begin_anew()

    def _tick(self, _event: Tick) -> None:
        if self._pushing is not None:
            self._pushing.tick()
        else:
            self._following.tick()
            self._elected(self._election.tick())

    def _appended(self, _event: Appended) -> None:
        if self._pushing is not None:
            self._pushing.appended()

    def _synced(self, _event: Synced) -> None:
        if self._pushing is not None:
            self._pushing.synced()
        else:
            self._following.synced()

    def _drain(self, _event: Drain) -> None:
        self._following.drain()
        self._election.grown()

    def _transfer(self, event: Transfer) -> None:
        if self._pushing is not None and not self._pushing.target:
            self._pushing.hand_over(event.to)

    def _elected(self, is_elected: bool) -> None:
        if is_elected:
            s = self._state
            s.lead()
            self._election.elected()
            self._following.begin_anew()
            self._pushing = Pushing(s, self._limits)
            self._led = s.term, s.me

    # What it is asked.

    def _asked(self, event: Asked) -> None:
        self._heard_s[event.sender] = self._state.now
        self._ASKED[type(event.call)](self, event.call, event.ticket)

    def _vote_asked(self, call: VoteCall, ticket: object) -> None:
        self._election.asked(call, ticket)

    def _beat_asked(self, call: BeatCall, ticket: object) -> None:
        self._election.beat(call, ticket)

    def _push_asked(self, call: PushCall, ticket: object) -> None:
        """A push says as much as a heartbeat about who leads, and may come before it."""
        s = self._state
        code = self._election.heard(call.leader, call.term)
        self._settle()
        if code is Result.SUCCESS:
            self._following.pushed(call, ticket)
            return
        first = -1 if call.type == "COMMIT" else call.first
        count = 0 if call.type == "COMMIT" else len(call.entries)
        s.reply(ticket, PushReply(Result.NOT_FOLLOWER, call.term, first, count, s.ledger.first_index, s.end))

    def _transfer_asked(self, call: TransferCall, ticket: object) -> None:
        """By a tool, to hand over; by the leader, to take over."""
        s, leads = self._state, self._pushing
        if call.transferee == s.me:
            self._election.take_over(call, ticket)
            return
        code = Result.SUCCESS
        if call.transfer != s.me:
            code = Result.UNEXPECTED_ARGUMENT
        elif call.transferee not in s.members:
            code = Result.UNKNOWN_MEMBER
        elif leads is None:
            code = Result.NOT_LEADER
        elif call.term != s.term:
            code = Result.INCONSISTENT_TERM
        elif leads.target:
            code = Result.LEADER_TRANSFERRING
        elif not leads.is_near(call.transferee):
            code = Result.FALL_BEHIND_TOO_MUCH
        if leads is None or code is not Result.SUCCESS:
            s.reply(ticket, TransferReply(code, s.term))
        else:
            leads.hand_over(call.transferee, ticket)

    # What it is answered.

    def _answered(self, event: Answered) -> None:
        if event.reply is not None:
            self._heard_s[event.member] = self._state.now
        leads, reply = self._pushing, event.reply
        match event.call, reply:
            case VoteCall() as call, VoteReply() | None:
                self._elected(self._election.answered(event.member, call, reply))
            case BeatCall() as call, BeatReply() | None if leads is not None:
                if call.term == self.term:
                    leads.beaten(event.member, call, reply)
            case PushCall() as call, PushReply() | None if leads is not None:
                leads.answered(event.member, call, reply)
            case TransferCall() as call, TransferReply() | None if leads is not None:
                leads.handed_over(call, reply)

    _HAPPENS: Final[dict[type[Any], Callable[[LibraryMember, Any], None]]] = {
        Tick: _tick,
        Asked: _asked,
        Answered: _answered,
        Drain: _drain,
        Appended: _appended,
        Synced: _synced,
        Transfer: _transfer,
        Fit: _fit,
    }
    _ASKED: Final[dict[type[LibraryCall], Callable[[LibraryMember, Any, object], None]]] = {
        VoteCall: _vote_asked,
        BeatCall: _beat_asked,
        PushCall: _push_asked,
        TransferCall: _transfer_asked,
    }
