"""Allocation of queues to the members of a group: RocketMQ's strategies, with the same results.

Each member computes its own share. There is no coordinator, so all members, including Java ones, must sort
and count in the same way: queues by topic, broker and number, members by Java's order of strings. A client
that is not among the members gets nothing.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from flaremq.base.errors import UsageError
from flaremq.model.message import MessageQueue

T = TypeVar("T")


class Strategy(Protocol):
    @property
    def name(self) -> str:
        """Its name on the wire."""
        ...

    def allocate(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        """The share of `me`, in the order of the queues. The inputs may be in any order."""
        ...


@dataclass(frozen=True, slots=True)
class Average:
    """Adjacent queues; the first members get one more if the number does not divide evenly."""

    name: str = "AVG"

    def allocate(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        queues, members = _sorted_queues(queues), _sorted_members(members)
        if me not in members:
            return []
        index = members.index(me)
        share, rest = divmod(len(queues), len(members))
        start = index * share + min(index, rest)
        return queues[start : start + share + (1 if index < rest else 0)]


@dataclass(frozen=True, slots=True)
class AverageByCircle:
    """Queues dealt out like cards."""

    name: str = "AVG_BY_CIRCLE"

    def allocate(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        queues, members = _sorted_queues(queues), _sorted_members(members)
        return queues[members.index(me) :: len(members)] if me in members else []


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """Few queues move when a member joins or leaves."""

    virtual_nodes: int = 10
    name: str = "CONSISTENT_HASH"

    def allocate(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        if me not in members:
            return []
        ring = {
            _md5_start(f"{member}-{node}"): member
            for member in _sorted_members(members)
            for node in range(self.virtual_nodes)
        }
        places = sorted(ring)
        if not places:
            return []

        def owner(queue: MessageQueue) -> str:
            at = bisect_left(places, _md5_start(str(queue)))
            return ring[places[at % len(places)]]

        return [queue for queue in _sorted_queues(queues) if owner(queue) == me]


@dataclass(frozen=True, slots=True)
class MachineRoom:
    """Only queues of brokers named `room@broker`, with one of our rooms; the remainder dealt one by one."""

    rooms: frozenset[str]
    name: str = "MACHINE_ROOM"

    def allocate(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        members = _sorted_members(members)
        if me not in members:
            return []
        ours = [queue for queue in _sorted_queues(queues) if self._is_ours(queue.broker_name)]
        index, share = members.index(me), len(ours) // len(members)
        mine = ours[index * share : (index + 1) * share]
        rest_at = index + share * len(members)
        return mine + ours[rest_at : rest_at + 1]

    def _is_ours(self, broker_name: str) -> bool:
        # Java's split drops empty parts at the end: `room@broker@` counts, `room@` does not.
        parts = broker_name.rstrip("@").split("@")
        return len(parts) == 2 and parts[0] in self.rooms


@dataclass(frozen=True, slots=True)
class MachineRoomNearby:
    """Queues go to members of their own room; those of a room without members to all members."""

    inner: Strategy
    room_of_queue: Callable[[MessageQueue], str]
    room_of_member: Callable[[str], str]

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        if me not in members:
            return []
        queues_by_room = _grouped(_sorted_queues(queues), self.room_of_queue)
        members_by_room = _grouped(_sorted_members(members), self.room_of_member)
        my_room = self.room_of_member(me)
        mine = self.inner.allocate(me, queues_by_room.pop(my_room, []), members_by_room[my_room])
        for room in sorted(queues_by_room.keys() - members_by_room.keys(), key=_java_order):
            mine += self.inner.allocate(me, queues_by_room[room], members)
        return mine


@dataclass(frozen=True, slots=True)
class ByConfig:
    """Exactly these queues, whatever the other members have."""

    queues: tuple[MessageQueue, ...]
    name: str = "CONFIG"

    def allocate(
        self,
        me: str,  # noqa: ARG002
        queues: Sequence[MessageQueue],  # noqa: ARG002
        members: Sequence[str],  # noqa: ARG002
    ) -> list[MessageQueue]:
        return list(self.queues)


STRATEGIES: Final[Mapping[str, Strategy]] = {
    strategy.name: strategy for strategy in (Average(), AverageByCircle(), ConsistentHash())
}
"""Strategies without further arguments."""


def strategy_named(name: str) -> Strategy:
    """A strategy by the name that clients send to a broker."""
    if name not in STRATEGIES:
        raise UsageError(f"unknown strategy {name!r}: use one of {', '.join(STRATEGIES)}")
    return STRATEGIES[name]


def _java_order(text: str) -> bytes:
    """Java compares UTF-16 units, Python code points: above U+D7FF they disagree."""
    return text.encode("utf-16-be", "surrogatepass")


def _sorted_queues(queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    if all(queue.topic.isascii() and queue.broker_name.isascii() for queue in queues):
        return sorted(queues)  # Both languages agree, so nothing has to be encoded.
    return sorted(queues, key=lambda q: (_java_order(q.topic), _java_order(q.broker_name), q.queue_id))


def _sorted_members(members: Sequence[str]) -> list[str]:
    if all(map(str.isascii, members)):
        return sorted(members)
    return sorted(members, key=_java_order)


def _grouped(things: Sequence[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for thing in things:
        room = room_of(thing)
        if not room:
            raise UsageError(
                f"{thing} has no machine room: the function that finds rooms must know every queue and client"
            )
        rooms.setdefault(room, []).append(thing)
    return rooms


def _md5_start(text: str) -> int:
    digest = hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")
