"""The faults that a broker must survive, each by its number, as plans."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from flaremq import Message, Producer
from flaremq.base.errors import FlareError
from flaremq.client.message import SendStatus
from flaremq.client.settings import ProducerSettings
from flaremq.model.record import decode_many
from flaremq.testing.sim.plan import Fault, Plan
from flaremq.testing.sim.runner import RunResult, run_plan
from flaremq.testing.sim.wires import LinkQuality
from flaremq.testing.sim.world import Machine, Simulation

PLAN = Plan(seed=1, clients=1, sends=20, length_s=12.0)


def runs(plan: Plan, *kinds: str) -> RunResult:
    result = run_plan(plan)
    assert not result.check, "\n".join((result.line(), *result.last))
    assert all(result.faults[kind] for kind in kinds), (kinds, result.faults)
    return result


@pytest.mark.parametrize("operations", [0, 3, 11])
def test_fault_1_killed_in_the_middle_of_its_work(operations: int) -> None:
    runs(replace(PLAN, faults=(Fault(4.0, "kill within", 0, 1.0, operations),)), "kill")


@pytest.mark.parametrize("strict", [False, True])
def test_faults_2_4_and_5_power_loss_with_lost_and_torn_pages(strict: bool) -> None:
    faults = (Fault(4.0, "power within", 0, 1.0, 2), Fault(8.0, "power", 0, 1.0))
    runs(replace(PLAN, strict_names=strict, faults=faults), "power loss")


def test_fault_3_power_loss_of_all_brokers_at_once() -> None:
    result = runs(replace(PLAN, brokers=2, faults=(Fault(5.0, "power all", 0, 2.0),)), "power loss")
    assert result.faults["power loss"] == 2


def test_fault_6_a_sync_that_fails_once_ends_acknowledging() -> None:
    runs(replace(PLAN, faults=(Fault(4.0, "sync error", 0, 3.0), Fault(7.5, "power", 0, 1.0))), "sync error")


def test_fault_6_a_broker_that_is_only_started_again_after_a_failed_sync() -> None:
    """The kernel shows pages as clean that it could not write. Recovery must write them again before the
    broker acknowledges what comes behind them, or a power failure cuts the log there."""

    async def scenario(sim: Simulation) -> list[bytes]:
        await sim.start()
        (broker,), machine = sim.brokers, sim.client_machine("shop")
        await machine.start()

        async def send(body: bytes) -> bool:
            settings = ProducerSettings(timeout_s=2.0, attempts=1, compress_over=1 << 20)
            async with (
                sim.client(machine) as client,
                Producer("p", settings=settings, client=client) as producer,
            ):
                with suppress(FlareError):
                    receipt = await producer.send(Message("Orders", body.ljust(5000)))
                    return receipt.status is SendStatus.OK
            return False

        assert await machine.do(send(b"first"))
        broker.disk.fail_next_sync()
        assert not await machine.do(send(b"not synced"))
        broker.kill()
        await broker.start()
        assert await machine.do(send(b"acknowledged"))
        broker.lose_power()
        await broker.start()
        log = sim.running[broker.name].store.log
        return [message.body.strip() for message in decode_many(bytes(log.slice(0, log.readable_end) or b""))]

    with Simulation(3, options={"flushDiskType": "SYNC_FLUSH"}) as sim:
        assert b"acknowledged" in sim.run(scenario(sim))


def test_fault_7_a_full_disk_refuses_and_resumes() -> None:
    runs(replace(PLAN, faults=(Fault(4.0, "disk full", 0, 4.0, 0),)), "disk full")


def test_fault_8_a_disk_that_becomes_read_only() -> None:
    runs(replace(PLAN, faults=(Fault(4.0, "read only", 0, 3.0),)), "read only", "read-only write")


@pytest.mark.parametrize("seconds", [2, 7])
def test_fault_9_a_broker_whose_syncs_take_seconds_keeps_what_it_acknowledged(seconds: int) -> None:
    faults = (Fault(2.5, "slow disk", 0, 6.0, seconds), Fault(8.0, "power", 0, 1.0))
    runs(replace(PLAN, faults=faults), "slow disk", "power loss")


def test_fault_17_a_broker_that_stands_still_counts_no_timeout_as_success() -> None:
    runs(replace(PLAN, faults=(Fault(3.0, "pause", 0, 6.0),)), "pause")


@pytest.mark.parametrize("number", [0, 1, 4, 5, 9])
def test_fault_12_a_truncated_file_is_made_again_from_the_log(number: int) -> None:
    runs(replace(PLAN, faults=(Fault(5.0, "truncate", 0, 1.0, number),)), "truncate")


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_fault_22_clocks_that_jump_and_drift(step_ms: int) -> None:
    runs(replace(PLAN, drift=0.001, faults=(Fault(4.0, "clock step", 0, 0.0, step_ms),)), "clock step")


def test_fault_23_late_split_and_reset_connections_store_no_number_twice() -> None:
    quality = LinkQuality(latency_s=0.1, spike=0.02, split=0.5)
    faults = tuple(Fault(at_s, "reset", 0, 0.0) for at_s in (3.0, 5.0, 7.0, 9.0))
    runs(replace(PLAN, quality=quality, faults=faults), "reset", "latency spike")


def test_fault_24_a_timeout_and_a_retry_store_one_copy() -> None:
    faults = (Fault(3.0, "one way", 0, 4.0), Fault(8.0, "cut", 0, 2.0))
    runs(replace(PLAN, faults=faults), "one way", "cut")


# Masters and slaves.

PAIR = replace(PLAN, slaves=1, role="SYNC_MASTER")
MASTER, SLAVE = 0, 1


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
@pytest.mark.parametrize("target", [MASTER, SLAVE])
def test_faults_1_and_2_either_of_two_is_killed_or_loses_its_power(role: str, target: int) -> None:
    faults = (Fault(3.0, "power within", target, 1.0, 5), Fault(8.0, "kill within", target, 1.0, 3))
    runs(replace(PAIR, role=role, faults=faults), "power loss", "kill")


def test_fault_3_master_and_slave_lose_their_power_at_once() -> None:
    faults = (Fault(5.0, "power", MASTER, 2.0), Fault(5.0, "power", SLAVE, 1.0))
    runs(replace(PAIR, faults=faults), "power loss")


@pytest.mark.parametrize("kind", ["sync error", "disk full", "read only"])
def test_faults_6_7_and_8_the_disk_of_a_slave_fails_while_its_master_goes_on(kind: str) -> None:
    runs(replace(PAIR, faults=(Fault(3.0, kind, SLAVE, 4.0, 0),)), kind)


@pytest.mark.parametrize("target", [MASTER, SLAVE])
def test_fault_9_master_and_slave_keep_what_was_acknowledged_while_the_disk_of_one_is_slow(
    target: int,
) -> None:
    faults = (Fault(2.5, "slow disk", target, 6.0, 2), Fault(8.0, "power", target, 1.0))
    runs(replace(PAIR, faults=faults), "slow disk", "power loss")


def test_fault_17_a_slave_that_stands_still_counts_no_timeout_as_success() -> None:
    runs(replace(PAIR, faults=(Fault(3.0, "pause", SLAVE, 6.0),)), "pause")


def test_faults_25_and_40_a_master_dies_while_consumers_read_and_commit() -> None:
    """They read on at its slave, and go back."""
    faults = (Fault(4.0, "kill", MASTER, 5.0), Fault(10.5, "kill", MASTER, 3.0))
    runs(replace(PAIR, clients=2, length_s=16.0, faults=faults), "kill")


def test_fault_37_a_slave_longer_than_its_master_is_refused_and_acknowledges_nothing() -> None:
    """The master answers before its disk has anything, and loses its power: the slave has more."""

    async def scenario(sim: Simulation) -> tuple[str, list[SendStatus]]:
        await sim.start()
        (master,), (slave,), machine = sim.brokers, sim.slaves, sim.client_machine("shop")
        await machine.start()
        await machine.do(some_sends(sim, machine, 30))
        await caught_up(sim)
        had = sim.running[slave.name].store.log.end
        master.lose_power()
        await sim.passes(1.0)
        await master.start()
        assert sim.running[master.name].store.log.end < had
        await sim.passes(15.0)
        statuses = await machine.do(some_sends(sim, machine, 2))
        assert sim.running[slave.name].store.log.end == had
        return sim.running[slave.name].composition.replication.figures()["haState"], statuses  # type: ignore[union-attr]

    slow = {
        "flushDiskType": "ASYNC_FLUSH",
        "flushCommitLogTimed": True,
        "flushIntervalCommitLog": 60_000,
        "brokerRole": "SYNC_MASTER",
    }
    with Simulation(5, slaves=1, options=slow) as sim:
        state, statuses = sim.run(scenario(sim))
    assert state == "REFUSED"
    assert set(statuses) == {SendStatus.NO_SLAVE}


@pytest.mark.parametrize("split", [0.0, 0.9])
def test_fault_39_frames_and_reports_in_pieces_and_a_cut_in_one_direction(split: float) -> None:
    quality = LinkQuality(latency_s=0.005, split=split)
    faults = (Fault(3.0, "one way", SLAVE, 4.0), Fault(8.0, "reset", SLAVE, 0.0))
    runs(replace(PAIR, quality=quality, length_s=14.0, faults=faults), "one way", "reset")


@pytest.mark.parametrize("first", [MASTER, SLAVE])
def test_fault_41_master_and_slave_are_started_again_in_either_order(first: int) -> None:
    faults = (Fault(4.0, "kill", first, 4.0), Fault(5.0, "kill", 1 - first, 1.0))
    runs(replace(PAIR, timers=True, faults=faults), "kill")


async def some_sends(sim: Simulation, machine: Machine, count: int) -> list[SendStatus]:
    settings = ProducerSettings(timeout_s=5.0, attempts=3, compress_over=1 << 20)
    async with sim.client(machine) as client, Producer("p", settings=settings, client=client) as producer:
        return [(await producer.send(Message("Orders", b"o".ljust(900)))).status for _ in range(count)]


async def caught_up(sim: Simulation) -> None:
    (master,), (slave,) = sim.brokers, sim.slaves
    for _ in range(1000):
        if sim.running[slave.name].store.log.end == sim.running[master.name].store.log.end:
            return
        await sim.passes(0.1)
    raise AssertionError("the slave does not catch up")
