"""Requests of administrators about topics: create, change, delete, show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from flaremq.base.errors import InvalidParameter, TopicNotFound
from flaremq.base.logs import fields as logged
from flaremq.base.logs import logger
from flaremq.broker.handlers.paging import page
from flaremq.broker.offload import Offload
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.attributes import altered, parse_changes
from flaremq.broker.tables.tables import Tables
from flaremq.broker.tables.topics import check_config
from flaremq.model import names
from flaremq.model.message import MessageQueue
from flaremq.model.topic import MESSAGE_TYPE, DataVersion, TopicConfig, TopicFilterType, check_topic, is_lmq
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.cluster import CreateTopicListRequestBody, TopicList
from flaremq.protocol.bodies.group import GroupList
from flaremq.protocol.bodies.route import TopicConfigSerializeWrapper
from flaremq.protocol.bodies.stats import QueryCorrectionOffsetBody, TopicOffset, TopicStatsTable
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers import topic as headers
from flaremq.protocol.headers.group import QueryCorrectionOffsetHeader
from flaremq.remoting.router import Handler, Peer
from flaremq.store.store import MessageStore

log = logger("broker.admin")

_MIXED: Final = "MIXED"
_LONG_MAX: Final = (1 << 63) - 1


class AdminTopicHandlers:
    def __init__(self, tables: Tables, store: MessageStore, stats: Stats, offload: Offload) -> None:
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._stats = stats
        self._store = store
        self._deleted = tables.deleted
        self._offload = offload

    def table(self) -> dict[int, Handler]:
        code = RequestCode
        return {
            code.UPDATE_AND_CREATE_TOPIC: self.update,
            code.UPDATE_AND_CREATE_TOPIC_LIST: self.update_list,
            code.DELETE_TOPIC_IN_BROKER: self.delete,
            code.GET_ALL_TOPIC_CONFIG: self.get_all,
            code.GET_TOPIC_CONFIG: self.get_one,
            code.GET_TOPIC_STATS_INFO: self.get_stats,
            code.QUERY_TOPIC_CONSUME_BY_WHO: self.by_who,
            code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.get_system_topics,
            code.QUERY_CORRECTION_OFFSET: self.correction_offsets,
            code.CLEAN_UNUSED_TOPIC: self.clean_unused,
        }

    # Creating and changing.

    async def update(self, peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.CreateTopicRequestHeader, request.fields)
        if header.topic_filter_type not in TopicFilterType.__members__:
            raise InvalidParameter(
                f"topicFilterType is {header.topic_filter_type[:60]!r}, expected "
                f"{' or '.join(TopicFilterType.__members__)}"
            )
        said = TopicConfig(
            header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=TopicFilterType[header.topic_filter_type],
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=parse_changes(header.attributes),
        )
        await self._update([said], peer)
        return response_to(request)

    async def update_list(self, peer: Peer, request: Command) -> Command:
        said = beans.decode(CreateTopicListRequestBody, request.body)
        await self._update(said.topic_config_list, peer)
        return response_to(request)

    async def _update(self, said: Sequence[TopicConfig], peer: Peer) -> None:
        """Update all or none: the whole list is checked first."""
        made = [self._checked(config) for config in said]
        log.info("request to create or change topics", extra=logged(count=len(made), by=peer.address))
        self._topics.put_many(made)
        await self._topics.settle()

    def _checked(self, said: TopicConfig) -> TopicConfig:
        """The topic as it will be, with its attribute changes applied."""
        check_config(said)
        self._check_not_system(said.topic_name)
        if said.attributes.get("+" + MESSAGE_TYPE) == _MIXED and not self._topics.settings.mixed_message_type:
            raise InvalidParameter(
                f"topic {said.topic_name}: {MESSAGE_TYPE} {_MIXED} needs enableMixedMessageType=true"
            )
        known = self._topics.get(said.topic_name)
        return replace(said, attributes=altered(known.attributes if known else None, said.attributes))

    def _check_not_system(self, topic: str) -> None:
        if self._topics.settings.validate_system_topic and self._topics.is_system(topic):
            raise InvalidParameter(f"The topic[{topic}] is conflict with system topic.")

    # Deleting.

    async def delete(self, peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.DeleteTopicRequestHeader, request.fields)
        if self._topics.get(header.topic) is None:
            check_topic(header.topic)  # An existing topic may go even if its name would be invalid today.
        self._check_not_system(header.topic)
        log.info("request to delete a topic", extra=logged(topic=header.topic, by=peer.address))
        for topic in (header.topic, *self._pop_retries(header.topic)):
            await self._delete(topic)
        await self._topics.settle()
        await self._offsets.settle()
        return response_to(request)

    def _pop_retries(self, topic: str) -> list[str]:
        """The retry topics of pop consumers, in both forms of their names."""
        found = []
        for group in self._offsets.groups_of_topic(topic):
            for separator in ("+", "_"):
                retry = f"{names.RETRY_PREFIX}{group}{separator}{topic}"
                if self._topics.get(retry) is not None:
                    found.append(retry)
        return found

    async def _delete(self, topic: str) -> None:
        self._deleted.add(topic, self._store.log.end)
        await self._deleted.save()
        self._topics.remove(topic)
        self._offsets.remove_topic(topic)
        self._stats.topic_deleted(topic)
        await self._remove_queues(topic.encode("utf-8", "replace"))

    async def _remove_queues(self, topic: bytes) -> None:
        await self._offload.run(lambda: self._store.dispatcher.remove_topic(topic))

    async def clean_unused(self, _peer: Peer, request: Command) -> Command:
        """Remove the queues of unknown topics; their messages are deleted with the log."""
        unused = {key[0] for key, _ in self._store.queues.items() if self._is_unused(key[0])}
        for topic in unused:
            log.warning("the queues of an unknown topic are removed", extra=logged(topic=topic))
            await self._remove_queues(topic)
        return response_to(request)

    def _is_unused(self, topic: bytes) -> bool:
        name = topic.decode("utf-8", "replace")
        return self._topics.get(name) is None and not self._topics.is_system(name) and not is_lmq(name)

    # Showing.

    async def get_all(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetAllTopicConfigRequestHeader, request.fields)
        table, version = self._topics.all(), self._topics.version
        shown: Mapping[str, TopicConfig] = table
        if not (header.topic_seq is None and header.data_version is None and header.max_topic_num is None):
            shown = page(table, version, header.data_version, header.topic_seq or 0, header.max_topic_num)
        wrapper = TopicConfigSerializeWrapper(
            data_version=version,
            topic_config_table=dict(shown),
            mapping_data_version=DataVersion(),
            topic_queue_mapping_detail_map={},
            topic_queue_mapping_info_map={},
        )
        total = headers.GetAllTopicConfigResponseHeader(total_topic_num=len(table))
        body = await self._offload.run(lambda: beans.encode(wrapper))
        return response_to(request, ext_fields=fields.encode(total), body=body)

    async def get_one(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetTopicConfigRequestHeader, request.fields)
        return response_to(request, body=beans.encode(self._known(header.topic)))

    async def get_stats(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetTopicStatsInfoRequestHeader, request.fields)
        config = self._known(header.topic)
        tps = self._stats.put_tps(header.topic)
        return response_to(request, body=await self._offload.run(lambda: self._stats_of(config, tps)))

    def _stats_of(self, config: TopicConfig, tps: float) -> bytes:
        """Reads a file for each queue: call in a thread."""
        store, name, broker = self._store, config.topic_name, self._topics.settings.broker_name
        store.show()  # So that acknowledged messages count, even if their queue is still being created.
        topic = name.encode()
        table = {}
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            low, high = max(0, store.min_offset(topic, queue_id)), max(0, store.max_offset(topic, queue_id))
            last_ms = max(0, store.finder.time_of(topic, queue_id, high - 1)) if high else 0
            table[MessageQueue(name, broker, queue_id)] = TopicOffset(
                min_offset=low, max_offset=high, last_update_timestamp=last_ms
            )
        return beans.encode(TopicStatsTable(offset_table=table, topic_put_tps=tps))

    async def by_who(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.QueryTopicConsumeByWhoRequestHeader, request.fields)
        groups = self._groups.groups_of_topic(header.topic) | self._offsets.groups_of_topic(header.topic)
        return response_to(request, body=beans.encode(GroupList(group_list=tuple(sorted(groups)))))

    async def get_system_topics(self, _peer: Peer, request: Command) -> Command:
        found = names.SYSTEM_TOPICS | {topic for topic in self._topics.all() if self._topics.is_system(topic)}
        return response_to(request, body=beans.encode(TopicList(topic_list=tuple(sorted(found)))))

    async def correction_offsets(self, _peer: Peer, request: Command) -> Command:
        """The least offset of all groups by queue; Long.MAX_VALUE where the compared group is behind all of
        them."""
        header = fields.decode(QueryCorrectionOffsetHeader, request.fields)
        left_out = set((header.filter_groups or "").split(","))
        name = header.topic.encode("utf-8", "replace")
        least: dict[int, int] = {}
        for group in self._offsets.groups_of_topic(header.topic) - left_out:
            for queue_id, offset in self._offsets.queues(group, header.topic).items():
                if offset >= self._store.min_offset(name, queue_id):
                    least[queue_id] = min(least.get(queue_id, offset), offset)
        for queue_id, offset in self._offsets.queues(header.compare_group, header.topic).items():
            if least.get(queue_id, _LONG_MAX) > offset:
                least[queue_id] = _LONG_MAX
        return response_to(request, body=beans.encode(QueryCorrectionOffsetBody(correction_offsets=least)))

    def _known(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise TopicNotFound(f"No topic in this broker. topic: {topic}")
        return config
