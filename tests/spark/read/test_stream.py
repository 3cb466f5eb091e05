"""Streams through Spark itself: nothing twice and nothing lost, over restarts, failures and new queues."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.spark.servers import fill, forget_oldest, make_topic, send, servers

from flaremq.admin.admin import Admin
from flaremq.model.message import Message
from flaremq.spark.read.progress import told_of, watch_progress
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import EmbeddedThread

LIMIT_S = 120


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedThread]:
    with servers(tmp_path_factory.mktemp("two"), brokers=2) as running:
        yield running


class Sink:
    """Keeps the numbers of all messages, batch by batch, and fails when it is told to."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}
        self.fails_at: int | None = None
        self._grown = threading.Condition()

    def __call__(self, found: DataFrame, number: int) -> None:
        if number == self.fails_at:
            raise RuntimeError(f"batch {number} fails on purpose")
        rows = sorted(int(bytes(row.body[:8])) for row in found.select("body").collect())
        with self._grown:
            self.batches[number] = rows
            self._grown.notify_all()

    @property
    def numbers(self) -> list[int]:
        return sorted(number for rows in self.batches.values() for number in rows)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        with self._grown:
            assert self._grown.wait_for(is_so, LIMIT_S), self.batches


class Streams:
    """Queries of one checkpoint after the other."""

    def __init__(self, spark: SparkSession, running: EmbeddedThread, folder: Path) -> None:
        self._spark = spark
        self._running = running
        self._folder = folder

    def start(
        self, sink: Sink, *, now: bool = False, checkpoint: str = "c", **options: str
    ) -> StreamingQuery:
        reader = self._spark.readStream.format("rocketmq").option("nameServer", self._running.namesrv)
        writer = reader.options(**options).load().writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(self._folder / checkpoint))
        return (writer.trigger(availableNow=True) if now else writer).start()

    def run(self, sink: Sink, **options: str) -> list[dict[str, Any]]:
        """All that is there now; the reports of all batches."""
        query = self.start(sink, now=True, **options)
        assert query.awaitTermination(LIMIT_S)
        return [json.loads(each.json) for each in query.recentProgress]


@pytest.fixture
def streams(spark: SparkSession, two: EmbeddedThread, tmp_path: Path) -> Streams:
    return Streams(spark, two, tmp_path)


def sent(running: EmbeddedThread, topic: str, numbers: range) -> None:
    send(running.namesrv, [Message(topic, b"%08d" % number) for number in numbers])


def test_what_is_there_is_read_in_batches_and_a_restart_goes_on(
    streams: Streams, two: EmbeddedThread
) -> None:
    make_topic(two.namesrv, "Restart", queues=2)
    fill(two.namesrv, "Restart", 1000)
    sink = Sink()
    options = {"topic": "Restart", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "400"}
    reports = streams.run(sink, **options)
    assert [len(rows) for _, rows in sorted(sink.batches.items())] == [0, 400, 400, 200]
    assert sink.numbers == list(range(1000))
    source = reports[-1]["sources"][0]
    assert sum(source["endOffset"]["q"].values()) == 1000
    assert sum(source["latestOffset"]["q"].values()) == 1000
    sent(two, "Restart", range(1000, 1100))
    streams.run(sink, **options)
    assert sink.numbers == list(range(1100))
    streams.run(sink, **options)
    assert sink.numbers == list(range(1100))


def test_a_stream_that_begins_at_the_latest_loses_nothing_when_its_first_batches_fail(
    streams: Streams, two: EmbeddedThread
) -> None:
    make_topic(two.namesrv, "Latest", queues=2)
    sent(two, "Latest", range(50))
    sink = Sink()
    for failing, numbers in ((0, range(100, 120)), (1, range(120, 140))):
        sink.fails_at = failing
        query = streams.start(sink, topic="Latest")
        if failing:  # It must have begun before there is something for it.
            sink.wait_until(lambda: 0 in sink.batches)
            sent(two, "Latest", numbers)
        with pytest.raises(StreamingQueryException, match="fails on purpose"):
            query.awaitTermination(LIMIT_S)
        if not failing:
            sent(two, "Latest", numbers)
    sink.fails_at = None
    streams.run(sink, topic="Latest")
    assert sink.numbers == list(range(100, 140))


