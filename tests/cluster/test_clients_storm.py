"""A storm of consumers that come, leave and die: queues find owners, one each, and no message is lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest
from tests.client.consumer.tools import FIRST, has_route
from tests.cluster.load import pause
from tests.cluster.members import die

from flaremq.base.errors import FlareError
from flaremq.client.client import Client
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.message import ReceivedMessage
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ConsumerSettings
from flaremq.model.message import Message, MessageQueue
from flaremq.testing.cluster import Cluster, eventually
from flaremq.testing.fakes.wireclient import WireClient

GROUP = "G-storm"
TOPICS = {"Storm": 32, "Thunder": 48}
"""Queues at each of two brokers."""
SETTLE_S = 20.0
WORK_S = 0.2


class Storm:
    """The members of a group, and what was sent and what they have got."""

    def __init__(self, namesrv: str, seed: int) -> None:
        self._namesrv = namesrv
        self._rng = random.Random(seed)
        self._never = asyncio.Event()
        self.here: list[PushConsumer] = []
        self.sent: set[bytes] = set()
        self.got: Counter[bytes] = Counter()

    async def _handler(self, message: ReceivedMessage) -> None:
        """Takes a moment, in which its queue may change hands, or the consumer may die."""
        await pause(self._never, WORK_S)
        self.got[message.body] += 1

    async def join(self) -> None:
        consumer = PushConsumer(GROUP, self._namesrv, settings=ConsumerSettings(start_from=FIRST))
        for topic in TOPICS:
            consumer.subscribe(topic, self._handler)
        await consumer.start()
        self.here.append(consumer)

    async def join_many(self, count: int) -> None:
        await asyncio.gather(*(self.join() for _ in range(count)))

    async def leave(self) -> None:
        """One that fate chooses, politely or not."""
        consumer = self.here.pop(self._rng.randrange(len(self.here)))
        await (die(consumer) if self._rng.random() < 0.3 else consumer.stop())

    async def blow(self, changes: int, fewest: int) -> None:
        """So many comings and goings, several at a time."""
        left = changes
        while left > 0:
            count = min(self._rng.randint(1, 6), left)
            left -= count
            leaving = sum(self._rng.random() < 0.5 for _ in range(count))
            leaving = min(leaving, max(len(self.here) - fewest, 0))
            await asyncio.gather(
                *(self.join() for _ in range(count - leaving)), *(self.leave() for _ in range(leaving))
            )

    async def produce(self, producer: Producer, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            batch = [
                Message(topic, b"%s-%d" % (topic.encode(), number + n)) for topic in TOPICS for n in range(5)
            ]
            number += 5
            for message in batch:
                try:
                    await producer.send(message)
                except FlareError:  # So many consumers in one loop leave a producer little time.
                    continue
                self.sent.add(message.body)
            await pause(stop, 0.05)

    def owners(self) -> Counter[MessageQueue]:
        return Counter(queue for each in self.here for queue in each.assignment if queue.topic in TOPICS)

    async def settled(self, queues: frozenset[MessageQueue]) -> None:
        """Every queue has one owner."""

        async def is_so() -> bool:
            return self.owners() == Counter(queues)

        try:
            await eventually("every queue has one owner", is_so, SETTLE_S)
        except TimeoutError:
            owners = self.owners()
            alone = sorted(queues - owners.keys(), key=str)
            many = {queue: count for queue, count in owners.items() if count > 1}
            raise AssertionError(f"{len(alone)} alone: {alone[:5]}; more than one owner: {many}") from None

    async def all_came(self) -> None:
        async def is_so() -> bool:
            return self.sent <= self.got.keys()

        await eventually("all that was acknowledged has come", is_so, 60)

    async def end(self) -> None:
        await asyncio.gather(*(each.stop() for each in self.here))


async def weather(folder: Path, members: int, changes: int) -> None:
    with Cluster(folder) as cluster:
        namesrv = await asyncio.to_thread(cluster.namesrv)
        brokers = [
            await asyncio.to_thread(cluster.broker, name, namesrv.address)
            for name in ("broker-a", "broker-b")
        ]
        async with WireClient() as wire:
            for topic, count in TOPICS.items():
                for broker in brokers:
                    await wire.create_topic(broker.address, topic, count)
        async with Client(namesrv.address) as client, Producer("PID_storm", client=client) as producer:
            await eventually("both topics have routes", lambda: have_routes(client))
            queues = frozenset([queue for topic in TOPICS for queue in await producer.queues(topic)])
            assert len(queues) == 2 * sum(TOPICS.values())
            await blown(Storm(namesrv.address, members), producer, queues, (members, changes))


async def have_routes(client: Client) -> bool:
    return all([await has_route(client, topic, 2) for topic in TOPICS])


async def blown(
    storm: Storm, producer: Producer, queues: frozenset[MessageQueue], size: tuple[int, int]
) -> None:
    members, changes = size
    stop = asyncio.Event()
    producing = asyncio.create_task(storm.produce(producer, stop))
    try:
        await storm.join_many(members)
        await storm.settled(queues)
        await storm.blow(changes, fewest=members // 2)
        await storm.settled(queues)
    finally:
        stop.set()
        await producing
    await storm.all_came()
    await storm.settled(queues)
    await storm.end()
    assert len(storm.sent) > 50


async def test_consumers_that_come_and_go_leave_no_queue_alone_and_lose_no_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await weather(tmp_path, members=20, changes=30)
    assert not [each.message for each in caplog.records if each.exc_info]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_two_hundred_consumers_that_come_and_go_leave_no_queue_alone_and_lose_no_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await weather(tmp_path, members=200, changes=120)
    assert not [each.message for each in caplog.records if each.exc_info]
