"""Bodies about groups: heartbeats, subscriptions, locks, offsets and direct consumption."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar, Final

from flaremq.base.errors import UsageError
from flaremq.model.message import MessageQueue
from flaremq.model.tags import java_hash
from flaremq.model.topic import DataVersion, GroupConfig
from flaremq.protocol import beans

TAG: Final = "TAG"
SQL92: Final = "SQL92"
ALL: Final = "*"


class ConsumeType(Enum):
    """In Java's order: C++ sends the number."""

    CONSUME_ACTIVELY = "pull"
    CONSUME_PASSIVELY = "push"
    CONSUME_POP = "pop"


class MessageModel(Enum):
    BROADCASTING = "broadcasting"
    CLUSTERING = "clustering"


class ConsumeFromWhere(Enum):
    CONSUME_FROM_LAST_OFFSET = 0
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = 1
    CONSUME_FROM_MIN_OFFSET = 2
    CONSUME_FROM_MAX_OFFSET = 3
    CONSUME_FROM_FIRST_OFFSET = 4
    CONSUME_FROM_TIMESTAMP = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionData:
    topic: str
    sub_string: str = ALL
    tags_set: tuple[str, ...] = ()
    code_set: tuple[int, ...] = ()
    """Java's hash of each tag. Go hashes other bytes, so a broker uses `with_codes`."""
    sub_version: int = 0
    """Only a larger version replaces a known one. Milliseconds from Java, nanoseconds from Go."""
    expression_type: str = TAG
    class_filter_mode: bool = False

    @classmethod
    def of(
        cls, topic: str, expression: str = ALL, expression_type: str = TAG, sub_version: int = 0
    ) -> SubscriptionData:
        """A subscription from its text. Raises UsageError if a tag expression names no tag."""
        if expression_type and expression_type != TAG:
            return cls(
                topic=topic,
                sub_string=expression,
                expression_type=expression_type,
                sub_version=sub_version,
            )
        if not expression or expression == ALL:
            return cls(topic=topic, sub_version=sub_version)
        tags = tuple(dict.fromkeys(tag.strip() for tag in expression.split("||") if tag.strip()))
        if not tags:
            raise UsageError(f"subscription {expression!r} names no tag: expected tags separated by ||, or *")
        return cls(topic=topic, sub_string=expression, tags_set=tags, sub_version=sub_version).with_codes()

    @property
    def is_sql(self) -> bool:
        return self.expression_type == SQL92

    def with_codes(self) -> SubscriptionData:
        """A copy with the correct codes of its tags."""
        if self.is_sql or self.class_filter_mode:
            return self
        if not self.tags_set and self.sub_string and self.sub_string != ALL:
            return SubscriptionData.of(self.topic, self.sub_string, sub_version=self.sub_version)
        return replace(self, code_set=tuple(dict.fromkeys(map(java_hash, self.tags_set))))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerData:
    group_name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerData:
    group_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatData:
    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"client_id": "clientID"}

    client_id: str
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    heartbeat_fingerprint: int = 0
    without_sub: bool = False
    """The subscriptions are left out: the broker knows them by their fingerprint."""

    def fingerprint(self) -> int:
        """Java's hash of everything except the client and the versions."""
        plain = replace(
            self,
            client_id="",
            heartbeat_fingerprint=0,
            without_sub=False,
            consumer_data_set=tuple(
                replace(
                    consumer,
                    subscription_data_set=tuple(
                        replace(each, sub_version=0) for each in consumer.subscription_data_set
                    ),
                )
                for consumer in self.consumer_data_set
            ),
        )
        return java_hash(beans.encode(plain).decode())


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerListByGroupResponseBody:
    consumer_id_list: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList:
    group_list: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LockBatchRequestBody:
    """Of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    consumer_group: str
    client_id: str
    only_this_broker: bool = False
    mq_set: tuple[MessageQueue, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LockBatchResponseBody:
    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"lock_ok_mq_set": "lockOKMQSet"}

    lock_ok_mq_set: tuple[MessageQueue, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckClientRequestBody:
    client_id: str
    group: str
    subscription_data: SubscriptionData
    namespace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOffsetSerializeWrapper:
    offset_table: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """`topic@group`, queue, next offset."""
    data_version: DataVersion | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayOffsetSerializeWrapper:
    offset_table: Mapping[int, int] = field(default_factory=dict)
    """By delay level."""
    data_version: DataVersion | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupWrapper:
    subscription_group_table: Mapping[str, GroupConfig] = field(default_factory=dict)
    forbidden_table: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupList:
    group_config_list: tuple[GroupConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsetBody:
    """Always in fastjson's dialect: the Go client parses exactly that text."""

    offset_table: Mapping[MessageQueue, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueueForC:
    topic: str
    broker_name: str
    queue_id: int
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsetBodyForC:
    """ResetOffsetBody for C++, which has no maps with such keys."""

    offset_table: tuple[MessageQueueForC, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerStatusBody:
    message_queue_table: Mapping[MessageQueue, int] = field(default_factory=dict)
    consumer_table: Mapping[str, Mapping[MessageQueue, int]] = field(default_factory=dict)


class CMResult(Enum):
    CR_SUCCESS = 0
    CR_LATER = 1
    CR_ROLLBACK = 2
    CR_COMMIT = 3
    CR_THROW_EXCEPTION = 4
    CR_RETURN_NULL = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeMessageDirectlyResult:
    order: bool = False
    auto_commit: bool = True
    consume_result: CMResult | None = None
    remark: str | None = None
    spent_time_mills: int = 0
