"""Numbered messages and a broker that is killed or stopped: each is stored once, across the restart."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from flaremq import Message, Producer, ProducerSettings
from flaremq.testing.cluster import Cluster
from flaremq.testing.fakes.wireclient import WireClient

TOPIC = "Once"
QUEUES = 4
FIRST = 1 << 40


@pytest.mark.parametrize(
    ("how", "flush"),
    [
        ("kill", "SYNC_FLUSH"),
        pytest.param("kill", "ASYNC_FLUSH", marks=pytest.mark.slow),
        pytest.param("stop", "ASYNC_FLUSH", marks=pytest.mark.slow),
    ],
)
async def test_sends_that_a_restart_interrupts_are_stored_once(tmp_path: Path, how: str, flush: str) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = await asyncio.to_thread(cluster.namesrv)
        broker = await asyncio.to_thread(cluster.broker, "broker-a", namesrv.address, flushDiskType=flush)
        async with WireClient() as wire:
            await wire.create_topic(broker.address, TOPIC, QUEUES)

            async def found() -> list[int]:
                records = [await wire.read_all(broker.address, TOPIC, queue) for queue in range(QUEUES)]
                return sorted(int(record.body) for queue in records for record in queue)

            is_over, begun = False, asyncio.Event()

            def stream() -> Iterator[Message]:
                """Goes on until the broker is back."""
                for number in itertools.count():
                    yield Message(TOPIC, b"%d" % number)
                    if number == 500:
                        begun.set()
                    if is_over:
                        return

            settings = ProducerSettings(timeout_s=30, window=200)
            async with (
                Producer("g", namesrv.address, producer_id="p", settings=settings) as producer,
                Producer("g2", namesrv.address, producer_id="q", settings=settings) as other,
            ):
                first = await other.send(Message(TOPIC, b"%d" % FIRST, sequence=1))
                sending = asyncio.create_task(producer.send_many(stream()))
                await begun.wait()
                await asyncio.to_thread(broker.kill if how == "kill" else broker.stop)
                broker = await asyncio.to_thread(cluster.again, broker)
                is_over = True
                receipts = await sending
                again = await other.send(Message(TOPIC, b"%d" % FIRST, sequence=1))
            assert again.is_repeated
            assert again.offset_id == first.offset_id
            assert await found() == [*range(len(receipts)), FIRST]
            assert len({receipt.offset_id for receipt in receipts}) == len(receipts)
