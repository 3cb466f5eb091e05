"""The options of a Raft group, with the names of DLedger's users."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from flaremq.base.errors import ConfigError
from flaremq.base.settings import check, option
from flaremq.base.units import DAY_MS, GiB, KiB, MiB
from flaremq.dledger.types import LIBRARY_LOST_S, Membership, Pace

_ID: Final = re.compile(r"[a-z][0-9]{1,9}")
_HEARTBEATS_PER_ELECTION: Final = 5
_LEASE_PART: Final = 0.8
_EXAMPLE: Final = "n0-10.0.0.1:40911;n1-10.0.0.2:40911;n2-10.0.0.3:40911"


def addresses_of(peers: str) -> Mapping[str, str]:
    """The members that `dLegerPeers` names: host:port by id. Raises ConfigError."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in peers.split(";"))):
        member, _, address = part.partition("-")
        host, _, port = address.rpartition(":")
        if not _ID.fullmatch(member) or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(
                f"dLegerPeers={peers}: {part} is not a member: expected a letter and a number, `-`, "
                f"and host:port, as in {_EXAMPLE}"
            )
        if member in found:
            raise ConfigError(f"dLegerPeers={peers} names {member} twice: give each member its own id")
        if address in found.values():
            raise ConfigError(f"dLegerPeers={peers} names {address} twice: give each its own port")
        found[member] = address
    if not found:
        raise ConfigError(f"dLegerPeers is not set: expected all members of the group, as in {_EXAMPLE}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings:
    """Whether the log is kept by a group, and who belongs to it."""

    PROTECTS: ClassVar = frozenset({"raft"})

    enabled: bool = option("enableDLegerCommitLog", False)
    group: str = option("dLegerGroup", "")
    """Empty: the name of the broker."""
    peers: str = option("dLegerPeers", "")
    """id-host:port of every member, this one among them, separated by `;`."""
    self_id: str = option("dLegerSelfId", "")
    data_path: str = option("storePathDLedgerCommitLog", "")
    """Folder of the log's files; empty: data, in the folder of the member's ledger."""
    protocol: str = option("dLegerProtocol", "flaremq", choices=("flaremq", "dledger"))
    """Whose rules the group follows: FlareMQ's, or those of Apache's DLedger library, which some run."""
    batch_push: bool = option("enableBatchPush", False, also=("isEnableBatchPush",))
    """Whether a leader in a group of the library pushes several entries in a request."""
    preferred: str = option("preferredLeaderId", "", also=("preferredLeaderIds",))
    """Ids of members that lead if they can, separated by `;`."""
    election_ms: int = option("dLegerElectionTimeout", 1_000, minimum=200, maximum=600_000, unit="span_ms")
    """A member that has not heard of its leader for one to two times this wants another one."""
    commit_timeout_ms: int = option("dLegerCommitTimeout", 2_500, minimum=1, maximum=600_000, unit="span_ms")
    """How long the answer to a producer waits for a majority."""
    push_size: int = option("dLegerPushSize", 1 * MiB, minimum=1, maximum=16 * MiB, unit="size")
    """Entries that are sent to a member at once, in bytes."""
    scrub_interval_ms: int = option("dLegerScrubInterval", 7 * DAY_MS, minimum=0, unit="span_ms")
    """In this time all files of the log are read again once, and what has rotted is repaired; 0: never."""
    scrub_bytes_per_s: int = option(
        "dLegerScrubBytesPerSecond", 16 * MiB, minimum=64 * KiB, maximum=16 * GiB, unit="size"
    )
    """So much of it is read in a second."""

    def __post_init__(self) -> None:
        check(self)
        if self.enabled:
            self._check_members()

    def _check_members(self) -> None:
        addresses = self.addresses
        if not self.self_id:
            raise ConfigError("dLegerSelfId is not set: expected the id of this member, as in dLegerPeers")
        if self.self_id not in addresses:
            raise ConfigError(
                f"dLegerSelfId={self.self_id} is not in dLegerPeers={self.peers}: add it with its address, "
                f"or choose one of {', '.join(addresses)}"
            )
        for member in self.preferred_ids:
            if member not in addresses:
                raise ConfigError(
                    f"preferredLeaderId={self.preferred}: {member} is not in dLegerPeers={self.peers}: "
                    "expected ids of members, separated by `;`"
                )

    @property
    def addresses(self) -> Mapping[str, str]:
        """host:port of each member, by id."""
        return addresses_of(self.peers)

    @property
    def membership(self) -> Membership:
        return Membership(dict(self.addresses))

    @property
    def preferred_ids(self) -> tuple[str, ...]:
        return tuple(filter(None, (part.strip() for part in self.preferred.split(";"))))

    @property
    def pace(self) -> Pace:
        election_s = self.election_ms / 1000
        return Pace(
            heartbeat_s=election_s / _HEARTBEATS_PER_ELECTION,
            election_s=election_s,
            lease_s=election_s * _LEASE_PART,
            push_bytes_max=self.push_size,
        )

    @property
    def has_own_rules(self) -> bool:
        """Whether all members are FlareMQ's, and need not do as the DLedger library does."""
        return self.protocol == "flaremq"

    @property
    def lost_s(self) -> float:
        """So long a leader may be silent. That of the library's members is their own."""
        return self.election_ms / 1000 if self.has_own_rules else LIBRARY_LOST_S

    @property
    def scrub_interval_s(self) -> float:
        return self.scrub_interval_ms / 1000

    @property
    def commit_timeout_s(self) -> float:
        return self.commit_timeout_ms / 1000

    @property
    def broker_id(self) -> int:
        """Of this member while it does not lead: 0 is the leader's."""
        return int(self.self_id[1:]) + 1
