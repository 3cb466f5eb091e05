"""A broker whose folder is restored from an old backup."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Final

import pytest
from tests.testing.sim.scenes import (
    bodies,
    committed,
    consuming,
    followed,
    log_bytes,
    queue_of,
    sent,
    slave_state,
    until,
)  # fmt: skip
from tests.testing.sim.test_faults import caught_up, some_sends

from flaremq import Message
from flaremq.base.errors import ConfigError
from flaremq.client.message import SendStatus
from flaremq.ha.states import FollowState
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers.topic import DeleteTopicRequestHeader
from flaremq.testing.sim.world import Machine, Simulation

SAFE: Final[Mapping[str, object]] = {"flushDiskType": "SYNC_FLUSH", "brokerRole": "SYNC_MASTER"}


def numbered(first: int, last: int, topic: str = "Orders") -> list[Message]:
    return [Message(topic, str(number).encode().ljust(500)) for number in range(first, last)]


class Backup:
    """The folder of a broker as it was once; taken and given back while nothing runs on it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._kept = machine.sim.folder / f"backup of {machine.name}"
        assert not machine.is_running
        shutil.copytree(machine.folder, self._kept)

    def restore(self) -> None:
        assert not self._machine.is_running
        shutil.rmtree(self._machine.folder)
        shutil.copytree(self._kept, self._machine.folder)


async def stopped(sim: Simulation, machine: Machine) -> Machine:
    await sim.stop_broker(machine)
    return machine


async def deleted(sim: Simulation, machine: Machine, topic: str) -> None:
    async with sim.client(machine) as client:
        header = DeleteTopicRequestHeader(topic=topic)
        await client.api.ask("10.0.1.1:10911", RequestCode.DELETE_TOPIC_IN_BROKER, header)


def test_fault_13_a_restored_slave_gets_what_it_lacks_and_brings_nothing_back() -> None:
    """A topic that was deleted since then, and offsets that have moved since then, stay as they are."""

    async def scenario(sim: Simulation) -> None:
        await sim.start()
        (master,), (slave,), machine = sim.brokers, sim.slaves, sim.client_machine("shop")
        await machine.start()
        await followed(sim, master, slave)
        await machine.do(sent(sim, machine, numbered(0, 20)))
        await machine.do(sent(sim, machine, numbered(0, 5, "Gone"), queue_of("broker-a", topic="Gone")))
        await caught_up(sim)
        await until(sim, lambda: sim.running[slave.name].tables.topics.get("Gone") is not None)
        backup = Backup(await stopped(sim, slave))
        await slave.start()
        await followed(sim, master, slave)
        await machine.do(deleted(sim, machine, "Gone"))
        await machine.do(sent(sim, machine, numbered(20, 40)))
        async with consuming(sim, machine) as found:
            await until(sim, lambda: len(found) == 40)
            await sim.passes(10.0)
        await caught_up(sim)
        await sim.stop_broker(slave)
        backup.restore()
        await slave.start()
        await followed(sim, master, slave)
        await caught_up(sim)
        await until(sim, lambda: sim.running[slave.name].tables.topics.get("Gone") is None)
        assert log_bytes(sim, slave) == log_bytes(sim, master)
        assert bodies(sim, slave) == bodies(sim, master) == [each.body for each in numbered(0, 40)]
        for each in (master, slave):
            assert sim.running[each.name].tables.topics.get("Gone") is None
            assert committed(sim.running[each.name], "all", "Orders")[0] == 40

    with Simulation(5, slaves=1, options=SAFE) as sim:
        sim.run(scenario(sim))


async def promoted(sim: Simulation, new: Machine, old: Machine) -> None:
    """Start a slave as the master. The other one is its slave from the next start on."""
    sim.reconfigure(new, brokerId=0, brokerRole="ASYNC_MASTER")
    sim.reconfigure(old, brokerId=1, brokerRole="SLAVE")
    if new.is_running:
        await sim.stop_broker(new)
    await new.start()


def test_fault_13_a_restored_master_counts_no_slave_and_the_slave_loses_nothing() -> None:
    async def scenario(sim: Simulation) -> list[SendStatus]:
        await sim.start()
        (old,), (new,), machine = sim.brokers, sim.slaves, sim.client_machine("shop")
        await machine.start()
        await followed(sim, old, new)
        await machine.do(sent(sim, machine, numbered(0, 20)))
        await caught_up(sim)
        backup = Backup(await stopped(sim, old))
        await old.start()
        await followed(sim, old, new)
        await machine.do(sent(sim, machine, numbered(20, 40)))
        await caught_up(sim)
        had = log_bytes(sim, new)
        await sim.stop_broker(old)
        backup.restore()
        await old.start()
        await until(sim, lambda: slave_state(sim, new)[0] is FollowState.REFUSED)
        statuses = await machine.do(some_sends(sim, machine, 3))
        assert log_bytes(sim, new) == had, "two histories were mixed"
        await sim.stop_broker(old)
        await promoted(sim, new, old)
        await old.start()
        await followed(sim, new, old)
        await machine.do(sent(sim, machine, numbered(40, 50)))
        await caught_up(sim)
        assert log_bytes(sim, old) == log_bytes(sim, new) and log_bytes(sim, new).startswith(had)
        assert bodies(sim, old) == bodies(sim, new) == [each.body for each in numbered(0, 50)]
        return statuses

    with Simulation(6, slaves=1, options=SAFE) as sim:
        assert set(sim.run(scenario(sim))) == {SendStatus.NO_SLAVE}


def test_fault_13_an_old_master_with_messages_that_were_given_up_does_not_bring_them_back() -> None:
    """Its backup is from before it had a successor: it does not serve, and follows as any slave."""

    async def scenario(sim: Simulation) -> None:
        await sim.start()
        (old,), (new,), machine = sim.brokers, sim.slaves, sim.client_machine("shop")
        await machine.start()
        await followed(sim, old, new)
        await machine.do(sent(sim, machine, numbered(0, 20)))
        await caught_up(sim)
        sim.wires.cut([old.ip], [new.ip])
        await machine.do(sent(sim, machine, numbered(900, 920)))
        backup = Backup(await stopped(sim, old))
        sim.wires.heal()
        await promoted(sim, new, old)
        await machine.do(sent(sim, machine, numbered(20, 30)))
        await old.start()
        await followed(sim, new, old)
        await caught_up(sim)
        for begins_as_master in (True, False):
            await sim.stop_broker(old)
            backup.restore()
            sim.reconfigure(old, brokerId=0 if begins_as_master else 1)
            sim.reconfigure(old, brokerRole="ASYNC_MASTER" if begins_as_master else "SLAVE")
            if begins_as_master:
                with pytest.raises(ConfigError, match="was promoted in place of this broker"):
                    await old.start()
                sim.reconfigure(old, brokerId=1, brokerRole="SLAVE")
            await old.start()
            await followed(sim, new, old)
            await machine.do(sent(sim, machine, numbered(30, 31)))
            await caught_up(sim)
            assert log_bytes(sim, old) == log_bytes(sim, new)
        wanted = [each.body for each in (*numbered(0, 31), *numbered(30, 31))]
        assert bodies(sim, old) == bodies(sim, new) == wanted

    with Simulation(7, slaves=1, options={**SAFE, "brokerRole": "ASYNC_MASTER"}) as sim:
        sim.run(scenario(sim))
