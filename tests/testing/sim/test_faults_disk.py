"""Disks that are slow, files that are cut, and folders that are restored from a backup."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from tests.testing.sim.scenes import (
    Asking,
    bodies,
    consuming,
    followed,
    log_bytes,
    sent,
    slave_state,
    until,
)
from tests.testing.sim.test_faults import caught_up

from flaremq import Message
from flaremq.base.errors import CorruptStore, FlareError
from flaremq.client.message import SendStatus
from flaremq.ha.states import FollowState
from flaremq.testing.sim.world import Machine, Simulation

SYNC_S: Final = 2.0
SAFE: Final = {"flushDiskType": "SYNC_FLUSH", "brokerRole": "SYNC_MASTER"}


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


# Files that are cut.

LOG_FILE: Final = 64 << 10
SMALL: Final = {
    "flushDiskType": "SYNC_FLUSH",
    "timerWheelEnable": True,
    "mappedFileSizeCommitLog": LOG_FILE,
    "flushCommitLogThoroughInterval": 1000,
    "flushConsumeQueueThoroughInterval": 1000,
}


def files_below(folder: Path) -> list[str]:
    """All but the marks of a running process."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size)
    return [path.relative_to(folder).as_posix() for path in found if path.name not in ("lock", "abort")]


REFUSED: Final = {"config/consumerOffset.json", "config/subscriptionGroup.json"}
"""Tables that were written once have no backup yet."""
PLAIN: Final = [Message("Orders", f"{number} ".encode().ljust(900)) for number in range(100)]
Check = Callable[[], Awaitable[None]]
WAITING: Final = [Message("Orders", f"timer {number}".encode(), delay_s=3000) for number in range(5)]


