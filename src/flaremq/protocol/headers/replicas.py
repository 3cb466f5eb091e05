"""Headers of the requests between brokers of one name that only FlareMQ has."""

from __future__ import annotations

from dataclasses import dataclass

from flaremq.protocol.fields import Header, Long


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareLogRequestHeader(Header):
    """FLAREMQ_COMPARE_LOG: checksums of [begin, end) in pieces of so many bytes."""

    begin: Long
    end: Long
    piece: int
    broker_id: Long


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareLogResponseHeader(Header):
    """The body has four bytes for each piece, as far as the log reaches."""

    begin: Long
    end: Long
    file_size: Long
    vouches: bool
    """Whether producers rely on slaves."""
    epoch: Long | None = None
    """How often slaves of this name were promoted, as far as this master knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntroduceSlaveRequestHeader(Header):
    """FLAREMQ_INTRODUCE_SLAVE: whose HA connection it is that comes from this address."""

    broker_id: Long
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimNameHeader(Header):
    """FLAREMQ_CLAIM_NAME, and its answer: what a broker says of its being the master of this name."""

    broker_name: str
    address: str
    epoch: Long
    started: Long
    start_id: Long
    serves: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferLeadershipHeader(Header):
    """FLAREMQ_GROUP_TRANSFER: the member that is to lead."""

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeMembersHeader(Header):
    """FLAREMQ_GROUP_CHANGE: a member that comes, with its address, or one that goes, without any."""

    member: str
    address: str = ""
