"""Writing through Spark itself: what a frame holds arrives, in order where that counts, or an error tells."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.spark.servers import make_topic, servers, wait_until_holds
from tests.spark.write.sinks import BrokenOff

from flaremq.spark.errors import spark_error
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import EmbeddedThread

LIMIT_S = 120


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedThread]:
    with servers(tmp_path_factory.mktemp("two"), brokers=2) as running:
        yield running


def write(found: DataFrame, namesrv: str, **options: str) -> None:
    found.write.format("rocketmq").option("nameServer", namesrv).options(**options).mode("append").save()


def stored(spark: SparkSession, running: EmbeddedThread, topic: str, count: int) -> list[Row]:
    """All of them, once there are so many, in the order of their queues."""
    wait_until_holds(running.namesrv, topic, count)
    reader = spark.read.format("rocketmq").option("nameServer", running.namesrv).option("topic", topic)
    return sorted(reader.load().collect(), key=lambda row: (row.brokerName, row.queueId, row.queueOffset))


def refusal(found: DataFrame, namesrv: str, **options: str) -> str:
    with pytest.raises(Exception) as caught:
        write(found, namesrv, **options)
    return str(spark_error(caught.value))


def numbers(spark: SparkSession, count: int, *more: str, parts: int = 2) -> DataFrame:
    return spark.range(0, count, 1, parts).selectExpr("cast(id as string) as body", *more)


def test_every_column_arrives_as_it_was_sent(spark: SparkSession, two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Out", queues=2)
    make_topic(two.namesrv, "Other", queues=2)
    frame = spark.createDataFrame(
        [
            ("1", None, ["k1", "k2"], "paid", {"amount": "17", "none": None}, "s1", None, None),
            ("2", "Other", None, None, None, None, 1, "broker-b"),
            ("grün", "Other", [], "", {}, "", 0, None),
        ],
        "body string, topic string, keys array<string>, tags string, properties map<string,string>, "
        "shardingKey string, queueId int, brokerName string",
    )
    write(frame, two.namesrv, topic="Out", producerGroup="writers")
    (first,) = stored(spark, two, "Out", 1)
    assert bytes(first.body) == b"1"
    assert (first["keys"], first.tags) == ("k1 k2", "paid")
    assert first.properties["amount"] == "17"
    assert first.properties["__SHARDINGKEY"] == "s1"
    assert first.properties["WAIT"] == "true"
    assert "none" not in first.properties
    assert len(first.msgId) == 32 and first.properties["UNIQ_KEY"] == first.msgId
    to_zero, to_one = stored(spark, two, "Other", 2)
    assert (bytes(to_zero.body), to_zero.brokerName, to_zero.queueId) == ("grün".encode(), "broker-a", 0)
    assert (bytes(to_one.body), to_one.brokerName, to_one.queueId) == (b"2", "broker-b", 1)
    assert to_zero["keys"] is None and to_zero.tags is None
    assert set(to_zero.properties) <= {"WAIT", "UNIQ_KEY", "MSG_REGION", "TRACE_ON", "CLUSTER"}


def test_many_rows_of_many_tasks_all_arrive(spark: SparkSession, two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Many", queues=4)
    write(numbers(spark, 30_000, "concat('k', id) as keys", parts=4), two.namesrv, topic="Many")
    rows = stored(spark, two, "Many", 30_000)
    assert sorted(int(row.body) for row in rows) == list(range(30_000))
    assert all(row["keys"] == f"k{int(row.body)}" for row in rows)
    assert len({row.msgId for row in rows}) == 30_000
    assert {row.brokerName for row in rows} == {"broker-a", "broker-b"}


def test_rows_of_a_key_keep_their_order(spark: SparkSession, two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Keyed", queues=3)
    keyed = numbers(
        spark,
        6_000,
        "if(id % 2 = 0, concat('s', id % 20), null) as shardingKey",
        "if(id % 2 = 1, concat('o', id % 20), null) as orderKey",
        parts=1,
    )
    write(keyed.repartition(2, "shardingKey", "orderKey"), two.namesrv, topic="Keyed")
    rows = stored(spark, two, "Keyed", 6_000)
    by_key: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        assert ("__SHARDINGKEY" in row.properties) is (int(row.body) % 2 == 0)
        by_key[str(int(row.body) % 20)].append(row)
    assert len(rows) == 6_000 and len(by_key) == 20
    for of_key in by_key.values():
        assert len({(row.brokerName, row.queueId) for row in of_key}) == 1
        assert [int(row.body) for row in of_key] == sorted(int(row.body) for row in of_key)
    # Without any key the rows of each task stay in order, in a queue that the task has for itself.
    make_topic(two.namesrv, "Whole", queues=3)
    write(numbers(spark, 2_000), two.namesrv, topic="Whole", ordered="true", window="100")
    whole = [int(row.body) for row in stored(spark, two, "Whole", 2_000)]
    assert sorted(whole) == list(range(2_000))
    assert [n for n in whole if n < 1_000] == list(range(1_000))
    assert [n for n in whole if n >= 1_000] == list(range(1_000, 2_000))
    write(keyed, two.namesrv, topic="Whole", ordered="false")
    assert len(stored(spark, two, "Whole", 8_000)) == 8_000


def test_a_batch_that_is_written_again_has_the_same_ids(spark: SparkSession, two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Same", queues=2)
    for write_id in ("first", "first", "second"):
        write(numbers(spark, 300), two.namesrv, topic="Same", delivery="idempotent", writeId=write_id)
    ids: dict[int, list[str]] = defaultdict(list)
    for row in stored(spark, two, "Same", 900):
        ids[int(row.body)].append(row.msgId)
    assert all(len(each) == 3 and len(set(each)) == 2 for each in ids.values())
    assert len({name for each in ids.values() for name in each}) == 600
    own = spark.createDataFrame([("x", "A" * 32)], "body string, msgId string")
    write(own, two.namesrv, topic="Same", delivery="idempotent", writeId="third")
    assert "A" * 32 in {row.msgId for row in stored(spark, two, "Same", 901)}


def test_a_stream_that_is_broken_off_before_its_commit_sends_the_same_ids_again(
    spark: SparkSession, two: EmbeddedThread, tmp_path: Path
) -> None:
    spark.dataSource.register(BrokenOff)
    make_topic(two.namesrv, "In", queues=2)
    make_topic(two.namesrv, "Streamed", queues=2)
    write(numbers(spark, 400), two.namesrv, topic="In")
    wait_until_holds(two.namesrv, "In", 400)

    def start(form: str, **options: str) -> StreamingQuery:
        reader = spark.readStream.format("rocketmq").option("nameServer", two.namesrv)
        frame = reader.options(topic="In", startingOffsets="earliest", tasks="2").load()
        writer = frame.selectExpr("body", "keys").writeStream.format(form).trigger(availableNow=True)
        given = {"nameServer": two.namesrv, "topic": "Streamed", "delivery": "idempotent", **options}
        given["checkpointLocation"] = str(tmp_path / "checkpoint")
        return writer.options(**given).start()

    with pytest.raises(StreamingQueryException, match="broken off on purpose"):
        start("rocketmq-broken-off").awaitTermination(LIMIT_S)
    once = {int(row.body): row.msgId for row in stored(spark, two, "Streamed", 400)}
    assert len(once) == 400
    assert start("rocketmq").awaitTermination(LIMIT_S)
    both = stored(spark, two, "Streamed", 800)
    assert len(both) == 800
    assert all(row.msgId == once[int(row.body)] for row in both)
    # The next batch has ids of its own.
    write(numbers(spark, 10), two.namesrv, topic="In")
    wait_until_holds(two.namesrv, "In", 410)
    assert start("rocketmq").awaitTermination(LIMIT_S)
    assert len({row.msgId for row in stored(spark, two, "Streamed", 810)}) == 410


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        (["'t' as tag"], {"topic": "T"}, "column 'tag' cannot be written: did you mean tags?"),
        (["1 as tags"], {"topic": "T"}, "column tags is int: expected string"),
        ([], {"topic": "T", "windoww": "1"}, "did you mean window?"),
        ([], {}, "topic is not set"),
        (["if(id = 5, null, 'Many') as topic"], {}, "a row has no topic"),
        (["map('UNIQ_KEY', 'x') as properties"], {"topic": "Out"}, "'UNIQ_KEY' is reserved"),
        (["9 as queueId"], {"topic": "Out"}, "topic 'Out' has no writable queue 9"),
        ([], {"topic": "Out", "maxMessageSize": "1"}, "limit"),
    ],
)
def test_what_cannot_be_written_is_refused_with_its_reason(
    spark: SparkSession, two: EmbeddedThread, columns: list[str], options: dict[str, Any], says: str
) -> None:
    make_topic(two.namesrv, "Out", queues=2)
    said = refusal(numbers(spark, 20, *columns), two.namesrv, **options)
    assert says in said
    assert "\n" not in said


def test_a_topic_cannot_be_overwritten(spark: SparkSession, two: EmbeddedThread) -> None:
    writer = numbers(spark, 1).write.format("rocketmq").option("nameServer", two.namesrv)
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        writer.option("topic", "Out").mode("overwrite").save()


def test_a_broker_that_goes_away_fails_the_write_by_name(spark: SparkSession, tmp_path: Path) -> None:
    with servers(tmp_path) as one:
        make_topic(one.namesrv, "Out", queues=1)
        address = one.addresses[0]
        frame = numbers(spark, 100_000, "if(id % 2 = 0, 'k', null) as shardingKey", parts=1)

        def stop() -> None:
            one.run(_grown(one, 500))
            one.stop("broker-a")

        stopping = threading.Thread(target=stop)
        stopping.start()
        said = refusal(frame, one.namesrv, topic="Out", ratePerTask="2000", timeout="2s", brokerTimeout="2s")
        stopping.join(LIMIT_S)
        assert address in said
        assert "\n" not in said


async def _grown(running: EmbeddedThread, count: int) -> None:
    """The only queue has got so many messages."""
    store = running.brokers[0].store

    async def is_so() -> bool:
        return store.max_offset(b"Out", 0) >= count

    await eventually(f"{count} messages are stored", is_so, LIMIT_S)
