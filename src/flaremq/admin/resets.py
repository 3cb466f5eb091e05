"""Resetting the offsets of a group.

There are three ways, depending on the broker of a queue and on its connected members:

    the broker sets offsets itself (5.1 and newer, unless disabled)   one request per queue
    it cannot, and no member is connected                             offsets are committed for the group
    it cannot, and members are connected                              it tells them a time to move to

The last way cannot reset single queues: stop the members first, or their next commit would undo it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from flaremq.admin.members import Rosters
from flaremq.admin.servers import ServerAddress, ServerCalls
from flaremq.admin.values.groups import OffsetMove, OffsetReset, Position
from flaremq.admin.wording import settings_of_text
from flaremq.base.errors import InvalidParameter, UsageError
from flaremq.client.api import body_of
from flaremq.model.message import MessageQueue
from flaremq.protocol.bodies.group import ResetOffsetBody
from flaremq.protocol.bodies.route import TopicRouteData
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers import group as headers


@dataclass(frozen=True, slots=True)
class Wish:
    group: str
    topic: str
    to: Position


async def reset(servers: ServerCalls, wish: Wish, *, dry_run: bool) -> OffsetReset:
    queues = await _queues(servers, wish)
    brokers = await _masters(servers, wish.topic, queues)

    async def planned(server: ServerAddress) -> tuple[OffsetMove, ...]:
        moves = (_move(servers, server, wish, queue) for queue in queues[server.name])
        return tuple(await asyncio.gather(*moves))

    plan = await servers.every(brokers, planned, f"offsets of {wish.group} with {wish.topic}")
    if not dry_run:
        plan = await servers.every(
            brokers,
            lambda server: _apply(servers, server, wish, plan[server.title]),
            f"reset {wish.group} with {wish.topic}",
        )
    moves = sorted((move for each in plan.values() for move in each), key=lambda move: move.queue)
    return OffsetReset(wish.group, wish.topic, tuple(moves), applied=not dry_run)


async def clone(servers: ServerCalls, source: str, target: str, topic: str) -> tuple[str, ...]:
    """Copy the offsets of one topic to another group. Returns the names of the brokers that did.

    Not by CLONE_GROUP_OFFSET, which misses an offset that the source was reset to and has not read from yet.
    """
    route = await servers.api.route(topic)
    if route is None:
        raise servers.topic_not_found(topic)
    queues = _readable(topic, route)
    wish = Wish(target, topic, Position.offsets({queue: 0 for each in queues.values() for queue in each}))

    async def tell(server: ServerAddress) -> None:
        moves = [await _copied(servers, server, source, queue) for queue in queues[server.name]]
        await _apply(servers, server, wish, tuple(move for move in moves if move is not None))

    brokers = await _masters(servers, topic, queues)
    return tuple(await servers.every(brokers, tell, f"offsets of {source} for {target}"))


async def _copied(
    servers: ServerCalls, server: ServerAddress, source: str, queue: MessageQueue
) -> OffsetMove | None:
    api, address = servers.api, server.address
    found = await api.committed(address, source, queue, zero_if_missing=False)
    if found is None:
        return None
    low, high = await api.min_offset(address, queue), await api.max_offset(address, queue)
    return OffsetMove(queue, None, max(0, low, min(found, high)))  # The message may have been deleted.


async def _masters(
    servers: ServerCalls, topic: str, queues: Mapping[str, list[MessageQueue]]
) -> list[ServerAddress]:
    brokers = [each for each in await servers.of_topic(topic) if each.name in queues]
    away = sorted(each.name for each in brokers if each.id)
    if away:
        raise UsageError(
            f"{', '.join(away)} has no master now, and only masters keep offsets: start it first"
        )
    return brokers


async def _queues(servers: ServerCalls, wish: Wish) -> Mapping[str, list[MessageQueue]]:
    """The queues to reset, by broker."""
    route = await servers.api.route(wish.topic)
    if route is None:
        raise servers.topic_not_found(wish.topic)
    known = _readable(wish.topic, route)
    if wish.to.kind != "offsets":
        return known
    found: dict[str, list[MessageQueue]] = {}
    for queue in sorted(wish.to.explicit):
        if queue not in known.get(queue.broker_name, ()):
            where = ", ".join(f"{name} 0 to {len(queues) - 1}" for name, queues in known.items())
            raise InvalidParameter(
                f"topic {wish.topic!r} has no queue {queue.queue_id} on {queue.broker_name!r}, "
                f"or another topic is meant ({queue.topic!r}); there are: {where}"
            )
        found.setdefault(queue.broker_name, []).append(queue)
    return found


def _readable(topic: str, route: TopicRouteData) -> dict[str, list[MessageQueue]]:
    return {
        each.broker_name: [MessageQueue(topic, each.broker_name, n) for n in range(each.read_queue_nums)]
        for each in sorted(route.queue_datas, key=lambda each: each.broker_name)
        if each.read_queue_nums
    }


async def _move(servers: ServerCalls, server: ServerAddress, wish: Wish, queue: MessageQueue) -> OffsetMove:
    api, address, to = servers.api, server.address, wish.to
    old = await api.committed(address, wish.group, queue, zero_if_missing=False)
    if to.kind == "begin":
        return OffsetMove(queue, old, max(0, await api.min_offset(address, queue)))
    if to.kind == "end":
        return OffsetMove(queue, old, await api.max_offset(address, queue))
    if to.kind == "time":
        return OffsetMove(queue, old, max(0, await api.offset_by_time(address, queue, to.timestamp_ms)))
    low, high = max(0, await api.min_offset(address, queue)), await api.max_offset(address, queue)
    if not low <= to.explicit[queue] <= high:
        raise InvalidParameter(
            f"offset {to.explicit[queue]} of {queue.topic} {queue.broker_name}:{queue.queue_id}: "
            f"expected {low} to {high}"
        )
    return OffsetMove(queue, old, to.explicit[queue])


async def _apply(
    servers: ServerCalls, server: ServerAddress, wish: Wish, moves: tuple[OffsetMove, ...]
) -> tuple[OffsetMove, ...]:
    """Reset the offsets. Returns them as the broker has them now."""
    api, address = servers.api, server.address
    if not moves:
        return moves
    answer = await api.ask(address, RequestCode.GET_BROKER_CONFIG)
    if settings_of_text(answer.body).get("useServerSideResetOffset") == "true":
        for move in moves:
            header = replace(_header(wish, 0), queue_id=move.queue.queue_id, offset=move.new)
            await api.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        return moves
    if await Rosters(servers).connections(server, wish.group) is None:
        for move in moves:
            await api.commit(address, wish.group, move.queue, move.new, oneway=False)
        return moves
    if wish.to.kind == "offsets":
        raise UsageError(
            f"group {wish.group!r} has members connected to {server.name}, which cannot reset single queues "
            "while they run: stop them first, or reset to a time"
        )
    header = _header(wish, wish.to.timestamp_ms)
    answer = await api.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    table = body_of(ResetOffsetBody, answer).offset_table
    return tuple(replace(move, new=table.get(move.queue, move.new)) for move in moves)


def _header(wish: Wish, timestamp_ms: int) -> headers.ResetOffsetRequestHeader:
    return headers.ResetOffsetRequestHeader(
        topic=wish.topic, group=wish.group, timestamp=timestamp_ms, is_force=True
    )
