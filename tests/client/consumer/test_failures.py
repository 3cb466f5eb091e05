"""Brokers and NameServers that go away and come back: consumers go on, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.client.consumer.tools import Seen, a_topic, has_route, joined, numbered, owned, send

from flaremq.base.errors import FlareError
from flaremq.client.producer.producer import Producer
from flaremq.model.message import Message
from flaremq.testing.cluster import Cluster, eventually
from flaremq.testing.embedded import Embedded


@asynccontextmanager
async def load(producer: Producer, topic: str) -> AsyncIterator[list[bytes]]:
    """Messages, one after the other, as far as brokers take them; those that are stored."""
    sent, stop = list[bytes](), asyncio.Event()

    async def produce() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                await producer.send(Message(topic, b"%d" % number), timeout_s=2.0)
            except FlareError:
                continue
            sent.append(b"%d" % number)

    task = asyncio.create_task(produce())
    try:
        yield sent
    finally:
        stop.set()
        await task


def more_than(sent: list[bytes], count: int) -> Callable[[], Awaitable[bool]]:
    async def is_so() -> bool:
        return len(sent) > count

    return is_so


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_a_broker_that_restarts_under_load_loses_nothing(tmp_path: Path, orderly: bool) -> None:
    seen = Seen()
    async with Embedded(tmp_path, brokers=2) as servers, a_topic(servers, "T", 2) as producer:
        async with joined(servers, "G", "T", seen, orderly=orderly) as consumer, load(producer, "T") as sent:
            await seen.count(20)
            await servers.stop("broker-a")
            before = len(sent)
            await eventually("the other broker goes on", more_than(sent, before + 20))
            await servers.start("broker-a")
            await eventually("both go on", lambda: has_route(consumer.client, "T", 2))
            before = len(sent)
            await eventually("both go on", more_than(sent, before + 20))
        async with joined(servers, "G", "T", seen, orderly=orderly):
            await seen.all_of(sent)


async def test_a_broker_that_is_away_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    async with (
        Embedded(tmp_path, brokers=2) as servers,
        a_topic(servers, "T", 8) as producer,
        joined(servers, "G", "T", seen) as consumer,
    ):
        await owned(consumer, "T", 16)
        caplog.clear()
        await servers.stop("broker-b")
        await owned(consumer, "T", 8)
        await send(producer, "T", numbered(4))
        await seen.count(4)
    about_pulls = [each for each in caplog.records if "a pull at broker-b" in each.message]
    assert len(about_pulls) <= 2
    assert not [each for each in caplog.records if each.exc_info]


async def test_servers_that_are_killed_and_come_back_lose_nothing(tmp_path: Path) -> None:
    """Whole processes, killed as the kernel kills."""
    seen = Seen()
    with Cluster(tmp_path) as cluster:
        namesrv = await asyncio.to_thread(cluster.namesrv)
        broker = await asyncio.to_thread(cluster.broker, "broker-a", namesrv.address)
        servers = Processes(namesrv.address, [broker.address])
        async with a_topic(servers, "T", 2) as producer:
            async with joined(servers, "G", "T", seen), load(producer, "T") as sent:
                await seen.count(20)
                await asyncio.to_thread(namesrv.kill)
                before = len(sent)
                await eventually("nobody needs it", more_than(sent, before + 20))
                namesrv = await asyncio.to_thread(cluster.again, namesrv)
                await asyncio.to_thread(broker.kill)
                broker = await asyncio.to_thread(cluster.again, broker)
                before = len(sent)
                await eventually("it goes on", more_than(sent, before + 20))
            async with joined(servers, "G", "T", seen):
                await seen.all_of(sent)


async def test_a_consumer_may_start_before_its_servers(tmp_path: Path) -> None:
    seen = Seen()
    with Cluster(tmp_path) as cluster:
        namesrv = await asyncio.to_thread(cluster.namesrv)
        servers = Processes(namesrv.address, [])
        await asyncio.to_thread(namesrv.kill)
        async with joined(servers, "G", "T", seen):
            namesrv = await asyncio.to_thread(cluster.again, namesrv)
            broker = await asyncio.to_thread(cluster.broker, "broker-a", namesrv.address)
            servers.addresses.append(broker.address)
            async with a_topic(servers, "T", 2) as producer:
                await send(producer, "T", numbered(4))
                await seen.count(4)


class Processes:
    """Servers of which tests of clients need no more than where they are."""

    def __init__(self, namesrv: str, addresses: list[str]) -> None:
        self.namesrv = namesrv
        self.addresses = addresses
