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
from flaremq.testing.sim.world import Simulation

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


def test_fault_9_a_broker_that_stands_still_counts_no_timeout_as_success() -> None:
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
