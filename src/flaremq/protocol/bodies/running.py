"""Bodies about running clients: the state of a consumer, the connections of groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from flaremq.model.message import MessageQueue
from flaremq.protocol.bodies.group import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from flaremq.protocol.codes import LanguageCode

PROP_NAMESERVER_ADDR: Final = "PROP_NAMESERVER_ADDR"
PROP_THREADPOOL_CORE_SIZE: Final = "PROP_THREADPOOL_CORE_SIZE"
PROP_CONSUME_ORDERLY: Final = "PROP_CONSUMEORDERLY"
PROP_CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
PROP_CLIENT_VERSION: Final = "PROP_CLIENT_VERSION"
PROP_CONSUMER_START_TIMESTAMP: Final = "PROP_CONSUMER_START_TIMESTAMP"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessQueueInfo:
    """One queue of a pulling consumer."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"cached_msg_size_in_mib": "cachedMsgSizeInMiB"}

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = 0
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PopProcessQueueInfo:
    wait_ack_count: int = 0
    droped: bool = False
    last_pop_timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStatus:
    WIRE_NAMES: ClassVar[Mapping[str, str]] = {
        "pull_rt": "pullRT",
        "pull_tps": "pullTPS",
        "consume_rt": "consumeRT",
        "consume_ok_tps": "consumeOKTPS",
        "consume_failed_tps": "consumeFailedTPS",
    }

    pull_rt: float = 0.0
    pull_tps: float = 0.0
    consume_rt: float = 0.0
    consume_ok_tps: float = 0.0
    consume_failed_tps: float = 0.0
    consume_failed_msgs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRunningInfo:
    properties: Mapping[str, str] = field(default_factory=dict)
    subscription_set: tuple[SubscriptionData, ...] = ()
    mq_table: Mapping[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    mq_pop_table: Mapping[MessageQueue, PopProcessQueueInfo] = field(default_factory=dict)
    status_table: Mapping[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: Mapping[str, str] = field(default_factory=dict)
    jstack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConnection:
    client_id: str
    client_addr: str | None = None
    language: LanguageCode | None = None
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConnection:
    connection_set: tuple[ClientConnection, ...] = ()
    subscription_table: Mapping[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConnection:
    connection_set: tuple[ClientConnection, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerTableEntry:
    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"remote_ip": "remoteIP"}

    client_id: str
    remote_ip: str | None = None
    language: LanguageCode | None = None
    version: int = 0
    last_update_timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerTableInfo:
    data: Mapping[str, tuple[ProducerTableEntry, ...]] = field(default_factory=dict)
