"""The requests that a NameServer serves, one function each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from flaremq.base.clock import Clock
from flaremq.base.logs import fields as logged
from flaremq.base.logs import logger
from flaremq.base.settings import parse_properties
from flaremq.model.record import crc31
from flaremq.model.topic import DataVersion
from flaremq.namesrv.kvconfig import KVConfig
from flaremq.namesrv.routes import EXPIRE_MS, BrokerRegistration, Routes
from flaremq.namesrv.settings import NamesrvSettings
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.cluster import GetBrokerMemberGroupResponseBody, KVTable, TopicList
from flaremq.protocol.bodies.route import TopicRouteData, decode_registration
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.fastjson import Dialect
from flaremq.protocol.headers import namesrv as headers
from flaremq.remoting.router import Handler, Peer

log = logger("namesrv.handlers")

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
_STANDARD_JSON_FROM = 401  # V4_9_4: clients from this version on can read standard JSON, some nothing else.
_UNIT, _UNIT_SUB = 0x1, 0x2  # Bits of a topic's sys flag.


@dataclass(frozen=True, slots=True)
class Config:
    """How the running configuration is read and changed; the owner decides what may change."""

    read: Callable[[], str]
    update: Callable[[dict[str, str]], Awaitable[str | None]]
    """Returns why the change is not kept for the next start, or None."""


class Handlers:
    def __init__(
        self, routes: Routes, kv: KVConfig, settings: NamesrvSettings, config: Config, clock: Clock
    ) -> None:
        self._routes = routes
        self._kv = kv
        self.settings = settings
        self._config = config
        self._clock = clock

    def table(self) -> dict[int, Handler]:
        code = RequestCode
        return {
            code.GET_ROUTEINFO_BY_TOPIC: self.get_route,
            code.REGISTER_BROKER: self.register_broker,
            code.UNREGISTER_BROKER: self.unregister_broker,
            code.BROKER_HEARTBEAT: self.broker_heartbeat,
            code.QUERY_DATA_VERSION: self.query_data_version,
            code.GET_BROKER_CLUSTER_INFO: self.get_cluster_info,
            code.GET_BROKER_MEMBER_GROUP: self.get_member_group,
            code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topics,
            code.GET_TOPICS_BY_CLUSTER: self.get_topics_by_cluster,
            code.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topics,
            code.GET_UNIT_TOPIC_LIST: self.get_unit_topics,
            code.GET_HAS_UNIT_SUB_TOPIC_LIST: self.get_unit_sub_topics,
            code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.get_unit_sub_ununit_topics,
            code.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            code.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            code.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_permission,
            code.ADD_WRITE_PERM_OF_BROKER: self.add_write_permission,
            code.PUT_KV_CONFIG: self.put_kv,
            code.GET_KV_CONFIG: self.get_kv,
            code.DELETE_KV_CONFIG: self.delete_kv,
            code.GET_KVLIST_BY_NAMESPACE: self.get_kv_list,
            code.UPDATE_NAMESRV_CONFIG: self.update_config,
            code.GET_NAMESRV_CONFIG: self.get_config,
        }

    # Brokers.

    async def register_broker(self, peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.RegisterBrokerRequestHeader, request.fields)
        body = request.body
        if header.body_crc32 and crc31(body or b"") != header.body_crc32:
            return response_to(request, ResponseCode.SYSTEM_ERROR, "crc32 not match")
        said = decode_registration(body, request.version) if body is not None else None
        wrapper = said.topic_config_serialize_wrapper if said is not None else None
        registered = self._routes.register(
            BrokerRegistration(
                cluster=header.cluster_name,
                broker_name=header.broker_name,
                broker_id=header.broker_id,
                address=header.broker_addr,
                ha_address=header.ha_server_addr,
                timeout_ms=header.heartbeat_timeout_millis or EXPIRE_MS,
                zone=request.fields.get("__ZONE_NAME"),
                acting_master=header.enable_acting_master,
                data_version=wrapper.data_version if wrapper else DataVersion(),
                topics=wrapper.topic_config_table if wrapper else None,
            ),
            self._clock.now_ms(),
            peer,
        )
        if registered is None:
            return response_to(request, ResponseCode.SYSTEM_ERROR, "register broker failed")
        answer = headers.RegisterBrokerResponseHeader(
            ha_server_addr=registered.ha_address, master_addr=registered.master_address
        )
        order = self._kv.namespace(ORDER_NAMESPACE) if self.settings.return_order_config else None
        table = beans.encode(KVTable(table=order)) if order else None
        return response_to(request, ext_fields=fields.encode(answer), body=table)

    async def unregister_broker(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.UnRegisterBrokerRequestHeader, request.fields)
        self._routes.unregister(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr)
        log.info("a broker has left", extra=logged(broker=header.broker_name, address=header.broker_addr))
        return response_to(request)

    async def broker_heartbeat(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.BrokerHeartbeatRequestHeader, request.fields)
        self._routes.heard(header.cluster_name, header.broker_addr, self._clock.now_ms())
        return response_to(request)

    async def query_data_version(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.QueryDataVersionRequestHeader, request.fields)
        given = beans.decode(DataVersion, request.body)
        known = self._routes.data_version(header.cluster_name, header.broker_addr)
        self._routes.heard(header.cluster_name, header.broker_addr, self._clock.now_ms())
        answer = headers.QueryDataVersionResponseHeader(changed=known != given)
        body = beans.encode(known) if known is not None else None
        return response_to(request, ext_fields=fields.encode(answer), body=body)

    async def get_cluster_info(self, _peer: Peer, request: Command) -> Command:
        return response_to(request, body=beans.encode(self._routes.cluster_info()))

    async def get_member_group(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetBrokerMemberGroupRequestHeader, request.fields)
        group = self._routes.member_group(header.cluster_name, header.broker_name)
        return response_to(
            request, body=beans.encode(GetBrokerMemberGroupResponseBody(broker_member_group=group))
        )

    async def wipe_write_permission(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.WipeWritePermOfBrokerRequestHeader, request.fields)
        count = self._routes.wipe_write_permission(header.broker_name)
        answer = headers.WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)
        return response_to(request, ext_fields=fields.encode(answer))

    async def add_write_permission(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.AddWritePermOfBrokerRequestHeader, request.fields)
        count = self._routes.add_write_permission(header.broker_name)
        answer = headers.AddWritePermOfBrokerResponseHeader(add_topic_count=count)
        return response_to(request, ext_fields=fields.encode(answer))

    # Topics.

    async def get_route(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetRouteInfoRequestHeader, request.fields)
        route = self._routes.route(header.topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {header.topic}"
            return response_to(request, ResponseCode.TOPIC_NOT_EXIST, remark)
        if self.settings.order_message_enabled:
            conf = self._kv.get(ORDER_NAMESPACE, header.topic)
            route = TopicRouteData(
                order_topic_conf=conf, queue_datas=route.queue_datas, broker_datas=route.broker_datas
            )
        standard = request.version >= _STANDARD_JSON_FROM or header.accept_standard_json_only
        dialect = Dialect.STANDARD if standard else Dialect.FASTJSON
        return response_to(request, body=beans.encode(route, dialect))

    async def get_all_topics(self, _peer: Peer, request: Command) -> Command:
        if not self.settings.all_topic_list_enabled:
            return response_to(request, ResponseCode.SYSTEM_ERROR, "disable")
        return self._topic_list(request, self._routes.topics())

    async def get_topics_by_cluster(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetTopicsByClusterRequestHeader, request.fields)
        return self._listed(request, lambda: self._routes.topics_of_cluster(header.cluster))

    async def get_system_topics(self, _peer: Peer, request: Command) -> Command:
        names, address = self._routes.system_names()
        return response_to(request, body=beans.encode(TopicList(topic_list=names, broker_addr=address)))

    async def get_unit_topics(self, _peer: Peer, request: Command) -> Command:
        return self._listed(request, lambda: self._routes.topics_with_flag(_UNIT))

    async def get_unit_sub_topics(self, _peer: Peer, request: Command) -> Command:
        return self._listed(request, lambda: self._routes.topics_with_flag(_UNIT_SUB))

    async def get_unit_sub_ununit_topics(self, _peer: Peer, request: Command) -> Command:
        return self._listed(request, lambda: self._routes.topics_with_flag(_UNIT_SUB, _UNIT))

    def _listed(self, request: Command, topics: Callable[[], tuple[str, ...]]) -> Command:
        if not self.settings.topic_list_enabled:
            return response_to(request, ResponseCode.SYSTEM_ERROR, "disable")
        return self._topic_list(request, topics())

    @staticmethod
    def _topic_list(request: Command, topics: tuple[str, ...]) -> Command:
        return response_to(request, body=beans.encode(TopicList(topic_list=topics)))

    async def delete_topic(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.DeleteTopicFromNamesrvRequestHeader, request.fields)
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        return response_to(request)

    async def register_topic(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.RegisterTopicRequestHeader, request.fields)
        route = beans.decode(TopicRouteData, request.body)
        self._routes.register_topic(header.topic, route.queue_datas)
        return response_to(request)

    # Key-value settings.

    async def put_kv(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.PutKVConfigRequestHeader, request.fields)
        await self._kv.put(header.namespace, header.key, header.value)
        return response_to(request)

    async def get_kv(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetKVConfigRequestHeader, request.fields)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return response_to(request, ResponseCode.QUERY_NOT_FOUND, remark)
        return response_to(request, ext_fields=fields.encode(headers.GetKVConfigResponseHeader(value=value)))

    async def delete_kv(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.DeleteKVConfigRequestHeader, request.fields)
        await self._kv.delete(header.namespace, header.key)
        return response_to(request)

    async def get_kv_list(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetKVListByNamespaceRequestHeader, request.fields)
        table = self._kv.namespace(header.namespace)
        if table is None:
            remark = f"No config item, Namespace: {header.namespace}"
            return response_to(request, ResponseCode.QUERY_NOT_FOUND, remark)
        return response_to(request, body=beans.encode(KVTable(table=table)))

    async def update_config(self, _peer: Peer, request: Command) -> Command:
        given = parse_properties(bytes(request.body or b"").decode("utf-8", "replace"))
        forbidden = sorted(
            given.keys() & set(self.settings.config_black_list) | (given.keys() & {"rocketmqHome"})
        )
        if forbidden:
            remark = f"Can not update config in black list: {', '.join(forbidden)}"
            return response_to(request, ResponseCode.NO_PERMISSION, remark)
        return response_to(request, remark=await self._config.update(given) if given else None)

    async def get_config(self, _peer: Peer, request: Command) -> Command:
        return response_to(request, body=self._config.read().encode())
