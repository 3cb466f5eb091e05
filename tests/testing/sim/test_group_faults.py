"""The faults that a group of real brokers must survive, each by its number."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.testing.sim.groups import ELECTION_S, LEASE_S, Group, play

from flaremq.base.errors import FlareError
from flaremq.dledger.ledger.ballots import BallotFile
from flaremq.dledger.types import Ballot, Standing
from flaremq.testing.sim.loop import NodeKilled
from flaremq.testing.sim.plan import LEADER, Fault, Plan
from flaremq.testing.sim.runner import RunResult, run_plan
from flaremq.testing.sim.world import Machine

PLAN = Plan(seed=7, replicas=3, clients=1, sends=20, length_s=15.0)
MEMBERS = range(3)


def mostly(*values: object, quick: int = 1) -> list[Any]:
    """Of cases that differ little the first is enough for every day."""
    return [
        pytest.param(each, marks=pytest.mark.slow if at >= quick else ()) for at, each in enumerate(values)
    ]


@pytest.fixture(params=mostly(7, 19, 30, 43))
def seed(request: pytest.FixtureRequest) -> int:
    """Of all that is left to chance."""
    found: int = request.param
    return found


def runs(plan: Plan, *kinds: str) -> RunResult:
    result = run_plan(plan)
    assert not result.check, "\n".join((*result.last, result.line()))
    assert all(result.faults[kind] for kind in kinds), (kinds, result.faults)
    return result


# Crashes, files and disks.


@pytest.mark.parametrize("operations", mostly(0, 3, 11))
def test_fault_1_a_leader_and_a_follower_are_killed_in_the_middle_of_their_work(
    operations: int, seed: int
) -> None:
    faults = (
        Fault(4.0, "kill within", LEADER, 1.0, operations),
        Fault(9.0, "kill within", 1, 1.0, operations),
    )
    runs(replace(PLAN, seed=seed, faults=faults), "kill")


@pytest.mark.parametrize("strict", [False, True])
def test_faults_2_4_and_5_power_loss_of_a_leader_with_lost_and_torn_pages(strict: bool, seed: int) -> None:
    faults = (Fault(4.0, "power within", LEADER, 1.0, 2), Fault(9.0, "power", LEADER, 1.0))
    runs(replace(PLAN, seed=seed, strict_names=strict, faults=faults), "power loss")


def test_fault_6_a_leader_whose_sync_fails_once_steps_down_and_acknowledges_nothing_more(seed: int) -> None:
    async def scenario(group: Group) -> None:
        old = await group.led()
        acknowledged = await group.sent("before")
        old.disk.fail_next_sync()
        acknowledged += await group.send("meanwhile", attempts=1)
        await group.until(lambda: not group.of(old).node.leads, 2 * ELECTION_S)
        new = await group.led(but_not_by=old)
        acknowledged += await group.sent("after")
        await group.never(lambda: group.of(old).node.leads, 5.0)
        assert group.of(old).store.flags.failure is not None
        old.disk.repair_syncs()
        old.lose_power()
        assert new.is_running
        assert set(acknowledged) <= set(await group.agree())

    play(scenario, seed)


def test_fault_7_a_leader_whose_disk_is_full_refuses_and_goes_on_when_there_is_room(seed: int) -> None:
    runs(replace(PLAN, seed=seed, faults=(Fault(4.0, "disk full", LEADER, 4.0, 0),)), "disk full")


def test_fault_8_a_leader_whose_disk_becomes_read_only_leaves_within_an_election_timeout(seed: int) -> None:
    async def scenario(group: Group) -> None:
        old = await group.led()
        acknowledged = await group.sent("before")
        old.disk.read_only = True
        work = asyncio.create_task(group.send("meanwhile", limit_s=0.5, attempts=1))
        await group.until(lambda: not group.of(old).node.leads, ELECTION_S)
        acknowledged += await work
        acknowledged += await group.sent("after")
        assert await group.led() is not old
        old.disk.read_only = False
        old.kill()
        assert set(acknowledged) <= set(await group.agree())

    play(scenario, seed)


class SlowFlush:
    """The log of a member is not synced while `is_stalled`."""

    def __init__(self, group: Group, machine: Machine, patch: pytest.MonkeyPatch) -> None:
        self.is_stalled = True
        log = group.log(machine)
        plain = log.flush

        def flush(least_pages: int) -> None:
            if not self.is_stalled:
                plain(least_pages)

        patch.setattr(log, "flush", flush)


def test_fault_9_a_leader_with_a_slow_disk_answers_when_the_others_have_synced(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Or not at all: a timeout is no success."""

    async def scenario(group: Group) -> None:
        leader = await group.led()
        await group.sent("before")
        slow = SlowFlush(group, leader, monkeypatch)
        synced = group.log(leader).synced_index
        assert await group.send("meanwhile", limit_s=0.5, attempts=1)
        assert group.log(leader).synced_index == synced
        for each in group.others(leader):
            SlowFlush(group, each, monkeypatch)
        assert not await group.send("no majority", limit_s=0.5, attempts=1)
        slow.is_stalled = False

    play(scenario, seed)


