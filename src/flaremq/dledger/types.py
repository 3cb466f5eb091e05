"""What the members of a group say to each other, and what a member's rules ask of its node: values only.

Indexes count the entries of a log from 0, without gaps; -1 is before the first. A term has one leader at
most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, Protocol, TypeAlias

from flaremq.model.columns import Bytes

Index: TypeAlias = int
Term: TypeAlias = int
MemberId: TypeAlias = str
"""As in dLegerPeers: a letter and a number."""


class Standing(Enum):
    """What a member is at the moment."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


LIBRARY_LOST_S: Final = 6.0
"""After so long without a heartbeat members of Apache's DLedger library elect anew."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a group notices things, in seconds of a clock that only grows."""

    heartbeat_s: float = 0.2
    election_s: float = 1.0
    """A member that has not heard of its leader for one to two times this, at random, wants an election."""
    lease_s: float = 0.8
    """A leader answers for this long after a majority has last heard of it. Less than election_s: by then
    nobody else can have been elected, even where clocks go at slightly different speeds."""
    announce_s: float = 0.005
    """So long after a commit followers hear of it, if no entries are pushed to them meanwhile."""
    push_s: float = 1.0
    """A push that was not acknowledged for this long is sent again."""
    push_bytes_max: int = 1 << 20
    pushes_max: int = 8
    """So many pushes may be under way to one member."""

    def __post_init__(self) -> None:
        assert 0 < self.heartbeat_s < self.lease_s < self.election_s


@dataclass(frozen=True, slots=True)
class Membership:
    """Who belongs to the group, from the entry at `index` on; -1 for what the configuration says."""

    addresses: Mapping[MemberId, str]
    index: Index = -1

    @property
    def ids(self) -> tuple[MemberId, ...]:
        return tuple(sorted(self.addresses))

    @property
    def majority(self) -> int:
        return len(self.addresses) // 2 + 1


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Entries that lie one behind the other in one file of a log."""

    first: Index
    position: int
    """Physical offset of the first entry's header."""
    terms: tuple[tuple[Term, int], ...]
    """Their terms, oldest first, each with how many entries have it."""
    data: Bytes = field(repr=False)
    """The entries as they lie there, headers included."""

    @property
    def count(self) -> int:
        return sum(count for _, count in self.terms)

    @property
    def last(self) -> Index:
        return self.first + self.count - 1

    @property
    def last_term(self) -> Term:
        return self.terms[-1][0]


@dataclass(frozen=True, slots=True)
class Ballot:
    """What a member must never forget: written and synced before anybody is told."""

    term: Term = 0
    voted_for: MemberId = ""
    is_voter: bool = True
    """False from when a member found that it had forgotten its ballot or its log until it may vote again."""

    def at_start(self, last_term: Term, *, may_vote: bool) -> Ballot:
        """What a member relies on when it starts on a log whose last entry is of this term. A ballot of an
        earlier term is an old copy: what was promised since is forgotten, but not that the term has been."""
        if self.term < last_term:
            return Ballot(last_term, "", is_voter=False)
        return replace(self, is_voter=self.is_voter and may_vote)


class LedgerView(Protocol):
    """What the rules see of the log: nothing they do changes it, they ask their node to."""

    @property
    def first_index(self) -> Index:
        """Of the oldest entry that is still there; last_index + 1 if there is none."""

    @property
    def last_index(self) -> Index: ...
    @property
    def last_term(self) -> Term:
        """-1 without entries."""

    @property
    def synced_index(self) -> Index:
        """The last entry that is known to be on the disk, with all before it. Falls with a truncation."""

    def term_at(self, index: Index) -> Term:
        """-1 if there is no such entry, also for index -1. Of the entry before the first, its term if that
        is still known: then a member that needs the first entry need not begin anew."""

    def run(self, first: Index, bytes_max: int) -> EntryRun | None:
        """Entries from `first` on: at least one, then as many as fit; None if that one is not there."""

    @property
    def membership(self) -> Membership:
        """The newest in the log, committed or not."""

    @property
    def is_damaged(self) -> bool:
        """Whether entries that other members may need are known to be damaged here, and not repaired."""


# What members say. All but the term belongs to one question and its answer.


@dataclass(frozen=True, slots=True)
class VoteRequest:
    term: Term
    """In a poll, the term that the candidate would begin."""
    last_index: Index
    last_term: Term
    is_poll: bool
    """Would you vote for me? Nothing is written, and no term begins."""
    is_transfer: bool
    """The leader has asked for this election: members need not have lost it."""
    round: int = 0
    """In a transfer, the leader's last round before it asked. Who has heard a later one has been told since
    that the leader stays."""
    group: int = 0
    """A checksum of the members, if they are those of the configuration; else 0."""


@dataclass(frozen=True, slots=True)
class VoteAnswer:
    term: Term
    """The voter's own, or the one that was asked about if granted."""
    is_granted: bool
    is_poll: bool
    is_voter: bool = True
    """If not, the vote counts only where all members grant theirs: the voter has forgotten something."""


