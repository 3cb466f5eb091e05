"""Messages that are asked for one by one."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.consumer.tools import a_topic, joined, numbered, send, stored

from flaremq.base.errors import UsageError
from flaremq.client.message import ReceivedMessage
from flaremq.model.message import Message
from flaremq.testing.embedded import EmbeddedThread


async def test_a_loop_acknowledges_a_message_by_asking_for_the_next(
    servers: EmbeddedThread, topic: str
) -> None:
    group, found = f"G-{topic}", list[ReceivedMessage]()
    async with a_topic(servers, topic, 1) as producer, joined(servers, group, topic, None) as consumer:
        queue = (await producer.queues(topic))[0]
        for body in numbered(5):
            await producer.send(Message(topic, body), to=queue)
        async for message in consumer:
            found.append(message)
            assert consumer.positions(topic)[queue] == message.queue_offset
            if len(found) == 5:
                break
    assert [message.body for message in found] == numbered(5)
    await stored(servers, group, queue, 4)


async def test_the_message_with_which_a_loop_is_left_comes_again(servers: EmbeddedThread, topic: str) -> None:
    async with a_topic(servers, topic, 1) as producer, joined(servers, f"G-{topic}", topic, None) as consumer:
        await send(producer, topic, [b"one"])

        async def fail() -> None:
            async for _ in consumer:
                raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await fail()
        async for message in consumer:
            assert message.body == b"one"
            break


async def test_a_loop_ends_when_the_consumer_stops(servers: EmbeddedThread, topic: str) -> None:
    async with a_topic(servers, topic, 1), joined(servers, f"G-{topic}", topic, None) as consumer:

        async def read() -> list[bytes]:
            return [message.body async for message in consumer]

        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        await consumer.stop()
        assert await reading == []


async def test_messages_can_be_told_of_in_any_order(servers: EmbeddedThread, topic: str) -> None:
    group = f"G-{topic}"
    async with a_topic(servers, topic, 1) as producer, joined(servers, group, topic, None) as consumer:
        queue = (await producer.queues(topic))[0]
        for body in numbered(3):
            await producer.send(Message(topic, body), to=queue)
        found: list[ReceivedMessage] = []
        async for message in consumer.messages():
            found.append(message)
            if len(found) == 3:
                break
        await consumer.ack(found[2])
        await consumer.ack(found[0])
        assert consumer.positions(topic)[queue] == 1
        await consumer.retry(found[1])
        async for message in consumer.messages():
            assert (message.body, message.reconsume_times, message.topic) == (b"m1", 1, topic)
            await consumer.ack(message)
            break
        await stored(servers, group, queue, 3)
        with pytest.raises(UsageError, match="cannot be acknowledged"):
            await consumer.ack(found[0])


async def test_order_holds_for_who_asks_too(servers: EmbeddedThread, topic: str) -> None:
    async with (
        a_topic(servers, topic, 1) as producer,
        joined(servers, f"G-{topic}", topic, None, orderly=True) as consumer,
    ):
        queue = (await producer.queues(topic))[0]
        for body in numbered(4):
            await producer.send(Message(topic, body), to=queue)
        bodies: list[bytes] = []
        async for message in consumer.messages():
            bodies.append(message.body)
            if len(bodies) == 2:
                await consumer.retry(message)
                continue
            await consumer.ack(message)
            if len(bodies) == 5:
                break
    assert bodies == [b"m0", b"m1", b"m1", b"m2", b"m3"]


async def test_a_handler_that_comes_later_gets_what_waits(servers: EmbeddedThread, topic: str) -> None:
    async with a_topic(servers, topic, 1) as producer, joined(servers, f"G-{topic}", topic, None) as consumer:
        await send(producer, topic, [b"one"])
        got = asyncio.get_running_loop().create_future()

        @consumer.subscribe(topic)
        async def handler(message: ReceivedMessage) -> None:
            got.set_result(message.body)

        async with asyncio.timeout(60):
            assert await got == b"one"
