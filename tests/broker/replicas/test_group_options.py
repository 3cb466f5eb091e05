"""Options of Raft groups, each looked at in members that run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.broker.replicas.groupmembers import (
    HOST,
    leader_of,
    leads,
    made,
    of_several,
    put,
    running,
    with_ballot,
)

from flaremq.base.errors import GroupUnsettled
from flaremq.base.lifecycle import Worker
from flaremq.broker.app import Broker
from flaremq.dledger.library.links import LibraryLinks
from flaremq.dledger.library.messages import LibraryCall, PushCall
from flaremq.dledger.node import MemberNode
from flaremq.dledger.types import EntryRun
from flaremq.remoting.ports import free_port
from flaremq.servers.groupbroker import GroupBroker
from flaremq.testing.cluster import eventually


async def test_the_log_is_kept_by_a_group_where_that_is_wished(tmp_path: Path) -> None:
    assert isinstance(made(tmp_path / "alone"), Broker)
    async with running(tmp_path) as (member,):
        await leads(member)
        assert not (tmp_path / "n0" / "commitlog").exists()


async def test_a_group_has_the_name_that_was_set_or_that_of_its_broker(tmp_path: Path) -> None:
    async with running(tmp_path / "first") as (member,):
        assert member.node.status().group == "broker-a"
    async with running(tmp_path / "second", dLegerGroup="group-b") as (member,):
        assert member.node.status().group == "group-b"


async def test_a_member_listens_where_the_list_of_members_says(tmp_path: Path) -> None:
    port = free_port()
    async with running(tmp_path, dLegerPeers=f"n0-{HOST}:{port}"):
        _, writer = await asyncio.open_connection(HOST, port)
        writer.close()
        await writer.wait_closed()


async def test_a_member_is_who_it_was_told_to_be(tmp_path: Path) -> None:
    async with running(tmp_path, dLegerPeers=f"n7-{HOST}:{free_port()}", dLegerSelfId="n7") as (member,):
        await leads(member)
        assert (tmp_path / "n0" / "dledger-n7" / "data").is_dir()
        assert member.node.leader == "n7"


async def test_entries_lie_in_the_folder_that_was_set(tmp_path: Path) -> None:
    async with running(tmp_path, storePathDLedgerCommitLog=tmp_path / "elsewhere") as (member,):
        await leads(member)
        assert list((tmp_path / "elsewhere").iterdir())


@of_several
async def test_a_preferred_member_leads_whenever_it_can(tmp_path: Path) -> None:
    async with running(tmp_path, 3, preferredLeaderId="n1") as members:
        await leads(members[1])
        await handed_over(members[1], "n2")
        await leads(members[2])
        await leads(members[1])


async def test_a_group_follows_the_rules_that_were_set(tmp_path: Path) -> None:
    with_ballot(tmp_path, "n0")
    async with running(tmp_path, dLegerProtocol="dledger") as (member,):
        await leads(member)
        assert "rules of Apache's DLedger library" in member.node.status().caution
        await put(member)
    async with running(tmp_path) as (member,):
        await leads(member)
        assert member.node.status().caution == ""


@of_several
async def test_entries_are_pushed_in_batches_where_that_is_wished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed: list[PushCall] = []
    ask = LibraryLinks.ask

    def noted(self: LibraryLinks, to: str, call: LibraryCall) -> None:
        if isinstance(call, PushCall):
            pushed.append(call)
        ask(self, to, call)

    monkeypatch.setattr(LibraryLinks, "ask", noted)
    for each in ("n0", "n1"):
        with_ballot(tmp_path, each)
    async with running(tmp_path, 2, dLegerProtocol="dledger", enableBatchPush=True) as members:
        leader = await leader_of(members)
        for _ in range(5):
            await put(leader)

        async def are_pushed() -> bool:
            return max(len(each.entries) for each in pushed) >= 5

        await eventually("they are pushed together", are_pushed)


async def handed_over(leader: GroupBroker, to: str) -> None:
    """Once the other one was heard."""

    async def is_begun() -> bool:
        with suppress(GroupUnsettled):
            leader.node.transfer(to)
            return True
        return False

    await eventually(f"{to} may lead", is_begun)


async def test_a_leader_is_missed_after_the_time_that_was_set(tmp_path: Path) -> None:
    async with running(tmp_path, dLegerElectionTimeout=700) as (member,):
        assert isinstance(member.node, MemberNode)
        assert member.node.member._state.pace.election_s == 0.7


async def test_an_answer_waits_for_a_majority_as_long_as_was_set(tmp_path: Path) -> None:
    async with running(tmp_path, dLegerCommitTimeout=1234) as (member,):
        await leads(member)
        made_of = member.broker.composition
        assert made_of is not None
        assert [mark.timeout_s for mark in made_of.replication.marks()] == [1.234]


async def test_pushes_are_as_large_as_was_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    async with running(tmp_path, 2, dLegerPushSize=1000) as members:
        for member in members:
            ledger = member._ledger
            plain: Callable[[int, int], EntryRun | None] = ledger.run

            def run(
                first: int, bytes_max: int, plain: Callable[[int, int], EntryRun | None] = plain
            ) -> EntryRun | None:
                sizes.append(bytes_max)
                return plain(first, bytes_max)

            monkeypatch.setattr(ledger, "run", run)

        leader = await leader_of(members)
        end = await put(leader)
        assert await leader._part.committed.wait(end, 10)
    assert set(sizes) == {1000}


async def test_the_log_is_read_again_once_in_the_time_that_was_set(tmp_path: Path) -> None:
    async with running(tmp_path, dLegerScrubInterval=200) as (member,):
        await leads(member)

        async def was_read_twice() -> bool:
            return member.scrub.scrubber.passes >= 2

        await eventually("it was read twice", was_read_twice)
        assert member.scrub.scrubbed_bytes


async def test_the_log_is_not_read_again_where_that_is_not_wished(tmp_path: Path) -> None:
    async with running(tmp_path, dLegerScrubInterval=0) as (member,):
        await leads(member)
        assert "flaremq-scrub" not in {thread.name for thread in threading.enumerate()}
    async with running(tmp_path, dLegerScrubInterval=200) as (member,):
        assert "flaremq-scrub" in {thread.name for thread in threading.enumerate()}


async def test_the_log_is_read_as_fast_as_was_set(tmp_path: Path) -> None:
    async with running(tmp_path, dLegerScrubBytesPerSecond=128 << 10) as (member,):
        await leads(member)
        scrubber = member.scrub.scrubber
        await put(member, 100_000)

        async def is_decided() -> bool:
            return scrubber._begun(None) is not None

        await eventually("there is something to read", is_decided)
        rest_s = scrubber.step(Worker("a test's", lambda _worker: None))
        assert rest_s == scrubber.scrubbed_bytes / (128 << 10)
