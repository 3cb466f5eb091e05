"""Consumers in order, as small as they can be: each computes its share of the queues, locks it, reads it.

A board that all share notes who has which queue and what was read, and protests at once when two have
the same or when a message is passed over.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field

from flaremq.broker.tables.queuelocks import LIFE_S
from flaremq.model.allocate import Average
from flaremq.model.message import MessageQueue
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command
from flaremq.remoting.router import Peer
from flaremq.testing.fakes.wireclient import Want, WireClient

SPEED = 20
"""Clocks run so much faster than time: a lock lives for three seconds, not for a minute."""
REBALANCE_S = 0.2
"""How often a consumer looks without being told to: Java's 20 s, compressed."""

HEARTBEAT_S = 30.0


class FastClock:
    def __init__(self) -> None:
        self._started_ms = time.time_ns() // 1_000_000
        self._started_s = time.monotonic()

    def now_ms(self) -> int:
        return self._started_ms + round(self.monotonic_s() * 1000)

    def monotonic_s(self) -> float:
        return (time.monotonic() - self._started_s) * SPEED


@dataclass(frozen=True)
class Held:
    """Who has a queue, and since when at least the broker knows it."""

    consumer: str
    renewed_s: float


@dataclass
class Board:
    clock: FastClock
    held: dict[MessageQueue, Held] = field(default_factory=dict)
    free_since_s: dict[MessageQueue, float] = field(default_factory=dict)
    read: dict[MessageQueue, list[bytes]] = field(default_factory=dict)
    """By queue: its messages, each when it was read for the first time."""
    longest_free_s: float = 0.0
    read_again: int = 0
    told: int = 0
    """How often consumers were told that their group had changed."""

    def has(self, consumer: str, queue: MessageQueue) -> bool:
        held = self.held.get(queue)
        now_s = self.clock.monotonic_s()
        return held is not None and held.consumer == consumer and now_s - held.renewed_s < LIFE_S

    def locked(self, consumer: str, queue: MessageQueue, asked_s: float) -> None:
        """It was told that the queue is its own. It had asked at `asked_s`: the lock is not older."""
        now_s, other = self.clock.monotonic_s(), self.held.get(queue)
        if other is not None and other.consumer != consumer:
            assert now_s - other.renewed_s > LIFE_S, f"{queue} has {other} and {consumer} at {now_s}"
        if other is None and queue in self.free_since_s:
            self.longest_free_s = max(self.longest_free_s, now_s - self.free_since_s.pop(queue))
        self.held[queue] = Held(consumer, asked_s)

    def unlocked(self, consumer: str, queue: MessageQueue) -> None:
        held = self.held.get(queue)
        if held is not None and held.consumer == consumer:
            del self.held[queue]
            self.free_since_s[queue] = self.clock.monotonic_s()

    def consumed(self, consumer: str, queue: MessageQueue, offset: int, body: bytes) -> None:
        assert self.has(consumer, queue)
        read = self.read.setdefault(queue, [])
        assert offset <= len(read), f"{queue}: {offset} is read before {len(read)}"
        if offset == len(read):
            read.append(body)
        else:
            assert read[offset] == body, f"{queue}: {offset} was {read[offset]!r} and is {body!r}"
            self.read_again += 1


@dataclass(frozen=True)
class Wanted:
    """What a group reads, and where."""

    address: str
    group: str
    topic: str
    queues: tuple[MessageQueue, ...]


class Consumer:
    """Comes, reads what is its share, and leaves: politely, or as if its machine had lost its power."""

    def __init__(self, name: str, wanted: Wanted, board: Board) -> None:
        self.name = name
        self._wanted = wanted
        self._board = board
        self._client = WireClient(name, {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._changed})
        self._woken = asyncio.Event()
        self._leaving = False
        self._next: dict[MessageQueue, int] = {}
        self._task = asyncio.create_task(self._run())

    async def _changed(self, _peer: Peer, _request: Command) -> None:
        self._board.told += 1
        self._woken.set()

    async def leave(self) -> None:
        self._leaving = True
        self._woken.set()
        await self._task
        wanted, mine = self._wanted, list(self._next)
        for queue in mine:
            self._board.unlocked(self.name, queue)
        await self._client.unlock(wanted.address, wanted.group, mine)
        await self._client.unregister(wanted.address, wanted.group)
        await self._client.caller.aclose()

    async def die(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        for queue in self._next:
            self._board.unlocked(self.name, queue)
        for connection in self._client.caller._connections.values():
            connection.abort()
        await self._client.caller.aclose()

    def failed(self) -> None:
        """Raise what has ended it, if anything has."""
        if self._task.done():
            self._task.result()

    async def _run(self) -> None:
        wanted, clock, beaten_s = self._wanted, self._board.clock, -HEARTBEAT_S
        while not self._leaving:
            self._woken.clear()
            if clock.monotonic_s() - beaten_s >= HEARTBEAT_S:
                beaten_s = clock.monotonic_s()
                await self._client.heartbeat(wanted.address, wanted.group, wanted.topic)
            await self._rebalance()
            for queue in list(self._next):
                await self._read(queue)
            with suppress(TimeoutError):
                async with asyncio.timeout(REBALANCE_S):
                    await self._woken.wait()

    async def _rebalance(self) -> None:
        wanted, client = self._wanted, self._client
        members = await client.members(wanted.address, wanted.group)
        mine = Average().allocate(self.name, wanted.queues, members)
        dropped = [queue for queue in self._next if queue not in mine]
        for queue in dropped:
            del self._next[queue]
            self._board.unlocked(self.name, queue)
        if dropped:
            await client.unlock(wanted.address, wanted.group, dropped)
        asked_s = self._board.clock.monotonic_s()
        locked = await client.lock(wanted.address, wanted.group, mine) if mine else set()
        for queue in mine:
            if queue not in locked:
                self._next.pop(queue, None)
                continue
            self._board.locked(self.name, queue, asked_s)
            if queue not in self._next:
                committed = await client.committed(wanted.address, wanted.group, wanted.topic, queue.queue_id)
                self._next[queue] = committed or 0

    async def _read(self, queue: MessageQueue) -> None:
        wanted, offset = self._wanted, self._next[queue]
        want = Want(topic=wanted.topic, queue_id=queue.queue_id, offset=offset, group=wanted.group)
        for message in (await self._client.pull(wanted.address, want)).messages:
            if not self._board.has(self.name, queue):
                return  # The lock was not renewed in time: somebody else may have it by now.
            self._board.consumed(self.name, queue, message.queue_offset, message.body)
            self._next[queue] = offset = message.queue_offset + 1
        if offset and self._board.has(self.name, queue):
            await self._client.commit(wanted.address, wanted.group, wanted.topic, queue.queue_id, offset)
