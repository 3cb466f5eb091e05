"""Disks that are slow, files that are cut, and folders that are restored from a backup."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pytest
from tests.testing.sim.scenes import bodies, followed, queue_of

from flaremq import Message, Producer
from flaremq.client.message import SendStatus
from flaremq.client.settings import ProducerSettings
from flaremq.testing.sim.world import Machine, Simulation

SYNC_S: Final = 2.0
SAFE: Final = {"flushDiskType": "SYNC_FLUSH", "brokerRole": "SYNC_MASTER"}


class Asking:
    """Sends several at a time, and takes down what became of each, and how long it took."""

    def __init__(self, sim: Simulation, machine: Machine) -> None:
        self._sim = sim
        self._machine = machine
        self.answers: list[tuple[SendStatus, float]] = []
        self.acknowledged: list[bytes] = []

    async def send(self, name: str, count: int = 5) -> list[tuple[SendStatus, float]]:
        await self._machine.do(self._send([f"{name} {number}".encode() for number in range(count)]))
        found, self.answers = self.answers, []
        return found

    async def _send(self, values: list[bytes]) -> None:
        settings = ProducerSettings(timeout_s=10.0, attempts=1, compress_over=1 << 20)
        async with (
            self._sim.client(self._machine) as client,
            Producer("p", settings=settings, client=client) as producer,
        ):
            await asyncio.gather(*(self._one(producer, value) for value in values))

    async def _one(self, producer: Producer, value: bytes) -> None:
        began_s = self._sim.loop.now_s
        receipt = await producer.send(Message("Orders", value), to=queue_of("broker-a"))
        if receipt.status is SendStatus.OK:
            self.acknowledged.append(value)
        self.answers.append((receipt.status, self._sim.loop.now_s - began_s))


@dataclass(frozen=True)
class Slow:
    """Whose disk is slow, how the master is configured, and what producers are told when."""

    who: tuple[str, ...]
    options: Mapping[str, object]
    status: SendStatus
    between_s: tuple[float, float]


SLOW: Final = {
    "a master alone": Slow(
        ("broker-a",),
        {"brokerRole": "ASYNC_MASTER", "syncFlushTimeout": 1000},
        SendStatus.FLUSH_LATE,
        (1.0, 1.1),
    ),
    # Its slaves are given what it has on the disk.
    "a master": Slow(("broker-a",), {"syncFlushTimeout": 1000}, SendStatus.FLUSH_LATE, (SYNC_S, 3.0)),
    "a slave": Slow(("broker-a-slave-1",), {"slaveTimeout": 1000}, SendStatus.SLAVE_LATE, (1.0, 1.1)),
    "both": Slow(
        ("broker-a", "broker-a-slave-1"),
        {"syncFlushTimeout": 1000, "slaveTimeout": 1500},
        SendStatus.SLAVE_LATE,
        (1.5, 1.6),
    ),
    "a master with patience": Slow(
        ("broker-a",), {"slaveTimeout": 8000}, SendStatus.OK, (SYNC_S, 2 * SYNC_S)
    ),
    "a slave with patience": Slow(
        ("broker-a-slave-1",), {"slaveTimeout": 8000}, SendStatus.OK, (SYNC_S, 2 * SYNC_S)
    ),
}


@pytest.mark.parametrize("slow", SLOW.values(), ids=SLOW)
def test_fault_9_a_send_to_a_slow_disk_is_answered_by_its_deadline_and_a_timeout_is_no_success(
    slow: Slow,
) -> None:
    async def scenario(sim: Simulation) -> tuple[list[tuple[SendStatus, float]], list[bytes], list[bytes]]:
        await sim.start()
        (master,), (slave,), machine = sim.brokers, sim.slaves, sim.client_machine("shop")
        await machine.start()
        await followed(sim, master, slave)
        asking = Asking(sim, machine)
        assert {answer for answer, _ in await asking.send("before")} == {SendStatus.OK}
        for name in slow.who:
            sim.machines[name].disk.sync_s = SYNC_S
        found = await asking.send("slow")
        for each in (master, slave):
            each.lose_power()
            each.disk.sync_s = 0.0
        await master.start()
        await slave.start()
        await followed(sim, master, slave)
        assert {answer for answer, _ in await asking.send("after")} == {SendStatus.OK}
        return found, asking.acknowledged, bodies(sim, slave)

    with Simulation(9, slaves=1, options={**SAFE, **slow.options}) as sim:
        found, acknowledged, kept = sim.run(scenario(sim))
    assert {answer for answer, _ in found} == {slow.status}
    least_s, most_s = slow.between_s
    assert all(least_s <= took_s <= most_s for _, took_s in found), found
    assert set(acknowledged) <= set(kept)
