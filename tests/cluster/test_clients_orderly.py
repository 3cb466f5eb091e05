"""Orderly consumers that die, or whose connections break: the order holds, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.client.consumer.tools import a_client, a_topic, owned, quick
from tests.cluster.load import pause
from tests.cluster.members import cut, die

from flaremq.client.consumer.push import PushConsumer
from flaremq.client.message import ReceivedMessage
from flaremq.client.producer.producer import Producer
from flaremq.model.message import Message, MessageQueue
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import Embedded
from flaremq.testing.patience import load_factor

TOPIC, GROUP, QUEUES = "T", "G", 4
LIFE_S = 3.0
"""Of a lock at the broker: RocketMQ's minute, compressed, as are both of the client's times."""


@pytest.fixture(autouse=True)
def quick_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flaremq.broker.tables.queuelocks.LIFE_S", LIFE_S)
    monkeypatch.setattr("flaremq.client.consumer.processqueue.LOCK_VALID_S", LIFE_S / 2)
    monkeypatch.setattr("flaremq.client.consumer.assignment.RENEW_S", LIFE_S / 3)


class Board:
    """What all members were given, in the order of time, and what was sent."""

    def __init__(self) -> None:
        self.reached: dict[MessageQueue, int] = {}
        self.inside: dict[MessageQueue, str] = {}
        self.wrong: list[str] = []
        self.again = 0
        self.sent: set[tuple[MessageQueue, int]] = set()
        self.got: set[tuple[MessageQueue, int]] = set()
        self.goes_on = asyncio.Event()
        """Handlers wait for it."""
        self.goes_on.set()

    async def take(self, who: str, message: ReceivedMessage) -> None:
        queue, offset = message.queue, message.queue_offset
        if queue in self.inside:
            self.wrong.append(f"{who} has {queue}:{offset} while {self.inside[queue]} has a message of it")
        self.inside[queue] = who
        before = self.reached.get(queue, -1)
        if offset > before + 1:
            self.wrong.append(f"{who} has {queue}:{offset}, but {before + 1} was not consumed")
        self.again += offset <= before
        self.reached[queue] = max(before, offset)
        try:
            await self.goes_on.wait()
            self.got.add((queue, offset))
        finally:
            self.inside.pop(queue, None)

    def bury(self, who: str) -> None:
        """The dead handle nothing."""
        self.inside = {queue: each for queue, each in self.inside.items() if each != who}

    async def all_came(self) -> None:
        async def so() -> bool:
            return self.sent <= self.got

        await eventually("all came", so)
        assert not self.wrong, self.wrong[:5]

    async def more(self, count: int) -> None:
        wanted = len(self.got) + count

        async def so() -> bool:
            return len(self.got) >= wanted

        await eventually(f"{count} more came", so)


@asynccontextmanager
async def flow(producer: Producer, board: Board) -> AsyncIterator[None]:
    """Messages with sharding keys, until this is left."""
    stop = asyncio.Event()

    async def produce() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            message = Message(TOPIC, b"%d" % number, sharding_key=f"k{number % 16}")
            receipt = await producer.send(message)
            board.sent.add((receipt.queue, receipt.queue_offset))
            await pause(stop, 0.003)

    task = asyncio.create_task(produce())
    try:
        yield
    finally:
        stop.set()
        await task


class Scene:
    def __init__(self, servers: Embedded, board: Board, running: AsyncExitStack) -> None:
        self._servers = servers
        self._running = running
        self.board = board

    async def join(self, who: str) -> PushConsumer:
        client = await self._running.enter_async_context(a_client(self._servers))
        consumer = PushConsumer(GROUP, settings=quick(orderly=True), client=client)

        async def handler(message: ReceivedMessage) -> None:
            await self.board.take(who, message)

        consumer.subscribe(TOPIC, handler)
        await consumer.start()
        self._running.push_async_callback(self._stop, consumer)
        return consumer

    @staticmethod
    async def _stop(consumer: PushConsumer) -> None:
        if not consumer.client._stopped:
            await consumer.stop()


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    board = Board()
    async with (
        Embedded(tmp_path) as servers,
        a_topic(servers, TOPIC, QUEUES) as producer,
        AsyncExitStack() as running,
    ):
        async with flow(producer, board):
            yield Scene(servers, board, running)
        await board.all_came()


async def test_queues_of_an_orderly_consumer_that_dies_go_on_in_order_when_its_locks_are_old(
    scene: Scene,
) -> None:
    first, second = await scene.join("first"), await scene.join("second")
    await owned(first, TOPIC, 2)
    await owned(second, TOPIC, 2)
    await scene.board.more(100)
    theirs = first.assignment
    at_death = {queue: scene.board.reached.get(queue) for queue in theirs if queue.topic == TOPIC}
    loop = asyncio.get_running_loop()
    died_s = loop.time()
    await die(first)
    scene.board.bury("first")
    await owned(second, TOPIC, QUEUES)
    took_s = loop.time() - died_s
    # Not before the last renewal is too old, which was no longer ago than renewals are apart.
    assert LIFE_S - LIFE_S / 3 - 0.5 < took_s < LIFE_S + 3 * load_factor()
    await scene.board.more(100)

    async def go_on() -> bool:
        return all(scene.board.reached[queue] > (at or -1) for queue, at in at_death.items())

    await eventually("all of its queues go on", go_on)
    assert not scene.board.wrong, scene.board.wrong[:5]


async def test_a_queue_that_is_given_away_waits_for_the_message_that_a_handler_has(scene: Scene) -> None:
    board = scene.board
    first = await scene.join("first")
    await owned(first, TOPIC, QUEUES)
    await board.more(50)
    board.goes_on.clear()

    async def all_are_busy() -> bool:
        return len(board.inside) == QUEUES

    await eventually("a message of each queue is being handled", all_are_busy)
    second = await scene.join("second")
    await owned(first, TOPIC, 2)
    await pause(asyncio.Event(), LIFE_S / 2)  # Longer than a lock counts without renewal, and many rounds.
    assert not [queue for queue in second.assignment if queue.topic == TOPIC]
    board.goes_on.set()
    await owned(second, TOPIC, 2)
    await board.more(50)
    await second.stop()
    await owned(first, TOPIC, QUEUES)
    await board.more(50)
    assert not board.wrong, board.wrong[:5]
    assert board.again == 0


async def test_an_orderly_consumer_whose_connections_break_goes_on_with_the_same_queues(scene: Scene) -> None:
    first, second = await scene.join("first"), await scene.join("second")
    await owned(first, TOPIC, 2)
    await owned(second, TOPIC, 2)
    for one in (first, second, first):
        await scene.board.more(50)
        cut(one)
    await scene.board.more(50)
    await owned(first, TOPIC, 2)
    await owned(second, TOPIC, 2)
    await scene.board.more(50)
    assert not scene.board.wrong, scene.board.wrong[:5]


async def test_orderly_consumers_that_come_leave_and_die_in_turn_keep_the_order(scene: Scene) -> None:
    stays = await scene.join("stays")
    for number in range(3):
        other = await scene.join(f"other-{number}")
        await owned(other, TOPIC, 2)
        await scene.board.more(50)
        if number % 2:
            await other.stop()
        else:
            await die(other)
            scene.board.bury(f"other-{number}")
        await owned(stays, TOPIC, QUEUES)
        await scene.board.more(50)
    assert not scene.board.wrong, scene.board.wrong[:5]
