"""The format rocketmq-store: what lies in a store folder, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.pipelines.test_rebuild import written

from flaremq.arrow.schema import COLUMNS
from flaremq.base.errors import ConfigError, CorruptStore, UsageError
from flaremq.spark.errors import spark_error
from flaremq.spark.schema import spark_schema
from flaremq.spark.storesource import RocketMQStore, StoreOptions
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import NOW_MS, a_message, small_settings

FORMAT = "rocketmq-store"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files") / "store"
    written(root)
    return root


def table(spark: SparkSession, root: Path, **options: object) -> DataFrame:
    return spark.read.format(FORMAT).options(**{k: str(v) for k, v in options.items()}).load(str(root))


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row[0]).rstrip(b".")) for row in frame.select("body").collect())


def test_a_store_is_a_table_with_nothing_to_register(spark: SparkSession, store: Path) -> None:
    whole = table(spark, store, brokerName="broker-a")
    assert tuple(whole.columns) == COLUMNS
    assert numbers(whole) == list(range(1500))
    assert numbers(table(spark, store, tasks=7, columns="body")) == list(range(1500))
    row = whole.orderBy("physicalOffset").first()
    assert row is not None
    assert (row["physicalOffset"], row["brokerName"], row["bornHost"]) == (0, "broker-a", "10.0.0.1:5000")
    spark.sql(f"create temporary view messages using `{FORMAT}` options (path '{store}')")
    counts = spark.sql("select topic, count(*) from messages group by topic").collect()
    assert {row[0] for row in counts} == {"A", "Bee", "%RETRY%group", "SCHEDULE_TOPIC_XXXX"}


def test_topics_are_read_by_their_queues_or_by_the_log(spark: SparkSession, store: Path) -> None:
    """What was prepared or rolled back lies in no queue, and only the log has it."""
    whole = table(spark, store, columns="topic,body,sysFlag")
    queued = "sysFlag & 12 in (0, 8)"
    assert numbers(table(spark, store, topic="A")) == numbers(whole.where(f"topic = 'A' and {queued}"))
    assert numbers(table(spark, store, topics="A,Bee", via="queue")) == numbers(
        whole.where(f"topic in ('A', 'Bee') and {queued}")
    )
    assert numbers(table(spark, store, topicPattern="[A-B].*")) == numbers(
        whole.where(f"topic in ('A', 'Bee') and {queued}")
    )
    assert numbers(table(spark, store, topic="Bee", via="log")) == numbers(whole.where("topic = 'Bee'"))
    by_pattern = table(spark, store, topicPattern="[A-B].*", via="log", columns="body")
    assert numbers(by_pattern) == numbers(whole.where("topic in ('A', 'Bee')"))
    assert by_pattern.columns == ["body"]


def test_a_schema_of_the_users_own_prunes_columns(spark: SparkSession, store: Path) -> None:
    frame = spark.read.format(FORMAT).schema("queueOffset bigint, body binary").load(str(store))
    assert frame.columns == ["queueOffset", "body"]
    assert numbers(frame) == list(range(1500))


def test_damage_ends_the_query_with_its_place_unless_it_is_skipped(
    spark: SparkSession, tmp_path: Path
) -> None:
    written(tmp_path, 300)
    path = min((tmp_path / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[data.index(b"." * 20)] ^= 1
    path.write_bytes(data)
    with pytest.raises(PySparkException) as failure:
        table(spark, tmp_path).count()
    told = spark_error(failure.value)
    assert isinstance(told, CorruptStore) and "onDamage=skip skips what cannot be read" in str(told)
    assert table(spark, tmp_path, onDamage="skip").count() == 299


def test_beside_a_running_broker_only_what_is_confirmed_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    store = MessageStore(small_settings(tmp_path), owner_dispatches=True)
    store.open()
    try:
        store.put(a_message(b"1"))
        store.dispatch()
        store.put(a_message(b"2"))
        assert numbers(table(spark, tmp_path)) == [1]
    finally:
        store.close()
    assert numbers(table(spark, tmp_path)) == [1, 2]


def test_a_store_without_records_is_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    store = MessageStore(small_settings(tmp_path))
    store.open()
    store.close()
    assert table(spark, tmp_path).count() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "path is not set: expected the folder of a store"),
        ({"path": "/no/such/folder"}, "does not exist: expected a store"),
        ({"path": "s3://bucket/store"}, "s3://bucket/store is not a folder of this machine"),
        ({"path": ".", "logPath": "s3a://b/log"}, "s3a://b/log is not a folder of this machine"),
        ({"path": ".", "topik": "A"}, "unknown option 'topik': did you mean topic"),
        ({"path": "STORE", "via": "air"}, "via='air': expected one of auto, log, queue"),
        ({"path": "STORE", "via": "queue"}, "via=queue needs topics: name them"),
        ({"path": "STORE", "topicPattern": "("}, "topicPattern='\\(': expected a regular expression"),
        ({"path": "STORE", "columns": "bodi"}, "a message has no column 'bodi': did you mean 'body'"),
        ({"path": "STORE", "startingTimestamp": "2", "endingTimestamp": "1"}, "is after endingTimestamp=1"),
    ],
)
def test_a_wrong_option_is_refused_in_words(store: Path, options: dict[str, str], words: str) -> None:
    given = {name: str(store) if value == "STORE" else value for name, value in options.items()}
    with pytest.raises((ConfigError, UsageError), match=words):
        StoreOptions.of(given)


def test_a_topic_without_queues_is_refused_with_the_nearest(store: Path) -> None:
    reader = RocketMQStore({"path": str(store), "topic": "Be"}).reader(spark_schema(COLUMNS))
    with pytest.raises(ConfigError, match="has no queues of Be: did you mean Bee"):
        reader.partitions()


def test_times_choose_rows(spark: SparkSession, store: Path) -> None:
    later: dict[str, Any] = {"startingTimestamp": NOW_MS + 10 * 365 * 86_400_000}
    assert table(spark, store, **later).count() == 0
    assert table(spark, store, endingTimestamp="2100-01-01T00:00:00Z").count() == 1500
