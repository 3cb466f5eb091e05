"""One member of a Raft group, as rules: what happens goes in, and what has to be done comes out.

    Tick, Heard, Appended, Synced, Transfer, Failing, Fit > [step] > SaveBallot, Tell, Write, Commit, Lead ...

No clock, no I/O, no chance of its own: time and random numbers come in with each event, and the log is only
looked at. The same events give the same actions, which is what the simulator of groups rests on.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from flaremq.base.errors import GroupUnsettled, InvalidParameter, NotMaster
from flaremq.dledger.rules.election import Election
from flaremq.dledger.rules.following import FollowerRules
from flaremq.dledger.rules.handover import Handover
from flaremq.dledger.rules.membership import check_majority_alive, check_one_step, group_checksum
from flaremq.dledger.rules.replication import LogReplication
from flaremq.dledger.rules.state import FollowedTerm, MemberState
from flaremq.dledger.rules.vouching import OwnDoubt
from flaremq.dledger.types import (
    Actions,
    Appended,
    Ballot,
    Event,
    Failing,
    Fit,
    Heard,
    Index,
    LedgerView,
    MemberId,
    Membership,
    Message,
    Pace,
    PeerStatus,
    Push,
    PushAnswer,
    Restart,
    Standing,
    Synced,
    TakeOver,
    Term,
    Tick,
    Transfer,
    VoteAnswer,
    VoteRequest,
)

_NOT_LEADER_CODE: Final = 1  # SYSTEM_ERROR: RocketMQ has no code of its own for this.


class Member:
    """The rules of one member."""

    def __init__(
        self,
        me: MemberId,
        ledger: LedgerView,
        ballot: Ballot,
        pace: Pace,
        now: float,
        *,
        rng: random.Random,
        may_vote: bool = True,
        preferred: Sequence[MemberId] = (),
    ) -> None:
        """`may_vote` is False if the ballot or entries of the log were lost; that is remembered."""
        known = ballot.at_start(ledger.last_term, may_vote=may_vote)
        self._state = MemberState(me, ledger, known, pace, now, rng)
        self._must_save = known != ballot
        self._election = Election(self._state)
        self._following = FollowerRules(self._state, OwnDoubt(now, pace.election_s, rng))
        self._replication: LogReplication | None = None
        self._handover: Handover | None = None
        self._preferred = tuple(preferred)
        self._heard_s: dict[MemberId, float] = {}
        self._otherwise: set[MemberId] = set()
        self._commit_before = self._state.commit
        self._is_broken = False
        self._members = self._decided_members = ledger.membership
        self._contacts = {each: at for each, at in self._members.addresses.items() if each != me}

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
    def membership(self) -> Membership:
        return self._state.members

    @property
    def contacts(self) -> Mapping[MemberId, str]:
        """Whom it must be able to reach, by id: the other members, and who is being removed, as that one may
        be the leader that needs this member's answer for it."""
        return self._contacts

    @property
    def is_voter(self) -> bool:
        return self._state.ballot.is_voter

    @property
    def why_silent(self) -> str:
        """Why it takes no part at the moment; empty if it does."""
        return self._state.why_silent

    @property
    def deadline(self) -> float:
        """When the next Tick is due."""
        s = self._state
        if self._must_save:
            return s.now
        if s.why_silent:
            return s.now + s.pace.election_s
        if self._replication is not None:
            return min(self._replication.beat_at, self._replication.announce_at)
        return self._election.deadline if s.standing is Standing.CANDIDATE else s.election_at

    @property
    def may_append(self) -> bool:
        """Whether it leads, and will go on leading as far as it knows."""
        return self._handover is not None and not self._handover.target

    def may_answer(self, now: float) -> bool:
        """Whether nobody else can have been elected by now."""
        return self._replication is not None and self._replication.has_lease(now)

    def peers(self, now: float) -> list[PeerStatus]:
        s, leads = self._state, self._replication
        found = []
        for each in (other for other in s.members.ids if other != s.me):
            known = leads.peers.get(each) if leads is not None else None
            matched = known.matched if known is not None else None
            behind = s.ledger.last_index - matched if matched is not None else None
            heard_at = self._heard_s.get(each)
            heard_s = now - heard_at if heard_at is not None else None
            is_voter = known.is_voter if known is not None else True
            is_damaged = known is not None and known.is_damaged
            found.append(
                PeerStatus(each, is_voter, is_damaged, matched, behind, heard_s, each in self._otherwise)
            )
        return found

    # What may be asked of it.

    def check_change(self, new: Membership) -> None:
        """Raise a FlareError if these cannot become the members now."""
        leads, handover = self._leadership("change the members")
        s, old = self._state, self._state.members
        if handover.target:
            raise GroupUnsettled(f"{s.me} hands over to {handover.target}: ask that one in some seconds")
        if s.commit < leads.began:
            raise GroupUnsettled(f"{s.me} was just elected, and knows in a moment what is decided: try again")
        if old.index > s.commit:
            raise GroupUnsettled(
                f"the group has not decided on its last change yet (entry {old.index}, and it has decided on "
                f"those up to {s.commit}): try again when a majority of {', '.join(old.ids)} can be reached"
            )
        check_one_step(old, new)
        if len(new.addresses) < len(old.addresses):
            check_majority_alive(new, leads.alive(s.pace.election_s))

    def check_transfer(self, to: MemberId) -> None:
        """Raise a FlareError if this member cannot begin to hand over to that one now."""
        leads, handover = self._leadership("hand over")
        s = self._state
        if handover.target:
            raise GroupUnsettled(f"{s.me} already hands over to {handover.target}: wait some seconds")
        peer = leads.peers.get(to)
        if peer is None or to not in s.members.addresses:
            others = ", ".join(each for each in s.members.ids if each != s.me)
            why = "leads already" if to == s.me else "is no member"
            raise InvalidParameter(f"{to} {why}: expected one of {others or 'none, as it is alone'}")
        if s.now - self._heard_s.get(to, -math.inf) > s.pace.election_s:
            raise GroupUnsettled(
                f"{to} has not been heard of lately: start it, or ask `flaremq cluster group` what it lacks"
            )
        if not peer.is_voter:
            raise GroupUnsettled(
                f"{to} has forgotten what it has voted for, or was not heard since {s.me} leads: it may lead "
                "when it has caught up"
            )
        if peer.is_damaged:
            raise GroupUnsettled(
                f"a part of the log of {to} is damaged: it may lead when that has been copied from another "
                "member (see `flaremq cluster group`)"
            )

    def _leadership(self, what: str) -> tuple[LogReplication, Handover]:
        s = self._state
        if self._replication is None or self._handover is None:
            who = f"ask {s.leader}" if s.leader else "no leader is known: ask again when there is one"
            raise NotMaster(f"{s.me} does not lead its group, so it cannot {what}: {who}", _NOT_LEADER_CODE)
        return self._replication, self._handover

    # What happens to it.

    def step(self, event: Event, now: float, rng: random.Random) -> Actions:
        s = self._state
        s.now, s.rng, s.actions = now, rng, []
        if isinstance(event, Failing):
            self._fail(event)
            return s.actions
        if s.why_silent and (self._is_broken or not isinstance(event, Fit)):
            return ()
        self._commit_before = s.commit
        self._know_members()
        if self._must_save or isinstance(event, Fit):
            self._must_save = False
            s.save(s.ballot)
        self._HAPPENS[type(event)](self, event)
        if self._replication is not None and s.standing is not Standing.LEADER:
            self._replication = self._handover = None
        self._is_broken = bool(s.why_silent)
        return s.actions

    def _know_members(self) -> None:
        """The log may have other members in it since the last step, or the group has decided on them."""
        members, commit = self._state.members, self._state.commit
        if members is self._members and (commit < members.index or members is self._decided_members):
            return
        self._members = members
        if commit >= members.index:
            self._decided_members = members
        both = {**self._decided_members.addresses, **members.addresses}
        self._contacts = {each: both[each] for each in sorted(both) if each != self._state.me}

    def _fail(self, event: Failing) -> None:
        """The last step may not have been carried out: what it took for done is taken back."""
        s = self._state
        s.commit = self._commit_before
        s.standing = Standing.FOLLOWER
        s.leader = ""
        s.followed = FollowedTerm(s.commit)
        s.tell(s.term, "")
        s.why_silent = s.why_silent or event.reason or "its disk fails"
        self._replication = self._handover = None

    def _fit(self, _event: Fit) -> None:
        s = self._state
        s.why_silent = ""
        s.heard_s = s.now
        s.be_patient()

    def _tick(self, _event: Tick) -> None:
        s = self._state
        if self._replication is not None and self._handover is not None:
            if s.now >= self._replication.beat_at:
                self._replication.tick()
                if s.standing is Standing.LEADER:
                    self._handover.beat()
            if s.standing is Standing.LEADER and s.now >= self._replication.announce_at:
                self._replication.announce()
        elif s.standing is Standing.CANDIDATE:
            self._election.tick()
        elif s.now >= s.election_at:
            self._elected(self._election.wish())

    def _appended(self, _event: Appended) -> None:
        if self._replication is not None:
            self._replication.appended()

    def _synced(self, _event: Synced) -> None:
        if self._replication is not None:
            self._replication.synced()
        else:
            self._following.synced()

    def _transfer(self, event: Transfer) -> None:
        if self._handover is not None and self._replication is not None and not self._handover.target:
            self._handover.begin(event.to)

    def _elected(self, is_elected: bool) -> None:
        if not is_elected:
            return
        s = self._state
        if not s.ballot.is_voter:
            # All members have voted for it: there is nothing that it could have forgotten.
            s.save(replace(s.ballot, is_voter=True))
        self._replication = LogReplication(s)
        self._handover = Handover(s, self._replication, self._preferred)
        self._replication.begin()

    # What it is told.

    def _hear(self, event: Heard) -> None:
        self._heard_s[event.sender] = self._state.now
        self._HEARS[type(event.message)](self, event.sender, event.message)

    def _is_strange(self, sender: MemberId, group: int) -> bool:
        """Whether the sender's configuration names other members than ours."""
        own = group_checksum(self._state.members) if group else 0
        if own and own != group:
            self._otherwise.add(sender)
            return True
        self._otherwise.discard(sender)
        return False

    def _vote_requested(self, sender: MemberId, message: VoteRequest) -> None:
        if not self._is_strange(sender, message.group):
            is_handed_over = self._handover is not None and self._handover.is_asked(sender, message)
            self._election.requested(sender, message, is_handed_over=is_handed_over)

    def _vote_answered(self, sender: MemberId, message: VoteAnswer) -> None:
        self._elected(self._election.answered(sender, message))

    def _pushed(self, sender: MemberId, message: Push) -> None:
        if not self._is_strange(sender, message.group):
            self._following.pushed(sender, message)

    def _restarted(self, sender: MemberId, message: Restart) -> None:
        self._following.restarted(sender, message)

    def _push_answered(self, sender: MemberId, message: PushAnswer) -> None:
        s = self._state
        if message.term > s.term:
            s.enter(message.term)
        elif message.term == s.term and self._replication is not None and self._handover is not None:
            self._replication.answered(sender, message)
            if s.standing is Standing.LEADER:
                self._handover.go_on()

    def _take_over(self, sender: MemberId, message: TakeOver) -> None:
        self._elected(self._election.take_over(sender, message))

    _HAPPENS: Final[dict[type[Event], Callable[[Member, Any], None]]] = {
        Tick: _tick,
        Heard: _hear,
        Appended: _appended,
        Synced: _synced,
        Transfer: _transfer,
        Fit: _fit,
    }
    _HEARS: Final[dict[type[Message], Callable[[Member, MemberId, Any], None]]] = {
        VoteRequest: _vote_requested,
        VoteAnswer: _vote_answered,
        Push: _pushed,
        PushAnswer: _push_answered,
        Restart: _restarted,
        TakeOver: _take_over,
    }
