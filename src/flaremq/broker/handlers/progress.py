"""Requests about the progress of groups: offsets, lag in messages, lag in time.

Tables are read in the loop, the store's files in a thread: one has to be opened for each queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from flaremq.base.clock import Clock
from flaremq.base.errors import TopicNotFound
from flaremq.broker.offload import Offload
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.tables import Tables
from flaremq.model.message import MessageQueue
from flaremq.model.topic import TopicConfig
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.cluster import TopicList
from flaremq.protocol.bodies.stats import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QuerySubscriptionResponseBody,
    QueueTimeSpan,
)
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers import group as headers
from flaremq.protocol.headers.broker import GetBrokerConsumeStatsRequestHeader
from flaremq.remoting.router import Handler, Peer
from flaremq.store.store import MessageStore


@dataclass(frozen=True, slots=True)
class _Place:
    """A group's offsets in a topic: a copy, for use in a thread."""

    config: TopicConfig
    consumed: Mapping[int, int]
    pulled: Mapping[int, int]
    tps: float


class ProgressHandlers:
    def __init__(
        self,
        tables: Tables,
        store: MessageStore,
        stats: Stats,
        offload: Offload,
        clock: Clock,
        address: Callable[[], str],
    ) -> None:
        """`address` returns the address that clients connect to, known once the port is."""
        self._topics = tables.topics
        self._subscriptions = tables.subscriptions
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._stats = stats
        self._store = store
        self._offload = offload
        self._clock = clock
        self._address = address

    def table(self) -> dict[int, Handler]:
        code = RequestCode
        return {
            code.GET_CONSUME_STATS: self.consume_stats,
            code.GET_BROKER_CONSUME_STATS: self.broker_consume_stats,
            code.QUERY_CONSUME_TIME_SPAN: self.time_span,
            code.QUERY_TOPICS_BY_CONSUMER: self.topics_of_group,
            code.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
        }

    async def consume_stats(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetConsumeStatsRequestHeader, request.fields)
        group = header.consumer_group
        listed = [topic for topic in (header.topic_list or "").split(";") if topic.strip()]
        if not listed:
            asked = {header.topic} if header.topic else self._offsets.topics_of_group(group)
            listed = [topic for topic in sorted(asked) if self._is_wanted(group, topic)]
        places = self._places(group, dict.fromkeys(listed))
        body = await self._offload.run(lambda: beans.encode(_joined(map(self._measured, places))))
        return response_to(request, body=body)

    async def broker_consume_stats(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(GetBrokerConsumeStatsRequestHeader, request.fields)
        by_group, address = self._offsets.topics_by_group(), self._address()
        groups = {
            group: self._places(
                group,
                (topic for topic in by_group.get(group, ()) if self._is_wanted(group, topic)),
                ordered_only=header.is_order,
            )
            for group in self._subscriptions.all()
        }
        body = await self._offload.run(lambda: beans.encode(self._all_measured(groups, address)))
        return response_to(request, body=body)

    def _is_wanted(self, group: str, topic: str) -> bool:
        """Whether a group still subscribes to a topic: one that it has dropped does not count as lag."""
        online = self._groups.get(group)
        return online is None or not online.subscriptions or topic in online.subscriptions

    def _places(self, group: str, topics: Iterable[str], *, ordered_only: bool = False) -> list[_Place]:
        found = []
        for topic in topics:
            config = self._topics.get(topic)
            if config is None or (ordered_only and not config.order):
                continue
            consumed, pulled = self._offsets.queues(group, topic), self._offsets.pulled_to(group, topic)
            found.append(_Place(config, consumed, pulled, self._stats.get_tps(group, topic)))
        return found

    def _all_measured(self, groups: Mapping[str, list[_Place]], address: str) -> ConsumeStatsList:
        stats = {group: tuple(map(self._measured, places)) for group, places in groups.items()}
        rows = [row for each in stats.values() for one in each for row in one.offset_table.values()]
        return ConsumeStatsList(
            consume_stats_list=tuple({group: each} for group, each in stats.items()),
            broker_addr=address,
            total_diff=sum(row.broker_offset - row.consumer_offset for row in rows),
            total_inflight_diff=sum(row.pull_offset - row.consumer_offset for row in rows),
        )

    def _measured(self, place: _Place) -> ConsumeStats:
        """Reads a file for each queue: call in a thread."""
        self._store.show()  # So that acknowledged messages count, even if their queue is still being created.
        name, broker = place.config.topic_name, self._topics.settings.broker_name
        topic, table = name.encode(), {}
        for queue_id in range(place.config.read_queue_nums):
            consumed = max(0, place.consumed.get(queue_id, 0))
            last_ms = self._store.finder.time_of(topic, queue_id, consumed - 1) if consumed else 0
            table[MessageQueue(name, broker, queue_id)] = OffsetWrapper(
                broker_offset=max(0, self._store.max_offset(topic, queue_id)),
                consumer_offset=consumed,
                pull_offset=max(consumed, place.pulled.get(queue_id, 0)),
                last_timestamp=max(0, last_ms),
            )
        return ConsumeStats(offset_table=table, consume_tps=place.tps)

    async def time_span(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.QueryConsumeTimeSpanRequestHeader, request.fields)
        config = self._topics.get(header.topic)
        if config is None:
            raise TopicNotFound(f"topic[{header.topic}] not exist")
        consumed = self._offsets.queues(header.group, header.topic)
        count = config.write_queue_nums

        def spans() -> bytes:
            self._store.show()
            found = tuple(self._span(header.topic, each, consumed.get(each, -1)) for each in range(count))
            return beans.encode(QueryConsumeTimeSpanBody(consume_time_span_set=found))

        return response_to(request, body=await self._offload.run(spans))

    def _span(self, name: str, queue_id: int, consumed: int) -> QueueTimeSpan:
        """When the oldest, the newest and the last consumed message were stored; -1 if there is none."""
        topic, store = name.encode(), self._store
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)

        def time_of(offset: int) -> int:
            return store.finder.time_of(topic, queue_id, offset)

        first_ms = time_of(low)
        next_ms = time_of(max(consumed, low)) if consumed < high else -1
        return QueueTimeSpan(
            message_queue=MessageQueue(name, self._topics.settings.broker_name, queue_id),
            min_time_stamp=first_ms,
            max_time_stamp=time_of(high - 1),
            consume_time_stamp=time_of(consumed - 1) if consumed > 0 else first_ms,
            delay_time=max(0, self._clock.now_ms() - next_ms) if next_ms >= 0 else 0,
        )

    async def topics_of_group(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.QueryTopicsByConsumerRequestHeader, request.fields)
        topics = tuple(sorted(self._offsets.topics_of_group(header.group)))
        return response_to(
            request, body=beans.encode(TopicList(topic_list=topics, broker_addr=self._address()))
        )

    async def subscription(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.QuerySubscriptionByConsumerRequestHeader, request.fields)
        found = self._groups.subscription(header.group, header.topic)
        answer = QuerySubscriptionResponseBody(
            subscription_data=found, group=header.group, topic=header.topic
        )
        return response_to(request, body=beans.encode(answer))


def _joined(measured: Iterable[ConsumeStats]) -> ConsumeStats:
    table: dict[MessageQueue, OffsetWrapper] = {}
    tps = 0.0
    for each in measured:
        table.update(each.offset_table)
        tps += each.consume_tps
    return ConsumeStats(offset_table=table, consume_tps=tps)
