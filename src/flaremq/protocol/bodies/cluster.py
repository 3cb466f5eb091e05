"""Bodies about a cluster: brokers, topics, key-value tables, replication status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from flaremq.model.topic import TopicConfig
from flaremq.protocol.bodies.route import BrokerData


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    broker_addr_table: Mapping[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of brokers by cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMemberGroup:
    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerMemberGroupResponseBody:
    broker_member_group: BrokerMemberGroup | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicList:
    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicListRequestBody:
    topic_config_list: tuple[TopicConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KVTable:
    table: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HAConnectionRuntimeInfo:
    """One slave, as its master sees it."""

    addr: str | None = None
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HAClientRuntimeInfo:
    """A slave, as it sees itself."""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0
    activated: bool | None = None
    """Whether it follows; None from a version that does not say."""
    flare_state: str | None = None
    flare_why: str | None = None
    flare_cut_bytes: int | None = None
    """FlareMQ's own: what it is doing, why it does not follow, and how much of its log it gave up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HARuntimeInfo:
    WIRE_NAMES: ClassVar[Mapping[str, str]] = {
        "ha_connection_info": "haConnectionInfo",
        "ha_client_runtime_info": "haClientRuntimeInfo",
    }

    master: bool = True
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: tuple[HAConnectionRuntimeInfo, ...] = ()
    ha_client_runtime_info: HAClientRuntimeInfo = HAClientRuntimeInfo()
    flare_refused: int | None = None
    flare_last_refusal: str | None = None
    """FlareMQ's own: connections that a master refused, and why the last one."""
    flare_epoch: int | None = None
    flare_displaced: str | None = None
    """Why a master serves no clients: another one of its name does."""
    flare_rival: str | None = None
    """Another master that has to yield to this one."""

    @classmethod
    def of_master(cls, end: int, connections: Iterable[HAConnectionRuntimeInfo], **more: Any) -> Self:
        """`end`: of its log."""
        slaves = tuple(connections)
        return cls(
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(each.in_sync for each in slaves),
            ha_connection_info=slaves,
            **more,
        )
