"""Options of Raft groups, each looked at in members that run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from flaremq.broker.app import Broker
from flaremq.dledger.types import EntryRun
from flaremq.remoting.ports import BROKER, free_port
from flaremq.servers.config import flags, load_broker
from flaremq.servers.groupbroker import GroupBroker, broker_of
from flaremq.servers.membership import member_settings
from flaremq.store.drafts import NewMessage
from flaremq.testing.cluster import SMALL, eventually

HOST = "127.0.0.1"
QUICK = {"dLegerElectionTimeout": 300}
of_several = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""A member may be knocking at another one at the moment in which the loop of a test ends."""


def made(folder: Path, **options: object) -> Broker | GroupBroker:
    given = {
        "brokerName": "broker-a",
        "brokerIP1": HOST,
        "bindAddress": HOST,
        "listenPort": free_port(steps=BROKER),
        "storePathRootDir": folder,
        **SMALL,
        **QUICK,
        **options,
    }
    return broker_of(load_broker(None, {}, flags(given)))


@asynccontextmanager
async def running(folder: Path, count: int = 1, **options: object) -> AsyncIterator[list[GroupBroker]]:
    """Members of one group."""
    members = []
    for own in member_settings(count, HOST):
        member = made(folder / str(own["dLegerSelfId"]), **{**own, **options})
        assert isinstance(member, GroupBroker)
        members.append(member)
    async with AsyncExitStack() as started:
        for member, start in [(each, asyncio.ensure_future(each.start())) for each in members]:
            await start
            started.push_async_callback(member.stop)
        yield members


async def leads(member: GroupBroker) -> None:
    async def does() -> bool:
        return member.leads

    await eventually("the member leads", does)


async def put(member: GroupBroker, size: int = 100) -> int:
    """Store a message, and return the end of its record."""
    return member.store.put(NewMessage(topic=b"Orders", body=b"x" * size), wait=False).end


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
        members[1].node.transfer("n2")
        await leads(members[2])
        await leads(members[1])


async def test_a_leader_is_missed_after_the_time_that_was_set(tmp_path: Path) -> None:
    async with running(tmp_path, dLegerElectionTimeout=700) as (member,):
        assert member.node.member._state.pace.election_s == 0.7


async def test_an_answer_waits_for_a_majority_as_long_as_was_set(tmp_path: Path) -> None:
    async with running(tmp_path, dLegerCommitTimeout=1234) as (member,):
        await leads(member)
        made_of = member.broker.composition
        assert made_of is not None
        assert [mark.timeout_s for mark in made_of.replication.marks()] == [1.234]


@of_several
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

        async def one_leads() -> bool:
            return any(each.leads for each in members)

        await eventually("one leads", one_leads)
        leader = next(each for each in members if each.leads)
        end = await put(leader)
        assert await leader._part.committed.wait(end, 10)
    assert set(sizes) == {1000}
