"""What one Spark task sends: rows in batches, each acknowledged before the task ends.

It runs in the event loop of the process' cluster client. Rows are sent in batches; rows whose order matters
go through the lane of their queue. Rows that cannot be in a batch, or would not be compressed in one, are
sent one by one, many at a time.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import gc
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, repeat
from operator import attrgetter
from typing import Final
from weakref import WeakKeyDictionary

from flaremq.arrow.outgoing import Outgoing
from flaremq.base.errors import UsageError
from flaremq.client.producer.balance import by_hash
from flaremq.client.producer.batching import BATCH_SIZE_MAX, Batcher
from flaremq.client.producer.packing import PackedMessage
from flaremq.client.producer.pipeline import SendPipeline
from flaremq.client.producer.producer import Producer
from flaremq.client.producer.retry import RetryingProducer
from flaremq.client.settings import ProducerSettings
from flaremq.model.message import Message, MessageQueue
from flaremq.model.names import is_retry
from flaremq.spark.clients import ClusterClient, close_links, cluster_client
from flaremq.spark.write.options import WriteOptions

_RUN: Final = 64
"""Rows handed to the pipeline at a time, to be sent one by one."""
_BATCH: Final = 256
"""The most rows handed to the lanes at a time."""
_LANES: Final = 4
"""Lanes for rows that may go to any queue."""
_KEYS_MAX: Final = 100_000
"""Keys whose queue is remembered."""

_producers: Final[WeakKeyDictionary[ClusterClient, dict[tuple[str, ProducerSettings], Producer]]] = (
    WeakKeyDictionary()
)


def producer_of(options: WriteOptions) -> tuple[ClusterClient, Producer]:
    """The producer of this process, made on first use; it lives as long as its cluster client."""
    _settle()
    cluster = cluster_client(options.name_server)
    return cluster, cluster.run(_producer(cluster, options))


async def _producer(cluster: ClusterClient, options: WriteOptions) -> Producer:
    """Runs in the loop, so that two threads get the same producer."""
    mine = _producers.setdefault(cluster, {})
    key = options.group, options.producer
    if key not in mine:
        mine[key] = Producer(options.group, settings=options.producer, client=cluster.client)
    await mine[key].start()
    return mine[key]


@functools.cache
def _settle() -> None:
    """Once per process: close clients at its end, and exclude loaded modules from garbage collection.

    Rows are thousands of small objects, so the collector runs often, and would walk over everything that
    Spark and Arrow have loaded each time.
    """
    atexit.register(close_links)
    gc.freeze()


@dataclass
class RateLimit:
    """At most this many messages per second; unused capacity is not saved up."""

    per_second: int
    _free_s: float = 0.0

    def wait_s(self, count: int, now_s: float) -> float:
        """How long to wait before the next `count`."""
        begin_s = max(self._free_s, now_s)
        self._free_s = begin_s + count / self.per_second
        return begin_s - now_s


class TopicQueues:
    """The queues for one task's rows. They are looked up once per topic, so that a key keeps its queue."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}
        self._by_key: dict[tuple[str, str], MessageQueue] = {}
        self._by_id: dict[tuple[str, int, str | None], MessageQueue] = {}

    async def learn(self, topics: Sequence[str]) -> None:
        for topic in set(topics):
            if topic not in self._queues:
                self._queues[topic] = await self._producer.queues(topic)

    def of_key(self, topic: str, key: str) -> MessageQueue:
        found = self._by_key.get((topic, key))
        if found is None:
            if len(self._by_key) >= _KEYS_MAX:
                self._by_key.clear()
            found = self._by_key[topic, key] = by_hash(key)(self._queues[topic], _ANY)
        return found

    def of_id(self, topic: str, queue_id: int, broker_name: str | None) -> MessageQueue:
        """The queue with this id; without a broker's name, of the first broker that has one."""
        key = topic, queue_id, broker_name
        if key not in self._by_id:
            self._by_id[key] = self._found(topic, queue_id, broker_name)
        return self._by_id[key]

    def _found(self, topic: str, queue_id: int, broker_name: str | None) -> MessageQueue:
        for queue in self._queues[topic]:
            if queue.queue_id == queue_id and broker_name in (None, queue.broker_name):
                return queue
        there = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in self._queues[topic][:16])
        wanted = queue_id if broker_name is None else f"{broker_name}:{queue_id}"
        raise UsageError(f"topic {topic!r} has no writable queue {wanted}: it has {there}")


