"""Raft groups of real processes whose leader is killed, frozen or asked to go, under load."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.cli.commands import flaremq

from flaremq.admin.admin import Admin
from flaremq.admin.values.raft import RaftMember
from flaremq.admin.values.topics import TopicSettings
from flaremq.base.errors import FlareError
from flaremq.client.client import Client
from flaremq.client.consumer.litepull import LitePullConsumer
from flaremq.client.message import SendStatus
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ClientSettings, ConsumerSettings, ProducerSettings
from flaremq.model.message import Message
from flaremq.protocol.bodies.group import ConsumeFromWhere
from flaremq.store.offline.folder import OfflineStore
from flaremq.store.offline.verify import Verifier
from flaremq.testing.cluster import Cluster, Process, eventually
from flaremq.testing.fakes.wireclient import WireClient
from flaremq.testing.patience import load_factor

TOPIC, GROUP = "Orders", "billing"
FIRST = ConsumerSettings(start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)


@dataclass
class Group:
    """Three members, and a producer that goes on sending."""

    cluster: Cluster
    namesrv: str
    members: list[Process]
    client: Client
    admin: Admin
    acknowledged: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Bodies by queue and offset of their receipts."""
    selling: asyncio.Task[None] | None = None

    async def leader(self, *but: str) -> RaftMember:
        """The member that serves, if it is none of these."""
        found: list[RaftMember] = []

        async def serves() -> bool:
            with suppress(FlareError):
                found[:] = [each for each in await self.admin.raft.members() if each.answers]
            return len(found) == 1 and found[0].member not in but

        await eventually("a member leads", serves)
        return found[0]

    def process(self, member: str) -> Process:
        return next(each for each in self.members if each.name.endswith(f"-{member}"))

    def again(self, ended: Process) -> Process:
        self.members.remove(ended)
        self.members.append(self.cluster.again(ended))
        return self.members[-1]

    async def sends(self, more: int) -> None:
        """Wait until so many more messages are acknowledged."""
        wanted = len(self.acknowledged) + more

        async def are_there() -> bool:
            return len(self.acknowledged) >= wanted

        await eventually(f"{wanted} messages are acknowledged", are_there, 60)

    async def sell(self) -> None:
        settings = ProducerSettings(timeout_s=2 * load_factor())
        async with Producer("tills", client=self.client, settings=settings) as producer:
            for number in range(1 << 30):
                body = f"order-{number}"
                try:
                    receipt = await producer.send(Message(TOPIC, body.encode()))
                except FlareError:
                    continue
                if receipt.status is SendStatus.OK:
                    self.acknowledged[body] = receipt.queue.queue_id, receipt.queue_offset

    async def stored(self) -> dict[str, set[tuple[int, int]]]:
        """All that can be read, until every acknowledged message is among it or nothing more comes. A message
        that was tried again may be there twice."""
        found: dict[str, set[tuple[int, int]]] = {}
        async with LitePullConsumer(GROUP, settings=FIRST, client=self.client) as consumer:
            consumer.subscribe(TOPIC)
            quiet, wanted = 0, list(self.acknowledged.items())
            while quiet < 5 and not all(place in found.get(body, ()) for body, place in wanted):
                messages = await consumer.poll(timeout_s=2)
                quiet = 0 if messages else quiet + 1
                for message in messages:
                    place = message.queue.queue_id, message.queue_offset
                    found.setdefault(message.body.decode(), set()).add(place)
        return found

    async def loses_nothing(self) -> None:
        """What was acknowledged is there, in the end and at every member."""
        assert self.selling is not None
        self.selling.cancel()
        await asyncio.wait([self.selling])
        await self.agrees()
        stored = await self.stored()
        missing = [body for body in self.acknowledged if body not in stored]
        assert not missing, f"{len(missing)} of {len(self.acknowledged)} are lost, the first {missing[0]}"
        moved = {body for body, place in self.acknowledged.items() if place not in stored[body]}
        assert not moved, f"{len(moved)} of {len(self.acknowledged)} are not where their receipts say"

    async def agrees(self) -> None:
        """All members have the same log, and know so."""

        async def is_equal() -> bool:
            found = await self.admin.raft.members()
            return len({(each.last_index, each.commit_index) for each in found}) == 1 and len(found) == 3

        await eventually("the logs are equal", is_equal, 60)


