"""Headers about consumer and producer groups, and requests from brokers to their clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from flaremq.protocol.fields import Header, Long, RpcHeader, TopicHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponseHeader(Header):
    """Only ext fields in Java. `is_sub_change` False lets the client leave out its subscriptions."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {
        "is_support_heart_beat_v2": "IS_SUPPORT_HEART_BEAT_V2",
        "is_sub_change": "IS_SUB_CHANGE",
    }

    is_support_heart_beat_v2: bool = True
    is_sub_change: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterClientRequestHeader(RpcHeader):
    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"client_id": "clientID"}

    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerListByGroupRequestHeader(RpcHeader):
    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyConsumerIdsChangedRequestHeader(RpcHeader):
    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsetRequestHeader(TopicHeader):
    """INVOKE_BROKER_TO_RESET_OFFSET, and RESET_CONSUMER_CLIENT_OFFSET on to the clients."""

    topic: str
    group: str
    timestamp: Long
    """-1: the latest."""
    is_force: bool
    queue_id: int = -1
    offset: Long | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerStatusRequestHeader(TopicHeader):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS, and GET_CONSUMER_STATUS_FROM_CLIENT."""

    topic: str
    group: str
    client_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerRunningInfoRequestHeader(RpcHeader):
    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeMessageDirectlyResultRequestHeader(RpcHeader):
    """CONSUME_MESSAGE_DIRECTLY: consume this message now, and return the result."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerConnectionListRequestHeader(RpcHeader):
    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetProducerConnectionListRequestHeader(RpcHeader):
    producer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumeStatsRequestHeader(TopicHeader):
    consumer_group: str
    topic: str | None = None
    """None: every topic that the group has offsets for."""
    topic_list: str | None = None
    """Names separated by semicolons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTopicsByConsumerRequestHeader(RpcHeader):
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySubscriptionByConsumerRequestHeader(TopicHeader):
    group: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumeTimeSpanRequestHeader(TopicHeader):
    topic: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCorrectionOffsetHeader(TopicHeader):
    filter_groups: str | None = None
    compare_group: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneGroupOffsetRequestHeader(RpcHeader):
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSubscriptionGroupRequestHeader(RpcHeader):
    group_name: str
    clean_offset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GetSubscriptionGroupConfigRequestHeader(RpcHeader):
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllSubscriptionGroupRequestHeader(RpcHeader):
    """Without `group_seq`, the request is for the whole table."""

    group_seq: int | None = None
    data_version: str | None = None
    max_group_num: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllSubscriptionGroupResponseHeader(Header):
    total_group_num: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateGroupForbiddenRequestHeader(TopicHeader):
    """UPDATE_AND_GET_GROUP_FORBIDDEN; without `readable` it only asks."""

    group: str
    topic: str
    readable: bool | None = None
