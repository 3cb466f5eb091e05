"""Java's producers and consumers at a Raft group whose leader is killed, again and again, or frozen.

What was acknowledged is not lost and lies where its producer was told; consumers go on where they were, also
one that was away while the leader changed. With FLAREMQ_JAVA_SERVERS=apache the group is one of RocketMQ's.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.java import clients
from tests.java.clients import Draft, JavaClients
from tests.java.jvm import JavaStoreError
from tests.java.peers import FOR_TESTS, Flare, Kind, Peers, Server
from tests.java.toolchain import MODULES, Toolchain

from flaremq.base.errors import FlareError
from flaremq.protocol import beans
from flaremq.protocol.bodies.cluster import ClusterInfo
from flaremq.protocol.codes import RequestCode
from flaremq.remoting.ports import free_port
from flaremq.testing.cluster import eventually
from flaremq.testing.fakes.wireclient import WireClient

pytestmark = pytest.mark.java

NAME, TOPIC, QUEUES, MEMBERS = "broker-a", "Orders", 4, 3
STEADY, AWAY = "G-steady", "G-away"
ELECTED_S, CAUGHT_UP_S = 60.0, 90.0
QUICK: Any = {"pollNameServerInterval": 500}
QUICK_READER: Any = {**QUICK, "persistConsumerOffsetInterval": 500}

Place = tuple[int, int]
"""A queue, and an offset in it."""


class Group:
    """Three members, and their NameServer."""

    def __init__(self, peers: Peers, kind: Kind) -> None:
        self._peers, self._kind = peers, kind
        self.namesrv = peers.namesrv(Flare()).address
        addresses = ";".join(f"n{number}-127.0.0.1:{free_port()}" for number in range(MEMBERS))
        shared = {"enableDLegerCommitLog": True, "dLegerGroup": NAME, "dLegerPeers": addresses}
        self.members = [
            peers.launch_broker(
                kind, self.namesrv, NAME, {**FOR_TESTS, **shared, "dLegerSelfId": f"n{number}"}
            )
            for number in range(MEMBERS)
        ]
        for each in self.members:
            each.wait_ready()

    async def leader(self, wire: WireClient, *but: Server) -> Server:
        """The member that the NameServer names as the master, once that is none of these."""
        found: list[Server] = []

        async def is_named() -> bool:
            answer = await wire.ask(self.namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
            known = beans.decode(ClusterInfo, answer.body or b"").broker_addr_table.get(NAME)
            master = known.broker_addrs.get(0) if known else None
            found[:] = [each for each in self.members if each.address == master and each not in but]
            return bool(found)

        await eventually("a member leads", is_named, ELECTED_S)
        return found[0]

    async def again(self, ended: Server) -> None:
        self.members.remove(ended)
        self.members.append(await asyncio.to_thread(self._peers.again, ended, self._kind))

    async def all_is_consumed(self, wire: WireClient, consumers: str) -> list[int]:
        """Where the queues end, once all members know that this group of consumers has come there."""
        leader = await self.leader(wire)
        ends = [(await wire.bounds(leader.address, TOPIC, number))[1] for number in range(QUEUES)]

        async def is_so() -> bool:
            with suppress(FlareError):  # Of a member that has just come back.
                found = [
                    [await wire.committed(each.address, consumers, TOPIC, number) for number in range(QUEUES)]
                    for each in self.members
                ]
                return found == [ends] * MEMBERS
            return False

        await eventually(f"all members know that {consumers} is at {ends}", is_so, CAUGHT_UP_S)
        return ends


class Sales:
    """What a producer was told: it sends one message after the other."""

    def __init__(self, producer: clients.Producer) -> None:
        self._producer = producer
        self.places: dict[str, Place] = {}
        """Of each acknowledged message, by its body."""
        self._count = 0
        self._open = asyncio.Event()
        self._open.set()
        self._under_way = asyncio.Lock()

    async def run(self) -> None:
        while True:
            await self._open.wait()
            async with self._under_way:
                await self._sell()

    async def _sell(self) -> None:
        self._count += 1
        body = f"order-{self._count}"
        try:
            (sent,) = await asyncio.to_thread(self._producer.send, [Draft(topic=TOPIC, body=body.encode())])
        except JavaStoreError:  # It may be stored all the same.
            return
        if sent.status == "SEND_OK":
            self.places[body] = sent.queue.queue_id, sent.queue_offset

    async def more(self, count: int) -> None:
        wanted = len(self.places) + count

        async def are_there() -> bool:
            return len(self.places) >= wanted

        await eventually(f"{wanted} messages are acknowledged", are_there, ELECTED_S)

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        self._open.clear()
        async with self._under_way:
            yield
        self._open.set()


async def got(consumer: clients.PushConsumer) -> dict[Place, str]:
    """All that it was given. A place has one message, however often it is read."""
    found: dict[Place, str] = {}
    for each in await asyncio.to_thread(consumer.received, 0, 0):
        place, body = (each.queue.queue_id, each.queue_offset), each.body.decode()
        assert found.setdefault(place, body) == body, f"{place} holds {found[place]} and {body}"
    return found


async def has_all(consumer: clients.PushConsumer, wanted: dict[str, Place]) -> None:
    """Every one, at the place that its producer was told."""
    missing: set[tuple[Place, str]] = set()

    async def none_is_missing() -> bool:
        there = await got(consumer)
        missing.clear()
        missing.update((place, body) for body, place in wanted.items() if there.get(place) != body)
        return not missing

    try:
        await eventually("all that was acknowledged is consumed", none_is_missing, CAUGHT_UP_S)
    except TimeoutError as error:
        there = await got(consumer)
        error.add_note(f"{len(missing)} of {len(wanted)}: " + str(sorted(missing)[:10]))
        error.add_note(f"at these places were {[there.get(place) for place, _ in sorted(missing)[:10]]}")
        raise


@pytest.fixture(params=list(MODULES))
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@asynccontextmanager
async def a_group(
    toolchain: Toolchain, kind: Kind, version: str, folder: Path
) -> AsyncIterator[tuple[Group, WireClient, Sales, JavaClients]]:
    """A group in which a producer of Java sells, and a JVM for consumers."""
    with (
        Peers(folder) as peers,
        JavaClients(toolchain, version) as tills,
        JavaClients(toolchain, version) as readers,
    ):
        group = await asyncio.to_thread(Group, peers, kind)
        tills.namesrv = readers.namesrv = group.namesrv
        async with WireClient() as wire:
            leader = await group.leader(wire)
            await asyncio.to_thread(tills.create_topic, TOPIC, leader.address, NAME, QUEUES)
            sales = Sales(await asyncio.to_thread(lambda: tills.producer(**QUICK)))
            selling = asyncio.create_task(sales.run())
            try:
                await sales.more(50)
                yield group, wire, sales, readers
            finally:
                selling.cancel()
                await asyncio.wait([selling])


async def reads(java: JavaClients, group: str) -> clients.PushConsumer:
    return await asyncio.to_thread(lambda: java.push(TOPIC, group, **QUICK_READER))


async def test_java_clients_lose_nothing_when_leaders_are_killed_and_go_on_where_they_were(
    java_toolchain: Toolchain, kind: Kind, version: str, tmp_path: Path
) -> None:
    """One consumer stays through it all; another is away while the leader is killed, and comes back."""
    async with a_group(java_toolchain, kind, version, tmp_path) as (group, wire, sales, java):
        steady, leaving = await reads(java, STEADY), await reads(java, AWAY)
        for _ in range(2):
            dead = await group.leader(wire)
            async with sales.paused():
                ends = await group.all_is_consumed(wire, AWAY)
                await asyncio.to_thread(leaving.stop)
            await sales.more(50)
            dead.kill()
            await group.leader(wire, dead)
            await sales.more(100)
            back = await reads(java, AWAY)
            await has_all(back, {body: at for body, at in sales.places.items() if at[1] >= ends[at[0]]})
            assert all(at >= ends[queue] for queue, at in await got(back)), "it had these before"
            await group.again(dead)
            await sales.more(50)
            leaving = back
        async with sales.paused():
            await has_all(steady, sales.places)


async def test_java_clients_lose_nothing_when_a_leader_freezes_and_wakes_up(
    java_toolchain: Toolchain, kind: Kind, version: str, tmp_path: Path
) -> None:
    async with a_group(java_toolchain, kind, version, tmp_path) as (group, wire, sales, java):
        steady = await reads(java, STEADY)
        frozen = await group.leader(wire)
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            await group.leader(wire, frozen)
            await sales.more(100)
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
        await sales.more(100)
        assert (await group.leader(wire)) is not frozen
        async with sales.paused():
            await has_all(steady, sales.places)
