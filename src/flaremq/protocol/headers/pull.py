"""Headers of reading: pulls, offsets of consumers and of queues, single messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final

from flaremq.protocol.fields import Header, Long, TopicHeader

COMMIT_OFFSET: Final = 0x1
"""Bit of a pull's sysFlag: commitOffset is to be stored."""
SUSPEND: Final = 0x2
"""Hold the request while there is nothing new."""
SUBSCRIPTION: Final = 0x4
"""The subscription is part of the request; otherwise that of the group's heartbeats counts."""
CLASS_FILTER: Final = 0x8
LITE_PULL: Final = 0x10


@dataclass(frozen=True, slots=True, kw_only=True)
class PullMessageRequestHeader(TopicHeader):
    """PULL_MESSAGE and LITE_PULL_MESSAGE."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: Long
    max_msg_nums: int
    sys_flag: int
    commit_offset: Long
    suspend_timeout_millis: Long
    subscription: str | None = None
    sub_version: Long
    expression_type: str | None = None
    max_msg_bytes: int | None = None
    request_source: int | None = None
    """-1: a client; 0, 1, 2: a proxy for an orderly, a broadcasting, a streaming one."""
    proxy_froward_client_id: str | None = None
    """Spelled so on the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullMessageResponseHeader(Header):
    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    forbidden_type: int | None = None
    """With NO_PERMISSION: 1 broker, 2 group, 3 topic, 4 no broadcasting, 5 this group on this topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumerOffsetRequestHeader(TopicHeader):
    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateConsumerOffsetRequestHeader(TopicHeader):
    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: Long


class BoundaryType(Enum):
    """Which of several messages of the same time is meant."""

    LOWER = "lower"
    UPPER = "upper"

    @classmethod
    def of_text(cls, text: str) -> BoundaryType:
        """Anything but upper is lower, as in Java."""
        return cls.UPPER if text.lower() == "upper" else cls.LOWER


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOffsetRequestHeader(TopicHeader):
    """SEARCH_OFFSET_BY_TIMESTAMP."""

    topic: str
    queue_id: int
    timestamp: Long
    boundary_type: BoundaryType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMaxOffsetRequestHeader(TopicHeader):
    topic: str
    queue_id: int
    committed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMinOffsetRequestHeader(TopicHeader):
    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GetEarliestMsgStoretimeRequestHeader(TopicHeader):
    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetResponseHeader(Header):
    """Of QUERY_CONSUMER_OFFSET, SEARCH_OFFSET_BY_TIMESTAMP, GET_MAX_OFFSET and GET_MIN_OFFSET."""

    offset: Long


@dataclass(frozen=True, slots=True, kw_only=True)
class GetEarliestMsgStoretimeResponseHeader(Header):
    timestamp: Long
    """-1: the queue is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMessageRequestHeader(TopicHeader):
    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"unique_key_query": "_UNIQUE_KEY_QUERY"}

    topic: str
    key: str
    max_num: int
    begin_timestamp: Long
    end_timestamp: Long
    unique_key_query: bool | None = None
    """The key is the id that the sender gave it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMessageResponseHeader(Header):
    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewMessageRequestHeader(TopicHeader):
    """VIEW_MESSAGE_BY_ID."""

    offset: Long
    topic: str | None = None
