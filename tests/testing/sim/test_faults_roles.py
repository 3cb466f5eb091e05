"""Roles that are changed by configuration, and two masters of one name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import pytest
from tests.testing.sim.scenes import EAGER, Handled, bodies, followed, log_bytes, members, sent, until
from tests.testing.sim.test_faults import caught_up

from flaremq import Message, PushConsumer
from flaremq.base.errors import ConfigError
from flaremq.testing.sim.world import Machine, Simulation

SAFE: Final[Mapping[str, object]] = {
    "flushDiskType": "SYNC_FLUSH",
    "brokerRole": "SYNC_MASTER",
    "timerWheelEnable": True,
}
LEVEL, LEVEL_S = 4, 30
WAITS_S: Final = (20, 25, 40)
AS_MASTER: Final[Mapping[str, object]] = {"brokerId": 0, "brokerRole": "SYNC_MASTER"}
AS_SLAVE: Final[Mapping[str, object]] = {"brokerId": 1, "brokerRole": "SLAVE"}


def numbered(first: int, count: int = 10) -> list[Message]:
    return [Message("Orders", str(number).encode()) for number in range(first, first + count)]


async def handled_until(sim: Simulation, machine: Machine, count: int) -> Sequence[Handled]:
    """What a group is given until it has so many different messages, and for some seconds more."""
    found = list[Handled]()
    async with sim.client(machine, heartbeat_s=2.0, refresh_s=2.0) as client:
        consumer = PushConsumer("all", settings=EAGER, client=client)
        consumer.subscribe("Orders")(Handled.into(found, sim))
        async with consumer:
            await until(sim, lambda: len({each.value for each in found}) >= count, 90.0)
            await sim.passes(10.0)
    return found


@pytest.mark.parametrize("master_first", [False, True])
@pytest.mark.parametrize("is_killed", [False, True])
def test_fault_41_two_brokers_change_their_roles_and_queues_and_timers_go_on(
    is_killed: bool, master_first: bool
) -> None:
    """The slave becomes the master, and the master its slave; either is started first."""

    async def scenario(sim: Simulation) -> tuple[list[int], Sequence[Handled], dict[str, float]]:
        await sim.start()
        (old,), (new,), machine = sim.brokers, sim.slaves, sim.client_machine("shop")
        await machine.start()
        await followed(sim, sim.brokers[0], sim.slaves[0])
        offsets = await machine.do(sent(sim, machine, numbered(0)))
        due_s = {f"timer {seconds}": sim.loop.now_s + seconds for seconds in WAITS_S}
        due_s["level"] = sim.loop.now_s + LEVEL_S
        waiting = [Message("Orders", f"timer {seconds}".encode(), delay_s=seconds) for seconds in WAITS_S]
        await machine.do(sent(sim, machine, [*waiting, Message("Orders", b"level", delay_level=LEVEL)]))
        await caught_up(sim)
        await sim.passes(8.0)  # The slave has heard how far the timers of its master are.
        for each in (old, new):
            if is_killed:
                each.kill()
            else:
                await sim.stop_broker(each)
        sim.reconfigure(new, **AS_MASTER)
        sim.reconfigure(old, **AS_SLAVE)
        for each in (new, old) if master_first else (old, new):
            await each.start()
        await followed(sim, new, old)
        offsets += await machine.do(sent(sim, machine, numbered(10)))
        found = await machine.do(handled_until(sim, machine, 20 + len(due_s)))
        await caught_up(sim)
        assert log_bytes(sim, old) == log_bytes(sim, new)
        assert (await machine.do(members(sim, machine)))[0].startswith(new.ip)
        return offsets, found, due_s

    with Simulation(41, slaves=1, options=SAFE) as sim:
        offsets, found, due_s = sim.run(scenario(sim))
    assert offsets == list(range(20)), "nothing is due before all are sent"
    assert Counter(each.value for each in found) == Counter([*map(str, range(20)), *due_s])
    places = [(each.queue, each.offset) for each in found]
    assert len(set(places)) == len(places)
    assert not [each for each in found if each.at_s < due_s.get(each.value, 0.0) - 0.002]


def serving(sim: Simulation, *machines: Machine) -> list[str]:
    """The names of those that serve."""
    return [each.name for each in machines if each.is_running and not sim.running[each.name].role.displaced]


def test_fault_41_a_broker_that_claims_the_id_of_a_running_master_does_not_start() -> None:
    async def scenario(sim: Simulation) -> list[int]:
        await sim.start()
        (master,), (slave,), machine = sim.brokers, sim.slaves, sim.client_machine("shop")
        await machine.start()
        await followed(sim, sim.brokers[0], sim.slaves[0])
        offsets = await machine.do(sent(sim, machine, numbered(0)))
        await caught_up(sim)
        await sim.stop_broker(slave)
        sim.reconfigure(slave, **AS_MASTER)
        with pytest.raises(ConfigError, match=f"another master of broker-a is at {master.ip}:10911"):
            await slave.start()
        assert await machine.do(members(sim, machine)) == {0: f"{master.ip}:10911"}
        assert serving(sim, master, slave) == [master.name]
        sim.reconfigure(slave, **AS_SLAVE)
        await slave.start()
        await followed(sim, master, slave)
        offsets += await machine.do(sent(sim, machine, numbered(10)))
        await caught_up(sim)
        assert log_bytes(sim, slave) == log_bytes(sim, master)
        return offsets

    with Simulation(42, slaves=1, options=SAFE) as sim:
        assert sim.run(scenario(sim)) == list(range(20))


def test_fault_41_of_two_masters_that_began_without_a_name_server_one_goes_on_serving() -> None:
    """The slave was started as a master while it reached nobody: then it is the promoted one."""

    async def scenario(sim: Simulation) -> list[int]:
        await sim.start()
        (old,), (new,), machine = sim.brokers, sim.slaves, sim.client_machine("shop")
        await machine.start()
        await followed(sim, sim.brokers[0], sim.slaves[0])
        offsets = await machine.do(sent(sim, machine, numbered(0)))
        await caught_up(sim)
        await sim.stop_broker(new)
        sim.reconfigure(new, brokerId=0, brokerRole="ASYNC_MASTER")
        sim.wires.cut([new.ip], [old.ip, *(each.ip for each in sim.namesrvs)])
        await new.start()
        assert serving(sim, old, new) == [old.name, new.name]
        sim.wires.heal()
        await until(sim, lambda: len(serving(sim, old, new)) == 1)
        assert serving(sim, old, new) == [new.name]
        await sim.passes(5.0)
        assert await machine.do(members(sim, machine)) == {0: f"{new.ip}:10911"}
        had = log_bytes(sim, old)
        offsets += await machine.do(sent(sim, machine, numbered(10)))
        assert log_bytes(sim, old) == had, "the displaced one still takes messages"
        assert bodies(sim, new) == [message.body for message in numbered(0, 20)]
        return offsets

    with Simulation(43, slaves=1, options={**SAFE, "brokerRole": "ASYNC_MASTER"}) as sim:
        assert sim.run(scenario(sim)) == list(range(20))
