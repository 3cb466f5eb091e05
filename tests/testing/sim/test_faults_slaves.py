"""What a master makes of slaves that fall silent, and what consumers make of a slave whose master is away."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import pytest
from tests.broker.replicas.pairs import replication
from tests.testing.sim.scenes import (
    Asking,
    bodies,
    committed,
    consuming,
    followed,
    log_bytes,
    sent,
    until,
)  # fmt: skip
from tests.testing.sim.test_faults import caught_up

from flaremq import Message
from flaremq.client.message import SendStatus
from flaremq.testing.sim.world import Machine, Simulation

SAFE: Final[Mapping[str, object]] = {
    "flushDiskType": "SYNC_FLUSH",
    "brokerRole": "SYNC_MASTER",
    "slaveTimeout": 3000,
    "haSendHeartbeatInterval": 5000,
    "haHousekeepingInterval": 20_000,
}
HA_PORT: Final = 10912
SOON_S: Final = 0.1


def connections(sim: Simulation, master: Machine) -> int:
    """Of slaves, those that are dead and not yet noticed among them."""
    found = replication(sim.running[master.name]).master
    assert found is not None
    return len(found.status().followers)


@pytest.mark.parametrize("silent", ["reports", "chunks"])
def test_fault_39_in_twenty_seconds_of_silence_each_put_ends_by_its_own_deadline(silent: str) -> None:
    """With FLUSH_SLAVE_TIMEOUT while the slave is still connected, and with SLAVE_NOT_AVAILABLE at once when
    its silence has lasted so long that the connection is closed."""

    async def scenario(sim: Simulation) -> None:
        await sim.start()
        (master,), (slave,), machine = sim.brokers, sim.slaves, sim.client_machine("shop")
        await machine.start()
        await followed(sim, master, slave)
        asking = Asking(sim, machine)
        assert {answer for answer, _ in await asking.send("before", 10)} == {SendStatus.OK}
        await caught_up(sim)
        source, target = (slave, master) if silent == "reports" else (master, slave)
        sim.wires.cut([source.ip], [target.ip], one_way=True)
        began_s = sim.loop.now_s
        late = await asking.send("silence", 12, every_s=1.1)
        assert sim.loop.now_s - began_s < 20.0
        assert {answer for answer, _ in late} == {SendStatus.SLAVE_LATE}
        assert all(3.0 <= took_s < 3.0 + SOON_S for _, took_s in late), late
        await until(sim, lambda: not connections(sim, master), 30.0)
        absent = await asking.send("absent", 5, every_s=0.3)
        assert {answer for answer, _ in absent} == {SendStatus.NO_SLAVE}
        assert all(took_s < SOON_S for _, took_s in absent), absent
        sim.wires.heal()
        await followed(sim, master, slave)
        await caught_up(sim)
        assert {answer for answer, _ in await asking.send("after")} == {SendStatus.OK}
        await caught_up(sim)
        assert log_bytes(sim, slave) == log_bytes(sim, master)

    with Simulation(39, slaves=1, options=SAFE) as sim:
        sim.run(scenario(sim))


class Mute(asyncio.BufferedProtocol):
    """Connects as a slave would, and says nothing."""

    def __init__(self) -> None:
        self._buffer = bytearray(1 << 16)

    def get_buffer(self, _size: int) -> bytearray:
        return self._buffer


def test_fault_39_a_connection_that_never_reports_counts_for_no_put() -> None:
    async def scenario(sim: Simulation) -> list[tuple[SendStatus, float]]:
        await sim.start()
        (master,), (slave,), machine = sim.brokers, sim.slaves, sim.client_machine("shop")
        await machine.start()
        await followed(sim, master, slave)
        await sim.stop_broker(slave)
        await machine.do(machine.network.connect(master.ip, HA_PORT, Mute, None))
        await until(sim, lambda: connections(sim, master) == 1)
        return await Asking(sim, machine).send("alone")

    with Simulation(39, slaves=1, options=SAFE) as sim:
        found = sim.run(scenario(sim))
    assert {answer for answer, _ in found} == {SendStatus.NO_SLAVE}
    assert all(took_s < SOON_S for _, took_s in found), found


def test_fault_39_two_connections_of_one_slave_are_one_slave() -> None:
    """Two slaves must have a message. One is away, and the other one has it, loses its power and comes back
    before its master has noticed: then two connections have reported it."""

    async def scenario(sim: Simulation) -> list[tuple[SendStatus, float]]:
        await sim.start()
        (master,), (slave, away), machine = sim.brokers, sim.slaves, sim.client_machine("shop")
        await machine.start()
        await followed(sim, master, slave)
        await followed(sim, master, away)
        asking = Asking(sim, machine)
        assert {answer for answer, _ in await asking.send("before")} == {SendStatus.OK}
        away.kill()
        await until(sim, lambda: connections(sim, master) == 1)
        waiting = asyncio.create_task(asking.send("two connections"))
        await sim.passes(1.0)
        assert log_bytes(sim, slave) == log_bytes(sim, master)
        slave.lose_power()
        await slave.start()
        await until(sim, lambda: connections(sim, master) == 2)
        await sim.passes(1.0)
        assert connections(sim, master) == 2
        return await waiting

    with Simulation(40, slaves=2, options={**SAFE, "inSyncReplicas": 3, "slaveTimeout": 9500}) as sim:
        found = sim.run(scenario(sim))
    assert {answer for answer, _ in found} == {SendStatus.SLAVE_LATE}
    assert all(9.5 <= took_s < 9.5 + SOON_S for _, took_s in found), found


def numbered(first: int, last: int) -> list[Message]:
    return [Message("Orders", str(number).encode()) for number in range(first, last)]


def test_faults_25_and_40_consumers_read_at_the_slave_while_the_master_is_away_and_go_on_at_it() -> None:
    """No message is skipped, none comes again, and a slave without news is not asked all the time."""

    async def scenario(sim: Simulation) -> tuple[list[str], list[str], list[str]]:
        await sim.start()
        (master,), (slave,), machine = sim.brokers, sim.slaves, sim.client_machine("shop")
        await machine.start()
        await followed(sim, master, slave)
        await machine.do(sent(sim, machine, numbered(0, 20)))
        async with consuming(sim, machine) as first:
            await until(sim, lambda: len(first) == 20)
            await sim.passes(12.0)
        assert committed(sim.running[master.name], "all", "Orders")[0] == 20
        await machine.do(sent(sim, machine, numbered(20, 50)))
        await caught_up(sim)
        master.kill()
        async with consuming(sim, machine) as found:
            await until(sim, lambda: len(found) == 30)
            assert not master.is_running
            assert [each.value for each in found] == [str(number) for number in range(20, 50)]
            await until(sim, lambda: committed(sim.running[slave.name], "all", "Orders")[0] == 50)
            events = sim.events.count
            await sim.passes(20.0)
            assert sim.events.count - events < 400, "somebody is asked in a tight loop"
            await master.start()
            await followed(sim, master, slave)
            await machine.do(sent(sim, machine, numbered(50, 60)))
            await until(sim, lambda: len(found) == 40)
            await sim.passes(12.0)
        assert committed(sim.running[master.name], "all", "Orders")[0] == 60
        async with consuming(sim, machine) as last:
            await machine.do(sent(sim, machine, numbered(60, 65)))
            await until(sim, lambda: len(last) >= 5)
            await sim.passes(5.0)
        return (
            [each.value for each in found],
            [each.value for each in last],
            [body.decode() for body in bodies(sim, slave)],
        )

    with Simulation(25, slaves=1, options=SAFE) as sim:
        found, last, at_slave = sim.run(scenario(sim))
    assert found == [str(number) for number in range(20, 60)]
    assert last == [str(number) for number in range(60, 65)]
    assert at_slave == [str(number) for number in range(65)]
