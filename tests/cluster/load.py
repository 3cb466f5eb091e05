"""Producers and consumers that note all they are told, and a check of the notes.

Every message has a number of its own, so a lost, a doubled or a displaced one can be named. A send
whose answer did not come may have been stored or not; whatever was acknowledged must be there.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from flaremq.base.errors import Unreachable
from flaremq.model.topic import PERM_READ, PERM_WRITE
from flaremq.protocol.bodies.route import TopicRouteData
from flaremq.protocol.codes import ResponseCode
from flaremq.testing.cluster import eventually
from flaremq.testing.fakes.wireclient import RefusedByServer, Want, WireClient

REFRESH_S = 0.2
"""How often clients ask for routes: Java's 30 s, compressed."""
CALL_S = 5.0
HOLD_MS = 500


class Queue(NamedTuple):
    broker: str
    number: int


class Place(NamedTuple):
    queue: Queue
    offset: int


@dataclass
class Notes:
    """What clients were told."""

    sent: dict[Place, bytes] = field(default_factory=dict)
    """Acknowledged messages, by where their producer was told that they lie."""
    sent_at: Counter[str] = field(default_factory=Counter)
    """How many were acknowledged by each broker."""
    refused: Counter[str] = field(default_factory=Counter)
    read: defaultdict[str, dict[Place, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """By group: what was read, and where."""
    next: dict[tuple[str, Queue], int] = field(default_factory=dict)
    """By group: how far each queue has been read."""

    def until_now(self) -> Notes:
        """A copy: what was told before something is looked up while the load goes on."""
        return deepcopy(self)

    def check(self, stored: Mapping[Place, bytes]) -> None:
        """`stored` is what can be read now, of all queues from their beginning."""
        lost = {place: body for place, body in self.sent.items() if stored.get(place) != body}
        assert not lost, f"{len(lost)} of {len(self.sent)} acknowledged messages: {list(lost.items())[:5]}"
        twice = [body for body, count in Counter(stored.values()).items() if count > 1]
        assert not twice, f"{len(twice)} messages lie at two places: {twice[:5]}"
        for group, read in self.read.items():
            other = {place: body for place, body in read.items() if stored.get(place) != body}
            assert not other, f"{group} has read {len(other)} that are others now: {list(other.items())[:5]}"
        self._check_order()

    def check_all_read(self) -> None:
        """Every group has read every acknowledged message."""
        for group, read in self.read.items():
            unread = self.sent.keys() - read.keys()
            assert not unread, f"{group} has not read {len(unread)}: {sorted(unread)[:5]}"

    def _check_order(self) -> None:
        """What a producer had acknowledged one after the other lies so, in each queue."""
        last: dict[tuple[Queue, bytes], int] = {}
        for place, body in sorted(self.sent.items()):
            producer, _, number = body.partition(b"-")
            key = place.queue, producer
            assert int(number) > last.get(key, -1), f"{body!r} at {place} lies behind {last[key]}"
            last[key] = int(number)


class Routes:
    """What one client knows of a topic: asked of any NameServer, and kept while none answers."""

    def __init__(self, client: WireClient, topic: str, namesrvs: list[str]) -> None:
        self._client = client
        self._topic = topic
        self.namesrvs = namesrvs
        self.addresses: dict[str, str] = {}
        self.writable: list[Queue] = []
        self.readable: list[Queue] = []

    async def refresh(self) -> None:
        for address in self.namesrvs:
            try:
                found = await self._client.route(address, self._topic, CALL_S)
            except Unreachable:
                continue
            if found is not None:
                self.take(found)
            return

    def take(self, route: TopicRouteData) -> None:
        self.addresses = {each.broker_name: each.broker_addrs[0] for each in route.broker_datas}
        queues = [each for each in route.queue_datas if each.broker_name in self.addresses]
        self.writable = [
            Queue(each.broker_name, n)
            for each in queues
            if each.perm & PERM_WRITE
            for n in range(each.write_queue_nums)
        ]
        self.readable = [
            Queue(each.broker_name, n)
            for each in queues
            if each.perm & PERM_READ
            for n in range(each.read_queue_nums)
        ]


class Load:
    """Clients of one topic, all with connections of their own. Leave it to stop them."""

    def __init__(self, topic: str, namesrvs: list[str], notes: Notes | None = None) -> None:
        self.topic = topic
        self.namesrvs = namesrvs
        self.notes = notes or Notes()
        self.producer_routes: list[Routes] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._producers: list[asyncio.Task[None]] = []
        self._stop_sends, self._stop_reads = asyncio.Event(), asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        self._stop_sends.set()
        self._stop_reads.set()
        await asyncio.gather(*self._tasks, return_exceptions=kind is not None)

    # What a test says and waits for.

    def produce(self, *names: str) -> None:
        for name in names:
            self._producers.append(self._start(self._produce(name)))

    def consume(self, *groups: str) -> None:
        for group in groups:
            self._start(self._consume(group))

    async def more(self, count: int, broker: str | None = None) -> None:
        """Wait until so many more messages were acknowledged, by this broker or by any."""
        before = self._count(broker)
        await self.until(f"{count} more sends to {broker or 'any broker'}",
                         lambda: self._count(broker) >= before + count)  # fmt: skip

    def _count(self, broker: str | None) -> int:
        return self.notes.sent_at[broker] if broker else len(self.notes.sent)

    async def until(self, what: str, is_so: Callable[[], bool], limit_s: float = 60.0) -> None:
        async def asked() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()  # A client that died says why.
            return is_so()

        await eventually(what, asked, limit_s)

    async def written_to(self, *brokers: str) -> None:
        """Wait until every producer knows that these brokers, and no others, may be sent to."""
        await self.until(
            f"producers send to {brokers} alone",
            lambda: all({q.broker for q in each.writable} == set(brokers) for each in self.producer_routes),
        )

    async def stop_sending(self) -> None:
        """And wait for what is under way: it may still be acknowledged."""
        self._stop_sends.set()
        await asyncio.gather(*self._producers)

    async def all_read(self, *groups: str) -> None:
        """Nothing is sent any more: wait until every group has read all that was acknowledged."""
        sent = self.notes.sent.keys()
        await self.until(
            "all groups have read everything",
            lambda: all(sent <= self.notes.read[group].keys() for group in groups),
        )

    # The clients.

    def _start(self, client: Coroutine[None, None, None]) -> asyncio.Task[None]:
        self._tasks.append(asyncio.create_task(client))
        return self._tasks[-1]

    async def _produce(self, name: str) -> None:
        number = at = 0
        async with WireClient(name) as client:
            routes = Routes(client, self.topic, self.namesrvs)
            self.producer_routes.append(routes)
            refreshing = asyncio.create_task(self._keep_fresh(routes, self._stop_sends))
            while not self._stop_sends.is_set():
                at += 1
                if not routes.writable:
                    await pause(self._stop_sends)
                    continue
                queue = routes.writable[at % len(routes.writable)]
                await self._send(client, routes, queue, b"%s-%d" % (name.encode(), number))
                number += 1
            await refreshing

    async def _send(self, client: WireClient, routes: Routes, queue: Queue, body: bytes) -> None:
        try:
            address = routes.addresses[queue.broker]
            sent = await client.send(address, self.topic, queue.number, body, CALL_S)
        except (Unreachable, RefusedByServer) as error:
            self.notes.refused[f"{queue.broker}: {type(error).__name__}"] += 1
            await pause(self._stop_sends, 0.02)
            return
        place = Place(queue, sent.queue_offset)
        assert place not in self.notes.sent, f"{place} was told to {self.notes.sent[place]!r} and {body!r}"
        self.notes.sent[place] = body
        self.notes.sent_at[queue.broker] += 1

    async def _consume(self, group: str) -> None:
        """One reader for each queue that is known, for as long as anybody may send to it."""
        readers: dict[Queue, asyncio.Task[None]] = {}
        async with WireClient(group) as client:
            routes = Routes(client, self.topic, self.namesrvs)
            while not self._stop_reads.is_set():
                await routes.refresh()
                for queue in routes.readable:
                    if queue not in readers:
                        readers[queue] = asyncio.create_task(self._read(group, routes, queue))
                for reader in readers.values():
                    if reader.done():
                        reader.result()
                await pause(self._stop_reads)
            await asyncio.gather(*readers.values())

    async def _read(self, group: str, routes: Routes, queue: Queue) -> None:
        offset = self.notes.next.get((group, queue), 0)
        async with WireClient(f"{group}-{queue.broker}-{queue.number}") as client:
            while not self._stop_reads.is_set():
                want = Want(
                    topic=self.topic, queue_id=queue.number, offset=offset, group=group, suspend_ms=HOLD_MS
                )
                try:
                    pulled = await client.pull(routes.addresses[queue.broker], want, CALL_S)
                except (Unreachable, RefusedByServer, KeyError):
                    await pause(self._stop_reads, 0.05)
                    continue
                if pulled.code == ResponseCode.SUCCESS:
                    for message in pulled.messages:
                        assert message.queue_offset == offset, f"{queue}: {message.queue_offset} not {offset}"
                        self.notes.read[group][Place(queue, offset)] = message.body
                        offset += 1
                    self.notes.next[group, queue] = offset
                elif pulled.code == ResponseCode.PULL_OFFSET_MOVED:
                    raise AssertionError(f"{group} was at {offset} of {queue}: {pulled}")

    async def _keep_fresh(self, routes: Routes, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await routes.refresh()
            await pause(stop)


async def pause(stop: asyncio.Event, limit_s: float = REFRESH_S) -> None:
    """A rest that ends early when all ends."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await stop.wait()


async def stored(
    client: WireClient, topic: str, brokers: Mapping[str, str], queues: int
) -> dict[Place, bytes]:
    """All that can be read now: brokers by name and address."""
    found: dict[Place, bytes] = {}
    for name, address in brokers.items():
        for number in range(queues):
            for message in await client.read_all(address, topic, number):
                found[Place(Queue(name, number), message.queue_offset)] = message.body
    return found
