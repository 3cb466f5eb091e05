"""Two masters of one name, in processes of their own: one of them serves (fault 41)."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import flaremq

from flaremq.client.sync import LitePullConsumer, Message, Producer
from flaremq.testing.cluster import Cluster, Process, ProcessFailed, eventually
from flaremq.testing.fakes.wireclient import EndsEarly, RefusedByServer, WireClient

SLAVE: dict[str, Any] = {"brokerName": "broker-a", "brokerRole": "SLAVE", "brokerId": 1}


async def is_copied(slave: Process, master: Process) -> bool:
    """Whether both have the same messages, and any at all."""
    try:
        async with WireClient() as wire:
            theirs, ours = [
                [message.body for message in await wire.read_all(f"127.0.0.1:{each.port}", "Orders", 0)]
                for each in (master, slave)
            ]
    except (RefusedByServer, EndsEarly):  # It knows a topic a moment after its master, or is just being cut.
        return False
    return bool(theirs) and theirs == ours


def send(namesrv: str, body: bytes) -> None:
    with Producer("p", namesrv=namesrv) as producer:
        producer.send(Message("Orders", body), to=producer.queues("Orders")[0])


def read(namesrv: str, count: int) -> list[bytes]:
    with LitePullConsumer("readers", namesrv=namesrv) as consumer:
        consumer.assign(consumer.queues("Orders")[:1])
        found: list[bytes] = []
        while len(found) < count:
            found += [message.body for message in consumer.poll(timeout_s=10)]
    return found


@asynccontextmanager
async def a_pair(folder: Path) -> AsyncIterator[tuple[Cluster, str, Process, Process]]:
    """Servers, their NameServer, a master with one message, and its slave, which is stopped with a copy."""
    with Cluster(folder) as cluster:
        namesrv = cluster.namesrv().address
        master = cluster.broker("broker-a", namesrv)
        slave = cluster.broker("slave", namesrv, **SLAVE)
        send(namesrv, b"one")
        await eventually("the slave has the message", lambda: is_copied(slave, master))
        slave.stop()
        yield cluster, namesrv, master, slave


def promote(slave: Process) -> str:
    """What is printed."""
    promoted = flaremq("broker", "promote", "-c", str(slave.folder / "conf.properties"), "--yes")
    assert promoted.status == 0, promoted.err
    return promoted.out


async def test_an_old_master_that_returns_to_a_promoted_slave_refuses_to_start_and_follows_it_as_a_slave(
    tmp_path: Path,
) -> None:
    async with a_pair(tmp_path) as (cluster, namesrv, old, slave):
        send(namesrv, b"only at the old master")
        old.kill()
        assert "(epoch 1)" in promote(slave)
        slave = cluster.again(slave)
        send(namesrv, b"two")

        with pytest.raises(ProcessFailed, match="was promoted in place of this broker"):
            cluster.again(old)
        slave.kill()
        with pytest.raises(ProcessFailed, match="If the promoted one is gone for good"):
            cluster.again(old)
        slave = cluster.again(slave)

        shown = flaremq("cluster", "ha", "-n", namesrv)
        assert "no slaves" in shown.out
        conf = old.folder / "conf.properties"
        conf.write_text(conf.read_text() + "\nbrokerRole=SLAVE\nbrokerId=1\n")
        old = cluster.again(old)
        await eventually("the old master follows", lambda: is_copied(old, slave))
        assert list((old.folder / "store" / "cut").iterdir()), "what only it had is kept"


async def test_a_master_that_meets_a_promoted_one_while_it_runs_serves_no_more_and_says_why(
    tmp_path: Path,
) -> None:
    """It was frozen, or cut off: whoever promoted the slave took it for dead."""
    async with a_pair(tmp_path) as (cluster, namesrv, old, slave):
        os.kill(old.pid, signal.SIGSTOP)
        promote(slave)
        cluster.again(slave)
        send(namesrv, b"two")
        os.kill(old.pid, signal.SIGCONT)

        address = f"127.0.0.1:{old.port}"

        async def yielded() -> bool:
            shown = flaremq("cluster", "ha", "-n", namesrv, "-b", address)
            return "serves no clients: a slave of broker-a was promoted in place of" in shown.err

        await eventually("the old master yields", yielded)
        shown = flaremq("cluster", "ha", "-n", namesrv)
        assert shown.status == 1
        assert "is not the only master of its name" in shown.err
        health = flaremq("cluster", "health", "-n", namesrv)
        assert "is not the only one of its name" in health.out + health.err
        assert sorted(read(namesrv, 2)) == [b"one", b"two"]
        send(namesrv, b"three")
