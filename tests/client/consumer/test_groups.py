"""Many consumers of a group: queues are shared, none is left alone, and broadcasting shares nothing."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from tests.client.consumer.tools import (
    FIRST,
    LAST,
    Seen,
    a_client,
    a_topic,
    joined,
    numbered,
    owned,
    quick,
    send,
)

from flaremq.base.files import Files
from flaremq.client.consumer.locks import LockClient
from flaremq.client.consumer.member import GroupMember
from flaremq.client.consumer.offsets import LocalFileOffsetStore
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.message import ReceivedMessage
from flaremq.model.message import Message, MessageQueue
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import EmbeddedThread


async def test_two_consumers_share_the_queues_and_each_message_is_consumed_once(
    servers: EmbeddedThread, topic: str
) -> None:
    group, one, two = f"G-{topic}", Seen(), Seen()
    async with (
        a_topic(servers, topic) as producer,
        joined(servers, group, topic, one) as first,
        joined(servers, group, topic, two) as second,
    ):
        await owned(first, topic, 4)
        await owned(second, topic, 4)
        await send(producer, topic, numbered(80))

        async def all_came() -> bool:
            return len(one.messages) + len(two.messages) >= 80

        await eventually("all came", all_came)
    assert one.messages and two.messages
    assert Counter(one.bodies + two.bodies) == Counter(numbered(80))


async def test_who_leaves_leaves_its_queues_to_the_others(servers: EmbeddedThread, topic: str) -> None:
    group, seen = f"G-{topic}", Seen()
    async with a_topic(servers, topic) as producer, joined(servers, group, topic, seen) as first:
        await owned(first, topic, 8)
        async with joined(servers, group, topic, Seen()) as second:
            await owned(second, topic, 4)
            await owned(first, topic, 4)
        await owned(first, topic, 8)
        await send(producer, topic, numbered(16))
        await seen.count(16)


async def test_comings_and_goings_under_load_lose_nothing(servers: EmbeddedThread, topic: str) -> None:
    group, seen, sent, stop = f"G-{topic}", Seen(), list[bytes](), asyncio.Event()

    async with a_topic(servers, topic) as producer:

        async def produce() -> None:
            while not stop.is_set():
                body = b"%d" % len(sent)
                await producer.send(Message(topic, body))
                sent.append(body)

        producing = asyncio.create_task(produce())
        async with joined(servers, group, topic, seen):
            for _ in range(4):
                async with joined(servers, group, topic, seen) as other:
                    await owned(other, topic, 4)
            stop.set()
            await producing
            await seen.all_of(sent)
    assert len(sent) > 50


async def test_every_consumer_gets_all_that_is_broadcast(
    servers: EmbeddedThread, topic: str, tmp_path: Path
) -> None:
    group, one, two = f"G-{topic}", Seen(), Seen()
    settings = {"broadcasting": True, "offsets_folder": tmp_path}
    async with (
        a_topic(servers, topic) as producer,
        joined(servers, group, topic, one, **settings) as first,
        joined(servers, group, topic, two, **settings),
    ):
        await owned(first, topic, 8)
        await send(producer, topic, numbered(20))
        await one.count(20)
        await two.count(20)
    assert sorted(one.bodies) == sorted(two.bodies) == sorted(numbered(20))


async def test_a_broadcasting_consumer_with_a_name_goes_on_where_it_was(
    servers: EmbeddedThread, topic: str, tmp_path: Path
) -> None:
    group = f"G-{topic}"

    async def consume(seen: Seen, count: int) -> str:
        async with a_client(servers, instance_name=f"me-{topic}") as client:
            settings = quick(broadcasting=True, offsets_folder=tmp_path, start_from=FIRST)
            consumer = PushConsumer(group, settings=settings, client=client)
            consumer.subscribe(topic, seen)
            async with consumer:
                await seen.count(count)
            return client.client_id

    first, second = Seen(), Seen()
    async with a_topic(servers, topic, 1) as producer:
        await send(producer, topic, numbered(4))
        me = await consume(first, 4)
        await send(producer, topic, [b"new"])
        await consume(second, 1)
    assert second.bodies == [b"new"]
    text = (tmp_path / me / group / "offsets.json").read_text()
    assert text.startswith('{"offsetTable":{{"brokerName":') and f'"topic":"{topic}"' in text


async def test_a_file_of_offsets_that_cannot_be_read_is_read_from_its_backup(
    servers: EmbeddedThread, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = MessageQueue(topic, "broker-a", 0)
    async with a_client(servers, instance_name="me") as client:
        member = GroupMember(client, "G", quick(broadcasting=True, offsets_folder=tmp_path))
        offsets = LocalFileOffsetStore(member)
        assert await offsets.committed(queue) is None
        for offset in (3, 4):
            await offsets.store({queue: offset})
        assert await LocalFileOffsetStore(member).committed(queue) == 4
        offsets.path.write_text('{"offsetTable":{{')
        assert await LocalFileOffsetStore(member).committed(queue) == 3
    assert "cannot be read" in caplog.text
    with pytest.raises(json.JSONDecodeError):
        json.loads(offsets.path.with_name("offsets.json.bak").read_text())  # Java's dialect, not JSON.


async def test_offsets_that_cannot_be_written_are_told_and_end_nothing(
    servers: EmbeddedThread, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "no-folder").write_bytes(b"")
    queue = MessageQueue(topic, "broker-a", 0)
    async with a_client(servers, instance_name="me") as client:
        settings = quick(broadcasting=True, offsets_folder=tmp_path / "no-folder")
        offsets = LocalFileOffsetStore(GroupMember(client, "G", settings))
        offsets._table = {}
        await offsets.store({queue: 3})
        assert await offsets.committed(queue) == 3
    assert "offsets were not stored" in caplog.text


class SlowFiles(Files):
    """The first save waits until it is let, and fails if it is told to."""

    def __init__(self, *, fails: bool) -> None:
        self.begun, self.may_go = threading.Event(), threading.Event()
        self._failures = int(fails)

    def save(self, path: Path, backup: Path, data: bytes) -> None:
        self.begun.set()
        assert self.may_go.wait(30)
        if self._failures:
            self._failures -= 1
            raise OSError("no space")
        super().save(path, backup, data)


@pytest.mark.parametrize("fails", [False, True])
async def test_offsets_are_in_the_file_when_they_are_stored_also_if_an_earlier_store_is_at_it(
    servers: EmbeddedThread, topic: str, tmp_path: Path, fails: bool
) -> None:
    """The last store of a consumer that stops may find its offsets in the hands of a periodic one."""
    queue = MessageQueue(topic, "broker-a", 0)
    async with a_client(servers, instance_name="me") as client:
        client.files = files = SlowFiles(fails=fails)
        member = GroupMember(client, "G", quick(broadcasting=True, offsets_folder=tmp_path))
        offsets = LocalFileOffsetStore(member)
        periodic = asyncio.create_task(offsets.store({queue: 3}))
        assert await asyncio.to_thread(files.begun.wait, 30)
        last = asyncio.create_task(offsets.store({queue: 3}))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not last.done()
        files.may_go.set()
        await asyncio.gather(periodic, last)
        assert await LocalFileOffsetStore(member).committed(queue) == 3


# In order.


async def test_orderly_messages_of_a_queue_come_in_order_whatever_fails(
    servers: EmbeddedThread, topic: str
) -> None:
    tries: Counter[bytes] = Counter()

    def fail(message: ReceivedMessage) -> None:
        tries[message.body] += 1
        assert message.reconsume_times == tries[message.body] - 1
        if message.queue_offset % 5 == 0 and tries[message.body] < 3:
            raise ValueError("not yet")

    seen = Seen(fail)
    async with (
        a_topic(servers, topic, 2) as producer,
        joined(servers, f"G-{topic}", topic, seen, orderly=True),
    ):
        for key in ("a", "b", "c"):
            await send(producer, topic, numbered(20, key), sharding_key=key)
        await seen.all_of([body for key in "abc" for body in numbered(20, key)])
    for key in ("a", "b", "c"):
        bodies = [body for body in seen.bodies if body.startswith(key.encode())]
        assert list(dict.fromkeys(bodies)) == numbered(20, key)
    offsets: dict[MessageQueue, int] = {}
    for message in seen.messages:  # Never one before the one before it is done.
        assert message.queue_offset - offsets.get(message.queue, -1) in (0, 1)
        offsets[message.queue] = message.queue_offset


async def test_orderly_handlers_of_a_queue_never_run_side_by_side(
    servers: EmbeddedThread, topic: str
) -> None:
    inside: Counter[MessageQueue] = Counter()
    most: Counter[MessageQueue] = Counter()
    seen = Seen()

    async def handler(message: ReceivedMessage) -> None:
        inside[message.queue] += 1
        most[message.queue] = max(most[message.queue], inside[message.queue])
        await asyncio.sleep(0)
        inside[message.queue] -= 1
        await seen(message)

    async with (
        a_topic(servers, topic, 2) as producer,
        joined(servers, f"G-{topic}", topic, handler, orderly=True),
    ):
        await producer.send_many([Message(topic, body) for body in numbered(200)])
        await seen.count(200)
    assert set(most.values()) == {1}


async def test_an_orderly_message_that_fails_too_often_is_buried_and_the_queue_goes_on(
    servers: EmbeddedThread, topic: str
) -> None:
    def fail(message: ReceivedMessage) -> None:
        if message.body == b"m1":
            raise ValueError("never")

    seen = Seen(fail)
    async with (
        a_topic(servers, topic, 1) as producer,
        joined(servers, f"G-{topic}", topic, seen, orderly=True, attempts_max=3),
    ):
        queue = (await producer.queues(topic))[0]
        for body in numbered(3):
            await producer.send(Message(topic, body), to=queue)
        await seen.all_of([b"m2"])
    assert seen.bodies == [b"m0", b"m1", b"m1", b"m1", b"m2"]


async def test_orderly_queues_change_hands_without_leaving_order(servers: EmbeddedThread, topic: str) -> None:
    group, log = f"G-{topic}", list[tuple[MessageQueue, int]]()

    async def handler(message: ReceivedMessage) -> None:
        log.append((message.queue, message.queue_offset))

    async with a_topic(servers, topic, 2) as producer:
        stop, sent = asyncio.Event(), list[Message]()

        async def produce() -> None:
            while not stop.is_set():
                sent.append(Message(topic, b"x"))
                await producer.send(sent[-1])

        producing = asyncio.create_task(produce())
        async with joined(servers, group, topic, handler, orderly=True) as first:
            await owned(first, topic, 4)
            async with joined(servers, group, topic, handler, orderly=True) as second:
                await owned(second, topic, 2)
            await owned(first, topic, 4)
            stop.set()
            await producing

            async def all_came() -> bool:
                return len(set(log)) == len(sent)

            await eventually("all came", all_came)
    reached: dict[MessageQueue, int] = {}
    for queue, offset in log:
        assert offset <= reached.get(queue, -1) + 1, f"{queue} goes from {reached.get(queue)} to {offset}"
        reached[queue] = max(offset, reached.get(queue, -1))


async def test_who_has_no_lock_does_not_consume(servers: EmbeddedThread, topic: str) -> None:
    seen = Seen()
    async with (
        a_topic(servers, topic, 1) as producer,
        joined(servers, f"G-{topic}", topic, seen, orderly=True) as consumer,
    ):
        await owned(consumer, topic, 2)
        held = consumer._assignment.queues
        for each in held.values():
            each.locked = False
        await send(producer, topic, numbered(2))

        async def are_fetched() -> bool:
            return sum(each.count for each in held.values()) == 2

        await eventually("they are fetched", are_fetched)
        assert not seen.messages
        for each in await consumer._assignment.locks.renew(held):
            consumer._delivery.arrived(each)
        await seen.count(2)


async def test_queues_that_a_member_has_locked_are_refused_to_others_until_it_leaves(
    servers: EmbeddedThread, topic: str
) -> None:
    group, seen = f"G-{topic}", Seen()
    async with a_topic(servers, topic, 1) as producer, a_client(servers) as client:
        leaving = PushConsumer(group, settings=quick(orderly=True), client=client)
        leaving.subscribe(topic, Seen())
        await leaving.start()
        await owned(leaving, topic, 2)
        await leaving._tasks.aclose(5)
        leaving._assignment.rest()
        queues = list(leaving.assignment)
        async with joined(servers, group, topic, seen, orderly=True) as heir:
            locks = LockClient(
                GroupMember(heir.client, group, quick(orderly=True)), heir._assignment.warnings
            )
            assert not await locks.ask([queue for queue in queues if queue.topic == topic])
            await leaving.stop()
            await owned(heir, topic, 2)
            await send(producer, topic, numbered(6))
            await seen.count(6)


async def test_a_group_may_have_other_wishes_where_to_start_than_its_offsets(
    servers: EmbeddedThread, topic: str
) -> None:
    group, seen = f"G-{topic}", Seen()
    async with a_topic(servers, topic, 1) as producer:
        async with joined(servers, group, topic, Seen()) as first:
            await owned(first, topic, 2)
        await send(producer, topic, numbered(3))
        async with joined(servers, group, topic, seen, start_from=LAST):
            await seen.count(3)


PROGRAM = """
import sys
import threading
from flaremq.client.sync import ConsumerSettings, PushConsumer
from flaremq.protocol.bodies.group import ConsumeFromWhere

