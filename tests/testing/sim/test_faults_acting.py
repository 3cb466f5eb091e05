"""A slave acts for its master, which is gone, and the master takes over again when it is back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tests.testing.sim.scenes import EAGER, committed, part_of, queue_of, until

from flaremq import Message, Producer, PushConsumer
from flaremq.broker.replicas.duty import Duty
from flaremq.client.message import ReceivedMessage, SendStatus
from flaremq.servers.together import Broker
from flaremq.testing.sim.world import Machine, Simulation

ACTING: Final[Mapping[str, object]] = {
    "timerWheelEnable": True,
    "enableSlaveActingMaster": True,
    "enableRemoteEscape": True,
    "flushDiskType": "SYNC_FLUSH",
    "brokerRole": "SYNC_MASTER",
}
LEVEL, LEVEL_S = 4, 30
COUNT: Final = 30
BEGUN_S: Final = 5.0
"""After so long a slave has noticed that its master is gone, and acts."""


@dataclass
class Shop:
    """Messages to both brokers that wait, and when and where each came."""

    sim: Simulation
    machine: Machine
    due_s: dict[str, float] = field(default_factory=dict)
    waits_at: dict[str, str] = field(default_factory=dict)
    """The broker to which it was sent."""
    handled: list[tuple[str, float, str]] = field(default_factory=list)
    """What, when, and at which broker."""
    read_late: set[str] = field(default_factory=set)
    """By a group that begins while the master is gone."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def program(self) -> None:
        async with (
            self.sim.client(self.machine, heartbeat_s=2.0, refresh_s=2.0) as client,
            Producer("p", client=client) as producer,
        ):
            await producer.queues("Orders")
            consumer = PushConsumer("timers", settings=EAGER, client=client)
            consumer.subscribe("Orders")(self._handle)
            async with consumer:
                for number in range(COUNT):
                    name = f"broker-{'ab'[number % 2]}"
                    await self._send(producer, name, f"plain {number}", Message("Orders", b""))
                    delay_s = 4 + number
                    timer = Message("Orders", b"", delay_s=delay_s)
                    await self._send(producer, name, f"timer {number}", timer, delay_s)
                for number in range(4):
                    level, name = Message("Orders", b"", delay_level=LEVEL), f"broker-{'ab'[number % 2]}"
                    await self._send(producer, name, f"level {number}", level, LEVEL_S)
                await self.closing.wait()

    async def _send(
        self, producer: Producer, name: str, value: str, message: Message, delay_s: float = 0.0
    ) -> None:
        self.due_s[value], self.waits_at[value] = self.sim.loop.now_s + delay_s, name
        receipt = await producer.send(replace(message, body=value.encode()), to=queue_of(name))
        assert receipt.status is SendStatus.OK

    async def _handle(self, message: ReceivedMessage) -> None:
        self.handled.append((message.body.decode(), self.sim.loop.now_s, message.queue.broker_name))

    async def late_group(self) -> None:
        async def handle(message: ReceivedMessage) -> None:
            self.read_late.add(message.body.decode())

        async with self.sim.client(self.machine, heartbeat_s=2.0, refresh_s=2.0) as client:
            consumer = PushConsumer("late", settings=EAGER, client=client)
            consumer.subscribe("Orders")(handle)
            async with consumer:
                await until(
                    self.sim, lambda: {f"plain {number}" for number in range(COUNT)} <= self.read_late
                )
                await self.sim.passes(3.0)

    def waiting(self, name: str, from_s: float, to_s: float) -> set[str]:
        """What was sent to a broker and is due in this time."""
        return {
            value
            for value, at_s in self.due_s.items()
            if self.waits_at[value] == name and from_s <= at_s < to_s and not value.startswith("plain")
        }


def progress_of(broker: Broker) -> dict[str, int]:
    """How far the late group is in each queue, and the delay level."""
    offsets = committed(broker, "late", "Orders")
    return {f"queue {queue_id}": offset for queue_id, offset in offsets.items()} | {
        "level": broker.tables.delays.get(LEVEL)
    }


def test_fault_48_a_slave_that_acts_for_its_master_delivers_what_waits_there_and_hands_back() -> None:
    """To the other broker, nothing before its time, and nothing once more when the master is back."""

    async def scenario(sim: Simulation) -> tuple[Shop, set[str]]:
        await sim.start()
        (master, _), slave = sim.brokers, sim.slaves[0]
        machine = sim.client_machine("shop")
        await machine.start()
        shop = Shop(sim, machine)
        work = asyncio.create_task(machine.do(shop.program()))
        await sim.passes(10.0)
        master.kill()
        gone_s = sim.loop.now_s
        await machine.do(shop.late_group())
        await until(sim, lambda: sim.loop.now_s > gone_s + 35.0)
        meant = shop.waiting("broker-a", gone_s + BEGUN_S, gone_s + 30.0)
        came = {value: name for value, at_s, name in shop.handled if at_s > gone_s}
        assert len(meant) > 8 and {"level 0", "level 2"} <= meant
        assert meant <= came.keys(), f"{sorted(meant - came.keys())} waited while their master was away"
        assert {came[value] for value in meant} == {"broker-b"}
        at_slave = progress_of(sim.running[slave.name])
        end = sim.running[slave.name].store.max_offset(b"Orders", 0)
        assert (at_slave["queue 0"], at_slave["level"]) == (end, 2) and end > COUNT // 2
        await master.start()
        returned = sim.running[master.name]
        assert not committed(returned, "late", "Orders")
        await until(sim, lambda: not part_of(returned, Duty).isolated)
        assert progress_of(returned) == at_slave
        await sim.passes(20.0)
        shop.closing.set()
        await work
        return shop, meant

    with Simulation(
        15, brokers=2, slaves=1, options=ACTING, namesrv_options={"supportActingMaster": True}
    ) as sim:
        shop, meant = sim.run(scenario(sim))
    counts = Counter(value for value, _, _ in shop.handled)
    assert not shop.due_s.keys() - {value for value, _, _ in shop.handled}
    assert {counts[value] for value in meant} == {1}, "the master has delivered once more what its slave had"
    early = [(value, at_s) for value, at_s, _ in shop.handled if at_s < shop.due_s[value] - 0.002]
    assert not early
