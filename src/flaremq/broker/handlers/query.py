"""Queries for messages by key, id and time, and for queue entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from flaremq.base.errors import PeerError
from flaremq.broker.offload import Offload
from flaremq.protocol import beans, fastjson, fields
from flaremq.protocol.bodies.group import SubscriptionData
from flaremq.protocol.bodies.stats import ConsumeQueueData, QueryConsumeQueueResponseBody
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers import pull as headers
from flaremq.protocol.headers.topic import QueryConsumeQueueRequestHeader
from flaremq.remoting.router import Handler, Peer
from flaremq.store import status
from flaremq.store.api import Boundary, ExtUnit, Selector
from flaremq.store.queue.extension import is_address
from flaremq.store.store import MessageStore

_ENTRIES_MAX: Final = 4096  # Per answer, whatever the request says.
_BOUNDARIES: Final = {
    None: Boundary.LOWER,
    headers.BoundaryType.LOWER: Boundary.LOWER,
    headers.BoundaryType.UPPER: Boundary.UPPER,
}


class Online(Protocol):
    """The subscriptions of connected consumers."""

    def subscription(self, group: str, topic: str) -> SubscriptionData | None: ...


class SelectorSource(Protocol):
    """The selector of a subscription."""

    def of_subscription(self, group: str, topic: str, subscription: SubscriptionData) -> Selector | None: ...


class QueryHandlers:
    """Files are read in a thread; records are returned byte for byte as stored."""

    def __init__(
        self, store: MessageStore, offload: Offload, online: Online, filters: SelectorSource
    ) -> None:
        self._store = store
        self._offload = offload
        self._online = online
        self._filters = filters

    def table(self) -> dict[int, Handler]:
        code = RequestCode
        return {
            code.QUERY_MESSAGE: self.query_message,
            code.VIEW_MESSAGE_BY_ID: self.view_message,
            code.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            code.GET_MAX_OFFSET: self.get_max_offset,
            code.GET_MIN_OFFSET: self.get_min_offset,
            code.GET_EARLIEST_MSG_STORETIME: self.get_earliest_store_time,
            code.QUERY_CONSUME_QUEUE: self.query_consume_queue,
        }

    async def query_message(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.QueryMessageRequestHeader, request.fields)
        unique = bool(header.unique_key_query)
        if header.max_num <= 0 and not unique:
            raise PeerError(f"maxNum is {header.max_num}: expected 1 or more")
        topic, key = _encoded(header.topic), _encoded(header.key)
        times = header.begin_timestamp, header.end_timestamp

        def search() -> tuple[bytes, tuple[int, int]]:
            records = self._store.query(topic, key, header.max_num, *times, unique=unique)
            return b"".join(records), status.index_newest(self._store)

        body, (last_ms, last_offset) = await self._offload.run(search)
        answer = fields.encode(
            headers.QueryMessageResponseHeader(
                index_last_update_timestamp=last_ms, index_last_update_phyoffset=last_offset
            )
        )
        if not body:
            remark = "can not find message, maybe time range not correct"
            return response_to(request, ResponseCode.QUERY_NOT_FOUND, remark, ext_fields=answer)
        return response_to(request, ext_fields=answer, body=body)

    async def view_message(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.ViewMessageRequestHeader, request.fields)

        def read() -> bytes | None:
            record = self._store.record(header.offset)
            return bytes(record) if record is not None else None

        body = await self._offload.run(read)
        if body is None:
            remark = f"can not find message by the offset, {header.offset}"
            return response_to(request, ResponseCode.SYSTEM_ERROR, remark)
        return response_to(request, body=body)

    async def search_offset(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.SearchOffsetRequestHeader, request.fields)
        topic, boundary = _encoded(header.topic), _BOUNDARIES[header.boundary_type]
        offset = await self._offload.run(
            lambda: self._store.offset_by_time(topic, header.queue_id, header.timestamp, boundary)
        )
        return _offset(request, offset)

    async def get_max_offset(self, _peer: Peer, request: Command) -> Command:
        """`committed` makes no difference: everything in a queue is visible."""
        header = fields.decode(headers.GetMaxOffsetRequestHeader, request.fields)
        topic, store = _encoded(header.topic), self._store
        end = store.max_offset(topic, header.queue_id)
        if store.dispatcher.behind:  # Another thread may still be dispatching acknowledged messages.
            await self._offload.run(store.show)
            end = store.max_offset(topic, header.queue_id)
        return _offset(request, end)

    async def get_min_offset(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetMinOffsetRequestHeader, request.fields)
        return _offset(request, self._store.min_offset(_encoded(header.topic), header.queue_id))

    async def get_earliest_store_time(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetEarliestMsgStoretimeRequestHeader, request.fields)
        topic = _encoded(header.topic)
        found_ms = await self._offload.run(
            lambda: status.queue_earliest_ms(self._store, topic, header.queue_id)
        )
        answer = headers.GetEarliestMsgStoretimeResponseHeader(timestamp=found_ms)
        return response_to(request, ext_fields=fields.encode(answer))

    async def query_consume_queue(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(QueryConsumeQueueRequestHeader, request.fields)
        topic, queue_id = _encoded(header.topic), header.queue_id
        queue = self._store.queues.get(topic, queue_id)
        if queue is None:
            raise PeerError(f"{queue_id}@{header.topic} is not exist!")
        group, subscription, selector = header.consumer_group, None, None
        filter_data: str | None = None
        if group:
            subscription = self._online.subscription(group, header.topic)
            if subscription is None:
                filter_data = f"{group}@{header.topic} is not online!"
            else:
                selector = self._filters.of_subscription(group, header.topic, subscription)
        count = max(0, min(header.count, _ENTRIES_MAX))
        entries = await self._offload.run(
            lambda: self._entries((topic, queue_id), header.index, count, selector)
        )
        body = QueryConsumeQueueResponseBody(
            subscription_data=subscription,
            filter_data=filter_data,
            queue_data=entries,
            max_queue_index=queue.max_offset,
            min_queue_index=queue.min_offset,
        )
        return response_to(request, body=beans.encode(body))

    def _entries(
        self, key: tuple[bytes, int], first: int, count: int, selector: Selector | None
    ) -> tuple[ConsumeQueueData, ...]:
        queue, ext = self._store.queues.get(*key), self._store.queues.ext(key)
        unit_at: Callable[[int], ExtUnit | None] = ext.get if ext is not None else lambda _address: None
        found = [] if queue is None else queue.listed(first, count)
        return tuple(_entry_data(*entry, unit_at, selector) for entry in found)


def _entry_data(
    offset: int,
    size: int,
    code: int,
    unit_at: Callable[[int], ExtUnit | None],
    selector: Selector | None,
) -> ConsumeQueueData:
    """An entry, with its extension if it has one; only then is `eval` set, as in Java."""
    if not is_address(code):
        return ConsumeQueueData(physic_offset=offset, physic_size=size, tags_code=code)
    unit = unit_at(code)
    if unit is None:
        message = f"Cq extend not exist!addr: {code}"
        return ConsumeQueueData(physic_offset=offset, physic_size=size, tags_code=code, msg=message)
    extension = {"msgStoreTime": unit.store_ms, "tagsCode": unit.tags_code}
    return ConsumeQueueData(
        physic_offset=offset,
        physic_size=size,
        tags_code=code,
        extend_data_json=fastjson.dumps(extension).decode(),
        bit_map="".join(f"{byte:08b}" for byte in unit.bit_map) or None,
        eval=selector is not None and selector.matches_entry(unit.tags_code, unit),
    )


def _offset(request: Command, offset: int) -> Command:
    return response_to(request, ext_fields=fields.encode(headers.OffsetResponseHeader(offset=offset)))


def _encoded(text: str) -> bytes:
    """No topic or key contains half a surrogate pair, which only a JSON header can bring: replace it."""
    return text.encode("utf-8", "replace")