namesrv, group, topic, count = sys.argv[1:]
settings = ConsumerSettings(broadcasting=True, start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
consumer, seen = PushConsumer(group, namesrv, settings=settings), threading.Semaphore(0)

def handle(message):
    sys.stdout.write(message.body.decode() + "\\n")  # At once: handlers run side by side.
    seen.release()

consumer.subscribe(topic, handle)
with consumer:
    for _ in range(int(count)):
        seen.acquire(timeout=30)
"""


async def test_a_broadcasting_program_that_is_started_again_goes_on_where_it_was(
    servers: EmbeddedThread, topic: str, tmp_path: Path
) -> None:
    async def consumed(count: int) -> list[str]:
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM, servers.namesrv, f"G-{topic}", topic, str(count)),
            env={**os.environ, "HOME": str(tmp_path)},
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            printed, _ = await program.communicate()
        assert program.returncode == 0
        return sorted(printed.decode().split())

    async with a_topic(servers, topic, 1) as producer:
        await send(producer, topic, [b"old-1", b"old-2"])
        assert await consumed(2) == ["old-1", "old-2"]
        await send(producer, topic, [b"new"])
        assert await consumed(1) == ["new"]
    assert [each.name for each in (tmp_path / ".rocketmq_offsets").iterdir()] == ["127.0.0.1@DEFAULT"]
