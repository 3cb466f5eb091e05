"""A consumer whose handlers are called."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from typing import Any

import pytest
from tests.client.consumer.tools import (
    FIRST,
    LAST,
    TIMESTAMP,
    Seen,
    a_client,
    a_topic,
    committed,
    joined,
    numbered,
    owned,
    quick,
    send,
    stored,
)

from flaremq.base.errors import ConfigError, InvalidExpression, InvalidName, UsageError
from flaremq.client.consumer.member import GroupMember
from flaremq.client.consumer.offsets import first_offset
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.message import ReceivedMessage
from flaremq.client.settings import ConsumerSettings
from flaremq.model.message import Message, MessageQueue
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import EmbeddedThread


async def test_a_handler_gets_every_message_once(servers: EmbeddedThread, topic: str) -> None:
    seen = Seen()
    async with a_topic(servers, topic) as producer, joined(servers, f"G-{topic}", topic, seen):
        await send(producer, topic, numbered(50), tags="a", keys=["k"])
        await seen.count(50)
    assert sorted(seen.bodies) == sorted(numbered(50))
    first = seen.messages[0]
    assert (first.topic, first.tags, first.keys, first.reconsume_times) == (topic, "a", ("k",), 0)


async def test_a_plain_function_runs_in_threads_and_not_in_the_loop(
    servers: EmbeddedThread, topic: str
) -> None:
    names, seen = set(), []

    def handler(message: ReceivedMessage) -> None:
        names.add(threading.current_thread().name)
        seen.append(message.body)

    async with a_topic(servers, topic) as producer, joined(servers, f"G-{topic}", topic, handler):
        await send(producer, topic, numbered(20))

        async def all_came() -> bool:
            return len(seen) == 20

        await eventually("all came", all_came)
    assert all(name.startswith(f"flaremq-G-{topic}") for name in names)


async def test_slow_handlers_work_side_by_side(servers: EmbeddedThread, topic: str) -> None:
    inside, most, together = 0, 0, asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if inside == 10:
            together.set()
        await together.wait()
        inside -= 1

    async with (
        a_topic(servers, topic, 1) as producer,
        joined(servers, f"G-{topic}", topic, handler, concurrency=10) as consumer,
    ):
        await send(producer, topic, numbered(30))
        async with asyncio.timeout(60):
            await together.wait()
        assert most == 10
        assert len(consumer.assignment) >= 2


async def test_messages_behind_one_that_is_stuck_go_to_others(servers: EmbeddedThread, topic: str) -> None:
    release, seen = asyncio.Event(), Seen()

    async def handler(message: ReceivedMessage) -> None:
        if message.body == b"stuck":
            await release.wait()
        await seen(message)

    async with a_topic(servers, topic, 1) as producer, joined(servers, f"G-{topic}", topic, handler):
        await send(producer, topic, numbered(300))
        await seen.count(300)  # By now runs are long.
        bodies = [b"stuck", *numbered(40, "behind")]
        await producer.send_many([Message(topic, body) for body in bodies])
        await seen.count(340)
        assert b"stuck" not in seen.bodies
        release.set()
        await seen.count(341)


async def test_topics_have_handlers_of_their_own(servers: EmbeddedThread, topic: str) -> None:
    other, seen, others = f"{topic}-o", Seen(), Seen()
    async with a_topic(servers, topic) as producer, a_topic(servers, other), a_client(servers) as client:
        consumer = PushConsumer(f"G-{topic}", settings=quick(), client=client)
        consumer.subscribe(other, others)

        @consumer.subscribe(topic, tags="x")
        async def handler(message: ReceivedMessage) -> None:
            await seen(message)

        assert consumer.subscriptions == {topic: "x", other: "*"}
        async with consumer:
            await send(producer, topic, numbered(5), tags="x")
            await send(producer, other, numbered(5, "o"), tags="x")
            await seen.count(5)
            await others.count(5)
    assert sorted(seen.bodies) == numbered(5) and sorted(others.bodies) == numbered(5, "o")


async def test_a_handler_of_batches_gets_lists(servers: EmbeddedThread, topic: str) -> None:
    sizes: list[int] = []

    async def handler(messages: list[ReceivedMessage]) -> None:
        sizes.append(len(messages))

    async with a_topic(servers, topic, 1) as producer:
        await producer.send_many([Message(topic, body) for body in numbered(40)])
        async with joined(servers, f"G-{topic}", topic, handler, batch_max=10):

            async def all_came() -> bool:
                return sum(sizes) == 40

            await eventually("all came", all_came)
    assert max(sizes) == 10


@pytest.mark.parametrize(
    ("wish", "wanted"),
    [
        ({"tags": "a || b"}, {b"a1", b"b2"}),
        ({"tags": "c"}, {b"c3"}),
        ({"sql": "n > 1 AND n < 9"}, {b"b2", b"c3"}),
        ({}, {b"a1", b"b2", b"c3", b"none"}),
    ],
    ids=["tags", "one tag", "sql", "all"],
)
async def test_only_what_is_subscribed_to_comes(
    servers: EmbeddedThread, topic: str, wish: dict[str, str], wanted: set[bytes]
) -> None:
    seen = Seen()
    async with a_topic(servers, topic) as producer, joined(servers, f"G-{topic}", topic, seen, **wish):
        for body, tag in ((b"a1", "a"), (b"b2", "b"), (b"c3", "c")):
            await producer.send(Message(topic, body, tags=tag, properties={"n": body[1:].decode()}))
        await producer.send(Message(topic, b"none"))
        last = Message(topic, b"b2" if b"b2" in wanted else b"c3", tags="b" if b"b2" in wanted else "c")
        await producer.send(Message(topic, last.body, tags=last.tags, properties={"n": "2"}))
        await seen.count(len(wanted) + 1)
    assert set(seen.bodies) == wanted


async def test_tags_that_share_a_hash_are_told_apart(servers: EmbeddedThread, topic: str) -> None:
    seen = Seen()
    async with a_topic(servers, topic, 1) as producer, joined(servers, f"G-{topic}", topic, seen, tags="Aa"):
        await send(producer, topic, [b"wrong"], tags="BB")
        await send(producer, topic, [b"right"], tags="Aa")
        await seen.count(1)
    assert seen.bodies == [b"right"]


async def test_an_expression_that_no_broker_can_read_is_told_at_the_start(
    servers: EmbeddedThread, topic: str
) -> None:
    async with a_topic(servers, topic), a_client(servers) as client:
        consumer = PushConsumer(f"G-{topic}", settings=quick(), client=client)
        consumer.subscribe(topic, Seen(), sql="n >")
        with pytest.raises(InvalidExpression):
            await consumer.start()
        assert not client.members.consumers


async def test_a_group_that_is_new_starts_where_it_is_told_to(servers: EmbeddedThread, topic: str) -> None:
    """Asked directly: a broker sends a new group to the begin of a young queue, whatever it wants."""
    async with a_topic(servers, topic, 1) as producer, a_client(servers) as client:
        queue = (await producer.queues(topic))[0]
        for body in numbered(3):
            await producer.send(Message(topic, body), to=queue)
        await client.routes.get(topic)
        retry = MessageQueue(f"%RETRY%G-{topic}", queue.broker_name, 0)

        async def start(of: MessageQueue, **changes: Any) -> int:
            return await first_offset(GroupMember(client, f"G-{topic}", quick(**changes)), of)

        hour_ms = 3_600_000
        now_ms = client.clock.now_ms()
        assert await start(queue, start_from=FIRST) == 0
        assert await start(queue, start_from=LAST) == 3
        assert await start(retry, start_from=LAST) == 0
        assert await start(queue, start_from=TIMESTAMP, start_timestamp_ms=now_ms - hour_ms) == 0
        assert await start(queue, start_from=TIMESTAMP, start_timestamp_ms=now_ms + hour_ms) == 3


async def test_a_group_that_was_here_goes_on_where_it_was(servers: EmbeddedThread, topic: str) -> None:
    group, first, second = f"G-{topic}", Seen(), Seen()
    async with a_topic(servers, topic) as producer:
        await send(producer, topic, numbered(20))
        async with joined(servers, group, topic, first):
            await first.count(20)
        await send(producer, topic, numbered(20, "n"))
        async with joined(servers, group, topic, second, start_from=LAST):
            await second.count(20)
    assert sorted(second.bodies) == sorted(numbered(20, "n"))


async def test_offsets_are_stored_now_and_then_and_never_beyond_what_is_consumed(
    servers: EmbeddedThread, topic: str
) -> None:
    group, release, seen = f"G-{topic}", asyncio.Event(), Seen()

    async def handler(message: ReceivedMessage) -> None:
        if message.body == b"m3":
            await release.wait()
        await seen(message)

    async with a_topic(servers, topic, 1) as producer, joined(servers, group, topic, handler):
        queue = (await producer.queues(topic))[0]
        for body in numbered(10):
            await producer.send(Message(topic, body), to=queue)
        await seen.count(9)

        await stored(servers, group, queue, 3)
        release.set()
        await stored(servers, group, queue, 10)


async def test_a_stop_waits_for_handlers_and_stores_what_they_did(
    servers: EmbeddedThread, topic: str
) -> None:
    group, begun, release = f"G-{topic}", asyncio.Event(), asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        begun.set()
        await release.wait()

    async with a_topic(servers, topic, 1) as producer:
        receipt = (await send(producer, topic, [b"one"]))[0]
        async with joined(servers, group, topic, handler, commit_s=60.0) as consumer:
            await begun.wait()
            stopping = asyncio.create_task(consumer.stop())
            await asyncio.sleep(0)
            assert not stopping.done()
            release.set()
            await stopping
        assert await committed(servers, group, receipt.queue) == 1


async def test_a_stop_does_not_wait_for_ever_and_the_message_comes_again(
    servers: EmbeddedThread, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    group, begun, seen = f"G-{topic}", asyncio.Event(), Seen()

    async def handler(message: ReceivedMessage) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with a_topic(servers, topic, 1) as producer:
        await send(producer, topic, [b"one"])
        async with joined(servers, group, topic, handler, wait_at_stop_s=0.05):
            await begun.wait()
        assert "handlers still running after 0.05 s: 1" in caplog.text
        async with joined(servers, group, topic, seen):
            await seen.count(1)


EARLY = """
import asyncio, os, signal, sys
from flaremq import PushConsumer

