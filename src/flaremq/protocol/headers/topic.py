"""Headers about topics and their queues."""

from __future__ import annotations

from dataclasses import dataclass

from flaremq.protocol.fields import Header, Long, TopicHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicRequestHeader(TopicHeader):
    """UPDATE_AND_CREATE_TOPIC and UPDATE_AND_CREATE_STATIC_TOPIC."""

    topic: str
    default_topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str
    topic_sys_flag: int | None = None
    order: bool = False
    attributes: str | None = None
    """Changes, as text: `+key=value,-key`."""
    force: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicRequestHeader(TopicHeader):
    """DELETE_TOPIC_IN_BROKER."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllTopicConfigRequestHeader(Header):
    """Without `topic_seq`, the request is for the whole table."""

    topic_seq: int | None = None
    data_version: str | None = None
    max_topic_num: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllTopicConfigResponseHeader(Header):
    total_topic_num: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicConfigRequestHeader(TopicHeader):
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicStatsInfoRequestHeader(TopicHeader):
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTopicConsumeByWhoRequestHeader(TopicHeader):
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumeQueueRequestHeader(TopicHeader):
    topic: str
    queue_id: int
    index: Long
    count: int
    consumer_group: str | None = None
