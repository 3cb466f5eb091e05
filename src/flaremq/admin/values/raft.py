"""What is told about Raft groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaftMember:
    """One member, as it describes itself."""

    broker: str
    address: str
    """Where clients reach it."""
    group: str
    member: str
    """Its id in the group."""
    standing: str
    """leader, follower or candidate."""
    term: int
    leader: str
    """The id of its leader; empty if it knows of none."""
    answers: bool
    """Whether it leads and may answer clients."""
    last_index: int
    synced_index: int
    commit_index: int
    members: tuple[str, ...]
    """id-host:port of all that belong to the group, as far as it knows."""
    not_fit: str
    """Why it could not lead; empty if it could."""
    damage: str
    """What of its log is damaged and not repaired yet; empty if nothing is known to be."""
    last_refusal: str
    """Whom it did not let in last, and why."""
    may_vote: bool
    """Whether it knows what it has promised: if not, it has lost its files, and catches up."""
    caution: str
    """Why the group is less safe than it could be; empty if it is not."""
    peers: tuple[RaftPeerView, ...]

    @property
    def is_leader(self) -> bool:
        return self.standing == "leader"

    @property
    def ids(self) -> list[str]:
        """Of all that belong to the group, as far as it knows."""
        return [known.partition("-")[0] for known in self.members]


@dataclass(frozen=True, slots=True)
class RaftPeerView:
    """Another member, as one of them sees it."""

    member: str
    behind: int | None
    """Entries that it lacks; None where only the leader would know."""
    heard_seconds: float | None
    """Since it was last heard of; None: never."""
    complaint: str
    """Why it cannot be reached; empty if it can."""


def why_no_leader(members: Sequence[RaftMember]) -> str:
    """What a group lacks whose members know no leader. Those without files may have lost them, so none leads
    a new group before all of them run."""
    who = ", ".join(members[0].members)
    if all(each.last_index < 0 for each in members):
        return f"it is new, and begins when all of {who} run"
    return f"a majority of {who} must run"
