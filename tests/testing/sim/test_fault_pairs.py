"""More faults by their number, with masters and slaves: files, clocks, retries, rebalances and timers."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from tests.testing.sim.scenes import slave_state
from tests.testing.sim.test_faults import MASTER, PAIR, SLAVE, caught_up, runs, some_sends

from flaremq import Message, Producer, PushConsumer
from flaremq.client.message import ReceivedMessage, SendStatus
from flaremq.client.settings import ConsumerSettings, ProducerSettings
from flaremq.ha.states import FollowState
from flaremq.model.message import MessageQueue
from flaremq.model.record import decode_many
from flaremq.protocol.bodies.group import ConsumeFromWhere
from flaremq.testing.sim.plan import Fault
from flaremq.testing.sim.wires import LinkQuality
from flaremq.testing.sim.world import Machine, Simulation

EAGER = ConsumerSettings(
    start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, commit_s=1.0, rebalance_s=1.0, poll_s=3.0,
    pull_timeout_s=6.0, suspend_s=0.2,
)  # fmt: skip


@pytest.mark.parametrize("number", [0, 5])
@pytest.mark.parametrize("target", [MASTER, SLAVE])
def test_fault_12_a_truncated_file_of_a_master_or_a_slave_is_made_again(target: int, number: int) -> None:
    runs(replace(PAIR, faults=(Fault(5.0, "truncate", target, 1.0, number),)), "truncate")


@pytest.mark.parametrize(("step_ms", "timers"), [(-3_600_000, True), (3_600_000, False), (5000, True)])
def test_fault_22_clocks_of_master_and_slave_jump_apart(step_ms: int, timers: bool) -> None:
    """In the end they are set right. A timer message that an hour ahead asked for its delay would then wait
    for that hour, so there are none."""
    faults = (Fault(4.0, "clock step", MASTER, 0.0, step_ms), Fault(6.0, "clock step", SLAVE, 0.0, -step_ms))
    runs(replace(PAIR, drift=0.001, timers=timers, sends=30, faults=faults), "clock step")


def test_fault_23_late_and_split_bytes_between_master_and_slave() -> None:
    quality = LinkQuality(latency_s=0.1, spike=0.02, split=0.5)
    faults = tuple(
        Fault(at_s, "reset", target, 0.0) for at_s, target in ((3.0, SLAVE), (6.0, MASTER), (9.0, SLAVE))
    )
    runs(replace(PAIR, quality=quality, faults=faults), "reset", "latency spike")


def test_fault_24_a_timeout_and_a_retry_store_one_copy_in_order_also_at_the_slave() -> None:
    """Answers are lost, so the producer sends again what is stored already."""

    async def scenario(sim: Simulation) -> list[list[bytes]]:
        await sim.start()
        (master,), (slave,), machine = sim.brokers, sim.slaves, sim.client_machine("shop")
        await machine.start()
        await machine.do(some_sends(sim, machine, 1))
        work = asyncio.create_task(machine.do(numbered(sim, machine, 30)))
        for _ in range(4):
            await sim.passes(0.05)
            sim.wires.cut([master.ip], [machine.ip], one_way=True)
            await sim.passes(3.0)
            sim.wires.heal()
        await work
        await caught_up(sim)
        return [bodies(sim, each) for each in (master, slave)]

    with Simulation(
        11, slaves=1, options={"flushDiskType": "SYNC_FLUSH", "brokerRole": "SYNC_MASTER"}
    ) as sim:
        copies, at_slave = sim.run(scenario(sim))
    assert copies == [str(number).encode() for number in range(30)]
    assert at_slave == copies


async def numbered(sim: Simulation, machine: Machine, count: int) -> None:
    settings = ProducerSettings(timeout_s=20.0)
    async with (
        sim.client(machine) as client,
        Producer("numbered", settings=settings, client=client, producer_id="numbered") as producer,
    ):
        queue = (await producer.queues("Orders"))[0]
        for number in range(count):
            receipt = await producer.send(Message("Orders", str(number).encode()), to=queue)
            assert receipt.status is SendStatus.OK
            await sim.passes(0.1)


def bodies(sim: Simulation, machine: Machine) -> list[bytes]:
    log = sim.running[machine.name].store.log
    found = decode_many(bytes(log.slice(0, log.readable_end) or b""))
    return [each.body for each in found if each.topic == "Orders" and not each.body.startswith(b"o ")]


def test_fault_26_a_storm_of_members_leaves_no_queue_without_owner_and_keeps_the_order() -> None:
    """Consumers of one ordered group come and go all the time, on three machines."""
    handled: list[tuple[MessageQueue, int]] = []

    async def member(sim: Simulation, machine: Machine, stays_s: float) -> None:
        async with sim.client(machine, heartbeat_s=2.0, refresh_s=5.0) as client:

            async def handle(message: ReceivedMessage) -> None:
                handled.append((message.queue, message.queue_offset))
                await sim.passes(0.02)

            consumer = PushConsumer("storm", settings=replace(EAGER, orderly=True), client=client)
            consumer.subscribe("Orders")(handle)
            async with consumer:
                await sim.passes(stays_s)

    async def scenario(sim: Simulation) -> None:
        await sim.start()
        machines = [sim.client_machine(f"shop-{number}") for number in range(3)]
        for machine in machines:
            await machine.start()
        await machines[0].do(some_sends(sim, machines[0], 40))
        rng, members = sim.rng("storm"), list[asyncio.Task[None]]()
        for number in range(25):
            work = member(sim, machines[number % 3], rng.uniform(0.5, 6.0))
            members.append(asyncio.create_task(machines[number % 3].do(work)))
            await sim.passes(rng.uniform(0.2, 0.8))
            if number % 5 == 0:
                await machines[1].do(some_sends(sim, machines[1], 8))
        await asyncio.gather(*members)
        await machines[0].do(member(sim, machines[0], 120.0))

    with Simulation(12, slaves=1) as sim:
        sim.run(scenario(sim))
    assert len(set(handled)) == 40 + 5 * 8
    begun: Counter[MessageQueue] = Counter()
    for queue, offset in handled:
        assert offset <= begun[queue], f"{queue}:{offset} came before {begun[queue]}"
        begun[queue] = max(begun[queue], offset + 1)


@pytest.mark.parametrize("kind", ["power", "kill"])
def test_fault_30_timers_that_wait_while_the_log_is_cut_are_fired(kind: str) -> None:
    faults = (
        Fault(6.0, kind, MASTER, 1.0),
        Fault(9.0, kind, SLAVE, 1.0),
        Fault(12.0, f"{kind} within", MASTER, 1.0, 9),
    )
    plan = replace(PAIR, seed=30, timers=True, sends=40, length_s=16.0, faults=faults)
    runs(plan, "power loss" if kind == "power" else "kill")


def test_fault_38_a_slave_with_files_of_another_size_is_refused_at_once() -> None:
    async def scenario(sim: Simulation) -> tuple[FollowState, str]:
        (slave,), machine = sim.slaves, sim.client_machine("shop")
        for each in (*sim.namesrvs, *sim.brokers, machine):
            await each.start()
        await machine.do(some_sends(sim, machine, 10))
        sim.options["mappedFileSizeCommitLog"] = 64 << 10
        await slave.start()
        await sim.passes(10.0)
        return slave_state(sim, slave)

    with Simulation(13, slaves=1) as sim:
        found, why = sim.run(scenario(sim))
    assert found is FollowState.REFUSED
    assert "file" in why


def test_fault_38_a_slave_below_the_oldest_file_of_its_master_is_refused_at_once() -> None:
    async def scenario(sim: Simulation) -> tuple[FollowState, str]:
        await sim.start()
        (master,), (slave,), machine = sim.brokers, sim.slaves, sim.client_machine("shop")
        await machine.start()
        await machine.do(some_sends(sim, machine, 10))
        await caught_up(sim)
        await sim.stop_broker(slave)
        await machine.do(some_sends(sim, machine, 300))
        await sim.stop_broker(master)
        (master.folder / "commitlog" / f"{0:020}").unlink()
        await master.start()
        await slave.start()
        await sim.passes(10.0)
        return slave_state(sim, slave)

    with Simulation(14, slaves=1, options={"mappedFileSizeCommitLog": 64 << 10}) as sim:
        found, why = sim.run(scenario(sim))
    assert found is FollowState.REFUSED
    assert "oldest" in why or "begins at" in why
