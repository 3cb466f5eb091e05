"""A broker that is killed at any moment, again and again, under load: nothing acknowledged is lost.

Killed is not powered off: what was written is in the page cache and survives, flushed or not. So the
same holds in both flush modes: what a producer was told is stored, and what a consumer has read, lies
at the same offset of the same queue after the restart.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from tests.cluster.load import Load, Notes, stored

from flaremq.testing.cluster import Cluster
from flaremq.testing.fakes.wireclient import WireClient

TOPIC = "TopicKill"
QUEUES = 4


async def kill_again_and_again(folder: Path, flush: str, rounds: int) -> None:
    rng, notes = random.Random(flush), Notes()
    with Cluster(folder) as cluster:
        namesrv = await asyncio.to_thread(cluster.namesrv)
        broker = await asyncio.to_thread(
            cluster.broker, "broker-a", namesrv.address, flushDiskType=flush, mappedFileSizeCommitLog=8 << 20
        )
        async with WireClient() as client:
            await client.create_topic(broker.address, TOPIC, QUEUES)
            async with Load(TOPIC, [namesrv.address], notes) as load:
                load.produce("p1", "p2", "p3", "p4")
                load.consume("GID_1", "GID_2")
                for _ in range(rounds):
                    await load.more(rng.randrange(50, 400))
                    await asyncio.to_thread(broker.kill)
                    broker = await asyncio.to_thread(cluster.again, broker)
                    await load.more(20)
                    told = notes.until_now()
                    told.check(await stored(client, TOPIC, {"broker-a": broker.address}, QUEUES))
                await load.stop_sending()
                await load.all_read("GID_1", "GID_2")
            notes.check(await stored(client, TOPIC, {"broker-a": broker.address}, QUEUES))
            notes.check_all_read()
        assert notes.refused  # It was killed under load, not beside it.
        assert "Traceback" not in "\n".join(broker.lines)


async def test_what_was_told_holds_after_a_kill(tmp_path: Path) -> None:
    await kill_again_and_again(tmp_path, "SYNC_FLUSH", 2)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_what_was_told_holds_after_many_kills(tmp_path: Path, flush: str) -> None:
    await kill_again_and_again(tmp_path, flush, 20)
