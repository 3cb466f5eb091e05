"""The NameServer's options: those of RocketMQ's that have an effect here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flaremq.base.settings import check, computed, option
from flaremq.remoting.settings import ServerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvSettings:
    """What the NameServer does and allows."""

    kv_config_path: Path = computed("kvConfigPath", lambda: Path.home() / "namesrv" / "kvConfig.json")
    config_store_path: Path = computed(
        "configStorePath", lambda: Path.home() / "namesrv" / "namesrv.properties"
    )
    scan_interval_ms: int = option("scanNotActiveBrokerInterval", 5000, minimum=1, unit="span_ms")
    """How often silent brokers are searched."""
    order_message_enabled: bool = option("orderMessageEnable", False)
    """Whether routes include the order configuration of their topic."""
    return_order_config: bool = option("returnOrderTopicConfigToBroker", True)
    delete_topic_with_registration: bool = option("deleteTopicWithBrokerRegistration", False)
    """Whether a topic that a broker no longer registers is removed from the routes at once."""
    acting_masters: bool = option("supportActingMaster", False)
    """Whether routes show the lowest slave as the master that its group lacks, if the group wishes so."""
    notify_lowest_id: bool = option("notifyMinBrokerIdChanged", False)
    """Whether the members of such a group are told at once when another one has the lowest id."""
    topic_list_enabled: bool = option("enableTopicList", True)
    all_topic_list_enabled: bool = option("enableAllTopicList", True)
    config_black_list: tuple[str, ...] = option(
        "configBlackList", ("configBlackList", "configStorePath", "kvConfigPath"), separator=";"
    )
    """Names that no remote command may change."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvServerSettings(ServerSettings):
    """Server options with a NameServer's default port."""

    listen_port: int = option("listenPort", 9876, minimum=0, maximum=65535)
