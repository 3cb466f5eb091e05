"""Spark and Apache RocketMQ's servers: topics read, followed and written, archived and replayed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.java.clients import Draft, JavaClients
from tests.java.peers import Apache, Peers
from tests.java.toolchain import Toolchain
from tests.spark.conftest import java, spark  # noqa: F401 - Fixtures.
from tests.spark.servers import fill, make_topic, wait_until_holds

from flaremq.spark.archive.reader import read_archive
from flaremq.spark.clients import close_links
from flaremq.spark.pipelines.archive import ArchivePlan, run_archive
from flaremq.spark.pipelines.replay import ReplayPlan, replay

pytestmark = pytest.mark.java

VERSION = "5.3.3"


@pytest.fixture(scope="module")
def namesrv(java_toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of two brokers."""
    kind = Apache(java_toolchain, version=VERSION)
    with Peers(tmp_path_factory.mktemp("apache")) as peers:
        server = peers.namesrv(kind)
        for name in ("broker-a", "broker-b"):
            peers.broker(kind, server.address, name)
        yield server.address
        close_links()


@pytest.fixture(scope="module")
def clients(java_toolchain: Toolchain, namesrv: str) -> Iterator[JavaClients]:
    with JavaClients(java_toolchain, VERSION) as found:
        found.namesrv = namesrv
        yield found
        found.stop_all()


def table(spark: SparkSession, namesrv: str, topic: str, **options: str) -> DataFrame:  # noqa: F811
    return spark.read.format("rocketmq").options(nameServer=namesrv, topic=topic, **options).load()


def numbers(frame: DataFrame) -> list[int]:
    """What is in their bodies, sorted."""
    return sorted(int(bytes(row.body)[:8]) for row in frame.select("body").collect())


def test_a_batch_has_what_javas_producer_sent_and_brokers_let_through(
    spark: SparkSession,  # noqa: F811
    namesrv: str,
    clients: JavaClients,
) -> None:
    make_topic(namesrv, "Read", 2)
    drafts = [
        Draft(
            topic="Read", body=b"%08d" % n, tags="ab"[n % 2], keys=f"k{n}", properties={"n": str(n), "ü": "é"}
        )
        for n in range(200)
    ]
    sent = {each.message_id: each for each in clients.producer().send(drafts)}
    wait_until_holds(namesrv, "Read", 200)
    frame = table(spark, namesrv, "Read")
    assert numbers(frame) == list(range(200))
    (row,) = frame.where("keys = 'k7'").collect()
    queue = sent[row.msgId].queue
    assert (queue.topic, queue.broker_name, queue.queue_id) == (row.topic, row.brokerName, row.queueId)
    assert (row.queueOffset, bytes(row.body), row.tags) == (sent[row.msgId].queue_offset, b"00000007", "b")
    assert (row.properties["n"], row.properties["ü"], row.properties["TAGS"]) == ("7", "é", "b")
    assert {each.brokerName for each in frame.select("brokerName").distinct().collect()} == {
        "broker-a",
        "broker-b",
    }
    assert numbers(table(spark, namesrv, "Read", tags="b")) == list(range(1, 200, 2))
    assert numbers(table(spark, namesrv, "Read", tags="a || b")) == list(range(200))
    assert numbers(table(spark, namesrv, "Read", sql="n BETWEEN 50 AND 59")) == list(range(50, 60))


def test_a_stream_goes_on_from_its_checkpoint_and_is_written_to_another_topic(
    spark: SparkSession,  # noqa: F811
    namesrv: str,
    tmp_path: Path,
) -> None:
    make_topic(namesrv, "Followed", 2)
    make_topic(namesrv, "Copied", 2)
    fill(namesrv, "Followed", 300)

    def follow() -> None:
        reader = spark.readStream.format("rocketmq").options(nameServer=namesrv, topic="Followed")
        rows = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger="100").load()
        copies = rows.selectExpr("body", "keys", "map('was', cast(queueOffset AS string)) AS properties")
        writer = copies.writeStream.format("rocketmq").options(nameServer=namesrv, topic="Copied")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    follow()
    wait_until_holds(namesrv, "Copied", 300)
    assert numbers(table(spark, namesrv, "Copied")) == list(range(300))
    fill(namesrv, "Followed", 50)
    follow()
    wait_until_holds(namesrv, "Copied", 350)
    assert numbers(table(spark, namesrv, "Copied")) == sorted([*range(300), *range(50)])
    assert table(spark, namesrv, "Copied").where("properties['was'] IS NULL").count() == 0


