"""A consumer that asks for its messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.consumer.tools import a_client, a_topic, committed, numbered, owned, quick, send, stored

from flaremq.base.errors import TopicNotFound, UsageError
from flaremq.client.consumer.litepull import LitePullConsumer, PullConsumer
from flaremq.client.message import ReceivedMessage
from flaremq.client.producer.producer import Producer
from flaremq.model.message import Message, MessageQueue
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import EmbeddedThread


@asynccontextmanager
async def asking(servers: EmbeddedThread, group: str, **changes: Any) -> AsyncIterator[LitePullConsumer]:
    async with (
        a_client(servers) as client,
        LitePullConsumer(group, settings=quick(**changes), client=client) as consumer,
    ):
        yield consumer


@asynccontextmanager
async def assigned(
    servers: EmbeddedThread, topic: str, count: int = 10, **changes: Any
) -> AsyncIterator[tuple[LitePullConsumer, MessageQueue, Producer]]:
    """A consumer with one queue, in which so many messages lie."""
    async with a_topic(servers, topic, 1) as producer, asking(servers, f"G-{topic}", **changes) as consumer:
        queue = (await consumer.queues(topic))[0]
        for body in numbered(count):
            await producer.send(Message(topic, body), to=queue)
        await consumer.assign([queue])
        yield consumer, queue, producer


async def polled(consumer: LitePullConsumer, count: int, **given: Any) -> list[bytes]:
    found: list[ReceivedMessage] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await consumer.poll(1.0, **given)
    return [message.body for message in found]


async def test_polls_return_what_the_subscribed_topics_have(servers: EmbeddedThread, topic: str) -> None:
    async with a_topic(servers, topic) as producer, asking(servers, f"G-{topic}") as consumer:
        consumer.subscribe(topic, tags="a")
        await send(producer, topic, numbered(20), tags="a")
        await send(producer, topic, [b"other"], tags="b")
        assert sorted(await polled(consumer, 20)) == sorted(numbered(20))
        assert await consumer.poll(0.05) == []
    assert PullConsumer is LitePullConsumer


async def test_sql_chooses_here_too(servers: EmbeddedThread, topic: str) -> None:
    async with a_topic(servers, topic, 1) as producer, asking(servers, f"G-{topic}") as consumer:
        consumer.subscribe(topic, sql="n > 1")
        for n in range(4):
            await producer.send(Message(topic, b"%d" % n, properties={"n": str(n)}))
        assert sorted(await polled(consumer, 2)) == [b"2", b"3"]


async def test_members_of_a_group_share_the_queues(servers: EmbeddedThread, topic: str) -> None:
    group = f"G-{topic}"
    async with (
        a_topic(servers, topic) as producer,
        asking(servers, group) as one,
        asking(servers, group) as two,
    ):
        one.subscribe(topic)
        two.subscribe(topic)
        await owned(one, topic, 4)
        await owned(two, topic, 4)
        await send(producer, topic, numbered(16))
        found: list[ReceivedMessage] = []
        while len(found) < 16:
            found += await one.poll(0.05)
            found += await two.poll(0.05)
        assert sorted(message.body for message in found) == sorted(numbered(16))
        await one.stop()
        await owned(two, topic, 8)


async def test_a_poll_returns_no_more_than_it_is_asked_for_and_in_order(
    servers: EmbeddedThread, topic: str
) -> None:
    async with assigned(servers, topic) as (consumer, queue, _):
        first = await consumer.poll(5.0, max_count=3)
        assert [message.body for message in first] == numbered(3)
        assert consumer.position(queue) == 3
        assert await polled(consumer, 7, max_count=4) == numbered(10)[3:]
        with pytest.raises(UsageError, match="max_count"):
            await consumer.poll(1.0, max_count=0)


async def test_what_a_poll_returned_counts_when_the_next_one_asks(
    servers: EmbeddedThread, topic: str
) -> None:
    async with assigned(servers, topic, commit_s=0.05) as (consumer, queue, _):
        await consumer.poll(5.0, max_count=4)
        await consumer.poll(5.0, max_count=2)
        await stored(servers, consumer.group, queue, 4)
        await consumer.commit()
        assert await consumer.committed(queue) == 6
    assert await committed(servers, f"G-{topic}", queue) == 6


async def test_without_auto_commit_only_the_program_stores_offsets(
    servers: EmbeddedThread, topic: str
) -> None:
    async with assigned(servers, topic, commit_s=0.02, auto_commit=False) as (consumer, queue, _):
        assert await polled(consumer, 10, max_count=3) == numbered(10)
        await consumer.commit({queue: 7})
        assert await consumer.committed(queue) == 7
        assert consumer.position(queue) == 10
    assert await committed(servers, f"G-{topic}", queue) == 7


async def test_without_auto_commit_reading_goes_on_beyond_all_limits(
    servers: EmbeddedThread, topic: str
) -> None:
    async with assigned(servers, topic, 60, auto_commit=False, queue_count_max=10) as (consumer, _, _):
        assert await polled(consumer, 60) == numbered(60)


async def test_who_seeks_finds(servers: EmbeddedThread, topic: str) -> None:
    async with assigned(servers, topic) as (consumer, queue, producer):
        assert await polled(consumer, 10) == numbered(10)
        await consumer.seek(queue, 4)
        assert consumer.position(queue) == 4
        assert await polled(consumer, 6) == numbered(10)[4:]
        await consumer.seek_to_begin(queue)
        assert await polled(consumer, 10) == numbered(10)
        await consumer.seek_to_end(queue)
        await producer.send(Message(topic, b"new"), to=queue)
        assert await polled(consumer, 1) == [b"new"]
        now_ms = consumer.client.clock.now_ms()
        await consumer.seek_to_time(queue, now_ms - 3_600_000)
        assert await polled(consumer, 11) == [*numbered(10), b"new"]
        assert await consumer.offset_for_time(queue, now_ms + 3_600_000) == 11
        assert (await consumer.begin_offset(queue), await consumer.end_offset(queue)) == (0, 11)
        with pytest.raises(UsageError, match="expected 0 to 11"):
            await consumer.seek(queue, 12)
        with pytest.raises(UsageError, match="not assigned to this consumer"):
            await consumer.seek(MessageQueue(topic, "broker-a", 77), 0)


async def test_a_paused_queue_returns_nothing_until_it_is_resumed(
    servers: EmbeddedThread, topic: str
) -> None:
    async with assigned(servers, topic) as (consumer, queue, _):
        assert await polled(consumer, 2, max_count=2) == numbered(2)
        consumer.pause([queue])
        assert await consumer.poll(0.05) == []
        consumer.resume([queue])
        assert await polled(consumer, 8) == numbered(10)[2:]


async def test_queues_that_stay_assigned_go_on_where_they_are(servers: EmbeddedThread, topic: str) -> None:
    async with assigned(servers, topic) as (consumer, queue, producer):
        assert await polled(consumer, 5, max_count=5) == numbered(5)
        other = next(each for each in await consumer.queues(topic) if each != queue)
        await producer.send(Message(topic, b"other"), to=other)
        await consumer.assign([queue, other])
        assert consumer.assignment == {queue, other}
        assert sorted(await polled(consumer, 6)) == sorted([*numbered(10)[5:], b"other"])
        await consumer.assign([other])
        assert consumer.assignment == {other}


async def test_a_loop_reads_one_by_one_and_ends_with_the_consumer(
    servers: EmbeddedThread, topic: str
) -> None:
    async with assigned(servers, topic, 3) as (consumer, queue, _):
        found: list[bytes] = []

        async def read() -> None:
            async for message in consumer:
                found.append(message.body)  # noqa: PERF401 - They are looked at as they come.

        reading = asyncio.create_task(read())

        async def all_came() -> bool:
            return found == numbered(3)

        await eventually("all came", all_came)
        await consumer.stop()
        async with asyncio.timeout(60):
            await reading
    assert await committed(servers, f"G-{topic}", queue) == 3


async def test_a_queue_that_is_full_is_fetched_on_when_there_is_room(
    servers: EmbeddedThread, topic: str
) -> None:
    async with assigned(servers, topic, 100, queue_count_max=10, pull_batch=5) as (consumer, queue, _):

        def count() -> int:
            return consumer.running_info(stacks=False).mq_table[queue].cached_msg_count

        async def is_full() -> bool:
            return count() >= 10

        await eventually("the queue is full", is_full)
        assert count() < 15
        assert await polled(consumer, 100) == numbered(100)


async def test_wrong_use_of_it_is_told(servers: EmbeddedThread, topic: str) -> None:
    with pytest.raises(UsageError, match="leave out orderly"):
        LitePullConsumer("G", servers.namesrv, settings=quick(orderly=True))
    consumer = LitePullConsumer("G", servers.namesrv)
    with pytest.raises(UsageError, match="not running"):
        await consumer.poll()
    async with a_topic(servers, topic, 1), asking(servers, f"G-{topic}") as consumer:
        consumer.subscribe(topic)
        with pytest.raises(UsageError, match="not both"):
            await consumer.assign([])
        with pytest.raises(TopicNotFound):
            await consumer.queues(f"{topic}-unknown")
    async with assigned(servers, topic, 0) as (consumer, _, _):
        with pytest.raises(UsageError, match="not both"):
            consumer.subscribe(topic)
