"""Masters and slaves in processes of their own: killed, frozen, cut off and emptied (faults 1, 17, 37 and
39)."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import flaremq
from tests.cluster.cable import Cable

from flaremq.client.message import SendStatus
from flaremq.client.sync import Message, Producer
from flaremq.store.offline.folder import OfflineStore
from flaremq.testing.cluster import Cluster, Process, eventually
from flaremq.testing.fakes.wireclient import RefusedByServer, WireClient

SLAVE: dict[str, Any] = {"brokerName": "broker-a", "brokerRole": "SLAVE", "brokerId": 1}
SYNC: dict[str, Any] = {"brokerRole": "SYNC_MASTER", "slaveTimeout": 500}


def send(namesrv: str, *bodies: bytes) -> list[SendStatus]:
    with Producer("p", namesrv=namesrv) as producer:
        return [producer.send(Message("Orders", body)).status for body in bodies]


async def answers_ok(namesrv: str) -> None:
    async def is_ok() -> bool:
        return send(namesrv, b"asks") == [SendStatus.OK]

    await eventually("the slave acknowledges", is_ok)


async def has_all(slave: Process, master: Process) -> None:
    """All queues of the slave end where those of its master do."""

    async def has() -> bool:
        async with WireClient() as wire:
            try:
                ends = [
                    [await wire.bounds(each.address, "Orders", n) for n in range(4)]
                    for each in (slave, master)
                ]
            except RefusedByServer:
                return False
        return ends[0] == ends[1]

    await eventually("the slave has all", has)


def log_of(process: Process) -> bytes:
    """All bytes of a stopped broker's log."""
    end = OfflineStore(process.store).facts().log_end
    return b"".join(path.read_bytes() for path in sorted((process.store / "commitlog").iterdir()))[:end]


async def test_a_frozen_slave_is_late_counts_for_nothing_and_catches_up(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = cluster.namesrv().address
        master = cluster.broker("broker-a", namesrv, **SYNC)
        slave = cluster.broker("slave", namesrv, **SLAVE)
        await answers_ok(namesrv)
        os.kill(slave.pid, signal.SIGSTOP)
        assert send(namesrv, b"one", b"two") == [SendStatus.SLAVE_LATE] * 2
        os.kill(slave.pid, signal.SIGCONT)
        await answers_ok(namesrv)
        await has_all(slave, master)
        stop_with_one_log(master, slave)


def stop_with_one_log(master: Process, slave: Process) -> None:
    master.stop()
    slave.stop()
    assert log_of(master) == log_of(slave)


@pytest.mark.parametrize(
    "resets",
    [
        pytest.param(False, id="goes on", marks=pytest.mark.slow),
        pytest.param(True, id="is made again"),
    ],
)
async def test_a_slave_behind_a_pulled_cable_counts_for_nothing_and_catches_up(
    tmp_path: Path, resets: bool
) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = cluster.namesrv().address
        master = cluster.broker("broker-a", namesrv, **SYNC)
        with Cable(f"127.0.0.1:{master.port + 1}") as cable:
            slave = cluster.broker("slave", namesrv, haMasterAddress=cable.address, **SLAVE)
            await answers_ok(namesrv)
            cable.pull()
            assert send(namesrv, b"one", b"two") == [SendStatus.SLAVE_LATE] * 2
            if resets:
                cable.reset()
            cable.plug()
            await answers_ok(namesrv)
            await has_all(slave, master)
            stop_with_one_log(master, slave)
        assert not (slave.store / "cut").exists()


async def test_logs_stay_the_same_when_master_and_slave_are_frozen_and_killed_in_turn(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = cluster.namesrv().address
        master = cluster.broker("broker-a", namesrv, **SYNC)
        slave = cluster.broker("slave", namesrv, **SLAVE)
        await answers_ok(namesrv)
        os.kill(master.pid, signal.SIGSTOP)
        slave.kill()
        slave = cluster.again(slave)
        os.kill(master.pid, signal.SIGCONT)
        await answers_ok(namesrv)
        master.kill()
        master = cluster.again(master)
        await answers_ok(namesrv)
        slave.kill()
        assert SendStatus.OK not in send(namesrv, b"alone")
        slave = cluster.again(slave)
        await answers_ok(namesrv)
        await has_all(slave, master)
        stop_with_one_log(master, slave)
        assert not (slave.store / "cut").exists()


async def test_a_slave_that_is_longer_than_its_emptied_master_is_refused_and_never_counts(
    tmp_path: Path,
) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = cluster.namesrv().address
        master = cluster.broker("broker-a", namesrv, **SYNC)
        slave = cluster.broker("slave", namesrv, **SLAVE)
        await answers_ok(namesrv)
        master.stop()
        shutil.rmtree(master.store)
        master = cluster.again(master)

        async def is_shown() -> bool:
            shown = flaremq("cluster", "ha", "-n", namesrv)
            return shown.status == 1 and "have nothing in common" in shown.err

        assert SendStatus.OK not in send(namesrv, b"new one", b"new two")
        await eventually("the misfit is shown", is_shown)
        assert SendStatus.OK not in send(namesrv, b"new three")
        master.stop()
        slave.stop()
        assert b"asks" in log_of(slave) and b"new" not in log_of(slave)
        assert not (slave.store / "cut").exists()
