"""What an operator may say about a broker: those of RocketMQ's options that mean something here."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from enum import Enum
from typing import Final

from flaremq.base.errors import ConfigError
from flaremq.base.settings import check, computed, option
from flaremq.base.units import DAY_MS, GiB
from flaremq.broker.namesrvs import parse as parse_namesrvs
from flaremq.remoting.settings import ServerSettings

_NAMES_FORBIDDEN: Final = frozenset("/\\\0;:@ ")


class MetricsExporter(Enum):
    """How figures leave the broker. A scraper can read them here; of the others we only know the names."""

    DISABLE = "DISABLE"
    OTLP_GRPC = "OTLP_GRPC"
    PROM = "PROM"
    LOG = "LOG"


def local_address() -> str:
    """The address that others most likely reach us at: that of the way out, or else the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # Nothing is sent: the kernel only chooses a way.
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Who the broker is, and what it does and allows."""

    # Who.
    cluster_name: str = option("brokerClusterName", "DefaultCluster")
    broker_name: str = computed("brokerName", lambda: socket.gethostname() or "DEFAULT_BROKER")
    broker_id: int = option("brokerId", 0, minimum=0)
    ip1: str = computed("brokerIP1", local_address)
    """What clients are told to connect to."""
    ip2: str = computed("brokerIP2", local_address)
    """What slaves are told to connect to."""
    namesrv: str = computed("namesrvAddr", lambda: os.environ.get("NAMESRV_ADDR", ""))
    """host:port;host:port"""
    permission: int = option("brokerPermission", 6, minimum=0, maximum=7)
    region: str = option("regionId", "DefaultRegion")
    trace_on: bool = option("traceOn", True)

    # Topics and groups.
    auto_create_topics: bool = option("autoCreateTopicEnable", True)
    auto_create_groups: bool = option("autoCreateSubscriptionGroup", True)
    default_topic_queues: int = option("defaultTopicQueueNums", 8, minimum=1)
    cluster_topic: bool = option("clusterTopicEnable", True)
    broker_topic: bool = option("brokerTopicEnable", True)
    trace_topic: bool = option("traceTopicEnable", False)
    trace_topic_name: str = option("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC")
    revive_queues: int = option("reviveQueueNum", 8, minimum=1)
    validate_system_topic: bool = option("validateSystemTopicWhenUpdateTopic", True)
    create_system_groups: bool = option("enableCreateSysGroup", True)
    mixed_message_type: bool = option("enableMixedMessageType", False)

    # Sending and pulling.
    accept_sends_from_ms: int = option("startAcceptSendRequestTimeStamp", 0, minimum=0)
    reject_transactions: bool = option("rejectTransactionMessage", False)
    long_polling: bool = option("longPollingEnable", True)
    short_polling_ms: int = option("shortPollingTimeMills", 1000, minimum=0, unit="span_ms")
    lite_pull: bool = option("litePullMessageEnable", True)
    reject_pull_consumers: bool = option("rejectPullConsumerEnable", False)
    property_filter: bool = option("enablePropertyFilter", True)
    filter_retries: bool = option("filterSupportRetry", False)
    calculate_bit_maps: bool = option("enableCalcFilterBitMap", False)
    bloom_consumers: int = option("expectConsumerNumUseFilter", 32, minimum=1)
    bloom_error_rate: int = option("maxErrorRateOfBloomFilter", 20, minimum=1, maximum=99)
    filter_data_kept_ms: int = option("filterDataCleanTimeSpan", DAY_MS, minimum=0, unit="span_ms")
    slave_read: bool = option("slaveReadEnable", True)
    server_side_reset: bool = option("useServerSideResetOffset", True)
    broadcast_offsets: bool = option("enableBroadcastOffsetStore", True)
    broadcast_offset_expire_s: int = option("broadcastOffsetExpireSecond", 120, minimum=1)
    broadcast_offset_expire_max_s: int = option("broadcastOffsetExpireMaxSecond", 300, minimum=1)
    disable_slow_consumers: bool = option("disableConsumeIfConsumerReadSlowly", False)
    fall_behind_max: int = option("consumerFallbehindThreshold", 16 * GiB, minimum=0, unit="size")

    # Clients.
    notify_ids_changed: bool = option("notifyConsumerIdsChangedEnable", True)
    notify_at_once: bool = option("realTimeNotifyConsumerChange", True)
    register_producers: bool = option("enableRegisterProducer", True)
    channel_expired_ms: int = option("channelExpiredTimeout", 120_000, minimum=1, unit="span_ms")

    # NameServers and clocks.
    register_period_ms: int = option("registerNameServerPeriod", 30_000, minimum=1, unit="span_ms")
    register_timeout_ms: int = option("registerBrokerTimeoutMills", 24_000, minimum=1, unit="span_ms")
    force_register: bool = option("forceRegister", True)
    compressed_register: bool = option("compressedRegister", False)
    single_topic_register: bool = option("enableSingleTopicRegister", False)
    split_registration: bool = option("enableSplitRegistration", False)
    split_registration_size: int = option("splitRegistrationSize", 800, minimum=1)
    namesrv_refresh_ms: int = option("updateNameServerAddrPeriod", 120_000, minimum=1, unit="span_ms")
    namesrv_by_dns: bool = option("fetchNameSrvAddrByDnsLookup", False)
    flush_offsets_ms: int = option("flushConsumerOffsetInterval", 5000, minimum=1, unit="span_ms")
    offset_version_step: int = option("consumerOffsetUpdateVersionStep", 500, minimum=1)

    # Statistics.
    delete_unused_statistics: bool = option("autoDeleteUnusedStats", True)
    """Figures of a deleted topic or group go with it."""
    statistics_idle_max_min: int = option("maxStatsIdleTimeInMinutes", -1, minimum=-1)
    """-1: figures of what nobody uses any more are kept for ever."""
    metrics_exporter: MetricsExporter = option("metricsExporterType", MetricsExporter.DISABLE)
    metrics_label: str = option("metricsLabel", "")
    """name:value,name:value: further labels of every metric."""
    metrics_members_max: int = option("metricsOtelCardinalityLimit", 50_000, minimum=1)
    metrics_host: str = option("metricsPromExporterHost", "")
    metrics_port: int = option("metricsPromExporterPort", 5557, minimum=0, maximum=65535)

    config_black_list: tuple[str, ...] = option(
        "configBlackList", ("configBlackList", "brokerConfigPath"), separator=";"
    )
    """Names that no remote command may change."""

    def __post_init__(self) -> None:
        check(self)
        if not self.namesrv_by_dns:
            parse_namesrvs(self.namesrv)
        if self.metrics_exporter not in (MetricsExporter.DISABLE, MetricsExporter.PROM):
            raise ConfigError(
                f"metricsExporterType={self.metrics_exporter.name}: figures leave a broker only by PROM; "
                "set that and scrape metricsPromExporterPort, or DISABLE"
            )
        for name, text in (("brokerName", self.broker_name), ("brokerClusterName", self.cluster_name)):
            if not text or _NAMES_FORBIDDEN & set(text):
                raise ConfigError(
                    f"{name}={text!r}: it may not be empty nor hold blanks or any of / \\ ; : @"
                )

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0

    @property
    def register_period_s(self) -> float:
        """Java keeps it between ten seconds and a minute, whatever is said."""
        return min(max(self.register_period_ms, 10_000), 60_000) / 1000


@dataclass(frozen=True, slots=True)
class Place:
    """Where clients, and slaves, find the broker."""

    address: str
    ha_address: str

    @classmethod
    def of(cls, settings: BrokerSettings, port: int) -> Place:
        """HA has the port behind the one that clients use."""
        return cls(_address(settings.ip1, port), _address(settings.ip2, port + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySettings:
    """How many requests of each kind may wait, and for how long, before they are refused."""

    fast_failure: bool = option("brokerFastFailureEnable", True)
    """Whether a request may be refused because it has waited for too long."""
    send_max: int = option("sendThreadPoolQueueCapacity", 10_000, minimum=1)
    pull_max: int = option("pullThreadPoolQueueCapacity", 100_000, minimum=1)
    query_max: int = option("queryThreadPoolQueueCapacity", 20_000, minimum=1)
    consumer_max: int = option("consumerManagerThreadPoolQueueCapacity", 1_000_000, minimum=1)
    admin_max: int = option("adminBrokerThreadPoolQueueCapacity", 10_000, minimum=1)
    send_age_ms: int = option("waitTimeMillsInSendQueue", 200, minimum=1, unit="span_ms")
    pull_age_ms: int = option("waitTimeMillsInPullQueue", 5000, minimum=1, unit="span_ms")
    lite_pull_age_ms: int = option("waitTimeMillsInLitePullQueue", 5000, minimum=1, unit="span_ms")
    admin_age_ms: int = option("waitTimeMillsInAdminBrokerQueue", 5000, minimum=1, unit="span_ms")
    query_threads: int = option("queryMessageThreadPoolNums", 4, minimum=1)
    """Threads for what would hold up the loop: searches by key and time, and files of settings."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServerSettings(ServerSettings):
    """The same sockets, on the port where a broker is looked for."""

    listen_port: int = option("listenPort", 10911, minimum=0, maximum=65535)


def _address(host: str, port: int) -> str:
    """An IPv6 host needs its brackets, or nobody finds the port."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
