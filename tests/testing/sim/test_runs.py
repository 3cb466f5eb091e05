"""Seeds of the simulator: nothing that was promised is lost, doubled, early or out of order."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys

import pytest

from flaremq.testing.sim.events import EventStream
from flaremq.testing.sim.loop import SimLoop, SimNode
from flaremq.testing.sim.plan import NAMESRV, Fault, Plan
from flaremq.testing.sim.runner import run_plan, run_seed
from flaremq.testing.sim.world import Simulation

QUICK = [2, 3, 7, 8, 15, 21]
CODE = "from flaremq.testing.sim.runner import run_seed; print(run_seed(7).digest)"


@pytest.mark.parametrize("seed", QUICK)
def test_what_was_promised_holds(seed: int) -> None:
    result = run_seed(seed)
    assert not result.check, "\n".join((result.line(), *result.last))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("hundred", range(2))
def test_what_was_promised_holds_for_many_seeds(hundred: int) -> None:
    failed = [
        result.line()
        for seed in range(100 * hundred, 100 * hundred + 100)
        if (result := run_seed(seed)).check
    ]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("kind", ["kill", "cut", "pause"])
def test_all_work_is_done_while_a_slave_and_a_name_server_stay_away(kind: str) -> None:
    stays = (Fault(0.0, kind, 1, 0.0), Fault(0.0, kind, NAMESRV, 0.0))
    plan = Plan(seed=3, namesrvs=2, slaves=2, role="SYNC_MASTER", clients=1, length_s=8.0, stays=stays)
    result = run_plan(plan)
    assert not result.check, "\n".join((result.line(), *result.last))
    assert result.faults[kind] >= len(stays)


def test_work_that_nobody_can_do_without_is_missed() -> None:
    """The only broker stays away."""
    plan = Plan(seed=3, clients=1, length_s=1.0, stays=(Fault(0.0, "cut", 0, 0.0),))
    assert run_plan(plan).check == "not consumed"


def test_work_for_a_machine_that_was_killed_fails_at_once() -> None:
    async def scenario(sim: Simulation) -> None:
        machine = sim.client_machine("shop")
        await machine.start()
        machine.kill()
        with pytest.raises(ConnectionAbortedError, match="shop was killed"):
            await machine.do(asyncio.sleep(0))

    with Simulation(1) as sim:
        sim.run(scenario(sim))


def test_a_seed_gives_the_same_events_again() -> None:
    assert run_seed(7).digest == run_seed(7).digest


def test_refusals_that_name_a_folder_are_the_same_events_again() -> None:
    full = Fault(at_s=1.0, kind="disk full", target=0, span_s=3.0, number=5)
    plan = Plan(seed=5, clients=1, sends=30, length_s=6.0, faults=(full,))
    runs = [run_plan(plan) for _ in range(2)]
    assert [run.check for run in runs] == ["", ""] and runs[0].faults["disk full"]
    assert runs[0].digest == runs[1].digest


def test_a_seed_gives_the_same_events_in_another_process_with_other_hashes() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", CODE],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "77")
    }
    assert found == {f"{run_seed(7).digest}\n"}


@pytest.mark.parametrize("drift", [0.001, -0.001, 0.0003])
def test_no_timer_comes_before_the_clock_of_its_node_shows_its_time(drift: float) -> None:
    """A callback that then asks for the rest of its time would be called for ever: time stands still."""
    loop = SimLoop(random.Random(1), EventStream())
    node, early = SimNode("fast", drift), list[float]()

    async def wait() -> None:
        for number in range(2000):
            came = asyncio.get_running_loop().create_future()
            when = loop.time() + 0.0037 * number
            loop.call_at(when, came.set_result, None)
            await came
            early.extend([when] if loop.time() < when else [])

    loop.run_until_complete(loop.spawn(node, wait()))
    loop.close()
    assert not early
