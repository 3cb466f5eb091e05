"""Headers about a broker itself: statistics, settings, replication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flaremq.protocol.fields import Header, Long

LOG_END: Final = "masterCommitLogMaxOffset"
"""Ours, in the answers that tell slaves how far deliveries are: where the log of the master ended then. The
name is that of the same figure in RocketMQ's HA status; its slaves do not look at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBrokerStatsDataRequestHeader(Header):
    stats_name: str
    """Such as TOPIC_PUT_NUMS."""
    stats_key: str
    """`topic` or `topic@group`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerConsumeStatsRequestHeader(Header):
    is_order: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerConfigResponseHeader(Header):
    version: str | None = None
    """A DataVersion, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeHAInfoRequestHeader(Header):
    """EXCHANGE_BROKER_HA_INFO; all empty from a slave that asks."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeHAInfoResponseHeader(Header):
    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetMasterFlushOffsetHeader(Header):
    master_flush_offset: Long


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRequestHeader(Header):
    """AUTH_CREATE_USER, AUTH_UPDATE_USER, AUTH_DELETE_USER, AUTH_GET_USER."""

    username: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListUserRequestHeader(Header):
    filter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRequestHeader(Header):
    """AUTH_CREATE_ACL, AUTH_UPDATE_ACL, AUTH_GET_ACL, and AUTH_DELETE_ACL with the last two."""

    subject: str
    """`User:name`."""
    policy_type: str | None = None
    resource: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAclRequestHeader(Header):
    subject_filter: str | None = None
    resource_filter: str | None = None
