"""Brokers and clusters: lists, runtime information, settings and clean-up."""

from __future__ import annotations

from collections.abc import Mapping

from flaremq.admin.servers import ServerAddress, ServerCalls
from flaremq.admin.values.brokers import (
    BrokerConsumeStats,
    BrokerInfo,
    BrokerRates,
    BrokerRuntime,
    ClusterBrokers,
    ConnectedProducer,
    GroupLag,
    HaStatus,
    RateSample,
    Settings,
    SlaveState,
)
from flaremq.admin.values.outcome import Answers
from flaremq.admin.wording import (
    first_number,
    settings_of_text,
    settings_to_text,
    time_or_none,
    version_name,
    whole,
)
from flaremq.base.errors import Hint, InvalidParameter, Refused
from flaremq.base.text import count
from flaremq.client.api import body_of, header_of
from flaremq.protocol.bodies.cluster import HARuntimeInfo, KVTable
from flaremq.protocol.bodies.running import ProducerTableInfo
from flaremq.protocol.bodies.stats import BrokerStatsData, BrokerStatsItem, ConsumeStatsList
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.headers import broker as headers
from flaremq.protocol.headers import namesrv


class Brokers:
    """`broker` is a name or host:port. Without it and without a cluster, all masters are meant."""

    def __init__(self, servers: ServerCalls) -> None:
        self._servers = servers

    # Lists.

    async def clusters(self) -> tuple[ClusterBrokers, ...]:
        table = (await self._servers.api.cluster()).cluster_addr_table
        return tuple(ClusterBrokers(name, tuple(sorted(brokers))) for name, brokers in sorted(table.items()))

    async def list(
        self, *, cluster: str | None = None, broker: str | None = None, runtime: bool = True
    ) -> Answers[BrokerInfo]:
        """Masters and slaves, by cluster, name and id, including those that do not answer."""
        servers = await self._servers.all(cluster, broker)
        asked = await self._servers.try_each(servers if runtime else (), self._runtime)
        found = tuple(
            BrokerInfo(each.cluster, each.name, each.id, each.address, asked.found.get(each.title))
            for each in servers
        )
        return Answers(found, asked.failed)

    async def runtime(self, broker: str) -> BrokerRuntime:
        """The runtime information of one broker."""
        return await self._runtime(await self._servers.one(broker))

    async def _runtime(self, server: ServerAddress) -> BrokerRuntime:
        return await ask_runtime(self._servers, server)

    # Settings.

    async def config(self, *, cluster: str | None = None, broker: str | None = None) -> Answers[Settings]:
        servers = await self._servers.masters(cluster, broker)

        async def ask(server: ServerAddress) -> Settings:
            return await ask_settings(self._servers, server)

        found = await self._servers.each(servers, ask, "settings of brokers")
        return Answers(tuple(found.found.values()), found.failed)

    async def update_config(
        self, changes: Mapping[str, str], *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[str, ...]:
        """Change these settings. Returns the names of the brokers that did; Incomplete if not all could."""
        body = settings_to_text(changes)
        return await self._tell(RequestCode.UPDATE_BROKER_CONFIG, cluster, broker, body)

    # Statistics.

    async def consume_stats(self, broker: str, *, ordered: bool = False) -> BrokerConsumeStats:
        """The progress of all groups on one broker; `ordered` limits it to ordered topics."""
        server = await self._servers.one(broker)
        header = headers.GetBrokerConsumeStatsRequestHeader(is_order=ordered)
        answer = await self._servers.api.ask(server.address, RequestCode.GET_BROKER_CONSUME_STATS, header)
        said = body_of(ConsumeStatsList, answer)
        queues = [
            GroupLag(group, queue, row.broker_offset, row.consumer_offset, time_or_none(row.last_timestamp))
            for table in said.consume_stats_list
            for group, stats in table.items()
            for each in stats
            for queue, row in each.offset_table.items()
        ]
        queues.sort(key=lambda each: (each.group, each.queue))
        return BrokerConsumeStats(server.name, tuple(queues), said.total_diff, said.total_inflight_diff)

    async def rates(
        self, figure: str, key: str, *, cluster: str | None = None, broker: str | None = None
    ) -> Answers[BrokerRates]:
        """A figure such as TOPIC_PUT_NUMS of a key: `topic`, or `topic@group` for GROUP_GET_NUMS.

        Brokers that have no such figure are left out: nothing has happened there yet.
        """
        header = headers.ViewBrokerStatsDataRequestHeader(stats_name=figure, stats_key=key)

        async def ask(server: ServerAddress) -> BrokerRates | None:
            try:
                answer = await self._servers.api.ask(
                    server.address, RequestCode.VIEW_BROKER_STATS_DATA, header
                )
            except Refused as error:
                if error.response_code == ResponseCode.SYSTEM_ERROR and "not exist" in (error.remark or ""):
                    return None
                raise
            said = body_of(BrokerStatsData, answer)
            return BrokerRates(server.name, *map(_rate, (said.stats_minute, said.stats_hour, said.stats_day)))

        servers = await self._servers.masters(cluster, broker)
        found = await self._servers.each(servers, ask, f"{figure} of {key}")
        return Answers(tuple(each for each in found.found.values() if each is not None), found.failed)

    async def producers(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> Answers[ConnectedProducer]:
        """All connected producers."""

        async def ask(server: ServerAddress) -> ProducerTableInfo:
            answer = await self._servers.api.ask(server.address, RequestCode.GET_ALL_PRODUCER_INFO)
            return body_of(ProducerTableInfo, answer)

        servers = await self._servers.masters(cluster, broker)
        asked = await self._servers.each(servers, ask, "producers")
        found: dict[tuple[str, str], ConnectedProducer] = {}
        for table in asked.found.values():
            for group, members in table.data.items():
                for each in members:
                    found[group, each.client_id] = ConnectedProducer(
                        group,
                        each.client_id,
                        (each.remote_ip or "").lstrip("/"),
                        each.language.name if each.language is not None else "OTHER",
                        version_name(each.version),
                        each.last_update_timestamp,
                    )
        return Answers(tuple(found[key] for key in sorted(found)), asked.failed)

    async def ha_status(self, broker: str) -> HaStatus:
        """How well slaves keep up with their master. 5.0 and newer."""
        return await self._ha_status(await self._servers.one(broker))

    async def ha(self, *, cluster: str | None = None, broker: str | None = None) -> Answers[HaStatus]:
        """The replication of masters and slaves, by cluster, name and id. Brokers from before 5.0 do not
        tell, and are among those that failed."""
        servers = await self._servers.all(cluster, broker)
        asked = await self._servers.try_each(servers, self._ha_status)
        return Answers(tuple(asked.found.values()), asked.failed)

    async def _ha_status(self, server: ServerAddress) -> HaStatus:
        answer = await self._servers.api.ask(server.address, RequestCode.GET_BROKER_HA_STATUS)
        said = body_of(HARuntimeInfo, answer)
        slaves = tuple(
            SlaveState(
                each.addr or "",
                each.slave_ack_offset,
                each.diff,
                each.in_sync,
                each.transferred_byte_in_second,
            )
            for each in said.ha_connection_info
        )
        place = server.name, server.id, server.address
        if said.master:
            end, refusal = said.master_commit_log_max_offset, said.flare_last_refusal
            state = f"refused {count(said.flare_refused or 0, 'slave')}, {refusal}" if refusal else ""
            displaced, rival = said.flare_displaced or "", said.flare_rival or ""
            return HaStatus(*place, True, end, slaves, state=state, displaced=displaced, rival=rival)
        own = said.ha_client_runtime_info
        return HaStatus(
            *place,
            is_master=False,
            log_max_offset=own.max_offset,
            master_address=own.master_addr,
            is_following=own.last_read_timestamp > 0 if own.activated is None else own.activated,
            state=own.flare_why or own.flare_state or "",
            cut_bytes=own.flare_cut_bytes or 0,
        )

    # Clean-up and permissions.

    async def clean_expired_queues(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[str, ...]:
        """Delete queue entries that point to deleted log files."""
        return await self._tell(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, cluster, broker)

    async def clean_unused_topics(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[str, ...]:
        """Remove the queues of unknown topics."""
        return await self._tell(RequestCode.CLEAN_UNUSED_TOPIC, cluster, broker)

    async def delete_expired_files(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[str, ...]:
        """Delete expired log files now instead of at the scheduled hour."""
        return await self._tell(RequestCode.DELETE_EXPIRED_COMMITLOG, cluster, broker)

    async def _tell(
        self, code: RequestCode, cluster: str | None, broker: str | None, body: bytes | None = None
    ) -> tuple[str, ...]:
        async def tell(server: ServerAddress) -> None:
            await self._servers.api.ask(server.address, code, None, body)

        return tuple(await self._servers.every(await self._servers.masters(cluster, broker), tell, code.name))

    async def wipe_write_perm(self, broker: str) -> Mapping[str, int]:
        """Stop producers from sending to a broker. Returns the number of its topics, by NameServer."""
        name = await self._named(broker)
        header = namesrv.WipeWritePermOfBrokerRequestHeader(broker_name=name)

        async def tell(server: ServerAddress) -> int:
            code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
            answer = await self._servers.api.ask(server.address, code, header)
            return header_of(namesrv.WipeWritePermOfBrokerResponseHeader, answer).wipe_topic_count

        return await self._servers.every(self._servers.namesrvs(), tell, f"write permission of {name}")

    async def add_write_perm(self, broker: str) -> Mapping[str, int]:
        """Let producers send to the broker again."""
        name = await self._named(broker)
        header = namesrv.AddWritePermOfBrokerRequestHeader(broker_name=name)

        async def tell(server: ServerAddress) -> int:
            code = RequestCode.ADD_WRITE_PERM_OF_BROKER
            answer = await self._servers.api.ask(server.address, code, header)
            return header_of(namesrv.AddWritePermOfBrokerResponseHeader, answer).add_topic_count

        return await self._servers.every(self._servers.namesrvs(), tell, f"write permission of {name}")

    async def _named(self, broker: str) -> str:
        server = await self._servers.one(broker)
        if not server.cluster:
            raise InvalidParameter(f"no NameServer knows a broker at {broker}").with_hint(Hint.LIST_BROKERS)
        return server.name


async def ask_runtime(servers: ServerCalls, server: ServerAddress) -> BrokerRuntime:
    answer = await servers.api.ask(server.address, RequestCode.GET_BROKER_RUNTIME_INFO)
    return runtime_of(body_of(KVTable, answer).table)


async def ask_settings(servers: ServerCalls, server: ServerAddress) -> Settings:
    answer = await servers.api.ask(server.address, RequestCode.GET_BROKER_CONFIG)
    return Settings(server.name, server.address, settings_of_text(answer.body))


def _rate(item: BrokerStatsItem) -> RateSample:
    return RateSample(item.sum, item.tps, item.avgpt)


def runtime_of(table: Mapping[str, str]) -> BrokerRuntime:
    active = table.get("brokerActive")
    return BrokerRuntime(
        version=table.get("brokerVersionDesc"),
        active=None if active is None else active == "true",
        boot_ms=whole(table.get("bootTimestamp")),
        put_tps=first_number(table.get("putTps")),
        get_tps=first_number(table.get("getTransferredTps") or table.get("getTransferedTps")),
        put_today=_between(table, "msgPutTotalTodayMorning", "msgPutTotalTodayNow"),
        get_today=_between(table, "msgGetTotalTodayMorning", "msgGetTotalTodayNow"),
        put_yesterday=_between(table, "msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning"),
        get_yesterday=_between(table, "msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning"),
        disk_ratio=first_number(table.get("commitLogDiskRatio")),
        earliest_ms=time_or_none(whole(table.get("earliestMessageTimeStamp")) or 0),
        log_min_offset=whole(table.get("commitLogMinOffset")),
        log_max_offset=whole(table.get("commitLogMaxOffset")),
        dispatch_behind=whole(table.get("dispatchBehindBytes")),
        send_waiting=whole(table.get("sendThreadPoolQueueSize")),
        pull_waiting=whole(table.get("pullThreadPoolQueueSize")),
        table=dict(sorted(table.items())),
    )


def _between(table: Mapping[str, str], before: str, after: str) -> int | None:
    least, most = whole(table.get(before)), whole(table.get(after))
    return None if least is None or most is None else most - least