@dataclass
class Cuts:
    """A broker that was killed is started again and again, each time after another one of its files was cut
    to half, or to nothing."""

    sim: Simulation
    machine: Machine
    backup: Path
    refused: dict[str, str] = field(default_factory=dict)
    """Files with which it does not start, and what it says of them."""
    passed: list[str] = field(default_factory=list)

    async def each(self, part: str, check: Check) -> None:
        shutil.copytree(self.machine.folder, self.backup)
        for name in files_below(self.backup):
            for divisor in (0, 2) if name.startswith(part) else ():
                path = self.machine.folder / name
                os.truncate(path, path.stat().st_size // divisor if divisor else 0)
                await self._one(name, check)
                shutil.rmtree(self.machine.folder)
                shutil.copytree(self.backup, self.machine.folder)

    async def _one(self, name: str, check: Check) -> None:
        try:
            await self.machine.start()
        except FlareError as error:
            self.refused[name] = str(error)
            (self.machine.folder / name).unlink()  # As an operator would who has no copy of it.
            await self.machine.start()
        await check()
        self.machine.kill()
        self.passed.append(name)


@pytest.mark.parametrize("part", ["checkpoint", "config", "consumequeue", "index", "timer"])
def test_fault_12_whichever_file_beside_the_log_is_cut_all_messages_are_there_and_all_timers_come(
    part: str,
) -> None:
    """What may have to be restored by an operator keeps the broker from starting, and is named."""

    async def scenario(sim: Simulation) -> Cuts:
        await sim.start()
        (broker,), machine = sim.brokers, sim.client_machine("shop")
        await machine.start()
        await machine.do(sent(sim, machine, PLAIN))
        await machine.do(sent(sim, machine, WAITING))
        async with consuming(sim, machine) as found:
            await until(sim, lambda: len(found) == 100)
            await sim.passes(12.0)
        had = log_bytes(sim, broker)
        broker.kill()

        async def check() -> None:
            await sim.passes(1.0)
            running = sim.running[broker.name]
            assert log_bytes(sim, broker) == had
            assert len(bodies(sim, broker)) == 100
            broker.step_clock(3_600_000)
            await until(sim, lambda: running.store.max_offset(b"Orders", 0) == 100 + len(WAITING))
            assert sorted(bodies(sim, broker)[100:]) == [message.body for message in WAITING]
            broker.step_clock(-3_600_000)

        cuts = Cuts(sim, broker, sim.folder / "backup")
        await cuts.each(part, check)
        return cuts

    with Simulation(12, options=SMALL) as sim:
        cuts = sim.run(scenario(sim))
    assert cuts.passed
    assert all(str(Path(name)) in why and "estore" in why for name, why in cuts.refused.items())
    assert cuts.refused.keys() == {name for name in REFUSED if name.startswith(part)}


@pytest.mark.parametrize("divisor", [0, 2])
@pytest.mark.parametrize("number", [0, 1, -1])
def test_fault_12_a_slave_whose_log_is_cut_is_given_it_again(number: int, divisor: int) -> None:
    async def scenario(sim: Simulation) -> None:
        await sim.start()
        (master,), (slave,), machine = sim.brokers, sim.slaves, sim.client_machine("shop")
        await machine.start()
        await followed(sim, master, slave)
        await machine.do(sent(sim, machine, PLAIN))
        await caught_up(sim)
        had = log_bytes(sim, master)
        slave.kill()
        path = sorted((slave.folder / "commitlog").iterdir())[number]
        os.truncate(path, path.stat().st_size // divisor if divisor else 0)
        await slave.start()
        await caught_up(sim)
        assert log_bytes(sim, slave) == log_bytes(sim, master) == had
        assert bodies(sim, slave) == [message.body for message in PLAIN]

    with Simulation(12, slaves=1, options={**SMALL, "brokerRole": "SYNC_MASTER"}) as sim:
        sim.run(scenario(sim))


@pytest.mark.parametrize("is_empty", [True, False])
def test_fault_12_a_master_whose_log_is_cut_counts_no_slave_and_the_slave_that_takes_over_has_everything(
    is_empty: bool,
) -> None:
    """An empty last file looks like one that was just begun: then the slave is longer than its master."""

    async def scenario(sim: Simulation) -> None:
        await sim.start()
        (old,), (new,), machine = sim.brokers, sim.slaves, sim.client_machine("shop")
        await machine.start()
        await followed(sim, old, new)
        await machine.do(sent(sim, machine, PLAIN))
        await caught_up(sim)
        had = log_bytes(sim, new)
        old.kill()
        cut_last(old, len(had), is_empty=is_empty)
        if is_empty:
            await old.start()
            await sim.passes(10.0)
            assert slave_state(sim, new)[0] is FollowState.REFUSED
            assert {answer for answer, _ in await Asking(sim, machine).send("lost")} == {SendStatus.NO_SLAVE}
            assert log_bytes(sim, new) == had
            old.kill()
        else:
            with pytest.raises(
                CorruptStore, match=f"{len(had) // LOG_FILE * LOG_FILE:020}: .* restore the file"
            ):
                await old.start()
        new.kill()
        sim.reconfigure(new, brokerId=0, brokerRole="ASYNC_MASTER")
        sim.reconfigure(old, brokerId=1, brokerRole="SLAVE")
        await new.start()
        await old.start()
        await followed(sim, new, old)
        await machine.do(sent(sim, machine, PLAIN[:1]))
        await caught_up(sim)
        assert log_bytes(sim, new) == log_bytes(sim, old) and log_bytes(sim, new).startswith(had)
        assert bodies(sim, old) == bodies(sim, new) == [message.body for message in (*PLAIN, PLAIN[0])]

    with Simulation(12, slaves=1, options={**SMALL, "brokerRole": "SYNC_MASTER"}) as sim:
        sim.run(scenario(sim))


def cut_last(machine: Machine, end: int, *, is_empty: bool) -> None:
    """Cut the file in which the log ends, to half or to nothing. In the second case no later one is there."""
    path = machine.folder / "commitlog" / f"{end // LOG_FILE * LOG_FILE:020}"
    os.truncate(path, 0 if is_empty else LOG_FILE // 2)
    for later in path.parent.iterdir() if is_empty else ():
        if later.name > path.name:
            later.unlink()