@asynccontextmanager
async def a_group(folder: Path, **options: object) -> AsyncIterator[Group]:
    with Cluster(folder) as cluster:
        namesrv = cluster.namesrv().address
        members = cluster.group(3, namesrv=namesrv, options=options)
        settings = ClientSettings(namesrv=namesrv, refresh_s=0.5, heartbeat_s=1)
        async with Admin(settings=settings) as admin, Client(settings=settings) as client:
            group = Group(cluster, namesrv, members, client, admin)
            await group.leader()
            await admin.topics.create(TOPIC, TopicSettings(read_queues=2, write_queues=2))
            group.selling = asyncio.create_task(group.sell())
            try:
                await group.sends(100)
                yield group
            finally:
                group.selling.cancel()
        for member in members:
            member.end()
        for member in members:
            report = Verifier(OfflineStore(member.store)).run()
            assert report.is_sound, f"{member.name}: {report}"


async def has_elected_another(group: Group, frozen: RaftMember) -> bool:
    """By what they print: asking the frozen one takes long."""
    printed = [line for each in group.members for line in each.lines]
    terms = [int(found[1]) for line in printed if (found := re.search(r"elected leader .*term=(\d+)", line))]
    return max(terms, default=0) > frozen.term


async def test_fault_1_a_killed_leader_loses_nothing_and_comes_back(tmp_path: Path) -> None:
    async with a_group(tmp_path) as group:
        for _ in range(2):
            dead = await group.leader()
            process = group.process(dead.member)
            process.kill()
            heir = await group.leader(dead.member)
            assert heir.term > dead.term
            await group.sends(100)
            group.again(process)
        await group.loses_nothing()
        shown = flaremq("cluster", "group", "-n", group.namesrv)
        assert shown.status == 0, shown.err


async def test_fault_17_a_frozen_leader_that_wakes_up_answers_nobody_and_loses_nothing(
    tmp_path: Path,
) -> None:
    """Not even those whose sends waited at its door, and are read before it hears of the new term."""
    async with a_group(tmp_path) as group, WireClient() as wire:
        frozen = await group.leader()
        process = group.process(frozen.member)
        assert (await wire.send(frozen.address, TOPIC, 0, b"awake")).queue_id == 0
        os.kill(process.pid, signal.SIGSTOP)
        try:
            limit_s = 120 * load_factor()
            bodies = [f"direct-{number}" for number in range(10)]
            direct = [
                asyncio.ensure_future(wire.send(frozen.address, TOPIC, 0, body.encode(), limit_s))
                for body in bodies
            ]
            await eventually("another one is elected", lambda: has_elected_another(group, frozen))
            await group.sends(100)
            assert not any(each.done() for each in direct)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        answers = await asyncio.gather(*direct, return_exceptions=True)
        assert all(isinstance(each, FlareError) for each in answers), answers
        heir = await group.leader(frozen.member)
        await group.sends(100)
        await group.loses_nothing()
        stored = [each for queue in range(2) for each in await wire.read_all(heir.address, TOPIC, queue)]
        assert b"awake" in {each.body for each in stored}
        assert not {each.body.decode() for each in stored} & set(bodies)


@pytest.mark.slow
@pytest.mark.parametrize("signal_", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
async def test_fault_1_a_group_that_ended_as_a_whole_goes_on(tmp_path: Path, signal_: signal.Signals) -> None:
    async with a_group(tmp_path) as group:
        for each in group.members:
            os.kill(each.pid, signal_)
        for each in list(group.members):
            each.end()
        again = [asyncio.to_thread(group.cluster.again, each) for each in group.members]
        group.members[:] = await asyncio.gather(*again)
        await group.leader()
        await group.sends(50)
        await group.loses_nothing()


async def test_leadership_is_handed_over_and_topics_groups_and_offsets_go_along(tmp_path: Path) -> None:
    async with a_group(tmp_path) as group:
        first = await group.leader()
        heir = next(each.member for each in await group.admin.raft.members() if each.member != first.member)
        async with LitePullConsumer("audit", settings=FIRST, client=group.client) as consumer:
            consumer.subscribe(TOPIC)
            while not await consumer.poll(timeout_s=2):
                pass
            await consumer.commit()
        await group.admin.topics.create("Later", TopicSettings(read_queues=3, write_queues=3))
        shown = await asyncio.to_thread(flaremq, "cluster", "group", "transfer", heir, "-n", group.namesrv)
        assert shown.out == f"{heir} leads now.\n", shown.err
        assert (await group.leader(first.member)).member == heir
        assert (await group.admin.topics.get("Later")).brokers.keys() == {"broker-a"}
        await group.sends(50)
        await group.loses_nothing()
