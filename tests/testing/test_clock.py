"""A clock that a test moves, and what a broker makes of it."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from flaremq import ClientSettings, Message, Producer, PushConsumer, ReceivedMessage
from flaremq.base.errors import UsageError
from flaremq.model.message import MessageQueue
from flaremq.testing.clock import MovableClock, settle
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import Embedded
from flaremq.testing.fakes.wireclient import WireClient

QUEUE = MessageQueue("TopicTest", "broker-a", 0)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
async def servers(tmp_path: Path, clock: MovableClock) -> AsyncIterator[Embedded]:
    async with Embedded(tmp_path, clock=clock) as servers:
        yield servers


def test_both_clocks_run_on_and_are_ahead_by_what_was_added(clock: MovableClock) -> None:
    now_ms, since_s = clock.now_ms(), clock.monotonic_s()
    clock.advance(10)
    clock.advance(timedelta(hours=1))
    assert clock.now_ms() - now_ms >= 3_610_000
    assert 3610 <= clock.monotonic_s() - since_s < 3610 + 600


@pytest.mark.parametrize("by", [-1, math.nan, math.inf, timedelta(seconds=-1)])
def test_time_runs_one_way(clock: MovableClock, by: float | timedelta) -> None:
    with pytest.raises(UsageError, match="expected 0 or more"):
        clock.advance(by)


async def test_who_sleeps_wakes_when_his_time_has_come_and_not_before(clock: MovableClock) -> None:
    minute, day = (asyncio.ensure_future(clock.sleep(seconds)) for seconds in (60, 86_400))
    await settle()
    clock.advance(30)
    await settle()
    assert not minute.done()
    mover = threading.Thread(target=clock.advance, args=(30,))
    mover.start()
    mover.join()
    await asyncio.wait_for(minute, 60)
    assert not day.done()
    day.cancel()
    await asyncio.wait([day])
    clock.advance(86_400)  # Nobody is left to be woken.


async def test_without_help_a_sleep_ends_by_itself(clock: MovableClock) -> None:
    await asyncio.wait_for(clock.sleep(0.01), 60)
    await clock.sleep(0)


async def test_a_client_without_heartbeats_is_let_go(servers: Embedded, clock: MovableClock) -> None:
    (address,) = servers.addresses
    async with WireClient() as client, WireClient("other") as other:
        await client.heartbeat(address, "billing", "TopicTest")
        clock.advance(60)
        await other.heartbeat(address, "billing", "TopicTest")
        assert set(await other.members(address, "billing")) == {client.client_id, "other"}
        clock.advance(80)  # More than two minutes for one, less for the other.

        async def only_one() -> bool:
            return await other.members(address, "billing") == ("other",)

        await eventually("the silent one is let go", only_one)


async def test_a_lock_that_is_not_renewed_is_free_after_a_minute(
    servers: Embedded, clock: MovableClock
) -> None:
    (address,) = servers.addresses
    async with WireClient() as client, WireClient("other") as other:
        assert await client.lock(address, "billing", [QUEUE]) == {QUEUE}
        assert await other.lock(address, "billing", [QUEUE]) == set()
        clock.advance(61)
        assert await other.lock(address, "billing", [QUEUE]) == {QUEUE}


async def test_the_nameserver_does_not_forget_its_brokers_when_days_pass(
    servers: Embedded, clock: MovableClock
) -> None:
    (address,) = servers.addresses
    async with WireClient() as client:
        await client.send(address, "TopicTest", 0, b"hello")
        clock.advance(timedelta(days=7))
        await client.send(address, "TopicTest", 0, b"hello")
        assert await client.route(servers.namesrv, "TopicTest") is not None
        messages = await client.read_all(address, "TopicTest", 0)
        first, last = (each.store_timestamp_ms for each in messages)
        assert last - first >= 7 * 86_400_000


async def test_old_files_are_deleted_when_their_time_has_come(tmp_path: Path, clock: MovableClock) -> None:
    options = {
        "mappedFileSizeCommitLog": 64 << 10,
        "maxMessageSize": 16 << 10,
        "fileReservedTime": 48,
        "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
        "deleteCommitLogFilesInterval": 1,
    }
    async with Embedded(tmp_path, options=options, clock=clock) as servers, WireClient() as client:
        (address,), first = servers.addresses, servers.store() / "commitlog" / f"{0:020}"
        for _ in range(20):
            await client.send(address, "TopicTest", 0, bytes(8 << 10))
        assert first.exists()
        clock.advance(timedelta(hours=49))

        async def deleted() -> bool:
            return not first.exists() and (await client.bounds(address, "TopicTest", 0))[0] > 0

        await eventually("the first file is deleted, and its messages with it", deleted)


async def test_a_consumer_that_was_let_go_comes_back_with_its_next_heartbeat(
    servers: Embedded, clock: MovableClock
) -> None:
    bodies: list[bytes] = []
    settings = ClientSettings(namesrv=servers.namesrv, heartbeat_s=0.1)
    consumer = PushConsumer("billing", client=settings)

    @consumer.subscribe("TopicTest")
    async def handle(message: ReceivedMessage) -> None:
        bodies.append(message.body)

    async def has(body: bytes) -> bool:
        return body in bodies

    async with Producer("shop", servers.namesrv) as producer:
        await producer.send(Message("TopicTest", b"before"))
        async with consumer:
            await eventually("the consumer works", lambda: has(b"before"))
            clock.advance(timedelta(hours=1))
            await producer.send(Message("TopicTest", b"after"))
            await eventually("the consumer works again", lambda: has(b"after"))
