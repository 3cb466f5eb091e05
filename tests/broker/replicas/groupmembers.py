"""Members of Raft groups that run in this process, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from flaremq.broker.app import Broker
from flaremq.remoting.ports import BROKER, free_port
from flaremq.servers.config import flags, load_broker
from flaremq.servers.groupbroker import GroupBroker, broker_of
from flaremq.servers.membership import member_settings
from flaremq.store.drafts import NewMessage
from flaremq.testing.cluster import SMALL, eventually

HOST = "127.0.0.1"
of_several = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""A member may be knocking at another one at the moment in which the loop of a test ends."""
QUICK = {"dLegerElectionTimeout": 300}


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


async def leader_of(members: list[GroupBroker]) -> GroupBroker:
    async def one_leads() -> bool:
        return any(each.leads for each in members)

    await eventually("one leads", one_leads)
    return next(each for each in members if each.leads)


def with_ballot(folder: Path, self_id: str) -> None:
    """A member that knows that it has promised nothing, as one of RocketMQ's writes it."""
    ledger = folder / self_id / f"dledger-{self_id}"
    ledger.mkdir(parents=True)
    (ledger / "currterm").write_text("voteLeader=\ncurrTerm=0\n")
