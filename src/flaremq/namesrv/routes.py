"""The route table: which brokers there are, and which topics they serve. Pure: time and peers are passed in.

Built only from what brokers register. NameServers do not talk to each other, so each has its own table, and a
broker registers with all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from flaremq.model.names import MEMBER_GROUP_PREFIX
from flaremq.model.topic import PERM_READ, PERM_WRITE, DataVersion, TopicConfig
from flaremq.protocol.bodies.cluster import BrokerMemberGroup, ClusterInfo
from flaremq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData

MASTER_ID = 0
EXPIRE_MS = 120_000  # A broker silent for this long is gone, unless it registers another timeout.

BrokerKey = tuple[str, str]
"""Cluster and address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """The registration of a broker."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str = ""
    timeout_ms: int = EXPIRE_MS
    zone: str | None = None
    acting_master: bool | None = None
    """None: a broker too old to send it."""
    data_version: DataVersion = field(default_factory=DataVersion)
    topics: Mapping[str, TopicConfig] | None = None
    """None: a registration without topics."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The answer to a registration: for a slave, where its master is."""

    master_address: str | None = None
    ha_address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LowestChange:
    """Another member has the lowest id of its group now."""

    lowest_id: int
    lowest_address: str
    offline_address: str | None = None
    """Of the member that had it and is gone; None if one came."""
    ha_address: str | None = None
    """Of the member that came."""
    to: tuple[str, ...]
    """Whom it concerns: all members, but not the one that came."""


OnLowest = Callable[[LowestChange], None]


@dataclass(slots=True)
class _Live:
    last_ms: int
    timeout_ms: int
    data_version: DataVersion
    ha_address: str
    peer: object
    """The connection that the broker registered on; when it closes, the broker is removed."""


@dataclass(slots=True)
class _Broker:
    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)
    zone: str | None = None
    acting_master: bool = False


