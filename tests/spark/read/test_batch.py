"""Batches through Spark itself: what was sent is what a frame holds, and a refusal comes with its reason."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.servers import fill, forget_oldest, make_topic, servers

from flaremq.admin.sync import Admin
from flaremq.arrow.schema import COLUMNS
from flaremq.spark.read.groupcommit import commit
from flaremq.spark.schema import spark_schema
from flaremq.testing.embedded import EmbeddedThread


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedThread]:
    with servers(tmp_path_factory.mktemp("two"), brokers=2) as running:
        make_topic(running.namesrv, "A", queues=2)
        make_topic(running.namesrv, "B", queues=1)
        fill(running.namesrv, "A", 3000, tags=["x", "y", None])
        fill(running.namesrv, "B", 50)
        yield running


def frame(spark: SparkSession, running: EmbeddedThread, **options: str) -> DataFrame:
    reader = spark.read.format("rocketmq").option("nameServer", running.namesrv)
    return reader.options(**options).load()


def numbers(found: DataFrame) -> list[int]:
    return sorted(int(bytes(row.body[:8])) for row in found.select("body").collect())


def test_a_frame_holds_what_was_sent_to_two_brokers(spark: SparkSession, two: EmbeddedThread) -> None:
    found = frame(spark, two, topics="A,B")
    assert found.schema == spark_schema()
    rows = found.collect()
    assert len(rows) == 3050
    of_a = [row for row in rows if row.topic == "A"]
    assert sorted(int(bytes(row.body[:8])) for row in of_a) == list(range(3000))
    assert {row.brokerName for row in of_a} == {"broker-a", "broker-b"}
    for row in of_a:
        number = int(bytes(row.body[:8]))
        assert row["keys"] == f"k{number}"
        assert row.tags == ("x", "y", None)[number % 3]
        assert row.properties["n"] == str(number)
    places = {(row.brokerName, row.queueId, row.queueOffset) for row in of_a}
    assert len(places) == 3000
    # The offsets of a frame are those of its first action.
    fill(two.namesrv, "B", 5)
    assert found.count() == 3050
    assert frame(spark, two, topic="B").count() == 55


def test_columns_can_be_chosen_by_option_and_by_schema(spark: SparkSession, two: EmbeddedThread) -> None:
    assert frame(spark, two, topic="A", columns="body,queueOffset").columns == ["body", "queueOffset"]
    without = frame(spark, two, topic="A", includeProperties="false")
    assert without.columns == [name for name in COLUMNS if name != "properties"]
    reader = spark.read.format("rocketmq").option("nameServer", two.namesrv).option("topic", "A")
    own = reader.schema("queueOffset bigint NOT NULL, tags string").load()
    assert {row.tags for row in own.collect()} == {"x", "y", None}
    with pytest.raises(Exception, match="column body is string in the schema"):
        reader.schema("body string").load().collect()
    with pytest.raises(Exception, match="did you mean 'queueId'"):
        reader.schema("queueid int").load().collect()


def test_a_topic_is_a_view_in_sql(spark: SparkSession, two: EmbeddedThread) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW tagged USING rocketmq OPTIONS (nameServer '{two.namesrv}', "
        "topic 'A', columns 'tags,queueOffset')"
    )
    counts = spark.sql("SELECT tags, count(*) AS n FROM tagged GROUP BY tags").collect()
    assert {(row.tags, row.n) for row in counts} == {("x", 1000), ("y", 1000), (None, 1000)}
    spark.catalog.dropTempView("tagged")


def test_filters_run_in_the_broker(spark: SparkSession, two: EmbeddedThread) -> None:
    assert numbers(frame(spark, two, topic="A", tags="x")) == list(range(0, 3000, 3))
    assert numbers(frame(spark, two, topic="A", tags="x || y", tasks="2", minPartitions="3")) == [
        number for number in range(3000) if number % 3 != 2
    ]
    assert numbers(frame(spark, two, topic="A", sql="n >= 2990 AND TAGS = 'y'")) == [2992, 2995, 2998]
    assert frame(spark, two, topic="A", tags="never").count() == 0


def test_a_batch_begins_and_ends_where_it_is_told(spark: SparkSession, two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Ends", queues=1)
    fill(two.namesrv, "Ends", 40)
    with Admin(two.namesrv) as admin:
        before = {f"Ends@{each.queue.broker_name}:0": each for each in admin.topics.stats("Ends").queues}
    between_ms = max(each.last_update_ms or 0 for each in before.values()) + 1
    while time.time_ns() // 1_000_000 <= between_ms:
        pass
    fill(two.namesrv, "Ends", 60)
    key, held = max(before.items(), key=lambda pair: pair[1].max_offset)
    assert frame(spark, two, topic="Ends").count() == 100
    assert frame(spark, two, topic="Ends", startingTimestamp=str(between_ms)).count() == 60
    assert frame(spark, two, topic="Ends", endingTimestamp=str(between_ms)).count() == 40
    only = frame(
        spark,
        two,
        queues=f'["{key}"]',
        startingOffsets=f'{{"{key}": 2}}',
        endingOffsets=f'{{"{key}": {held.max_offset}}}',
    )
    assert [row.queueOffset for row in only.collect()] == list(range(2, held.max_offset))
    commit(two.namesrv, "done", {each: before[each].max_offset for each in before})
    assert frame(spark, two, topic="Ends", group="done", startingOffsets="group").count() == 60
    assert frame(spark, two, topic="Ends", group="done", endingOffsets="group").count() == 40
    assert frame(spark, two, topic="Ends", startingOffsets="latest").count() == 0


def test_tasks_are_as_many_as_are_asked_for(spark: SparkSession, two: EmbeddedThread) -> None:
    assert frame(spark, two, topic="A").rdd.getNumPartitions() == 1
    assert frame(spark, two, topic="A", minPartitions="3").rdd.getNumPartitions() == 3
    parts = frame(spark, two, topic="A", maxRowsPerPartition="500", columns="queueOffset")
    assert parts.rdd.getNumPartitions() == 6
    assert parts.count() == 3000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": "A", "startingOfsets": "latest"}, "did you mean startingOffsets?"),
        ({"topic": "A", "maxOffsetsPerTrigger": "5"}, "applies only to streams"),
        ({"topic": "Absent"}, "topic 'Absent' is unknown to the NameServer"),
        ({"topic": "A", "path": "/data"}, "reads topics, not files"),
        ({"topic": "A", "sql": "n >="}, "correct the expression"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(
    spark: SparkSession, two: EmbeddedThread, options: dict[str, str], says: str
) -> None:
    with pytest.raises(Exception) as caught:
        frame(spark, two, **options).collect()
    assert says in str(caught.value)


def test_messages_that_are_gone_are_an_error_or_left_out(spark: SparkSession, tmp_path: Path) -> None:
    small: dict[str, object] = {
        "maxMessageSize": 16 << 10,
        "mappedFileSizeCommitLog": 64 << 10,
        "mappedFileSizeConsumeQueue": 20 * 100,
    }
    with servers(tmp_path, options=small) as one:
        make_topic(one.namesrv, "T", queues=1)
        fill(one.namesrv, "T", 1000)
        forget_oldest(one)
        from_zero = {"topic": "T", "startingOffsets": '{"T@broker-a:0": 0}'}
        with pytest.raises(Exception, match=r"messages to be read are gone: .*T@broker-a:0 \[0, \d+\)"):
            frame(spark, one, **from_zero).collect()
        left = frame(spark, one, **from_zero, failOnDataLoss="false").count()
        assert 0 < left < 1000
        assert frame(spark, one, topic="T").count() == left
