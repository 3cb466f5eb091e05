"""Topics: listed, created, changed and deleted, on all their brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from flaremq.admin import orderconf
from flaremq.admin.members import joined
from flaremq.admin.namesrvs import Namesrvs
from flaremq.admin.servers import ServerAddress, ServerCalls
from flaremq.admin.values.outcome import Answers
from flaremq.admin.values.topics import (
    ConnectedClient,
    Perm,
    QueueStats,
    RouteBroker,
    RouteQueues,
    TopicChange,
    TopicDetails,
    TopicInfo,
    TopicKind,
    TopicRoute,
    TopicSettings,
    TopicStats,
)
from flaremq.admin.wording import time_or_none
from flaremq.base.errors import FlareError, NotServed, Refused, TopicNotFound
from flaremq.client.api import body_of
from flaremq.model import names
from flaremq.model.topic import TopicConfig, TopicFilterType
from flaremq.protocol.bodies.cluster import ClusterInfo, TopicList
from flaremq.protocol.bodies.group import GroupList, SubscriptionGroupWrapper
from flaremq.protocol.bodies.route import TopicConfigSerializeWrapper, TopicRouteData
from flaremq.protocol.bodies.running import ProducerConnection
from flaremq.protocol.bodies.stats import TopicStatsTable
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers import group as group_headers
from flaremq.protocol.headers import namesrv
from flaremq.protocol.headers import topic as headers

_SETTLE_S: Final = 2.0  # How long a change may take to reach the NameServers.
_LOOK_S: Final = 0.02


class Topics:
    """`broker` is a name or host:port. Without it and without a cluster, all masters are meant.

    Changes return the names of the brokers that made them, and raise Incomplete if not all did. They
    return once the NameServers know the change, or after two seconds.
    """

    def __init__(self, servers: ServerCalls) -> None:
        self._servers = servers
        self._namesrvs = Namesrvs(servers)

    # Reading.

    async def list(self, *, cluster: str | None = None) -> tuple[TopicInfo, ...]:
        """All topics that the NameServers know, sorted."""
        info = await self._servers.api.cluster()
        if cluster is not None:
            await self._servers.all(cluster)  # Raises if there is no such cluster.
        of: dict[str, set[str]] = {}
        for each in (cluster,) if cluster is not None else sorted(info.cluster_addr_table):
            header = namesrv.GetTopicsByClusterRequestHeader(cluster=each)
            for topic in await self._named(RequestCode.GET_TOPICS_BY_CLUSTER, header):
                of.setdefault(topic, set()).add(each)
        if cluster is None:
            for topic in await self._named(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER):
                of.setdefault(topic, set())
        own = _own_names(info)
        return tuple(
            TopicInfo(topic, _kind(topic, own), tuple(sorted(clusters)))
            for topic, clusters in sorted(of.items())
        )

    async def _named(
        self, code: RequestCode, header: namesrv.GetTopicsByClusterRequestHeader | None = None
    ) -> tuple[str, ...]:
        return body_of(TopicList, await self._servers.api.ask_namesrv(code, header)).topic_list

    async def route(self, topic: str) -> TopicRoute:
        """The route of a topic. Raises TopicNotFound if the NameServers do not know it."""
        names.check_topic(topic)
        route = await self._servers.api.route(topic)
        if route is None:
            raise self._servers.topic_not_found(topic)
        return _route_of(topic, route)

    async def get(self, topic: str) -> TopicDetails:
        """Its settings on each of its brokers."""
        names.check_topic(topic)
        servers, info = await self._servers.of_topic(topic), await self._servers.api.cluster()
        asked = await self._servers.each(
            servers, lambda server: self._settings(server, topic), f"settings of {topic}"
        )
        # A route contains it only if orderMessageEnable is set.
        order = await self._namesrvs.kv_get(orderconf.NAMESPACE, topic)
        return TopicDetails(topic, _kind(topic, _own_names(info)), asked.found, order, asked.failed)

    async def _settings(self, server: ServerAddress, topic: str) -> TopicSettings:
        header = headers.GetTopicConfigRequestHeader(topic=topic)
        try:
            answer = await self._servers.api.ask(server.address, RequestCode.GET_TOPIC_CONFIG, header)
            return TopicSettings.of(body_of(TopicConfig, answer))
        except NotServed:  # Up to 4.9 a broker can only list all topics.
            answer = await self._servers.api.ask(server.address, RequestCode.GET_ALL_TOPIC_CONFIG)
        config = body_of(TopicConfigSerializeWrapper, answer).topic_config_table.get(topic)
        if config is None:
            raise TopicNotFound(f"topic {topic!r} is not on broker {server.name}")
        return TopicSettings.of(config)

    async def stats(self, topic: str) -> TopicStats:
        """Offsets and message counts of its queues."""
        names.check_topic(topic)
        header = headers.GetTopicStatsInfoRequestHeader(topic=topic)

        async def ask(server: ServerAddress) -> TopicStatsTable:
            answer = await self._servers.api.ask(server.address, RequestCode.GET_TOPIC_STATS_INFO, header)
            return body_of(TopicStatsTable, answer)

        asked = await self._servers.each(await self._servers.of_topic(topic), ask, f"queues of {topic}")
        queues = [
            QueueStats(queue, each.min_offset, each.max_offset, time_or_none(each.last_update_timestamp))
            for table in asked.found.values()
            for queue, each in table.offset_table.items()
        ]
        rates = [each.topic_put_tps for each in asked.found.values() if each.topic_put_tps is not None]
        queues.sort(key=lambda each: each.queue)
        return TopicStats(topic, tuple(queues), sum(rates) if rates else None, asked.failed)

    async def consumers(self, topic: str) -> Answers[str]:
        """Groups that consume it, or did. A 5.3 broker reports a new group once it has stored an offset."""
        names.check_topic(topic)
        header = headers.QueryTopicConsumeByWhoRequestHeader(topic=topic)

        async def ask(server: ServerAddress) -> frozenset[str]:
            code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
            answer = await self._servers.api.ask(server.address, code, header)
            groups = frozenset(body_of(GroupList, answer).group_list)
            if topic in groups and not await self._is_group(server, topic):
                groups -= {topic}  # Java 5.3 adds the topic itself instead of a group that is online.
            return groups

        asked = await self._servers.each(await self._servers.of_topic(topic), ask, f"groups of {topic}")
        found = {each for groups in asked.found.values() for each in groups}
        return Answers(tuple(sorted(found)), asked.failed)

    async def _is_group(self, server: ServerAddress, name: str) -> bool:
        answer = await self._servers.api.ask(server.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return name in body_of(SubscriptionGroupWrapper, answer).subscription_group_table

    async def producers(self, topic: str, group: str) -> Answers[ConnectedClient]:
        """Producers of a group that are connected to the brokers of a topic."""
        names.check_topic(topic)
        names.check_group(group)
        header = group_headers.GetProducerConnectionListRequestHeader(producer_group=group)

        async def ask(server: ServerAddress) -> ProducerConnection:
            code = RequestCode.GET_PRODUCER_CONNECTION_LIST
            try:
                return body_of(ProducerConnection, await self._servers.api.ask(server.address, code, header))
            except Refused as error:
                if "not exist" in (error.remark or ""):
                    return ProducerConnection()  # This is how a broker says that it has none.
                raise

        servers = await self._servers.of_topic(topic)
        asked = await self._servers.each(servers, ask, f"producers of {topic}")
        connections = {broker: each.connection_set for broker, each in asked.found.items()}
        return Answers(joined(connections), asked.failed)

    # Creating and changing.

    async def create(
        self,
        topic: str,
        settings: TopicSettings | None = None,
        *,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> tuple[str, ...]:
        """Create a topic, or change it to this if it exists. 8 queues unless the settings say otherwise."""
        names.check_topic(topic)
        wanted = settings if settings is not None else TopicSettings()
        changes = {f"+{key}": value for key, value in wanted.attributes.items()}
        servers = await self._servers.masters(cluster, broker)
        made = {server.title: wanted for server in servers}
        if wanted.order:
            everywhere = cluster is None and broker is None
            await self._put_order(topic, made, keep_others=not everywhere)
        await self._servers.every(
            servers, lambda server: self._put(server, topic, wanted, changes), f"create {topic}"
        )
        if all(server.cluster for server in servers):  # A broker without NameServers never appears there.
            await self._settled(topic, made)
        return tuple(made)

    async def update(
        self, topic: str, change: TopicChange, *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[str, ...]:
        """Change the given settings and keep the others, on the brokers that have the topic."""
        names.check_topic(topic)
        has = {each.name for each in await self._servers.of_topic(topic)}
        servers = [each for each in await self._servers.masters(cluster, broker) if each.name in has]
        if not servers:
            raise TopicNotFound(f"topic {topic!r} is on {', '.join(sorted(has))} only: name these")
        changes, what = _signed(change.attributes), f"change {topic}"
        known = await self._servers.every(servers, lambda server: self._settings(server, topic), what)
        wanted = {title: _merged(current, change) for title, current in known.items()}
        if change.order is not None or any(each.order for each in wanted.values()):
            await self._put_order(topic, wanted, keep_others=True)
        await self._servers.every(
            servers, lambda server: self._put(server, topic, wanted[server.title], changes), what
        )
        await self._settled(topic, wanted)
        return tuple(wanted)

    async def set_perm(
        self, topic: str, perm: Perm, *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[str, ...]:
        return await self.update(topic, TopicChange(perm=perm), cluster=cluster, broker=broker)

    async def _put(
        self, server: ServerAddress, topic: str, wanted: TopicSettings, attributes: Mapping[str, str]
    ) -> None:
        """`attributes` are changes: `+key` with a value, or `-key`."""
        changes = ",".join(f"{key}={value}" if key[0] == "+" else key for key, value in attributes.items())
        header = headers.CreateTopicRequestHeader(
            topic=topic,
            default_topic=names.AUTO_CREATE_TOPIC,
            read_queue_nums=wanted.read_queues,
            write_queue_nums=wanted.write_queues,
            perm=int(wanted.perm),
            topic_filter_type=TopicFilterType.SINGLE_TAG.name,
            topic_sys_flag=wanted.sys_flag,
            order=wanted.order,
            attributes=changes or None,
        )
        await self._servers.api.ask(server.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def _settled(self, topic: str, made: Mapping[str, TopicSettings]) -> None:
        """Wait until brokers have registered the topic, so that a send right after this finds it."""
        wanted = {(name, each.read_queues, each.write_queues, int(each.perm)) for name, each in made.items()}
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _SETTLE_S
        while loop.time() < until_s:
            try:
                route = await self._servers.api.route(topic)
            except FlareError:
                return  # The change is made anyway.
            queues = () if route is None else route.queue_datas
            if wanted <= {(e.broker_name, e.read_queue_nums, e.write_queue_nums, e.perm) for e in queues}:
                return
            await asyncio.sleep(_LOOK_S)

    # Order.

    async def set_order_conf(self, topic: str, conf: str | None) -> tuple[str, ...]:
        """Set the queues that producers of an ordered topic use, `broker-a:4;broker-b:4`; None removes this.

        Returns the addresses of the NameServers that did.
        """
        names.check_topic(topic)
        if conf is None:
            return await self._namesrvs.kv_delete(orderconf.NAMESPACE, topic)
        wanted = orderconf.text(orderconf.parse(conf))
        return await self._namesrvs.kv_put(orderconf.NAMESPACE, topic, wanted)

    async def _put_order(self, topic: str, made: Mapping[str, TopicSettings], *, keep_others: bool) -> None:
        """Called before the brokers change: NameServers answer registrations with it, and a topic that is not
        in it stops being ordered."""
        before = await self._namesrvs.kv_get(orderconf.NAMESPACE, topic) if keep_others else None
        ordered = {name: each.write_queues for name, each in made.items() if each.order}
        gone = [name for name, each in made.items() if not each.order]
        await self.set_order_conf(topic, orderconf.changed(before, ordered, gone) or None)

    # Deleting.

    async def delete(self, topic: str, *, cluster: str | None = None) -> tuple[str, ...]:
        """Delete a topic from all masters, whose slaves follow, and from the NameServers.

        Returns the names of the brokers and the addresses of the NameServers. If a broker fails, the
        NameServers still know the topic, so that the same call can finish the work.
        """
        names.check_topic(topic)
        if await self._servers.of_topic_or_none(topic) is None:
            raise self._servers.topic_not_found(topic)
        in_broker = headers.DeleteTopicRequestHeader(topic=topic)
        in_namesrv = namesrv.DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)

        async def from_broker(server: ServerAddress) -> None:
            await self._servers.api.ask(server.address, RequestCode.DELETE_TOPIC_IN_BROKER, in_broker)

        async def from_namesrv(server: ServerAddress) -> None:
            await self._servers.api.ask(server.address, RequestCode.DELETE_TOPIC_IN_NAMESRV, in_namesrv)

        masters = await self._servers.masters(cluster)
        brokers = await self._servers.every(masters, from_broker, f"delete {topic}")
        namesrvs = await self._servers.every(self._servers.namesrvs(), from_namesrv, f"delete {topic}")
        await self._drop_order(topic, brokers if cluster is not None else None)
        return (*brokers, *namesrvs)

    async def _drop_order(self, topic: str, brokers: Iterable[str] | None) -> None:
        before = await self._namesrvs.kv_get(orderconf.NAMESPACE, topic)
        if before is not None:
            left = orderconf.changed(before, {}, brokers) if brokers is not None else None
            await self.set_order_conf(topic, left or None)


def _own_names(info: ClusterInfo) -> frozenset[str]:
    """Names of brokers and clusters: brokers create topics of these names."""
    clusters = info.cluster_addr_table
    return frozenset({*clusters, *info.broker_addr_table, *map(names.reply_topic, clusters)})


def _kind(topic: str, own_names: frozenset[str]) -> TopicKind:
    if names.is_retry(topic):
        return TopicKind.RETRY
    if names.is_dlq(topic):
        return TopicKind.DLQ
    if names.is_system(topic) or topic in own_names or topic == names.DLQ_MARKS_TOPIC:
        return TopicKind.SYSTEM
    return TopicKind.NORMAL


def _route_of(topic: str, data: TopicRouteData) -> TopicRoute:
    queues = [
        RouteQueues(
            each.broker_name,
            each.read_queue_nums,
            each.write_queue_nums,
            Perm(each.perm),
            each.topic_sys_flag,
        )
        for each in data.queue_datas
    ]
    brokers = [
        RouteBroker(each.broker_name, each.cluster or "", dict(sorted(each.broker_addrs.items())))
        for each in data.broker_datas
    ]
    return TopicRoute(
        topic,
        tuple(sorted(queues, key=lambda each: each.broker)),
        tuple(sorted(brokers, key=lambda each: each.name)),
        data.order_topic_conf or None,
    )


def _merged(current: TopicSettings, change: TopicChange) -> TopicSettings:
    def chosen(name: str) -> object:
        wanted = getattr(change, name)
        return getattr(current, name) if wanted is None else wanted

    given = {name: chosen(name) for name in ("read_queues", "write_queues", "perm", "order")}
    return TopicSettings(**given, sys_flag=current.sys_flag)  # type: ignore[arg-type]


def _signed(attributes: Mapping[str, str | None]) -> dict[str, str]:
    return {f"-{key}" if value is None else f"+{key}": value or "" for key, value in attributes.items()}