class Routes:
    """Brokers by name, topics by name, and which brokers are alive.

    Invariants:
      N1  a broker name without an address does not exist: not in its cluster, not in any topic.
      N2  every address of a broker name is alive, and an address belongs to one broker id.
    """

    def __init__(
        self,
        *,
        delete_missing_topics: bool = False,
        acting_masters: bool = False,
        on_lowest: OnLowest | None = None,
    ) -> None:
        """`acting_masters`: in routes, the lowest slave of a group takes the place of a missing master, if
        its members wish so. `on_lowest` is told when another member of such a group has the lowest id."""
        self.delete_missing_topics = delete_missing_topics
        self.acting_masters = acting_masters
        self.on_lowest = on_lowest
        self._brokers: dict[str, _Broker] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._live: dict[BrokerKey, _Live] = {}

    # Brokers.

    def register(self, given: BrokerRegistration, now_ms: int, peer: object) -> Registered | None:
        """Register a broker; None if it is refused (RouteInfoManager.registerBroker)."""
        broker = self._brokers.get(given.broker_name)
        known_id = broker is not None and given.broker_id in broker.addresses
        if not known_id and given.topics is not None and len(given.topics) == 1:
            return None  # A single topic of an unknown broker: it registers in parts, out of order.
        if broker is not None and self._is_older(given, broker):
            return Registered()
        broker = self._brokers.setdefault(given.broker_name, _Broker(given.cluster))
        lowest_before = min(broker.addresses, default=None)
        self._move_address(broker, given)
        broker.cluster, broker.zone = given.cluster, given.zone
        broker.acting_master = bool(given.acting_master)
        broker.addresses[given.broker_id] = given.address
        live = self._live.get((given.cluster, given.address))
        changed = live is None or live.data_version != given.data_version or not known_id
        self._live[given.cluster, given.address] = _Live(
            now_ms, given.timeout_ms, given.data_version, given.ha_address, peer
        )
        if given.topics is not None and self._speaks_for_topics(given, broker):
            self._enter_topics(given, broker, changed)
        if lowest_before is not None and given.broker_id < lowest_before:
            others = tuple(address for address in broker.addresses.values() if address != given.address)
            self._tell_lowest(broker, to=others, ha_address=given.ha_address)
        return self._master_of(given, broker)

    def _tell_lowest(
        self,
        broker: _Broker,
        *,
        to: tuple[str, ...],
        offline_address: str | None = None,
        ha_address: str | None = None,
    ) -> None:
        if self.on_lowest is None or not broker.acting_master or not to:
            return
        lowest_id = min(broker.addresses)
        self.on_lowest(
            LowestChange(
                lowest_id=lowest_id,
                lowest_address=broker.addresses[lowest_id],
                offline_address=offline_address,
                ha_address=ha_address,
                to=to,
            )
        )

    def _is_older(self, given: BrokerRegistration, broker: _Broker) -> bool:
        """Whether another address with a later state version holds its id."""
        other = broker.addresses.get(given.broker_id)
        if other is None or other == given.address:
            return False
        live = self._live.get((given.cluster, other))
        return live is not None and live.data_version.state_version > given.data_version.state_version

    @staticmethod
    def _move_address(broker: _Broker, given: BrokerRegistration) -> None:
        """Remove the old id of a slave that became master: its address is the same."""
        for broker_id, address in list(broker.addresses.items()):
            if address == given.address and broker_id != given.broker_id:
                del broker.addresses[broker_id]

    @staticmethod
    def _speaks_for_topics(given: BrokerRegistration, broker: _Broker) -> bool:
        if given.broker_id == MASTER_ID:
            return True
        return given.acting_master is not None and given.broker_id == min(broker.addresses)

    def _enter_topics(self, given: BrokerRegistration, broker: _Broker, changed: bool) -> None:
        topics = given.topics or {}
        if self.delete_missing_topics:
            for topic in [t for t, queues in self._topics.items() if given.broker_name in queues]:
                if topic not in topics:
                    self._forget_topic(topic, given.broker_name)
        read_only = broker.acting_master and given.broker_id != MASTER_ID
        for config in topics.values():
            known = given.broker_name in self._topics.get(config.topic_name, {})
            if changed or not known:
                perm = config.perm & ~PERM_WRITE if read_only else config.perm
                self._topics.setdefault(config.topic_name, {})[given.broker_name] = QueueData(
                    broker_name=given.broker_name,
                    read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums,
                    perm=perm,
                    topic_sys_flag=config.topic_sys_flag,
                )

    def _master_of(self, given: BrokerRegistration, broker: _Broker) -> Registered:
        master = broker.addresses.get(MASTER_ID)
        live = self._live.get((given.cluster, master)) if master else None
        if given.broker_id == MASTER_ID or live is None:
            return Registered()
        return Registered(master, live.ha_address)

    def unregister(self, cluster: str, broker_name: str, broker_id: int, address: str) -> None:
        self._live.pop((cluster, address), None)
        broker = self._brokers.get(broker_name)
        if broker is None or broker.addresses.get(broker_id) != address:
            return
        was_lowest = broker_id == min(broker.addresses)
        del broker.addresses[broker_id]
        if not broker.addresses:
            del self._brokers[broker_name]
            for topic in list(self._topics):
                self._forget_topic(topic, broker_name)
            return
        if self._lacks_master(broker_name):
            self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)
        if was_lowest:
            self._tell_lowest(broker, to=tuple(broker.addresses.values()), offline_address=address)

    def _lacks_master(self, broker_name: str) -> bool:
        """Whether a slave may act for a master that is not there: nothing can be sent to such a group."""
        broker = self._brokers[broker_name]
        return broker.acting_master and MASTER_ID not in broker.addresses

    def heard(self, cluster: str, address: str, now_ms: int) -> None:
        """Note that a broker is alive."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.last_ms = now_ms

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        live = self._live.get((cluster, address))
        return live.data_version if live is not None else None

    def silent(self, now_ms: int) -> list[object]:
        """The connections of brokers that have been silent for too long."""
        return [live.peer for live in self._live.values() if now_ms - live.last_ms > live.timeout_ms]

    def expire(self, now_ms: int) -> list[str]:
        """Remove brokers that have been silent for too long, and return their addresses."""
        dead = [key for key, live in self._live.items() if now_ms - live.last_ms > live.timeout_ms]
        return self._remove(dead)

    def lost(self, peer: object) -> list[str]:
        """Remove the brokers of a closed connection, and return their addresses."""
        return self._remove([key for key, live in self._live.items() if live.peer is peer])

    def _remove(self, dead: Iterable[BrokerKey]) -> list[str]:
        removed: list[str] = []
        for cluster, address in dead:
            for name, broker in list(self._brokers.items()):
                for broker_id, at in list(broker.addresses.items()):
                    if at == address and broker.cluster == cluster:
                        self.unregister(cluster, name, broker_id, address)
            self._live.pop((cluster, address), None)
            removed.append(address)
        return removed

    # Topics.

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Register the queues of one topic on known brokers."""
        for data in queues:
            if data.broker_name in self._brokers:
                if self._lacks_master(data.broker_name):
                    data = replace(data, perm=data.perm & ~PERM_WRITE)
                self._topics.setdefault(topic, {})[data.broker_name] = data

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        for name in list(self._topics.get(topic, ())):
            broker = self._brokers.get(name)
            if cluster is None or (broker is not None and broker.cluster == cluster):
                self._forget_topic(topic, name)

    def wipe_write_permission(self, broker_name: str) -> int:
        return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        return self._change_perm(broker_name, lambda _perm: PERM_READ | PERM_WRITE)

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for queues in self._topics.values():
            data = queues.get(broker_name)
            if data is not None:
                queues[broker_name] = replace(data, perm=change(data.perm))
                count += 1
        return count

    def _forget_topic(self, topic: str, broker_name: str) -> None:
        queues = self._topics.get(topic)
        if queues is not None:
            queues.pop(broker_name, None)
            if not queues:
                del self._topics[topic]

    # Queries.

    def route(self, topic: str) -> TopicRouteData | None:
        queues = self._topics.get(topic)
        if not queues:
            return None
        acting = self.acting_masters and not topic.startswith(MEMBER_GROUP_PREFIX)
        brokers = tuple(
            self._broker_data(name, acting=acting and not data.perm & PERM_WRITE)
            for name, data in queues.items()
            if name in self._brokers
        )
        return TopicRouteData(queue_datas=tuple(queues.values()), broker_datas=brokers) if brokers else None

    def _broker_data(self, name: str, *, acting: bool = False) -> BrokerData:
        """With `acting`, the lowest slave is shown as the master that its group lacks."""
        broker = self._brokers[name]
        addresses = dict(sorted(broker.addresses.items()))
        if acting and self._lacks_master(name):
            lowest = addresses.pop(min(addresses))
            addresses = {MASTER_ID: lowest, **addresses}
        return BrokerData(
            cluster=broker.cluster,
            broker_name=name,
            broker_addrs=addresses,
            zone_name=broker.zone,
            enable_acting_master=broker.acting_master,
        )

    def cluster_info(self) -> ClusterInfo:
        clusters: dict[str, tuple[str, ...]] = {}
        for name, broker in self._brokers.items():
            clusters[broker.cluster] = (*clusters.get(broker.cluster, ()), name)
        brokers = {name: self._broker_data(name) for name in self._brokers}
        return ClusterInfo(broker_addr_table=brokers, cluster_addr_table=clusters)

    def member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        broker = self._brokers.get(broker_name)
        addresses = dict(broker.addresses) if broker is not None else {}
        return BrokerMemberGroup(cluster=cluster, broker_name=broker_name, broker_addrs=addresses)

    def topics(self) -> tuple[str, ...]:
        return tuple(self._topics)

    def topics_of_cluster(self, cluster: str) -> tuple[str, ...]:
        names = {name for name, broker in self._brokers.items() if broker.cluster == cluster}
        return tuple(topic for topic, queues in self._topics.items() if names & queues.keys())

    def topics_with_flag(self, wanted: int, unwanted: int = 0) -> tuple[str, ...]:
        """Topics by the topicSysFlag of their first queue data, as in Java."""
        firsts = ((topic, next(iter(queues.values()))) for topic, queues in self._topics.items())
        return tuple(
            topic
            for topic, data in firsts
            if data.topic_sys_flag & wanted and not data.topic_sys_flag & unwanted
        )

    def system_names(self) -> tuple[tuple[str, ...], str | None]:
        """The names of clusters and brokers, which are topics too, and the address of one broker."""
        clusters = dict.fromkeys(broker.cluster for broker in self._brokers.values())
        names = tuple(dict.fromkeys((*clusters, *self._brokers)))
        addresses = (address for broker in self._brokers.values() for address in broker.addresses.values())
        return names, next(addresses, None)
