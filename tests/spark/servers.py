"""What tests of reading do to servers: fill topics, and take away what was in them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from flaremq.admin.admin import Admin as AsyncAdmin
from flaremq.admin.sync import Admin
from flaremq.admin.values.topics import TopicSettings
from flaremq.client.sync import Producer
from flaremq.model.message import Message, MessageQueue
from flaremq.spark.clients import close_links
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import EmbeddedThread


@contextmanager
def servers(
    folder: Path, brokers: int = 1, options: dict[str, object] | None = None
) -> Iterator[EmbeddedThread]:
    """They leave no client of this process behind."""
    try:
        with EmbeddedThread(folder, brokers=brokers, options=options) as running:
            yield running
            close_links()
    finally:
        close_links()


def make_topic(namesrv: str, topic: str, queues: int = 4) -> None:
    with Admin(namesrv) as admin:
        admin.topics.create(topic, TopicSettings(read_queues=queues, write_queues=queues))


def fill(
    namesrv: str, topic: str, count: int, *, size: int = 60, tags: Sequence[str | None] = (None,)
) -> dict[MessageQueue, int]:
    """Messages numbered from 0 in their bodies and in the property n; how many each queue has got."""
    return send(
        namesrv,
        [
            Message(
                topic,
                b"%08d" % number + b"x" * (size - 8),
                tags=tags[number % len(tags)],
                keys=[f"k{number}"],
                properties={"n": str(number)},
            )
            for number in range(count)
        ],
    )


def send(namesrv: str, messages: Sequence[Message]) -> dict[MessageQueue, int]:
    """Send them, and wait until they can be read: a broker takes a message before its queue has it."""
    got: dict[MessageQueue, int] = defaultdict(int)
    ends: dict[MessageQueue, int] = {}
    with Producer("fill", namesrv) as producer:
        for receipt in producer.send_many(messages):
            got[receipt.queue] += 1
            ends[receipt.queue] = max(ends.get(receipt.queue, 0), receipt.queue_offset + 1)
    asyncio.run(_readable(namesrv, messages[0].topic, ends))
    return got


async def _readable(namesrv: str, topic: str, ends: dict[MessageQueue, int]) -> None:
    async with AsyncAdmin(namesrv) as admin:

        async def is_so() -> bool:
            found = {each.queue: each.max_offset for each in (await admin.topics.stats(topic)).queues}
            return all(found.get(queue, 0) >= end for queue, end in ends.items())

        await eventually(f"{topic} can be read", is_so)


def wait_until_holds(namesrv: str, topic: str, count: int) -> None:
    """So many messages of a topic can be read, or more. For those whose receipts somebody else has."""
    asyncio.run(_holds(namesrv, topic, count))


async def _holds(namesrv: str, topic: str, count: int) -> None:
    async with AsyncAdmin(namesrv) as admin:

        async def is_so() -> bool:
            return sum(each.max_offset for each in (await admin.topics.stats(topic)).queues) >= count

        await eventually(f"{topic} holds {count} messages", is_so)


def forget_oldest(running: EmbeddedThread, broker: str = "broker-a") -> None:
    """The broker comes back without its first log file, as after an expiry."""
    running.stop(broker)
    log = running.store(broker) / "commitlog"
    min(log.iterdir()).unlink()
    running.start(broker)
