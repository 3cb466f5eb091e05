"""Members of a group whose cold files rot while they serve: real members, real files, real sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.broker.replicas.groupmembers import leader_of, leads, of_several, put, running

from flaremq.base.errors import CorruptStore, FileUnavailable
from flaremq.dledger.ledger.raftlog import RaftLog
from flaremq.model.record import decode_many
from flaremq.servers.groupbroker import GroupBroker
from flaremq.store.api import GetStatus
from flaremq.testing.cluster import eventually

SMALL_FILES = {"mappedFileSizeCommitLog": 1 << 20, "maxMessageSize": 1 << 17}
OFTEN = {"dLegerScrubInterval": 100}
HEAD, IN_BODY = 48, 48 + 200


def ledger(member: GroupBroker) -> RaftLog:
    assert isinstance(member.store.log, RaftLog)
    return member.store.log


async def filled(members: list[GroupBroker], messages: int = 40) -> GroupBroker:
    """The leader of a group in which all members have the same entries, in several files."""
    leader = await leader_of(members)
    for _ in range(messages):
        end = await put(leader, 100_000)
    last = ledger(leader).last_index

    async def have_all() -> bool:
        return all(ledger(each).committed_index >= last for each in members)

    await eventually("all members have all entries", have_all)
    assert end > 3 << 20
    return leader


def rot(member: GroupBroker, index: int, at: int = IN_BODY) -> None:
    unit = ledger(member).unit(index)
    assert unit is not None
    file = ledger(member).files.find(unit.position)
    assert file is not None
    with file.path.open("r+b") as opened:
        opened.seek(unit.position - file.offset + at)
        old = opened.read(1)[0]
        opened.seek(unit.position - file.offset + at)
        opened.write(bytes([old ^ 0x40]))


def cold(member: GroupBroker) -> list[bytes]:
    """Its full files, as they lie on the disk."""
    found = ledger(member)
    return [file.path.read_bytes() for file in found.files.files if file.end <= found.committed.value]


async def all_repaired(members: list[GroupBroker], entries: int) -> None:
    async def is_so() -> bool:
        return sum(each.scrub.repaired_entries for each in members) >= entries and not any(
            each.scrub.damaged_entries for each in members
        )

    await eventually("all is repaired", is_so)


def metrics(member: GroupBroker) -> dict[str, float]:
    assert member.broker.composition is not None
    side: Any = member.broker.composition.replication
    return {figure.name: figure.rows[0][1] for figure in side.metrics() if figure.rows}


@pytest.mark.parametrize("which", ["follower", "leader"])
@of_several
async def test_a_cold_file_that_has_rotted_is_that_of_the_others_again(tmp_path: Path, which: str) -> None:
    async with running(tmp_path, 3, **SMALL_FILES, **OFTEN) as members:
        leader = await filled(members)
        member = leader if which == "leader" else next(each for each in members if each is not leader)
        whole = cold(member)
        assert len(whole) >= 3
        for index, at in ((3, IN_BODY), (4, 9), (12, IN_BODY)):
            rot(member, index, at)
        await all_repaired(members, 3)
        assert all(cold(each)[: len(whole)] == whole for each in members)
        assert metrics(member)["rocketmq_raft_repaired_entries"] == 3
        assert metrics(member)["rocketmq_raft_damaged_entries"] == 0
        assert metrics(member)["rocketmq_raft_scrubbed_bytes"] > 0
        assert member.node.status().damage == ""


@of_several
async def test_a_leader_that_cannot_be_repaired_lets_another_one_lead_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, 3, **SMALL_FILES, **OFTEN) as members:
        leader = await filled(members)

        def refuse(*_: object) -> None:
            raise FileUnavailable("the disk of this test is read-only")

        monkeypatch.setattr(leader.scrub.repairs._patcher, "put", refuse)
        rot(leader, 5)

        async def another_one_leads() -> bool:
            return any(each.leads for each in members if each is not leader)

        await eventually("another one leads", another_one_leads)
        assert "entry 5 " in leader.node.status().damage
        assert "damaged and not repaired yet" in leader.store.flags.degraded
        monkeypatch.undo()
        await all_repaired(members, 1)

        async def is_healthy() -> bool:
            return not leader.store.flags.degraded

        await eventually("its health page is clean", is_healthy)


async def test_a_lone_member_leads_on_and_its_readers_hear_of_the_damage(tmp_path: Path) -> None:
    async with running(tmp_path, 1, **SMALL_FILES, **OFTEN) as (member,):
        await leads(member)
        await filled([member])
        rot(member, 10)

        async def knows() -> bool:
            return member.scrub.damaged_entries == 1

        await eventually("the damage is known", knows)
        assert member.leads
        assert await member._part.committed.wait(await put(member), 10)
        member.store.show()
        bodies: list[bytes] = []
        with pytest.raises(CorruptStore, match="entry 10 "):
            read(member, bodies, 0)
        assert bodies
        seen = len(bodies)
        read(member, bodies, seen + 1)
        assert len(bodies) == 40  # Of 41.


def read(member: GroupBroker, bodies: list[bytes], queue_offset: int) -> None:
    """All messages from there on."""
    while (result := member.store.get(b"Orders", 0, queue_offset, 8)).status is GetStatus.FOUND:
        bodies += [message.body for message in decode_many(result.gathered())]
        queue_offset = result.next_offset


@of_several
async def test_known_damage_outlives_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, 1, **SMALL_FILES, **OFTEN) as (member,):
        await leads(member)
        await filled([member])
        rot(member, 10)

        async def is_noted() -> bool:
            note = ledger(member).folder / "scrub"
            return note.exists() and b'"first": 10' in note.read_bytes()

        await eventually("the damage is noted", is_noted)
    async with running(tmp_path, 1, **SMALL_FILES, dLegerScrubInterval=3_600_000) as (member,):
        member.scrub.scrubber._load()
        assert member.scrub.damaged_entries == 1