@dataclass(frozen=True, slots=True)
class Push:
    """Entries to be appended behind one that both have, or a heartbeat without any."""

    term: Term
    previous_index: Index
    previous_term: Term
    commit: Index
    round: int
    """Counts the leader's pushes to all members, so that an answer says how fresh it is."""
    run: EntryRun | None = None
    group: int = 0
    """As in VoteRequest."""
    vouched: int = 0
    """For a member that is no voter: its `PushAnswer.doubt`, once a majority without it, or everybody else,
    has followed this leader since it was heard. Else 0."""


@dataclass(frozen=True, slots=True)
class PushAnswer:
    term: Term
    round: int
    """Of the newest push that this answers; the leader is known to be followed since it sent that."""
    is_matching: bool
    matched: Index
    """If it matches: synced and equal to the leader's log up to here. Else: where to try next."""
    matched_term: Term = -1
    """Of the entry there, if it does not match; -1 if it is deleted, so it was committed."""
    is_voter: bool = True
    """If not, this counts neither for what is committed nor for the leader's lease."""
    doubt: int = 0
    """A number of a member that is no voter, new at each of its starts: see `Push.vouched`. 0 before what it
    has forgotten is too old to elect anybody."""
    is_damaged: bool = False
    """It counts, and it will not lead before it is repaired."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The leader has deleted what the member would need next: begin anew, empty, with this entry to come."""

    term: Term
    round: int
    first: Index
    position: int
    previous_term: Term


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The leader wants this member to be leader: it has the whole log, and begins an election at once."""

    term: Term
    round: int = 0
    """The leader's last: it begins no other until it is followed no more, or has given the transfer up."""


# What they say besides, which their rules do not hear of.


@dataclass(frozen=True, slots=True)
class EntriesRequest:
    """Of a member whose disk has lost entries that were decided on: how do you have them?"""

    number: int
    """For the answer."""
    first: Index
    last: Index
    previous_term: Term
    """Of the entries before and behind them; -1 for what is not known. Where both logs have the same terms
    there, they are the same between."""
    next_term: Term


@dataclass(frozen=True, slots=True)
class EntriesAnswer:
    """The first of those entries, as many as fit into a push, read from the disk and found sound."""

    number: int
    run: EntryRun | None
    begins: Index = 0
    """The first entry that is still there: what is before it was decided on, and deleted."""
    why: str = ""
    """Why there are none."""


Message: TypeAlias = VoteRequest | VoteAnswer | Push | PushAnswer | Restart | TakeOver
RepairMessage: TypeAlias = EntriesRequest | EntriesAnswer


# What operators see.


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """Another member, as this one sees it. What only a leader knows is None elsewhere."""

    member: MemberId
    is_voter: bool
    is_damaged: bool
    matched: Index | None
    behind: int | None
    """Entries that it has not synced yet, as far as the leader knows."""
    heard_s: float | None
    """So long ago it said something; None if never."""
    is_configured_otherwise: bool


# What happens to a member.


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Heard:
    sender: MemberId
    message: Message


@dataclass(frozen=True, slots=True)
class Appended:
    """The leader's own log has grown; LedgerView says how far."""


@dataclass(frozen=True, slots=True)
class Synced:
    """More of the log is on the disk; LedgerView says how much."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """An operator, or a preference, wants another leader."""

    to: MemberId


@dataclass(frozen=True, slots=True)
class Failing:
    """The disk fails or stalls, or an action could not be done: not fit to lead, and silent, until `Fit`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fit:
    """The disk answers again."""


Event: TypeAlias = Tick | Heard | Appended | Synced | Transfer | Failing | Fit


# What the node has to do, in this order. What it cannot do ends the list: nothing behind it is done, and the
# next event that the member sees is `Failing`.


@dataclass(frozen=True, slots=True)
class SaveBallot:
    """Write and sync it, then go on."""

    ballot: Ballot


@dataclass(frozen=True, slots=True)
class Tell:
    to: MemberId
    message: Message


@dataclass(frozen=True, slots=True)
class Truncate:
    """Give up all entries from this index on."""

    first: Index


@dataclass(frozen=True, slots=True)
class Write:
    """Append these entries, which begin at the end of the log. `Synced` follows when they are on the disk."""

    run: EntryRun


@dataclass(frozen=True, slots=True)
class Empty:
    """Give up the whole log, and begin with this entry at this place."""

    first: Index
    position: int
    previous_term: Term


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything up to this index is what the group has decided."""

    index: Index


@dataclass(frozen=True, slots=True)
class Lead:
    """This member is the leader of a term: append a record that says so, which commits all before it."""

    term: Term


@dataclass(frozen=True, slots=True)
class Follow:
    """It is not the leader, or no longer; "" while nobody is known to be."""

    term: Term
    leader: MemberId


Action: TypeAlias = SaveBallot | Tell | Truncate | Write | Empty | Commit | Lead | Follow
Actions: TypeAlias = Sequence[Action]
