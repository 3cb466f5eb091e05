"""Headers of pop: messages that are invisible for a time, and acknowledged or redelivered."""

from __future__ import annotations

from dataclasses import dataclass

from flaremq.protocol.fields import Header, Long, TopicHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class PopMessageRequestHeader(TopicHeader):
    consumer_group: str
    topic: str
    queue_id: int
    """-1: every queue of the topic on this broker."""
    max_msg_nums: int
    invisible_time: Long
    poll_time: Long
    born_time: Long = 0
    """When the request was made; 0 and absent mean now."""
    init_mode: int
    """Where a group without an offset begins: 0 at the least offset, 1 at the greatest."""
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PopMessageResponseHeader(Header):
    """Required on success, POLLING_FULL and POLLING_TIMEOUT alike."""

    pop_time: Long
    invisible_time: Long
    revive_qid: int
    rest_num: Long
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AckMessageRequestHeader(TopicHeader):
    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    """The receipt: `ckOffset popTime invisibleTime reviveQid retryMark brokerName queueId [offset]`."""
    offset: Long


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeInvisibleTimeRequestHeader(TopicHeader):
    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: Long
    invisible_time: Long


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeInvisibleTimeResponseHeader(Header):
    """The new receipt; the old one is no longer valid."""

    pop_time: Long
    invisible_time: Long
    revive_qid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekMessageRequestHeader(TopicHeader):
    topic: str
    queue_id: int
    max_msg_nums: int
    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationRequestHeader(TopicHeader):
    consumer_group: str
    topic: str
    queue_id: int
    poll_time: Long
    born_time: Long = 0
    order: bool | None = None
    attempt_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationResponseHeader(Header):
    has_msg: bool
    polling_full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingInfoRequestHeader(TopicHeader):
    consumer_group: str
    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingInfoResponseHeader(Header):
    polling_num: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallMessageRequestHeader(TopicHeader):
    """RECALL_MESSAGE: do not deliver a delayed message after all."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallMessageResponseHeader(Header):
    msg_id: str
