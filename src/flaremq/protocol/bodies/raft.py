"""Bodies about a Raft group. Only FlareMQ has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flaremq.protocol.bodies.group import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
)
from flaremq.protocol.bodies.route import TopicConfigSerializeWrapper


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftPeer:
    """Another member, as the asked one sees it."""

    member: str
    address: str
    matched: int | None = None
    """The last entry that it is known to have; None where that is not known: only a leader knows."""
    behind: int | None = None
    heard_seconds: float | None = None
    """Since it was last heard of; None: never."""
    complaint: str = ""
    """Why it cannot be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftGroupStatus:
    """A member, and what it knows of the others."""

    group: str
    member: str
    standing: str
    """leader, follower or candidate."""
    term: int
    leader: str = ""
    answers: bool = False
    """Whether it leads, and may answer clients."""
    first_index: int = 0
    last_index: int = -1
    synced_index: int = -1
    commit_index: int = -1
    members: tuple[str, ...] = ()
    """id-host:port of each."""
    changed_at: int = -1
    """The entry since which these are the members; -1: as configured."""
    not_fit: str = ""
    """Why it cannot lead at the moment."""
    damage: str = ""
    """What of its log is damaged and not repaired yet; it does not lead then."""
    last_refusal: str = ""
    may_vote: bool = True
    """False after it has lost its files, until it has caught up."""
    caution: str = ""
    """Why the group is less safe than it could be."""
    peers: tuple[RaftPeer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableNews:
    """What has changed in the leader's tables: entries that are new or different, and names that are gone.
    None: nothing in that table."""

    topics: TopicConfigSerializeWrapper | None = None
    topics_gone: Mapping[str, int] = field(default_factory=dict)
    """Where the log ended when each of them was deleted."""
    groups: SubscriptionGroupWrapper | None = None
    """With all that is forbidden."""
    groups_gone: tuple[str, ...] = ()
    offsets: ConsumerOffsetSerializeWrapper | None = None
    offsets_gone: tuple[str, ...] = ()
    """`topic@group`."""
    delays: DelayOffsetSerializeWrapper | None = None
    """All of them."""
    timers: tuple[int, ...] = ()
    """The seven numbers of timercheck."""
