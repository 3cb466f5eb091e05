"""What masters and slaves say of themselves, for status requests, metrics and logs. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FollowState(Enum):
    """What a slave is doing about its master."""

    ALONE = "no master is known"
    LOOKING = "comparing the logs"
    CONNECTING = "connecting"
    FOLLOWING = "following"
    REFUSED = "refused"
    """The two logs do not fit, and were not mixed. An operator must act."""
    WAITING = "trying again soon"


@dataclass(frozen=True, slots=True)
class SlaveStatus:
    """A slave, as it sees itself."""

    state: FollowState
    master_address: str
    """The HA address of its master; empty while none is known."""
    why: str
    """Why it does not follow; empty if it does."""
    end: int
    """Where its log ends."""
    master_end: int
    """Where the log of its master ended when it last said so."""
    read_ms: int
    """When it last heard of its master, and spoke to it; 0 for never."""
    written_ms: int
    bytes_per_s: int
    bytes_total: int
    """Copied since its start."""
    caught_up_ms: int
    """When it last had all that its master had; 0 for never."""
    refusals: int
    """How often the two logs did not fit since its start."""
    resyncs: int
    """How often a part of its log was given up."""
    cut_bytes: int
    """How much of its log it has given up since its start, because its master does not have it, or at its
    start, because it lay behind a hole."""


@dataclass(frozen=True, slots=True)
class SlaveLink:
    """A connection of a slave, as its master sees it."""

    address: str
    broker_id: int | None
    """None: it has not said who it is, as slaves of RocketMQ never do."""
    acked: int
    """How far it has the log, by its own word; -1 until it has reported."""
    sent: int
    """Up to where bytes were handed to its connection."""
    lag: int
    bytes_per_s: int
    silent_s: float
    """For how long it has said nothing."""
    is_near: bool
    """Whether it lacks less than haMaxGapNotInSync."""


@dataclass(frozen=True, slots=True)
class MasterStatus:
    """A master and its slaves."""

    end: int
    replicated: int
    """How far enough slaves have the log."""
    followers: tuple[SlaveLink, ...]
    bytes_total: int
    """Sent to slaves since the start."""
    refused: int
    """Connections that were closed since the start because their log does not fit, or for what they sent."""
    last_refusal: str
