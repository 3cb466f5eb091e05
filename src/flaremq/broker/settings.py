"""The broker's options: those of RocketMQ's that have an effect here."""

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
    """How metrics are exported. Only PROM, which a scraper reads, and DISABLE are supported."""

    DISABLE = "DISABLE"
    OTLP_GRPC = "OTLP_GRPC"
    PROM = "PROM"
    LOG = "LOG"


def local_address() -> str:
    """The address at which others most likely reach us: that of the default route, or else the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # Sends nothing: the kernel only chooses a route.
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The broker's identity, and what it does and allows."""

    # Identity.
    cluster_name: str = option("brokerClusterName", "DefaultCluster")
    broker_name: str = computed("brokerName", lambda: socket.gethostname() or "DEFAULT_BROKER")
    broker_id: int = option("brokerId", 0, minimum=0)
    ip1: str = computed("brokerIP1", local_address)
    """The address that clients connect to."""
    ip2: str = computed("brokerIP2", local_address)
    """The address that slaves connect to."""
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
    deduplication_count: int = option("deduplicationWindowCount", 16_384, minimum=0, maximum=1 << 24)
    """How many numbered messages of a producer are remembered, rounded up to a power of two; 0: none."""
    deduplication_span_s: int = option("deduplicationWindowSec", 600, minimum=1, maximum=DAY_MS)
    deduplication_producers_max: int = option("deduplicationProducersMax", 1000, minimum=1)
    reject_transactions: bool = option("rejectTransactionMessage", False)
    store_replies: bool = option("storeReplyMessageEnable", True)
    transaction_timeout_ms: int = option("transactionTimeOut", 6_000, minimum=0, unit="span_ms")
    transaction_checks_max: int = option("transactionCheckMax", 15, minimum=1)
    transaction_check_ms: int = option("transactionCheckInterval", 30_000, minimum=1, unit="span_ms")
    recall_enabled: bool = option("recallMessageEnable", True)
    recall_when_read_only: bool = option("allowRecallWhenBrokerNotWriteable", True)
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
    # Members of one group, of which one serves while there is no master.
    acting_master: bool = option("enableSlaveActingMaster", False)
    """Whether the slave with the lowest id does what its master would do: the same for all members."""
    remote_escape: bool = option("enableRemoteEscape", False)
    """Whether an acting master sends to other brokers what it has to deliver. If not, it delivers nothing."""
    skip_pre_online: bool = option("skipPreOnline", False)
    """Whether a member starts without having exchanged with the others what they know."""
    old_namesrvs: bool = option("compatibleWithOldNameSrv", True)
    """Whether NameServers that know nothing of groups are asked in ways that they know."""
    heartbeat_ms: int = option("brokerHeartbeatInterval", 1000, minimum=1, unit="span_ms")
    heartbeat_timeout_ms: int = option("sendHeartbeatTimeoutMillis", 1000, minimum=1, unit="span_ms")
    not_active_ms: int = option("brokerNotActiveTimeoutMillis", 10_000, minimum=1, unit="span_ms")
    """How long a member may be silent before NameServers remove it."""
    ask_members_ms: int = option("syncBrokerMemberGroupPeriod", 1000, minimum=1, unit="span_ms")

    flush_offsets_ms: int = option("flushConsumerOffsetInterval", 5000, minimum=1, unit="span_ms")
    offset_version_step: int = option("consumerOffsetUpdateVersionStep", 500, minimum=1)

    # Statistics.
    delete_unused_statistics: bool = option("autoDeleteUnusedStats", True)
    """Delete the statistics of a topic or group together with it."""
    statistics_idle_max_min: int = option("maxStatsIdleTimeInMinutes", -1, minimum=-1)
    """-1: statistics of unused topics and groups are kept for ever."""
    metrics_exporter: MetricsExporter = option("metricsExporterType", MetricsExporter.DISABLE)
    metrics_label: str = option("metricsLabel", "")
    """name:value,name:value: additional labels of every metric."""
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
                f"metricsExporterType={self.metrics_exporter.name} is not supported: expected DISABLE, or "
                "PROM to scrape metricsPromExporterPort"
            )
        for name, text in (("brokerName", self.broker_name), ("brokerClusterName", self.cluster_name)):
            if not text or _NAMES_FORBIDDEN & set(text):
                raise ConfigError(
                    f"{name}={text!r}: expected a name that is not empty, without spaces or any of / \\ ; : @"
                )

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0

    @property
    def register_period_s(self) -> float:
        """Limited to between 10 and 60 seconds, as in Java."""
        return min(max(self.register_period_ms, 10_000), 60_000) / 1000


@dataclass(frozen=True, slots=True)
class Place:
    """The addresses at which clients and slaves find the broker."""

    address: str
    ha_address: str

    @classmethod
    def of(cls, settings: BrokerSettings, port: int, ha_port: int = 0) -> Place:
        """Without another HA port it is the client port plus one."""
        return cls(_address(settings.ip1, port), _address(settings.ip2, ha_port or port + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySettings:
    """How many requests of each kind may wait, and for how long, before they are refused."""

    fast_failure: bool = option("brokerFastFailureEnable", True)
    """Whether a request that has waited too long is refused."""
    send_max: int = option("sendThreadPoolQueueCapacity", 10_000, minimum=1)
    pull_max: int = option("pullThreadPoolQueueCapacity", 100_000, minimum=1)
    query_max: int = option("queryThreadPoolQueueCapacity", 20_000, minimum=1)
    consumer_max: int = option("consumerManagerThreadPoolQueueCapacity", 1_000_000, minimum=1)
    end_transaction_max: int = option("endTransactionPoolQueueCapacity", 100_000, minimum=1)
    admin_max: int = option("adminBrokerThreadPoolQueueCapacity", 10_000, minimum=1)
    send_age_ms: int = option("waitTimeMillsInSendQueue", 200, minimum=1, unit="span_ms")
    pull_age_ms: int = option("waitTimeMillsInPullQueue", 5000, minimum=1, unit="span_ms")
    lite_pull_age_ms: int = option("waitTimeMillsInLitePullQueue", 5000, minimum=1, unit="span_ms")
    admin_age_ms: int = option("waitTimeMillsInAdminBrokerQueue", 5000, minimum=1, unit="span_ms")
    query_threads: int = option("queryMessageThreadPoolNums", 4, minimum=1)
    """Threads for work that would block the event loop: searches by key and time, config files."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServerSettings(ServerSettings):
    """Server options with a broker's default port."""

    listen_port: int = option("listenPort", 10911, minimum=0, maximum=65535)


def _address(host: str, port: int) -> str:
    """host:port, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
