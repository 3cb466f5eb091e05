"""Messages read queue by queue, without a consumer group: no offset is stored."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Final

from flaremq.admin.servers import ServerAddress, ServerCalls
from flaremq.admin.values.messages import FoundMessage, Scan, found_in
from flaremq.base.errors import FlareError, Incomplete, InvalidParameter, MessageNotFound
from flaremq.base.text import count
from flaremq.client.api import PullResult
from flaremq.model.message import MessageQueue
from flaremq.protocol.bodies.group import ALL, TAG, SubscriptionData
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers import pull as headers

READER: Final = "TOOLS_CONSUMER"
"""The group that every broker has for tools."""
_PULL_MAX: Final = 32


async def at(servers: ServerCalls, server: ServerAddress, queue: MessageQueue, offset: int) -> FoundMessage:
    pulled = await _pull(servers, server, queue, offset, ALL)
    for each in found_in(pulled.body, server.name):
        if each.queue_offset == offset:
            return each
    raise MessageNotFound(
        f"{queue.topic} {queue.broker_name}:{queue.queue_id} has no message at {offset}: "
        f"it holds {pulled.min_offset} to {pulled.max_offset - 1}"
    )


async def scan(servers: ServerCalls, wanted: Scan) -> AsyncGenerator[FoundMessage, None]:
    tags = SubscriptionData.of(wanted.topic, wanted.tags).tags_set
    left, failed = wanted.count_max, dict[str, FlareError]()
    queues = await _queues(servers, wanted)
    for server, queue in queues:
        if server.title in failed:
            continue
        try:
            async for message in _read(servers, server, queue, wanted):
                if tags and message.tags not in tags:
                    continue  # Brokers filter by hash, which another tag may share.
                yield message
                left -= 1
                if not left:
                    return
        except FlareError as error:
            failed[server.title] = error
    if failed:
        done = dict.fromkeys(server.title for server, _ in queues if server.title not in failed)
        raise Incomplete(f"messages of {wanted.topic}", tuple(done), failed)


async def _queues(servers: ServerCalls, wanted: Scan) -> list[tuple[ServerAddress, MessageQueue]]:
    route = await servers.api.route(wanted.topic)
    if route is None:
        raise servers.topic_not_found(wanted.topic)
    counts = {each.broker_name: each.read_queue_nums for each in route.queue_datas}
    brokers = await servers.of_topic(wanted.topic)
    found = [
        (server, MessageQueue(wanted.topic, server.name, number))
        for server in brokers
        if wanted.broker is None or wanted.broker in (server.name, server.address)
        for number in range(counts.get(server.name, 0))
        if wanted.queue_id is None or wanted.queue_id == number
    ]
    if not found:
        where = ", ".join(f"{name} with {count(queues, 'queue')}" for name, queues in sorted(counts.items()))
        raise InvalidParameter(
            f"topic {wanted.topic!r} has no queue to read with broker={wanted.broker!r}, "
            f"queue_id={wanted.queue_id}: expected one of {where or 'none'}"
        )
    return found


async def _read(
    servers: ServerCalls, server: ServerAddress, queue: MessageQueue, wanted: Scan
) -> AsyncGenerator[FoundMessage, None]:
    """The matching messages that a queue holds now, in order."""
    api, within = servers.api, wanted.within
    offset = max(0, await api.min_offset(server.address, queue), wanted.begin_offset or 0)
    end = await api.max_offset(server.address, queue)
    if wanted.end_offset is not None:
        end = min(end, wanted.end_offset)
    if within.begin_ms > 0 and offset < end:
        offset = max(offset, await api.offset_by_time(server.address, queue, within.begin_ms))
    async for message in between(servers, server, queue, offset, end, wanted.tags):
        if message.stored_ms > within.end_ms:
            return  # All following messages are newer.
        if message.stored_ms >= within.begin_ms:
            yield message


async def between(
    servers: ServerCalls, server: ServerAddress, queue: MessageQueue, begin: int, end: int, tags: str = ALL
) -> AsyncGenerator[FoundMessage, None]:
    """The messages of a queue between two offsets, in order."""
    offset = begin
    while offset < end:
        pulled = await _pull(servers, server, queue, offset, tags)
        for message in _between(found_in(pulled.body, server.name), offset, end):
            yield message
        if pulled.next_offset <= offset:
            return  # The queue has no more messages.
        offset = pulled.next_offset


def _between(messages: Iterable[FoundMessage], begin: int, end: int) -> Iterable[FoundMessage]:
    """Messages in the range: a record may hold several, some of them outside."""
    return (each for each in messages if begin <= each.queue_offset < end)


async def _pull(
    servers: ServerCalls, server: ServerAddress, queue: MessageQueue, offset: int, tags: str
) -> PullResult:
    header = headers.PullMessageRequestHeader(
        consumer_group=READER,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=_PULL_MAX,
        sys_flag=headers.SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=tags,
        sub_version=0,
        expression_type=TAG,
    )
    api = servers.api
    return await api.pull(server.address, RequestCode.PULL_MESSAGE, header, api.timeout_s)
