"""Topic and group settings, as values and as JSON.

In topics.json and subscriptionGroup.json, members are in alphabetical order, and absent ones are left out, as
Java writes them. The rules for names are in `names`, and re-exported here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from flaremq.model.jsonfields import Fields
from flaremq.model.names import (
    check_group,
    check_topic,
    dlq_topic,
    is_dlq,
    is_lmq,
    is_retry,
    is_system,
    is_system_group,
    retry_topic,
)
from flaremq.model.retrypolicy import RetryPolicy

__all__ = [
    "CLEANUP_COMPACTION",
    "CLEANUP_POLICY",
    "MESSAGE_TYPE",
    "PERM_INHERIT",
    "PERM_PRIORITY",
    "PERM_READ",
    "PERM_WRITE",
    "QUEUE_TYPE",
    "QUEUE_TYPE_BATCH",
    "RESERVE_TIME",
    "DataVersion",
    "GroupConfig",
    "RetryPolicy",
    "SimpleSubscription",
    "TopicConfig",
    "TopicFilterType",
    "check_group",
    "check_topic",
    "dlq_topic",
    "is_dlq",
    "is_lmq",
    "is_retry",
    "is_system",
    "is_system_group",
    "perm_text",
    "retry_topic",
]

PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4
PERM_PRIORITY: Final = 8

QUEUE_TYPE: Final = "queue.type"
QUEUE_TYPE_BATCH: Final = "BatchCQ"
CLEANUP_POLICY: Final = "cleanup.policy"
CLEANUP_COMPACTION: Final = "COMPACTION"
MESSAGE_TYPE: Final = "message.type"
RESERVE_TIME: Final = "reserve.time"

ATTRIBUTE_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    QUEUE_TYPE: ("SimpleCQ", QUEUE_TYPE_BATCH),
    CLEANUP_POLICY: ("DELETE", CLEANUP_COMPACTION),
    MESSAGE_TYPE: ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "UNSPECIFIED"),
}
"""The first of each is the default."""


def perm_text(perm: int) -> str:
    """`RWX`, with a dash for what is not allowed; X is inherit."""
    bits = ((PERM_READ, "R"), (PERM_WRITE, "W"), (PERM_INHERIT, "X"))
    return "".join(letter if perm & bit else "-" for bit, letter in bits)


class TopicFilterType(Enum):
    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


def _read_only(instance: object, name: str) -> None:
    object.__setattr__(instance, name, MappingProxyType(dict(getattr(instance, name))))


@dataclass(frozen=True, slots=True, order=True)
class DataVersion:
    """The version of a table. A larger one is newer: Java compares in this order too."""

    state_version: int = 0
    """In a Raft group, the term of the leader whose table it is."""
    counter: int = 0
    timestamp_ms: int = 0

    def next(self, now_ms: int) -> "DataVersion":
        return DataVersion(self.state_version, self.counter + 1, now_ms)

    def to_dict(self) -> dict[str, object]:
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp_ms}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "DataVersion":
        fields = Fields("dataVersion", data)
        return cls(
            fields.integer("stateVersion", 0), fields.integer("counter", 0), fields.integer("timestamp", 0)
        )


@dataclass(frozen=True, slots=True)
class TopicConfig:
    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _read_only(self, "attributes")

    @property
    def readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)

    @property
    def inherited(self) -> bool:
        """Whether topics created by a first send may use this one as their template."""
        return bool(self.perm & PERM_INHERIT)

    @property
    def is_batch_queue(self) -> bool:
        return self.attributes.get(QUEUE_TYPE) == QUEUE_TYPE_BATCH

    @property
    def is_compacted(self) -> bool:
        return self.attributes.get(CLEANUP_POLICY) == CLEANUP_COMPACTION

    def to_dict(self) -> dict[str, object]:
        return {
            "attributes": dict(self.attributes),
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.topic_filter_type.name,
            "topicName": self.topic_name,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "TopicConfig":
        fields = Fields("a topic", data)
        return cls(
            topic_name=fields.text("topicName"),
            read_queue_nums=fields.integer("readQueueNums", 16),
            write_queue_nums=fields.integer("writeQueueNums", 16),
            perm=fields.integer("perm", PERM_READ | PERM_WRITE),
            topic_filter_type=fields.enum("topicFilterType", TopicFilterType.SINGLE_TAG),
            topic_sys_flag=fields.integer("topicSysFlag", 0),
            order=fields.boolean("order", False),
            attributes=fields.texts("attributes"),
        )


@dataclass(frozen=True, slots=True)
class SimpleSubscription:
    """A subscription of newer clients, kept with the group."""

    topic: str
    expression_type: str
    expression: str
    version: int = 0

    def to_dict(self) -> dict[str, object]:
        return {
            "expression": self.expression,
            "expressionType": self.expression_type,
            "topic": self.topic,
            "version": self.version,
        }

    @classmethod
    def of(cls, fields: Fields) -> "SimpleSubscription":
        return cls(
            topic=fields.text("topic"),
            expression_type=fields.text("expressionType", ""),
            expression=fields.text("expression", ""),
            version=fields.integer("version", 0),
        )


@dataclass(frozen=True, slots=True)
class GroupConfig:
    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: tuple[SimpleSubscription, ...] | None = None
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _read_only(self, "attributes")

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object] = {"attributes": dict(self.attributes)}
        for name in _GROUP_INTEGERS + _GROUP_BOOLEANS:
            found[_camel(name)] = getattr(self, name)
        found["groupName"] = self.group_name
        found["groupRetryPolicy"] = self.group_retry_policy.to_dict()
        if self.subscription_data_set is not None:
            found["subscriptionDataSet"] = [each.to_dict() for each in self.subscription_data_set]
        return dict(sorted(found.items()))

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "GroupConfig":
        fields = Fields("a group", data)
        plain = cls(group_name=fields.text("groupName"))
        values: dict[str, Any] = {}
        for name in _GROUP_INTEGERS:
            values[name] = fields.integer(_camel(name), getattr(plain, name))
        for name in _GROUP_BOOLEANS:
            values[name] = fields.boolean(_camel(name), getattr(plain, name))
        policy, wanted = fields.inner("groupRetryPolicy"), fields.inners("subscriptionDataSet")
        return cls(
            group_name=plain.group_name,
            group_retry_policy=RetryPolicy() if policy is None else RetryPolicy.of(policy),
            subscription_data_set=None if wanted is None else tuple(map(SimpleSubscription.of, wanted)),
            attributes=fields.texts("attributes"),
            **values,
        )


_GROUP_INTEGERS: Final = (
    "broker_id",
    "consume_timeout_minute",
    "group_sys_flag",
    "retry_max_times",
    "retry_queue_nums",
    "which_broker_when_consume_slowly",
)
_GROUP_BOOLEANS: Final = (
    "consume_broadcast_enable",
    "consume_enable",
    "consume_from_min_enable",
    "consume_message_orderly",
    "notify_consumer_ids_changed_enable",
)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