class Early(PushConsumer):
    def _begin(self):  # As a message may be handled before all is assigned.
        super()._begin()
        os.kill(os.getpid(), getattr(signal, sys.argv[2]))

async def main():
    consumer = Early("G-early", sys.argv[1])
    consumer.subscribe("T-early", print)
    await consumer.run()
    print("ended", len(consumer.assignment))

asyncio.run(main())
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
async def test_a_signal_that_comes_while_it_starts_stops_it_in_order(
    servers: EmbeddedThread, number: str
) -> None:
    command = [sys.executable, "-c", EARLY, servers.namesrv, number]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "ended 0\n"), ran.stderr
    assert "Traceback" not in ran.stderr


async def test_a_stop_that_nobody_waits_for_any_more_is_done_all_the_same(
    servers: EmbeddedThread, topic: str
) -> None:
    group, begun, release = f"G-{topic}", asyncio.Event(), asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        begun.set()
        await release.wait()

    async with a_topic(servers, topic, 1) as producer, joined(servers, group, topic, handler) as consumer:
        receipt = (await send(producer, topic, [b"one"]))[0]
        await begun.wait()
        stopping = asyncio.create_task(consumer.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        release.set()
        await consumer.stop()
        assert await committed(servers, group, receipt.queue) == 1


async def test_while_it_is_suspended_nothing_is_delivered(servers: EmbeddedThread, topic: str) -> None:
    seen = Seen()
    async with a_topic(servers, topic, 1) as producer, joined(servers, f"G-{topic}", topic, seen) as consumer:
        await send(producer, topic, [b"before"])
        await seen.count(1)
        consumer.suspend()
        await send(producer, topic, [b"meanwhile"] * 2)
        assert consumer.assignment
        assert seen.bodies == [b"before"]
        consumer.resume()
        await seen.count(3)


async def test_a_topic_can_be_left_and_joined_while_it_runs(servers: EmbeddedThread, topic: str) -> None:
    other, seen, others = f"{topic}-o", Seen(), Seen()
    async with (
        a_topic(servers, topic, 1) as producer,
        a_topic(servers, other, 1),
        joined(servers, f"G-{topic}", topic, seen) as consumer,
    ):
        await owned(consumer, topic, 2)
        consumer.subscribe(other, others)
        await owned(consumer, other, 2)
        await send(producer, other, [b"o"])
        await others.count(1)
        consumer.unsubscribe(topic)
        await owned(consumer, topic, 0)


async def test_a_topic_that_comes_later_is_picked_up(
    servers: EmbeddedThread, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    async with joined(servers, f"G-{topic}", topic, seen), a_topic(servers, topic) as producer:
        await send(producer, topic, [b"at last"])
        await seen.count(1)
    assert caplog.text.count(f"topic {topic} is unknown") == 1


async def test_a_queue_that_is_full_is_not_fetched_any_further(servers: EmbeddedThread, topic: str) -> None:
    release, seen = asyncio.Event(), Seen(lambda _message: release.wait())
    async with a_topic(servers, topic, 1) as producer:
        queue = (await producer.queues(topic))[0]
        await producer.send_many([Message(topic, body) for body in numbered(200)], to=queue)
        async with joined(
            *(servers, f"G-{topic}", topic, seen), queue_count_max=40, pull_batch=10, concurrency=4
        ) as consumer:
            await seen.count(4)
            info = consumer.running_info(stacks=False).mq_table[queue]
            assert info.cached_msg_count <= 50
            release.set()
            await seen.count(200)


async def test_one_line_tells_of_a_failure_and_the_traceback_is_for_debugging(
    servers: EmbeddedThread, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "flaremq.client")

    def fail(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            raise ValueError("the figures do not add up")

    seen = Seen(fail)
    async with a_topic(servers, topic, 1) as producer, joined(servers, f"G-{topic}", topic, seen):
        (receipt,) = await send(producer, topic, [b"one"])
        await seen.count(2)
    (line,) = [each for each in caplog.records if "failed" in each.message]
    assert line.levelno == logging.WARNING and line.exc_info is None
    for word in (f"G-{topic}", receipt.message_id, "ValueError", "the figures do not add up"):
        assert word in line.message


async def test_wrong_use_is_told_at_once(servers: EmbeddedThread, topic: str) -> None:
    with pytest.raises(InvalidName):
        PushConsumer("no good name", servers.namesrv)
    with pytest.raises(ConfigError, match="attempts_max"):
        ConsumerSettings(attempts_max=0)
    with pytest.raises(UsageError, match="auto_commit"):
        PushConsumer("G", servers.namesrv, settings=quick(auto_commit=False))
    consumer = PushConsumer("G", servers.namesrv)
    with pytest.raises(InvalidName):
        consumer.subscribe("no good name")
    with pytest.raises(UsageError, match="tags and SQL"):
        consumer.subscribe(topic, tags="a", sql="b = 1")
    with pytest.raises(UsageError, match="no subscription"):
        await consumer.start()
    with pytest.raises(UsageError, match="not running"):
        await consumer.commit()
    await consumer.stop()
    with pytest.raises(UsageError, match="was stopped"):
        await consumer.start()


async def test_a_group_has_one_consumer_in_a_client(servers: EmbeddedThread, topic: str) -> None:
    async with joined(servers, f"G-{topic}", topic, Seen()) as consumer:
        other = PushConsumer(f"G-{topic}", client=consumer.client)
        other.subscribe(topic, Seen())
        with pytest.raises(UsageError, match="its own client"):
            await other.start()
        assert consumer.client.members.consumers[f"G-{topic}"] is consumer


async def test_run_ends_when_it_is_cancelled(servers: EmbeddedThread, topic: str) -> None:
    seen = Seen()
    async with a_topic(servers, topic, 1) as producer, a_client(servers) as client:
        consumer = PushConsumer(f"G-{topic}", settings=quick(), client=client)
        consumer.subscribe(topic, seen)
        running = asyncio.create_task(consumer.run())
        await send(producer, topic, [b"one"])
        await seen.count(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not client.members.consumers