def test_a_running_stream_sees_new_messages_new_queues_and_tells_its_progress(
    spark: SparkSession, streams: Streams, two: EmbeddedThread
) -> None:
    make_topic(two.namesrv, "live-a", queues=1)
    sink, listener = Sink(), watch_progress(spark)
    query = streams.start(sink, topicPattern="live-.*", group="live", startingOffsets="earliest")
    try:
        sent(two, "live-a", range(10))
        sink.wait_until(lambda: sink.numbers == list(range(10)))
        make_topic(two.namesrv, "live-b", queues=1)
        make_topic(two.namesrv, "live-a", queues=2)
        sent(two, "live-b", range(10, 30))
        sent(two, "live-a", range(30, 60))
        sink.wait_until(lambda: sink.numbers == list(range(60)))
        asyncio.run(caught_up(two, "live", 60))
    finally:
        query.stop()
        spark.streams.removeListener(listener)


async def caught_up(running: EmbeddedThread, group: str, total: int) -> None:
    """As the tools show it; a listener hears of a batch a moment after it."""
    async with Admin(running.namesrv) as admin:

        async def is_so() -> bool:
            found = (await admin.groups.progress(group, owners=False)).queues
            behind = sum(each.broker_offset - each.consumer_offset for each in found)
            return behind == 0 and sum(each.consumer_offset for each in found) == total

        await eventually(f"{group} has no lag", is_so, LIMIT_S)


def test_a_checkpoint_of_another_query_is_refused(streams: Streams, two: EmbeddedThread) -> None:
    for topic in ("Mine", "Yours"):
        make_topic(two.namesrv, topic, queues=1)
        sent(two, topic, range(3))
    sink = Sink()
    streams.run(sink, topic="Mine", startingOffsets="earliest")
    with pytest.raises(StreamingQueryException, match="it belongs to another query"):
        streams.run(sink, topic="Yours")
    with pytest.raises(Exception, match="endingOffsets is set, but a stream has no end"):
        streams.run(sink, topic="Mine", endingOffsets="latest")


def test_lost_data_stops_a_stream_or_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    small: dict[str, object] = {
        "maxMessageSize": 16 << 10,
        "mappedFileSizeCommitLog": 64 << 10,
        "mappedFileSizeConsumeQueue": 20 * 100,
    }
    with servers(tmp_path, options=small) as one:
        streams = Streams(spark, one, tmp_path)
        make_topic(one.namesrv, "T", queues=1)
        sink, options = Sink(), {"topic": "T", "startingOffsets": "earliest"}
        streams.run(sink, **options)
        fill(one.namesrv, "T", 1000)
        forget_oldest(one)
        with pytest.raises(StreamingQueryException, match=r"messages were gone .*T@broker-a:0 \[0, \d+\)"):
            streams.run(sink, **options)
        streams.run(sink, **options, failOnDataLoss="false")
        assert sink.numbers == list(range(sink.numbers[0], 1000))
        assert sink.numbers[0] > 0


def test_progress_of_other_sources_is_not_ours_to_tell() -> None:
    heads = '{"v": 1, "q": {"T@b:0": 9}, "group": "g", "nameServer": "n:1"}'
    assert told_of(heads, '{"v": 1, "q": {"T@b:0": 5}}') == ("n:1", "g", {"T@b:0": 5})
    assert told_of('{"v": 1, "q": {"T@b:0": 9}}', '{"v": 1, "q": {"T@b:0": 5}}') is None
    assert told_of(heads, '{"v": 1, "start": {"at": "latest"}}') is None
    assert told_of('{"logOffset": 4}', '{"logOffset": 4}') is None
    assert told_of(None, None) is None
    assert told_of("5", "5") is None
