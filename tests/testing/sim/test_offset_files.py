"""A file of committed offsets that is ahead of its log is told at the start of its broker."""

from __future__ import annotations

import pytest

from flaremq.model.topic import DataVersion
from flaremq.servers.together import Broker
from flaremq.testing.sim.checks import Violated
from flaremq.testing.sim.offsetfiles import OffsetFiles
from flaremq.testing.sim.world import Simulation

KEY = ("Plain", "G")
"""Nothing was ever sent to this topic: its queues end at 0."""


def watched() -> Simulation:
    sim = Simulation(seed=1)
    files = OffsetFiles(sim)
    sim.on_made, sim.on_started = files.made, files.started
    return sim


async def started_again(sim: Simulation) -> Broker:
    machine = sim.brokers[0]
    await sim.running[machine.name].tables.offsets.save()
    machine.kill()
    await machine.start()
    return sim.running[machine.name]


def test_a_file_that_is_ahead_is_told() -> None:
    async def scenario(sim: Simulation) -> None:
        await sim.start()
        sim.running["broker-a"].tables.offsets.adopt({KEY: {0: 3}}, DataVersion(0, 1, 0))
        await started_again(sim)

    with watched() as sim, pytest.raises(Violated, match="broker-a starts with G at Plain:0:3 of 0"):
        sim.run(scenario(sim))


async def committed_beyond(sim: Simulation) -> Broker:
    """By a client that has consumed what is lost."""
    await sim.start()
    sim.running["broker-a"].tables.offsets.commit("G", "Plain", 0, 3)
    return await started_again(sim)


def test_what_a_client_commits_beyond_the_end_is_no_fault_of_the_file() -> None:
    async def scenario(sim: Simulation) -> int:
        return (await committed_beyond(sim)).tables.offsets.get("G", "Plain", 0)

    with watched() as sim:
        assert sim.run(scenario(sim)) == 3


def test_a_later_commit_within_the_queue_ends_the_excuse() -> None:
    seen = []

    async def scenario(sim: Simulation) -> None:
        offsets = (await committed_beyond(sim)).tables.offsets
        offsets.commit("G", "Plain", 0, 0)
        offsets.adopt({KEY: {0: 3}}, DataVersion(0, 2, 0))
        seen.append(offsets.get("G", "Plain", 0))
        await started_again(sim)

    with watched() as sim, pytest.raises(Violated, match="at Plain:0:3 of 0"):
        sim.run(scenario(sim))
    assert seen == [3]
