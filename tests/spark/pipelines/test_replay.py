"""Replay through Spark itself: what was archived is sent again, in its order and with its origin."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - As all of Spark's users call it.
from tests.spark.servers import make_topic, send, servers, wait_until_holds

from flaremq.base.errors import ConfigError, FlareError, UsageError
from flaremq.model.message import Message
from flaremq.spark.pipelines.archive import ArchivePlan, run_archive
from flaremq.spark.pipelines.replay import ORIGIN, ReplayPlan, replay
from flaremq.spark.write.ids import derived_id
from flaremq.testing.embedded import EmbeddedThread

COUNT = 600


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedThread]:
    with servers(tmp_path_factory.mktemp("two"), brokers=2) as running:
        make_topic(running.namesrv, "2026", queues=2)
        make_topic(running.namesrv, "Bills", queues=1)
        send(running.namesrv, [order(number) for number in range(COUNT)])
        send(running.namesrv, [Message("Bills", b"%d" % n, keys=[f"b{n}"]) for n in range(50)])
        yield running


def order(number: int) -> Message:
    return Message(
        "2026",
        b"%d" % number,
        tags=("paid", "open")[number % 2],
        keys=[f"o{number}", "all"],
        properties={"amount": str(number)},
        sharding_key=f"s{number % 7}",
    )


@pytest.fixture(scope="module")
def folder(spark: SparkSession, two: EmbeddedThread, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As an archive lies on the disk."""
    found = tmp_path_factory.mktemp("archive") / "a"
    reader = spark.read.format("rocketmq").option("nameServer", two.namesrv)
    frame = reader.option("topics", "2026,Bills").load()
    dated = frame.selectExpr(
        "*", "date_format(storeTimestamp, 'yyyy-MM-dd') AS day", "hour(storeTimestamp) AS hour"
    )
    dated.write.partitionBy("topic", "day", "hour").parquet(str(found))
    return found


def stored(spark: SparkSession, running: EmbeddedThread, topic: str, count: int) -> list[Row]:
    """All of them, once there are so many, in the order of their queues."""
    wait_until_holds(running.namesrv, topic, count)
    reader = spark.read.format("rocketmq").option("nameServer", running.namesrv).option("topic", topic)
    return sorted(reader.load().collect(), key=lambda row: (row.brokerName, row.queueId, row.queueOffset))


def source(spark: SparkSession, running: EmbeddedThread, topic: str) -> DataFrame:
    return spark.read.format("rocketmq").option("nameServer", running.namesrv).option("topic", topic).load()


def test_an_archive_is_sent_again_in_order_and_with_its_origin(
    spark: SparkSession, two: EmbeddedThread, folder: Path
) -> None:
    make_topic(two.namesrv, "Again", queues=3)
    plan = ReplayPlan(namesrv=two.namesrv, topic="Again", from_topics=("2026",))
    done = replay(spark, folder, plan)
    assert done.count == COUNT
    assert done.first_ms and done.last_ms and done.first_ms <= done.last_ms
    before = {int(row.body): row for row in stored(spark, two, "2026", COUNT)}
    by_key: dict[str, list[Row]] = defaultdict(list)
    for row in stored(spark, two, "Again", COUNT):
        old = before[int(row.body)]
        assert (row["keys"], row.tags) == (old["keys"], old.tags)
        assert row.properties["amount"] == old.properties["amount"]
        assert row.properties["REPLAY_MSG_ID"] == old.msgId != row.msgId
        assert row.properties["REPLAY_TOPIC"] == "2026"
        place = old.brokerName, str(old.queueId), str(old.queueOffset)
        found = (row.properties[f"REPLAY_{name}"] for name in ("BROKER", "QUEUE_ID", "QUEUE_OFFSET"))
        assert tuple(found) == place
        assert int(row.properties["REPLAY_STORE_TIMESTAMP"]) == round(old.storeTimestamp.timestamp() * 1000)
        assert int(row.properties["REPLAY_BORN_TIMESTAMP"]) == round(old.bornTimestamp.timestamp() * 1000)
        assert row.properties["__SHARDINGKEY"] == old.properties["__SHARDINGKEY"]
        by_key[row.properties["__SHARDINGKEY"]].append(row)
    assert len(by_key) == 7
    for key, rows in by_key.items():
        then = [
            int(row.body)
            for row in stored(spark, two, "2026", COUNT)
            if row.properties["__SHARDINGKEY"] == key
        ]
        assert [int(row.body) for row in rows] == then
        assert len({(row.brokerName, row.queueId) for row in rows}) == 1


