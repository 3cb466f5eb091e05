"""What all rules of a member share."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from flaremq.dledger.types import (
    Action,
    Ballot,
    Follow,
    Index,
    LedgerView,
    MemberId,
    Membership,
    Message,
    Pace,
    SaveBallot,
    Standing,
    Tell,
    Term,
)


@dataclass(slots=True)
class FollowedTerm:
    """What a follower knows of the leader of its term."""

    verified: Index
    """The log is the leader's up to here; never below what is committed."""
    round: int = -1
    """The newest of the leader's that was heard."""
    acknowledged: Index = -1
    """The last index that the leader was told about."""
    refused_round: int = -1
    """The newest one that was answered with: the logs do not match."""
    vouched_to: Index | None = None
    """Where a member that is no voter has to be to become one."""


class MemberState:
    """What all rules of a member share, and how it changes. `now`, `rng` and `actions` belong to one step.

    The ballot here is the newest one that the node was asked to save: all that is sent stands behind that in
    the list of actions, so nothing that is not on the disk is ever told to anybody.
    """

    def __init__(
        self, me: MemberId, ledger: LedgerView, ballot: Ballot, pace: Pace, now: float, rng: random.Random
    ) -> None:
        self.me = me
        self.ledger = ledger
        self.ballot = ballot
        self.pace = pace
        self.now = now
        self.rng = rng
        self.actions: list[Action] = []
        self.standing = Standing.FOLLOWER
        self.leader: MemberId = ""
        self.commit: Index = ledger.first_index - 1
        """What was deleted was committed; of the rest nothing is known until a leader says so."""
        self.heard_s = now
        """When a leader was heard last. A start counts: what was heard before it is forgotten."""
        self.followed = FollowedTerm(self.commit)
        self.why_silent = ""
        self._told: tuple[Term, MemberId] = (ballot.term, "")
        self.be_patient()

    @property
    def term(self) -> Term:
        return self.ballot.term

    @property
    def members(self) -> Membership:
        return self.ledger.membership

    @property
    def must_not_lead(self) -> bool:
        """Whether its log is damaged, and another member may have what is lost here. It still votes and
        counts: which entries the group has decided on does not depend on what rots later."""
        return self.ledger.is_damaged and any(each != self.me for each in self.members.addresses)

    def be_patient(self) -> None:
        """Draw anew how long this member waits for a leader."""
        self.patience_s = self.pace.election_s * (1 + self.rng.random())
        self.election_at = self.now + self.patience_s

    def say(self, to: MemberId, message: Message) -> None:
        self.actions.append(Tell(to, message))

    def save(self, ballot: Ballot) -> None:
        self.ballot = ballot
        self.actions.append(SaveBallot(ballot))

    def vote(self, candidate: MemberId) -> None:
        """For somebody else, in the present term."""
        self.standing = Standing.FOLLOWER
        self.be_patient()
        self.save(replace(self.ballot, voted_for=candidate))

    def enter(self, term: Term, voted_for: MemberId = "", leader: MemberId = "") -> None:
        """A later term has begun."""
        self.step_down(term, leader)
        self.be_patient()
        self.save(Ballot(term, voted_for, self.ballot.is_voter))

    def step_down(self, term: Term, leader: MemberId = "") -> None:
        """Follow, whoever it is. Said before a ballot is saved: no append is taken while that lasts."""
        self.standing = Standing.FOLLOWER
        self.leader = leader
        self.followed = FollowedTerm(self.commit)
        self.tell(term, leader)

    def tell(self, term: Term, leader: MemberId) -> None:
        if self._told != (term, leader):
            self._told = (term, leader)
            self.actions.append(Follow(term, leader))

    def lead(self) -> None:
        self.standing = Standing.LEADER
        self.leader = self.me
        self._told = (self.term, self.me)

    def hear(self, leader: MemberId) -> None:
        """The leader of this term has said something."""
        self.standing = Standing.FOLLOWER
        self.heard_s = self.now
        self.election_at = self.now + self.patience_s
        if self.leader != leader:
            self.leader = leader
            self.tell(self.term, leader)

    def end_of_group(self, why: str) -> None:
        """What cannot be has happened. Say nothing any more, and destroy nothing."""
        self.step_down(self.term)
        self.why_silent = f"{why}: the members of this group do not belong together, or have lost what they "
        self.why_silent += "had on their disks. Compare their logs, and copy the good one to this member"
        self.actions.clear()
        self.actions.append(Follow(self.term, ""))
