"""A storm of consumers that come and go: every queue finds an owner, never two, and nothing is left out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.cluster.consumers import SPEED, Board, Consumer, FastClock, Wanted
from tests.cluster.load import pause

from flaremq.broker.app import Broker
from flaremq.broker.config import BrokerConfig
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings
from flaremq.broker.tables.queuelocks import LIFE_S
from flaremq.model.message import MessageQueue
from flaremq.testing.cluster import eventually
from flaremq.testing.fakes.builders import small_settings
from flaremq.testing.fakes.wireclient import WireClient
from flaremq.testing.patience import load_factor

TOPIC, GROUP, BROKER = "TopicStorm", "GID_storm", "broker-a"
QUEUES = 8
PER_SECOND = 50
SLACK_S = 8.0
"""Real seconds by which a busy machine may be late."""


@asynccontextmanager
async def a_broker(folder: Path, clock: FastClock) -> AsyncIterator[Broker]:
    broker = Broker(
        BrokerConfig(
            broker=BrokerSettings(
                ip1="127.0.0.1", ip2="127.0.0.1", broker_name=BROKER, channel_expired_ms=120_000 * SPEED
            ),
            server=BrokerServerSettings(listen_port=0, bind_address="127.0.0.1", drain_s=1),
            store=small_settings(folder, commitlog_file_size=1 << 20, page_cache_busy_ms=10_000_000),
        ),
        clock,
    )
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


async def produce(address: str, stop: asyncio.Event, sent: dict[int, list[bytes]]) -> None:
    async with WireClient("producer") as client:
        number = 0
        while not stop.is_set():
            body, queue_id = b"%d" % number, number % QUEUES
            told = await client.send(address, TOPIC, queue_id, body)
            assert told.queue_offset == len(sent.setdefault(queue_id, []))
            sent[queue_id].append(body)
            number += 1
            await pause(stop, 0.005)


async def storm(wanted: Wanted, board: Board, seconds: int) -> list[Consumer]:
    """Each second so many come and as many go, every third without a word; who is left at the end."""
    rng, never = random.Random(seconds), asyncio.Event()
    here = [Consumer(f"c{n}", wanted, board) for n in range(10)]
    for number in range(10, 10 + seconds * PER_SECOND):
        here.append(Consumer(f"c{number}", wanted, board))
        one = here.pop(rng.randrange(len(here)))
        one.failed()
        await (one.die() if number % 3 == 0 else one.leave())
        await pause(never, 1 / PER_SECOND)
    return here


async def weather(folder: Path, seconds: int) -> None:
    clock, stop, sent = FastClock(), asyncio.Event(), dict[int, list[bytes]]()
    board = Board(clock)
    queues = tuple(MessageQueue(TOPIC, BROKER, number) for number in range(QUEUES))
    async with a_broker(folder, clock) as broker, WireClient() as client:
        address = f"127.0.0.1:{broker.port}"
        await client.create_topic(address, TOPIC, QUEUES)
        producing = asyncio.create_task(produce(address, stop, sent))
        here = await storm(Wanted(address, GROUP, TOPIC, queues), board, seconds)
        stop.set()
        await producing

        async def all_is_read() -> bool:
            for consumer in here:
                consumer.failed()
            return all(board.read.get(queue) == sent.get(queue.queue_id) for queue in queues)

        await eventually("the queues are read to their ends", all_is_read, 60)
        assert {held.consumer for held in board.held.values()} <= {each.name for each in here}
        assert len(board.held) == QUEUES
        for consumer in here:
            await consumer.leave()
    assert board.told > seconds * PER_SECOND
    assert board.longest_free_s < LIFE_S + SLACK_S * SPEED * load_factor()


async def test_a_storm_of_consumers_leaves_no_queue_alone_and_no_message_out(tmp_path: Path) -> None:
    await weather(tmp_path, 3)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_long_storm_of_consumers_leaves_no_queue_alone_and_no_message_out(tmp_path: Path) -> None:
    await weather(tmp_path, 60)