def test_a_dry_run_counts_what_is_chosen_and_sends_nothing(
    spark: SparkSession, two: EmbeddedThread, folder: Path
) -> None:
    def counted(**chosen: object) -> dict[str, int]:
        plan = ReplayPlan(namesrv=two.namesrv, topic="Nowhere", dry_run=True, **chosen)  # type: ignore[arg-type]
        return {span.topic: span.count for span in replay(spark, folder, plan).topics}

    assert counted() == {"2026": COUNT, "Bills": 50}
    assert counted(key="b7") == {"Bills": 1}
    assert counted(key="o17") == {"2026": 1}
    assert counted(key="all") == {"2026": COUNT}
    assert counted(key="o1 all") == {}
    assert counted(where="tags = 'paid' AND properties['amount'] >= 300") == {"2026": 150}
    spans = replay(spark, folder, ReplayPlan(namesrv=two.namesrv, dry_run=True))
    assert spans.first_ms is not None and spans.last_ms is not None
    assert counted(from_ms=spans.first_ms, until_ms=spans.last_ms + 1) == counted()
    assert counted(from_ms=spans.last_ms + 1) == {}
    assert counted(until_ms=spans.first_ms) == {}
    bills = next(span for span in spans.topics if span.topic == "Bills")
    assert counted(from_ms=bills.first_ms, from_topics=("Bills",)) == {"Bills": 50}


def test_a_replay_with_a_name_gives_the_same_ids_each_time(spark: SparkSession, two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Named", queues=2)
    odd = "map_concat(properties, map('blank', ' ', 'odd', concat('a', char(1)), 'good', 'g', 'TTL', '9'))"
    frame = source(spark, two, "Bills").withColumn("properties", F.expr(odd))
    for _ in range(2):
        plan = ReplayPlan(namesrv=two.namesrv, topic="Named", replay_id="it's 1", rate=1000, tasks=1)
        assert replay(spark, frame, plan).count == 50
    ids: dict[str, set[str]] = defaultdict(set)
    rows = stored(spark, two, "Named", 100)
    for row in rows:
        ids[row.properties["REPLAY_MSG_ID"]].add(row.msgId)
        # What no client may set is not sent again either.
        assert row.properties["good"] == "g" and not {"blank", "odd", "TTL"} & set(row.properties)
    assert len(rows) == 100 and len(ids) == 50
    assert all(found == {derived_id("it's 1", old)} for old, found in ids.items())
    # What is replayed a second time tells of its first replay, and goes where it was.
    back = ReplayPlan(namesrv=two.namesrv, where="keys = 'b3'")
    assert replay(spark, source(spark, two, "Named"), back).count == 2
    last = stored(spark, two, "Named", 102)
    assert len(last) == 102
    twice = [row for row in last if row.properties["REPLAY_TOPIC"] == "Named"]
    assert [row["keys"] for row in twice] == ["b3", "b3"]
    assert all(set(ORIGIN) <= set(row.properties) and "__SHARDINGKEY" not in row.properties for row in twice)


def test_an_archive_of_ours_is_read_as_it_is_now(
    spark: SparkSession, two: EmbeddedThread, tmp_path: Path
) -> None:
    run_archive(spark, ArchivePlan(namesrv=two.namesrv, to=tmp_path / "archive", topics=("2026", "Bills")))
    make_topic(two.namesrv, "Ours", queues=2)
    plan = ReplayPlan(namesrv=two.namesrv, topic="Ours", from_topics=("2026",), key="all", tasks=2)
    assert replay(spark, tmp_path / "archive", replace(plan, dry_run=True)).count == COUNT
    last_ms = replay(spark, tmp_path / "archive", plan).last_ms
    assert sorted(int(row.body) for row in stored(spark, two, "Ours", COUNT)) == list(range(COUNT))
    assert last_ms is not None
    none = replace(plan, from_ms=last_ms + 1, dry_run=True)
    assert replay(spark, tmp_path / "archive", none).count == 0


def test_a_rate_is_that_of_all_tasks_together(spark: SparkSession, two: EmbeddedThread, folder: Path) -> None:
    make_topic(two.namesrv, "Slowly", queues=2)
    plan = ReplayPlan(namesrv=two.namesrv, topic="Slowly", rate=20, tasks=2, from_topics=("Bills",))
    began_s = time.monotonic()
    assert replay(spark, folder, plan).count == 50
    # Two tasks at ten a second each: the larger share has 25 messages at least.
    assert time.monotonic() - began_s > 2.3


def test_what_cannot_be_is_refused_in_one_line(
    spark: SparkSession, two: EmbeddedThread, folder: Path, tmp_path: Path
) -> None:
    plan = ReplayPlan(namesrv=two.namesrv, topic="Again")
    with pytest.raises(UsageError, match="the source has no column topic, brokerName"):
        replay(spark, spark.range(3).toDF("body"), plan)
    with pytest.raises(FlareError, match="does not exist") as caught:
        replay(spark, tmp_path / "nothing", plan)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match=r"where='amount > 1' is not valid: .*amount"):
        replay(spark, folder, ReplayPlan(namesrv=two.namesrv, where="amount > 1"))
    with pytest.raises(FlareError, match=r"127\.0\.0\.1:1\b"):
        replay(spark, folder, ReplayPlan(namesrv="127.0.0.1:1", topic="Again"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rate": 0}, "rate=0"),
        ({"tasks": -1}, "tasks=-1"),
        ({"from_ms": 5_000, "until_ms": 5_000}, "expected an end after the beginning"),
    ],
)
def test_a_plan_checks_itself(given: dict[str, int], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ReplayPlan(namesrv="127.0.0.1:9876", **given)  # type: ignore[arg-type]
