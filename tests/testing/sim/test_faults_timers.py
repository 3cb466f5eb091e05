"""Timers that wait while the end of the log is lost, and with it some of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from tests.testing.sim.scenes import Handled, consuming, followed, log_bytes, sent
from tests.testing.sim.test_faults import caught_up

from flaremq import Message
from flaremq.store.holes import CUT_FOLDER
from flaremq.store.timer.timerfiles import TimerFiles
from flaremq.testing.sim.world import Machine, Simulation

TIMERS: Final[Mapping[str, object]] = {"timerWheelEnable": True, "brokerRole": "ASYNC_MASTER"}


class Due:
    """Timer messages that were acknowledged, and when each is due."""

    def __init__(self, sim: Simulation, machine: Machine) -> None:
        self._sim = sim
        self._machine = machine
        self.at_s: dict[str, float] = {}

    async def send(self, name: str, waits_s: Iterable[int]) -> set[str]:
        messages = []
        for seconds in waits_s:
            value = f"{name} {seconds}"
            messages.append(Message("Orders", value.encode(), delay_s=seconds))
            self.at_s[value] = self._sim.loop.now_s + seconds
        await self._machine.do(sent(self._sim, self._machine, messages))
        return {message.body.decode() for message in messages}

    def early(self, found: Sequence[Handled]) -> list[Handled]:
        return [each for each in found if each.at_s < self.at_s[each.value] - 0.002]


@pytest.fixture
def rebuilt(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders of brokers that made their wheel again."""
    found, plain = list[Path](), TimerFiles._rebuild

    def rebuild(self: TimerFiles, *given: Any) -> Any:
        found.append(self._root)
        return plain(self, *given)

    monkeypatch.setattr(TimerFiles, "_rebuild", rebuild)
    return found


async def flushed(sim: Simulation, machine: Machine) -> None:
    sim.running[machine.name].store.workers.log_flusher.flush(0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fault_30_a_master_that_loses_the_end_of_its_log_fires_every_timer_in_the_rest(
    seed: int, rebuilt: list[Path]
) -> None:
    async def scenario(sim: Simulation) -> tuple[set[str], Due, list[Handled]]:
        await sim.start()
        (master,), machine = sim.brokers, sim.client_machine("shop")
        await machine.start()
        due = Due(sim, machine)
        async with consuming(sim, machine) as found:
            kept = await due.send("kept", range(15, 35))
            await master.do(flushed(sim, master))
            await due.send("tail", range(15, 35))
            await sim.passes(3.0)
            before = log_bytes(sim, master)
            rebuilt.clear()
            master.lose_power()
            await sim.passes(1.0)
            await master.start()
            assert rebuilt == [master.folder]
            after = log_bytes(sim, master)
            assert len(after) < len(before) and before.startswith(after), "the log was not cut"
            kept |= await due.send("new", range(15, 35))
            await sim.passes(60.0)
        return kept, due, found

    slow = {"flushDiskType": "ASYNC_FLUSH", "flushCommitLogTimed": True, "flushIntervalCommitLog": 60_000}
    with Simulation(seed, options={**TIMERS, **slow}) as sim:
        kept, due, found = sim.run(scenario(sim))
    assert not kept - {each.value for each in found}, "a timer was lost that the log still had"
    assert not due.early(found)


@pytest.mark.parametrize("is_killed", [True, False])
def test_fault_30_a_failover_cuts_the_log_of_the_old_master_and_the_timers_of_both_are_right(
    is_killed: bool, rebuilt: list[Path]
) -> None:
    """The slave does not have the last timers. It is promoted, others come in their places, and the old
    master gives its own up. When that is the master again, it fires what its log has now, and no more."""

    async def promoted(sim: Simulation, new: Machine, old: Machine) -> None:
        sim.reconfigure(new, brokerId=0, brokerRole="ASYNC_MASTER")
        sim.reconfigure(old, brokerId=1, brokerRole="SLAVE")
        if new.is_running:
            await sim.stop_broker(new)
        await new.start()

    async def scenario(sim: Simulation) -> tuple[set[str], Due, list[Handled]]:
        await sim.start()
        (first,), (second,), machine = sim.brokers, sim.slaves, sim.client_machine("shop")
        await machine.start()
        await followed(sim, first, second)
        due = Due(sim, machine)
        async with consuming(sim, machine) as found:
            kept = await due.send("kept", range(60, 80))
            await caught_up(sim)
            await sim.passes(8.0)
            sim.wires.cut([first.ip], [second.ip])
            await due.send("tail", range(60, 80))
            await sim.passes(3.0)
            first.kill()
            sim.wires.heal()
            await promoted(sim, second, first)
            kept |= await due.send("new", range(70, 75))
            await first.start()
            await followed(sim, second, first)
            await caught_up(sim)
            assert list((first.folder / CUT_FOLDER).iterdir()), "the log of the old master was not cut"
            assert log_bytes(sim, first) == log_bytes(sim, second)
            await sim.passes(8.0)
            rebuilt.clear()
            second.kill()
            if is_killed:
                first.kill()
            await promoted(sim, first, second)
            assert rebuilt == [first.folder] * is_killed
            assert min(due.at_s.values()) > sim.loop.now_s, "something is due already"
            await sim.passes(80.0)
        return kept, due, found

    with Simulation(31, slaves=1, options={**TIMERS, "flushDiskType": "SYNC_FLUSH"}) as sim:
        kept, due, found = sim.run(scenario(sim))
    assert {each.value for each in found} == kept
    assert not due.early(found)