def test_what_a_batch_writes_is_what_javas_consumer_gets(
    spark: SparkSession,  # noqa: F811
    namesrv: str,
    clients: JavaClients,
) -> None:
    make_topic(namesrv, "Written", 2)
    rows = spark.range(100).selectExpr(
        "cast(lpad(cast(id AS string), 8, '0') AS binary) AS body",
        "concat('k', id) AS keys",
        "if(id % 2 = 0, 'even', 'odd') AS tags",
        "map('n', cast(id AS string), 'ü', 'é') AS properties",
        "concat('s', id % 5) AS shardingKey",
    )
    rows.write.format("rocketmq").options(nameServer=namesrv, topic="Written").mode("append").save()
    got = clients.push("Written", how={"tags": "odd"}).received(50)
    assert sorted(int(each.body) for each in got) == list(range(1, 100, 2))
    (seventh,) = [each for each in got if each.body == b"00000007"]
    assert (seventh.keys, seventh.tags) == ("k7", "odd")
    assert {name: seventh.properties[name] for name in ("n", "ü", "__SHARDINGKEY")} == {
        "n": "7",
        "ü": "é",
        "__SHARDINGKEY": "s2",
    }


def test_rows_in_batches_and_by_themselves_all_reach_javas_consumer(
    spark: SparkSession,  # noqa: F811
    namesrv: str,
    clients: JavaClients,
) -> None:
    make_topic(namesrv, "Sorts", 2)
    rows = spark.range(60).selectExpr(
        "cast(rpad(cast(id AS string), if(id % 10 = 0, 6000, 8), ' ') AS binary) AS body",
        "if(id % 20 = 1, 1, null) AS delayLevel",  # A second, and not in a batch.
    )
    rows.write.format("rocketmq").options(nameServer=namesrv, topic="Sorts").mode("append").save()
    got = clients.push("Sorts").received(60)
    assert sorted(int(each.body) for each in got) == list(range(60))
    assert {int(each.body) for each in got if "DELAY" in each.properties} == {1, 21, 41}


def test_an_archive_of_its_topics_is_replayed_to_another(
    spark: SparkSession,  # noqa: F811
    namesrv: str,
    clients: JavaClients,
    tmp_path: Path,
) -> None:
    make_topic(namesrv, "Kept", 2)
    make_topic(namesrv, "Again", 2)
    fill(namesrv, "Kept", 400, tags=["a", "b"])
    plan = ArchivePlan(namesrv=namesrv, topics=("Kept",), to=tmp_path / "archive")
    assert run_archive(spark, plan).rows == 400
    fill(namesrv, "Kept", 40, tags=["c"])
    done = run_archive(spark, plan)
    assert (done.rows, done.total_rows) == (40, 440)
    kept = read_archive(spark, plan.to)
    assert numbers(kept) == sorted([*range(400), *range(40)])
    places = ("brokerName", "queueId", "queueOffset")
    there = table(spark, namesrv, "Kept").select("msgId", *places)
    assert kept.select("msgId", *places).exceptAll(there).count() == 0
    sent = replay(spark, plan.to, ReplayPlan(namesrv=namesrv, topic="Again", where="tags = 'b'"))
    assert sent.count == 200
    got = clients.push("Again").received(200)
    assert sorted(int(each.body[:8]) for each in got) == list(range(1, 400, 2))
    first = next(each for each in got if each.body.startswith(b"00000007"))
    (was,) = kept.where("keys = 'k7' AND tags = 'b'").collect()
    assert (first.keys, first.tags, first.properties["n"]) == ("k7", "b", "7")
    assert first.properties["REPLAY_MSG_ID"] == was.msgId
    assert first.properties["REPLAY_QUEUE_OFFSET"] == str(was.queueOffset)
