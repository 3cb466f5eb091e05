"""What all rules of a member in a mixed group share, what happens to it, and what it asks its node to do."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from flaremq.dledger.library.messages import LibraryCall, LibraryEntry, LibraryReply, entries_in
from flaremq.dledger.types import (
    LIBRARY_LOST_S,
    Action,
    Ballot,
    Follow,
    Index,
    Lead,
    LedgerView,
    MemberId,
    SaveBallot,
    Standing,
    Term,
)

_FORGETFUL_LOSSES: Final = 2  # In so many times of a lost leader every vote of before has come to its end.


@dataclass(frozen=True, slots=True)
class LibraryPace:
    """How fast a group of the library notices things, in seconds. The defaults are the library's own, but
    for heartbeats and news of commits: a leader may say those more often."""

    heartbeat_s: float = 1.0
    lost_s: float = LIBRARY_LOST_S
    """A follower that has not heard of its leader for so long is a candidate. A leader that a majority has
    not answered for so long is none."""
    answers_s: float = 5.0
    """A leader that a majority has not answered for so long leaves its clients unanswered."""
    vote_wait_s: tuple[float, float] = (0.3, 1.0)
    take_over_wait_s: tuple[float, float] = (0.03, 0.1)
    revote_s: float = 0.01
    round_s: tuple[float, float] = (2.0, 3.0)
    push_s: float = 1.0
    """A push that was not acknowledged for so long is sent again."""
    rest_s: float = 0.5
    """After a failed push."""
    commit_s: float = 0.2
    take_over_s: float = 1.0
    """So long a member that shall lead may take to have the whole log."""
    prefer_s: float = 5.0
    """Between two attempts to hand over to a preferred member."""


@dataclass(frozen=True, slots=True)
class PushLimits:
    """How much is pushed at once."""

    batch_bytes: int = 0
    """0: an entry a request, as Java's default is."""
    pushes_max: int = 1_000
    under_way_bytes_max: int = 16 << 20
    behind_max: int = 1_000
    """A member that lacks more entries than this is not handed over to."""


# What happens, besides the events of flaremq.dledger.types.


@dataclass(frozen=True, slots=True)
class Asked:
    """Another member asks. Its answer goes where the ticket says."""

    sender: MemberId
    call: LibraryCall
    ticket: object


@dataclass(frozen=True, slots=True)
class Answered:
    """Another member has answered, or has not in time."""

    member: MemberId
    call: LibraryCall
    reply: LibraryReply | None


@dataclass(frozen=True, slots=True)
class Drain:
    """All that has come for now has been heard."""


# What the node has to do, besides the actions of flaremq.dledger.types.


@dataclass(frozen=True, slots=True)
class Ask:
    to: MemberId
    call: LibraryCall


@dataclass(frozen=True, slots=True)
class ReplyTo:
    ticket: object
    reply: LibraryReply


LibraryAction: TypeAlias = Action | Ask | ReplyTo


class LibraryState:
    """`now`, `rng` and `actions` belong to one step, and so do `end`, the last entry of the log as it will
    be when the actions so far are done, and `synced`, the last that is on the disk and stays."""

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
        preferred: tuple[MemberId, ...] = (),
    ) -> None:
        self.me = me
        self.ledger = ledger
        self.ballot = ballot
        self.pace = pace
        self.now = now
        self.rng = rng
        self.members = members
        self.preferred = preferred
        self.others = tuple(sorted(each for each in members if each != me))
        self.actions: list[LibraryAction] = []
        self.end: Index = ledger.last_index
        self.end_term: Term = ledger.last_term
        self.synced: Index = ledger.synced_index
        self.standing = Standing.CANDIDATE
        self.leader: MemberId = ""
        self.commit: Index = ledger.first_index - 1
        """What was deleted was committed; of the rest nothing is known until a leader says so."""
        self.heard_s = now
        self.why_silent = ""
        self.complaint = ""
        """Why this member does not do what its leader wants; empty if it does."""
        self.trusts_from_s = now + _FORGETFUL_LOSSES * pace.lost_s
        """A member that has forgotten its ballot may vote again from then on, if it has caught up."""
        self._told: tuple[Term, MemberId] = (ballot.term, "")

    @property
    def term(self) -> Term:
        return self.ballot.term

    @property
    def majority(self) -> int:
        return len(self.members) // 2 + 1

    def begin_step(self, now: float, rng: random.Random) -> None:
        self.now, self.rng, self.actions = now, rng, []
        self.end, self.end_term = self.ledger.last_index, self.ledger.last_term
        self.synced = self.ledger.synced_index

    def between(self, bounds: tuple[float, float]) -> float:
        """A time within these bounds from now."""
        return self.now + self.rng.uniform(*bounds)

    def ask(self, to: MemberId, call: LibraryCall) -> None:
        self.actions.append(Ask(to, call))

    def reply(self, ticket: object, reply: LibraryReply) -> None:
        self.actions.append(ReplyTo(ticket, reply))

    def save(self, ballot: Ballot) -> None:
        if ballot != self.ballot:
            self.ballot = ballot
            self.actions.append(SaveBallot(ballot))

    def save_again(self) -> None:
        """What was not saved, or may not have been."""
        self.actions.append(SaveBallot(self.ballot))

    def enter(self, term: Term) -> None:
        """A later term has begun, and nobody leads in it yet."""
        self.standing, self.leader = Standing.CANDIDATE, ""
        self._tell(term)  # Before the ballot is saved: no append is taken while that lasts.
        self.save(Ballot(term, "", self.ballot.is_voter))

    def stand_down(self) -> None:
        """Nobody leads in this term any more, as far as this member knows."""
        self.standing, self.leader = Standing.CANDIDATE, ""
        self._tell(self.term)

    def lead(self) -> None:
        self.standing, self.leader = Standing.LEADER, self.me
        self._told = self.term, self.me
        self.actions.append(Lead(self.term))

    def follow(self, leader: MemberId) -> None:
        self.standing, self.leader = Standing.FOLLOWER, leader
        self.heard_s = self.now
        self._tell(self.term)

    def _tell(self, term: Term) -> None:
        """Let the node know who leads, if that is new."""
        if self._told != (term, self.leader):
            self._told = (term, self.leader)
            self.actions.append(Follow(term, self.leader))

    def entry(self, index: Index) -> LibraryEntry | None:
        """As it lies in the log."""
        run = self.ledger.run(index, 1)
        return None if run is None else entries_in(run)[0]
