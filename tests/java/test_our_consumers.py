"""Our consumers at Apache RocketMQ's servers, alone and in one group with a Java consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.client.consumer.tools import (
    Seen,
    a_client,
    a_topic,
    joined,
    numbered,
    owned,
    quick,
    send,
    stored,
)
from tests.java.clients import JavaClients
from tests.java.peers import Apache, Peers
from tests.java.toolchain import Toolchain

from flaremq.admin.admin import Admin
from flaremq.admin.values.groups import Position
from flaremq.base.errors import InvalidExpression
from flaremq.client.consumer.litepull import LitePullConsumer
from flaremq.client.consumer.outcome import Later
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.message import ReceivedMessage
from flaremq.model.message import Message
from flaremq.testing.cluster import eventually

pytestmark = pytest.mark.java

VERSIONS = ("5.3.3", "5.5.0", "4.9.7")


class Place:
    """Where Apache's servers are."""

    def __init__(self, namesrv: str, broker: str) -> None:
        self.namesrv = namesrv
        self.addresses = [broker]


@pytest.fixture(scope="module", params=VERSIONS)
def place(
    request: pytest.FixtureRequest, java_toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    kind = Apache(java_toolchain, version=request.param)
    with Peers(tmp_path_factory.mktemp("apache")) as peers:
        namesrv = peers.namesrv(kind)
        yield Place(namesrv.address, peers.broker(kind, namesrv.address).address)


async def test_messages_come_and_offsets_stay(place: Place) -> None:
    first, second = Seen(), Seen()
    async with a_topic(place, "Plain") as producer:
        await send(producer, "Plain", numbered(20))
        async with joined(place, "G-plain", "Plain", first):
            await first.count(20)
        await send(producer, "Plain", [b"new"])
        async with joined(place, "G-plain", "Plain", second):
            await second.count(1)
    assert sorted(first.bodies) == sorted(numbered(20)) and second.bodies == [b"new"]


async def test_tags_and_sql_choose(place: Place) -> None:
    tagged, chosen = Seen(), Seen()
    async with (
        a_topic(place, "Chosen") as producer,
        joined(place, "G-tags", "Chosen", tagged, tags="a || b"),
        joined(place, "G-sql", "Chosen", chosen, sql="n > 1"),
    ):
        for n, tag in enumerate("abc"):
            await producer.send(Message("Chosen", tag.encode(), tags=tag, properties={"n": str(n)}))
        await tagged.count(2)
        await chosen.count(1)
    assert sorted(tagged.bodies) == [b"a", b"b"] and chosen.bodies == [b"c"]


async def test_an_expression_that_cannot_be_read_is_told(place: Place) -> None:
    async with a_topic(place, "Wrong"), a_client(place) as client:
        consumer = PushConsumer("G-wrong", settings=quick(), client=client)
        consumer.subscribe("Wrong", Seen(), sql="n >")
        with pytest.raises(InvalidExpression):
            await consumer.start()


async def test_what_fails_comes_later(place: Place) -> None:
    def later(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            raise Later(delay_level=1)

    seen = Seen(later)
    async with a_topic(place, "Later") as producer, joined(place, "G-later", "Later", seen):
        await send(producer, "Later", [b"one"])
        await seen.count(2, 60)
    assert [(each.topic, each.reconsume_times) for each in seen.messages] == [("Later", 0), ("Later", 1)]


async def test_a_delayed_message_comes_when_its_level_says(place: Place) -> None:
    seen = Seen()
    async with a_topic(place, "Delayed") as producer, joined(place, "G-delayed", "Delayed", seen):
        sent_ms = producer.client.clock.now_ms()
        await producer.send(Message("Delayed", b"late", delay_level=2))
        await send(producer, "Delayed", [b"now"])
        await seen.count(2, 60)
    assert seen.bodies == [b"now", b"late"]
    assert seen.messages[1].store_timestamp_ms >= sent_ms + 5000


async def test_a_running_group_is_sent_back_in_time(place: Place) -> None:
    seen = Seen()
    async with a_topic(place, "Moved", 1) as producer, joined(place, "G-moved", "Moved", seen) as consumer:
        before_ms = consumer.client.clock.now_ms() - 60_000
        await send(producer, "Moved", numbered(5))
        await seen.count(5)
        await stored(place, "G-moved", (await producer.queues("Moved"))[0], 5)
        async with Admin(place.namesrv) as admin:
            await admin.groups.reset("G-moved", "Moved", Position.time(before_ms))
        await seen.count(10, 60)
    assert seen.bodies[5:] == numbered(5)


async def test_order_is_kept_with_failures_between(place: Place) -> None:
    tried: set[bytes] = set()

    def fail(message: ReceivedMessage) -> None:
        if message.queue_offset % 4 == 0 and message.body not in tried:
            tried.add(message.body)
            raise ValueError("not yet")

    seen = Seen(fail)
    async with a_topic(place, "Order", 1) as producer, joined(place, "G-order", "Order", seen, orderly=True):
        await send(producer, "Order", numbered(12))
        await seen.all_of(numbered(12))
    assert list(dict.fromkeys(seen.bodies)) == numbered(12)


async def test_who_asks_is_answered(place: Place) -> None:
    async with (
        a_topic(place, "Asked", 1) as producer,
        a_client(place) as client,
        LitePullConsumer("G-asked", settings=quick(), client=client) as consumer,
    ):
        await send(producer, "Asked", numbered(6))
        (queue,) = await consumer.queues("Asked")
        await consumer.assign([queue])
        found: list[bytes] = []
        async with asyncio.timeout(30):
            while len(found) < 6:
                found += [message.body for message in await consumer.poll(1.0)]
            await consumer.commit()
            assert (found, await consumer.committed(queue)) == (numbered(6), 6)
            await consumer.seek(queue, 4)
            again = await consumer.poll(10.0)
        assert [message.body for message in again] == numbered(6)[4:]


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0", "4.9.8"])
async def test_a_java_consumer_shares_the_group(
    place: Place, java_toolchain: Toolchain, version: str
) -> None:
    topic, group = f"Shared-{version.replace('.', '_')}", f"G-shared-{version.replace('.', '_')}"
    seen = Seen()
    with JavaClients(java_toolchain, version) as java:
        java.namesrv = place.namesrv
        async with a_topic(place, topic) as producer, joined(place, group, topic, seen) as ours:
            theirs = await asyncio.to_thread(java.push, topic, group)
            await owned(ours, topic, 2)
            await asyncio.to_thread(theirs.assigned, topic, 2)
            await send(producer, topic, numbered(40))
            await seen.count(20)
            there = await asyncio.to_thread(theirs.received, 20)
            assert len(seen.messages) == len(there) == 20
            await asyncio.to_thread(theirs.stop)
            await eventually("all queues are ours", lambda: has_all(ours, topic))


async def has_all(consumer: PushConsumer, topic: str) -> bool:
    return len([queue for queue in consumer.assignment if queue.topic == topic]) == 4
