"""Masters and slaves of both kinds that end and return in any order, or lose all, and readers far behind."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.cli.commands import flaremq
from tests.client.consumer.tools import a_topic
from tests.java.clients import JavaClients
from tests.java.peers import Peers, Server
from tests.java.test_replication import (
    JAVA,
    PAIRS,
    QUEUES,
    QUICK_ROUTES,
    TOPIC,
    Pair,
    Site,
    content,
    kind_of,
    runtime,
    same_log,
    send,
    sent,
)
from tests.java.toolchain import Toolchain

from flaremq.client.message import SendStatus
from flaremq.testing.cluster import eventually
from flaremq.testing.fakes.wireclient import WireClient

pytestmark = pytest.mark.java

STEPS = 5
MESSAGE = 2000
"""Bytes of each, at least."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("master_kind", "slave_kind"), PAIRS)
def test_the_logs_are_the_same_whoever_ends_and_returns_in_whatever_order(
    java_toolchain: Toolchain, tmp_path: Path, master_kind: str, slave_kind: str
) -> None:
    rng = random.Random(f"{master_kind} {slave_kind}")
    with Peers(tmp_path) as peers:
        pair = Pair(peers, java_toolchain, master_kind, slave_kind, "ASYNC_MASTER")
        servers, count = {0: pair.start(0), 1: pair.start(1)}, 0
        for _ in range(STEPS):
            ending = rng.choice([[0], [1], [0, 1], [1, 0]])
            for broker_id in ending:
                rng.choice([Server.stop, Server.kill])(servers[broker_id])
            if 0 not in ending:  # The slave misses something.
                send(pair.namesrv, count, 100)
                count += 100
            for broker_id in rng.sample(ending, len(ending)):
                servers[broker_id] = pair.start(broker_id)
            send(pair.namesrv, count, 100)
            count += 100
            same_log(servers[0], servers[1], count * MESSAGE)


# Fault 37: a slave that is longer than its master.


def emptied(pair: Pair, master: Server) -> Server:
    """The master, without anything that it had."""
    master.stop()
    shutil.rmtree(master.folder / "store")
    return pair.start(0)


def test_fault_37_ours_refuses_to_follow_a_java_master_that_has_lost_what_ours_has(
    java_toolchain: Toolchain, tmp_path: Path
) -> None:
    with Peers(tmp_path) as peers:
        pair = Pair(peers, java_toolchain, JAVA, "ours", "SYNC_MASTER")
        master, slave = pair.start(0), pair.start(1)
        send(pair.namesrv, 0, 300)
        same_log(master, slave, 300 * MESSAGE)
        before = content(slave)
        emptied(pair, master)

        async def is_shown() -> bool:
            shown = flaremq("cluster", "ha", "-n", pair.namesrv.address)
            return shown.status == 1 and "broker-a" in shown.err

        asyncio.run(eventually("the misfit is shown", is_shown))
        assert SendStatus.OK not in send(pair.namesrv, 300, 3)
        assert content(slave) == before


def test_fault_37_a_java_slave_that_is_longer_than_its_master_of_ours_never_counts(
    java_toolchain: Toolchain, tmp_path: Path
) -> None:
    with Peers(tmp_path) as peers:
        pair = Pair(peers, java_toolchain, "ours", JAVA, "SYNC_MASTER")
        master, slave = pair.start(0), pair.start(1)
        send(pair.namesrv, 0, 300)
        same_log(master, slave, 300 * MESSAGE)
        before = content(slave)
        master = emptied(pair, master)
        for number in range(300, 303):
            assert SendStatus.OK not in send(pair.namesrv, number, 1)
        assert b"message 302 " in content(master)
        assert content(slave) == before


# A backlog that is no longer in memory is read at the slave.


async def gets(broker: Server, wire: WireClient) -> int:
    """How many messages it has given since its start."""
    table = await runtime(broker, wire)
    return int(table.get("msgGetTotalTodayNow", "0"))


@pytest.mark.parametrize("kind", ["ours", JAVA])
async def test_a_java_consumer_that_is_far_behind_goes_to_the_slave_and_back(
    java_toolchain: Toolchain, tmp_path: Path, kind: str
) -> None:
    """For this master all that waits is too old for its memory, and for its slave nothing is."""
    with Peers(tmp_path) as peers, JavaClients(java_toolchain, JAVA) as java:
        site = Site(peers, kind_of(java_toolchain, kind), accessMessageInMemoryMaxRatio=0)
        java.namesrv = site.namesrv
        async with a_topic(site, TOPIC, QUEUES) as producer:
            bodies, _ = await sent(producer, 0, QUEUES)
            await site.slave_knows(QUEUES)
            bodies |= (await sent(producer, QUEUES, 996))[0]
            reader = await asyncio.to_thread(
                lambda: java.push(TOPIC, "G-java", **QUICK_ROUTES, pullBatchSize=4)
            )

            async def has_all() -> bool:
                theirs = await asyncio.to_thread(reader.received, 0, 0)
                return bodies <= {message.body for message in theirs}

            await eventually("the backlog is read", has_all, 90)
            async with WireClient() as wire:
                counts = [await gets(broker, wire) for broker in (site.master, site.slave)]
            assert min(counts) > len(bodies) / 3, "each sends it to the other one"
            theirs = await asyncio.to_thread(reader.received, 0, 0)
            assert Counter(message.body for message in theirs) == Counter(bodies)
            await asyncio.to_thread(reader.stop)