_ANY: Final = Message("any", b"any")  # Choosing by a key does not look at the message.


class TaskSender:
    """Sends the rows of one task, and waits until all are stored."""

    def __init__(self, producer: Producer, options: WriteOptions, task: str) -> None:
        """`task` is the order key of rows without one, if all rows are to be sent in order."""
        self._options = options
        self._task = task
        settings = producer.settings
        self._queues = TopicQueues(producer)
        retrying = RetryingProducer(producer, options.broker_timeout_s)
        self._pipeline = SendPipeline(retrying, options.window, settings.timeout_s, keeps=False)
        size_max = min(BATCH_SIZE_MAX, settings.message_size_max)
        self._lanes = Batcher(producer, settings.timeout_s, size_max, options.broker_timeout_s)
        self._pace = None if options.rate_per_task is None else RateLimit(options.rate_per_task)
        most = min(options.window, max(1, (options.rate_per_task or 1 << 30) // 10))
        self._run, self._batch = min(_RUN, most), min(_BATCH, most)
        self._compress_over = settings.compress_over
        self._lane = 0

    async def feed(self, rows: Outgoing) -> None:
        """Send rows. Waits only while more messages than the window allows are unacknowledged."""
        if rows.order_keys is None and rows.queue_ids is None and not self._options.ordered:
            anywhere, alone = repeat(None), rows.alone or repeat(False)
            ready = map(PackedMessage, rows.topics, rows.bodies, rows.texts, rows.ids, anywhere, alone)
            await self._feed(list(ready))
        else:
            await self._queues.learn(rows.topics)
            in_order, others = self._placed(rows)
            await self._feed_lanes(in_order)
            await self._feed(others)

    async def finish(self) -> None:
        await self._lanes.finish()
        await self._pipeline.finish()
        await self._pipeline.check()

    async def aclose(self) -> None:
        self._pipeline.close()
        await self._lanes.aclose()

    async def _feed(self, messages: Sequence[PackedMessage]) -> None:
        """Send messages whose order does not matter."""
        alone: list[PackedMessage] = []
        if not self._go_together(messages):
            alone = [each for each in messages if not self._go_together((each,))]
            messages = [each for each in messages if self._go_together((each,))]
        for at in range(0, len(alone), self._run):
            part = alone[at : at + self._run]
            await self._wait(len(part))
            await self._pipeline.feed(part)
        await self._pipeline.check()
        await self._feed_lanes(messages)

    def _go_together(self, messages: Sequence[PackedMessage]) -> bool:
        """Whether all of these can be in batches. Checked by column, because mostly they all can."""
        topics, bodies, _, _, _, alone = zip(*messages, strict=True) if messages else [()] * 6
        longest = max(map(len, bodies), default=0)
        return longest < self._compress_over and not any(alone) and not any(map(is_retry, set(topics)))

    async def _feed_lanes(self, messages: Sequence[PackedMessage]) -> None:
        for at in range(0, len(messages), self._batch):
            part = messages[at : at + self._batch]
            await self._wait(len(part))
            await self._lanes.room(self._options.window - len(part))
            self._lane = (self._lane + 1) % _LANES
            for lane, some in groupby(part, key=attrgetter("to")):
                self._lanes.add(self._lane if lane is None else lane, some)

    async def _wait(self, count: int) -> None:
        if self._pace is not None:
            wait_s = self._pace.wait_s(count, asyncio.get_running_loop().time())
            if wait_s > 0:
                await asyncio.sleep(wait_s)

    def _placed(self, rows: Outgoing) -> tuple[list[PackedMessage], list[PackedMessage]]:
        """Messages whose order matters, and all others, each with its queue unless any will do."""
        in_order: list[PackedMessage] = []
        others: list[PackedMessage] = []
        columns = zip(
            *(rows.topics, rows.bodies, rows.texts, rows.ids),
            rows.order_keys or repeat(None),
            rows.queue_ids or repeat(None),
            rows.broker_names or repeat(None),
            rows.alone or repeat(False),
            strict=False,
        )
        for topic, body, text, message_id, key, queue_id, broker_name, alone in columns:
            ordered = key is not None if self._options.ordered is None else self._options.ordered
            if queue_id is not None:
                queue = self._queues.of_id(topic, queue_id, broker_name)
            elif key is not None or ordered:
                queue = self._queues.of_key(topic, self._task if key is None else key)
            else:
                queue = None
            part = in_order if ordered else others
            part.append(PackedMessage(topic, body, text, message_id, queue, alone))
        return in_order, others