def test_fault_46_a_leader_whose_disk_stalls_steps_down_and_is_not_elected_while_it_lasts(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    async def scenario(group: Group) -> None:
        old = await group.led()
        await group.sent("before")
        slow = SlowFlush(group, old, monkeypatch)
        await group.send("meanwhile", limit_s=0.5, attempts=1)
        await group.until(lambda: not group.of(old).node.leads, 2 * ELECTION_S)
        new = await group.led(but_not_by=old)
        await group.sent("after")
        new.kill()
        await group.never(lambda: group.of(old).node.rules.standing is Standing.LEADER, 5.0)
        slow.is_stalled = False
        assert {"before", "after"} <= set(await group.agree())

    play(scenario, seed)


@pytest.mark.parametrize("target", mostly(0, 1, 2))
def test_fault_10_bits_that_flip_are_found_and_repaired_and_the_damaged_member_does_not_lead(
    target: int, seed: int
) -> None:
    """Whoever leads is killed when the bits have flipped."""
    flips = tuple(Fault(5.0 + 0.3 * number, "rot", target, 0.0, 7 * number) for number in range(4))
    runs(replace(PLAN, seed=seed, faults=(*flips, Fault(6.5, "kill", LEADER, 2.0))), "rot", "kill")


@pytest.mark.parametrize("half", [False, True])
def test_faults_11_and_12_a_member_whose_log_file_is_cut_has_it_again_before_it_votes(
    half: bool, seed: int
) -> None:
    async def scenario(group: Group) -> None:
        leader = await group.led()
        cut, third = group.others(leader)
        acknowledged = await group.sent(*(f"m{number}" for number in range(10)))
        await group.until(lambda: group.log(cut).committed_index == group.log(leader).committed_index)
        await group.sim.passes(3.0)
        file = group.log(cut).files.files[-1].path
        cut.kill()
        third.kill()
        os.truncate(file, file.stat().st_size // 2 if half else 0)
        leader.kill()
        await cut.start()
        assert group.of(cut).store.log.end < 2000 or half
        await third.start()
        await group.never(lambda: group.leader is not None, 5.0)
        await leader.start()
        assert await group.agree() == sorted(acknowledged)

    play(scenario, seed)


@pytest.mark.parametrize("number", mostly(0, 5, 1, 4, 9, quick=2))
def test_fault_12_a_truncated_file_of_queues_or_index_is_made_again(number: int, seed: int) -> None:
    faults = (Fault(5.0, "truncate", LEADER, 1.0, number), Fault(9.0, "truncate", 1, 1.0, number))
    runs(replace(PLAN, seed=seed, faults=faults), "truncate")


def test_fault_11_a_member_that_lost_its_ballot_elects_nobody(seed: int) -> None:
    async def scenario(group: Group) -> None:
        leader = await group.led()
        lost, third = group.others(leader)
        await group.sent("before")
        lost.kill()
        leader.kill()
        BallotFile(lost.disk, group.log(lost).folder).path.unlink()
        await lost.start()
        assert third.is_running
        await group.never(lambda: group.leader is not None, 10.0)
        await leader.start()
        assert {"before", "after"} == {"before", *await group.sent("after")}
        assert await group.agree() == ["after", "before"]

    play(scenario, seed)


def test_fault_13_a_member_restored_from_a_backup_gets_what_it_lacks_and_brings_nothing_back(
    seed: int,
) -> None:
    async def scenario(group: Group) -> list[str]:
        leader = await group.led()
        old, _ = group.others(leader)
        await group.sent("first", "second")
        await group.sim.stop_broker(old)
        backup = old.folder.with_name("backup")
        shutil.copytree(old.folder, backup)
        await old.start()
        acknowledged = ["first", "second", *await group.sent("third", "fourth")]
        await group.sim.stop_broker(old)
        shutil.rmtree(old.folder)
        shutil.copytree(backup, old.folder)
        await old.start()
        acknowledged += await group.sent("fifth")
        assert await group.agree() == sorted(acknowledged)
        return acknowledged

    assert len(play(scenario, seed)) == 5


# Partitions and pauses.


@pytest.mark.parametrize("one_way", [False, True])
def test_faults_14_and_16_a_leader_that_is_cut_off_answers_no_longer_than_its_lease(
    one_way: bool, seed: int
) -> None:
    """Cut off from the other members, or only unable to hear them. Clients reach it."""

    async def scenario(group: Group) -> None:
        old = await group.led()
        acknowledged = await group.sent("before")
        group.cut_off(old, one_way_in=one_way)
        await group.until(lambda: not group.of(old).node.may_answer(), LEASE_S + 0.2)
        new = await group.led(but_not_by=old)
        assert not group.of(old).node.may_answer()
        acknowledged += await group.sent("after")
        assert group.of(new).node.term > 1
        assert await group.agree() == sorted(acknowledged)

    play(scenario, seed)


@pytest.mark.parametrize("kind", ["members cut", "members deaf"])
def test_faults_14_and_16_clients_go_on_at_the_next_leader_while_the_old_one_is_there(
    kind: str, seed: int
) -> None:
    faults = tuple(Fault(3.0 + 4 * number, kind, LEADER, 3.0) for number in range(3))
    runs(replace(PLAN, seed=seed, faults=faults, clients=2), kind)


@pytest.mark.parametrize("kind", mostly("bridge", "ring", "halves"))
def test_fault_15_partitions_of_five_leave_one_leader_and_heal(kind: str, seed: int) -> None:
    faults = tuple(Fault(3.0 + 4 * number, kind, LEADER, 3.0) for number in range(3))
    runs(replace(PLAN, seed=seed, replicas=5, faults=faults), kind)


def test_fault_17_a_leader_that_stood_still_for_half_a_minute_is_fenced(seed: int) -> None:
    runs(
        replace(PLAN, seed=seed, length_s=42.0, sends=40, faults=(Fault(4.0, "pause", LEADER, 30.0),)),
        "pause",
    )


def test_fault_18_a_partition_and_then_a_killed_majority(seed: int) -> None:
    faults = (
        Fault(3.0, "members cut", LEADER, 2.0),
        *(Fault(3.5 + 0.1 * target, "kill", target, 2.0) for target in (0, 1)),
    )
    runs(replace(PLAN, seed=seed, faults=faults), "members cut", "kill")


@pytest.mark.parametrize("first", mostly(*MEMBERS))
def test_fault_19_whichever_members_start_first_keep_what_was_acknowledged(first: int, seed: int) -> None:
    async def scenario(group: Group) -> None:
        leader = await group.led()
        late = group.others(leader)[0]
        late.pause()
        acknowledged = await group.sent(*(f"m{number}" for number in range(5)))
        for each in group.members:
            each.lose_power()
        begins = group.members[first]
        await begins.start()
        await group.sim.passes(2.0)
        await group.others(begins)[0].start()
        await group.led()
        assert await group.agree() == sorted(acknowledged)

    play(scenario, seed)


@pytest.mark.parametrize("kind", mostly("cut", "kill", "power"))
def test_fault_20_members_come_and_go_while_their_leader_is_killed_or_cut_off(kind: str, seed: int) -> None:
    """Each change is asked for again until the group has decided on it."""

    async def hit(group: Group) -> None:
        leader = await group.led()
        if kind == "cut":
            group.cut_off(leader)
            await group.led(but_not_by=leader)
            group.sim.wires.heal()
            return
        (leader.kill if kind == "kill" else leader.lose_power)()
        await group.sim.passes(1.0)
        await leader.start()

    async def changed(group: Group, name: str, address: str) -> None:
        hits = asyncio.create_task(hit(group))
        while True:
            await group.led()
            with suppress(FlareError):
                await group.change(name, address)
                break
            await group.sim.passes(0.2)
        await hits

    async def scenario(group: Group) -> None:
        acknowledged = await group.sent("before")
        new = group.sim.new_member("broker-a")
        started = asyncio.create_task(new.start())
        await changed(group, "n3", f"{new.ip}:40911")
        await started
        acknowledged += await group.sent("with four")
        await group.until(lambda: "n3" in group.voters())  # Until then three of four are all that count.
        gone = group.others(await group.led(), new)[0]
        await changed(group, gone.name[-2:], "")
        acknowledged += await group.sent("with three")
        gone.kill()
        group.members.remove(gone)
        assert await group.agree() == sorted(acknowledged)
        assert group.ids() == {each.name[-2:] for each in group.members}

    play(scenario, seed)


# What consumers, timers and tails make of it.


@pytest.mark.parametrize("kind", mostly("power", "kill", "members cut"))
def test_fault_25_offsets_go_back_by_no_more_than_their_last_second(kind: str, seed: int) -> None:
    faults = tuple(Fault(5.0 + 5 * number, kind, LEADER, 1.5) for number in range(3))
    result = runs(replace(PLAN, seed=seed, length_s=22.0, sends=30, faults=faults))
    assert result.met["offsets after a failover"] > 10


@pytest.mark.parametrize("kind", mostly("members cut", "kill", "power"))
def test_fault_30_timers_that_wait_while_logs_are_cut_are_fired(kind: str, seed: int) -> None:
    faults = tuple(Fault(5.0 + 5 * number, kind, LEADER, 2.0) for number in range(3))
    result = runs(replace(PLAN, seed=seed, timers=True, sends=40, length_s=22.0, faults=faults))
    assert result.met["acknowledged"] > 20


@pytest.mark.parametrize("is_stored", [False, True])
def test_fault_42_power_is_lost_before_a_vote_is_stored_or_before_it_is_answered(
    is_stored: bool, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    plain = BallotFile.save
    lost = list[str]()

    async def scenario(group: Group) -> None:
        leader = await group.led()
        acknowledged = await group.sent("before")
        voter = group.others(leader)[0]

        def save(self: BallotFile, ballot: Ballot) -> None:
            if self.path.is_relative_to(voter.folder) and ballot.voted_for and not lost:
                if is_stored:
                    plain(self, ballot)
                lost.append(ballot.voted_for)
                voter.lose_power()
                raise NodeKilled(voter.name)
            plain(self, ballot)

        monkeypatch.setattr(BallotFile, "save", save)
        leader.kill()
        await group.until(lambda: bool(lost))
        await voter.start()
        await group.led()
        acknowledged += await group.sent("after")
        assert await group.agree() == sorted(acknowledged)

    play(scenario, seed)
    assert lost


@pytest.mark.parametrize("replicas", [3, 5])
def test_faults_43_and_45_leaders_in_turn_with_tails_that_are_given_up(replicas: int, seed: int) -> None:
    """Each is cut off from the others while clients go on sending to it, and so has what nobody else has."""

    async def scenario(group: Group) -> None:
        acknowledged = await group.sent("before")
        given_up = 0
        for number in range(3):
            old = await group.led()
            group.cut_off(old)
            tail = [f"tail {number} {at}" for at in range(3)]
            acknowledged += await group.send(*tail, limit_s=0.2, attempts=1)
            end = group.log(old).last_index
            new = await group.led(but_not_by=old)
            acknowledged += await group.sent(f"after {number}")
            given_up += end > group.log(new).last_index
            group.sim.wires.heal()
            index = group.log(new).committed_index
            await group.until(lambda old=old, index=index: group.log(old).committed_index >= index)  # type: ignore[misc]
            assert all(body in acknowledged or body.startswith("tail") for body in group.bodies(old))
            group.of(new).node.transfer(old.name[-2:])
            await group.until(lambda old=old: group.leader is old)  # type: ignore[misc]
            acknowledged += await group.sent(f"again {number}")
        shown = await group.agree()
        assert set(acknowledged) <= set(shown)
        assert len(shown) == len(set(shown))

    play(scenario, seed, replicas=replicas)


@pytest.mark.parametrize("away", mostly("pause", "members cut"))
def test_fault_44_unsynced_writes_are_lost_in_one_member_while_another_one_is_away(
    away: str, seed: int
) -> None:
    faults = (
        Fault(4.0, away, 0, 4.0),
        Fault(5.0, "power", 1, 0.5),
        Fault(9.0, away, 1, 3.0),
        Fault(10.0, "power", 2, 0.5),
    )
    runs(replace(PLAN, seed=seed, strict_names=True, faults=faults), away, "power loss")


def test_fault_47_name_servers_that_disagree_leave_the_old_leader_no_client(seed: int) -> None:
    """One NameServer hears of the old leader only, which other members cannot reach."""

    async def scenario(group: Group) -> None:
        sim = group.sim
        old = await group.led()
        acknowledged = await group.sent("before")
        group.cut_off(old)
        sim.wires.cut([sim.namesrvs[1].ip], [each.ip for each in group.others(old)])
        new = await group.led(but_not_by=old)
        at_s = sim.loop.now_s
        acknowledged += await group.sent("after")
        assert sim.loop.now_s - at_s < 30.0
        assert group.of(new).node.term > group.of(old).node.term
        assert not group.of(old).node.may_answer()
        assert await group.agree() == sorted(acknowledged)

    play(scenario, seed, namesrvs=2)


def test_fault_50_a_member_that_is_configured_otherwise_is_refused_and_not_counted(seed: int) -> None:
    async def scenario(group: Group) -> None:
        leader = await group.led()
        strange, third = group.others(leader)
        await group.sent("before")
        await group.sim.stop_broker(strange)
        others = [each.ip for each in (leader, third)]
        peers = ";".join(f"n{number}-{ip}:40911" for number, ip in enumerate([*others, strange.ip]))
        group.sim.reconfigure(strange, dLegerPeers=peers)
        await strange.start()
        third.kill()
        await group.until(lambda: group.leader is None)
        await group.never(lambda: group.leader is not None, 10.0)
        assert not await group.send("no majority", limit_s=1.0, attempts=1)
        complaints = dict(group.of(leader).node.status().complaints)
        assert "dLegerPeers" in complaints[strange.name[-2:]]
        await third.start()
        assert await group.sent("after")

    play(scenario, seed)
