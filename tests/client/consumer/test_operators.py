"""What operators ask of running consumers, through their brokers."""

from __future__ import annotations

import asyncio

from tests.client.consumer.tools import Seen, a_topic, joined, numbered, owned, send, stored

from flaremq.client.consumer.outcome import Later
from flaremq.client.message import ReceivedMessage
from flaremq.model.message import Message, MessageQueue
from flaremq.protocol import beans
from flaremq.protocol.bodies.group import CMResult, ConsumeMessageDirectlyResult
from flaremq.protocol.bodies.running import ConsumerRunningInfo
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers import group as headers
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import EmbeddedThread
from flaremq.testing.fakes.wireclient import WireClient


async def test_how_a_consumer_runs_can_be_seen(servers: EmbeddedThread, topic: str) -> None:
    group = f"G-{topic}"

    def fail(message: ReceivedMessage) -> None:
        if message.body == b"m0" and not message.reconsume_times:
            raise ValueError("no")

    seen = Seen(fail)
    async with (
        a_topic(servers, topic, 1) as producer,
        joined(servers, group, topic, seen, orderly=False) as consumer,
        WireClient() as wire,
    ):
        await send(producer, topic, numbered(10))
        await seen.count(11)
        header = headers.GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=consumer.client.client_id, jstack_enable=True
        )
        answer = await wire.ask(servers.addresses[0], RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    info = beans.decode(ConsumerRunningInfo, answer.body)
    assert info.properties["PROP_CONSUMEORDERLY"] == "false"
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert {each.topic for each in info.subscription_set} == {topic, f"%RETRY%{group}"}
    assert {queue.topic for queue in info.mq_table} == {topic, f"%RETRY%{group}"}
    assert info.status_table[topic].consume_failed_msgs == 1
    assert info.status_table[topic].consume_ok_tps > 0
    for word in ('"MainThread"', 'task "rebalance"', "test_operators.py"):
        assert word in (info.jstack or "")


async def test_a_group_that_is_reset_goes_on_from_there(servers: EmbeddedThread, topic: str) -> None:
    group, seen = f"G-{topic}", Seen()
    async with (
        a_topic(servers, topic, 1) as producer,
        joined(servers, group, topic, seen) as consumer,
        WireClient() as wire,
    ):
        queue = (await producer.queues(topic))[0]
        for body in numbered(5):
            await producer.send(Message(topic, body), to=queue)
        await seen.count(5)
        address = servers.addresses[0]
        assert queue.broker_name == "broker-a"
        header = headers.ResetOffsetRequestHeader(
            topic=topic, group=group, timestamp=consumer.client.clock.now_ms() - 3_600_000, is_force=True
        )
        await stored(servers, group, queue, 5)
        await wire.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        await seen.count(10)
        assert seen.bodies[5:] == numbered(5)


async def test_a_reset_forgets_what_was_fetched(servers: EmbeddedThread, topic: str) -> None:
    group, release = f"G-{topic}", asyncio.Event()
    seen = Seen(lambda _message: release.wait())
    async with a_topic(servers, topic, 1) as producer:
        queue = (await producer.queues(topic))[0]
        for body in numbered(30):
            await producer.send(Message(topic, body), to=queue)
        async with joined(servers, group, topic, seen, concurrency=1) as consumer:
            await seen.count(1)
            await consumer.reset_offsets(topic, {queue: 28, MessageQueue(topic, "elsewhere", 0): 1})
            release.set()
            await seen.count(3)
            await stored(servers, group, queue, 30)
    assert seen.bodies == [b"m0", b"m28", b"m29"]


async def test_positions_are_told(servers: EmbeddedThread, topic: str) -> None:
    seen = Seen()
    async with a_topic(servers, topic, 1) as producer, joined(servers, f"G-{topic}", topic, seen) as consumer:
        await owned(consumer, topic, 2)
        (receipt,) = await send(producer, topic, [b"one"])
        await seen.count(1)

        async def is_one() -> bool:
            return consumer.positions(topic)[receipt.queue] == 1

        await eventually("it is one", is_one)
        assert set(consumer.positions(topic)) == set(await producer.queues(topic))


async def test_a_message_can_be_consumed_on_demand(servers: EmbeddedThread, topic: str) -> None:
    outcomes: list[BaseException | None] = [None, None, Later("not today"), ValueError("no")]

    def handler(message: ReceivedMessage) -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    group = f"G-{topic}"
    async with (
        a_topic(servers, topic, 1) as producer,
        joined(servers, group, topic, handler) as consumer,
        WireClient() as wire,
    ):
        queue = (await producer.queues(topic))[0]
        receipt = await producer.send(Message(topic, b"one"), to=queue)
        await stored(servers, group, queue, 1)
        header = headers.ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=group, client_id=consumer.client.client_id, msg_id=receipt.offset_id
        )
        results = []
        for _ in range(3):
            answer = await wire.ask(servers.addresses[0], RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
            results.append(beans.decode(ConsumeMessageDirectlyResult, answer.body))
    assert [each.consume_result for each in results] == [
        *(CMResult.CR_SUCCESS, CMResult.CR_LATER, CMResult.CR_THROW_EXCEPTION)
    ]
    assert results[2].remark == "ValueError: no"
