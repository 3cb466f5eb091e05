"""Bodies about progress: offsets of queues and groups, rates, queue entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flaremq.model.message import MessageQueue
from flaremq.protocol.bodies.group import SubscriptionData


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetWrapper:
    """A group's progress in one queue."""

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStats:
    offset_table: Mapping[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStatsList:
    consume_stats_list: tuple[Mapping[str, tuple[ConsumeStats, ...]], ...] = ()
    broker_addr: str | None = None
    total_diff: int = 0
    total_inflight_diff: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOffset:
    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatsTable:
    offset_table: Mapping[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float | None = None
    """Absent before version 5.2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatsItem:
    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatsData:
    stats_minute: BrokerStatsItem = BrokerStatsItem()
    stats_hour: BrokerStatsItem = BrokerStatsItem()
    stats_day: BrokerStatsItem = BrokerStatsItem()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeQueueData:
    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumeQueueResponseBody:
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: tuple[ConsumeQueueData, ...] = ()
    max_queue_index: int = 0
    min_queue_index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTimeSpan:
    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumeTimeSpanBody:
    consume_time_span_set: tuple[QueueTimeSpan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCorrectionOffsetBody:
    correction_offsets: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySubscriptionResponseBody:
    subscription_data: SubscriptionData | None = None
    group: str | None = None
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupForbidden:
    topic: str
    group: str
    readable: bool | None = None
