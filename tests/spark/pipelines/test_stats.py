"""Statistics: what is counted of a store, of topics and of an archive, and how it is told."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.pipelines.test_rebuild import written
from tests.spark.servers import make_topic, send, servers

from flaremq.base.errors import ConfigError, FlareError, UsageError
from flaremq.base.text import size, span
from flaremq.model.message import Message
from flaremq.protocol import fastjson
from flaremq.spark.archive.reader import read_archive
from flaremq.spark.pipelines.archive import ArchivePlan, run_archive
from flaremq.spark.pipelines.stats.groupoffsets import offsets_of_brokers, offsets_of_store
from flaremq.spark.pipelines.stats.plots import plot_stats
from flaremq.spark.pipelines.stats.stats import COLUMNS_NEEDED, KEY_COLUMNS, StatsPlan, finer, stats
from flaremq.spark.pipelines.stats.tables import TABLES, Marks, StatsTables, made_stats, write_stats
from flaremq.spark.pipelines.stats.text import renderables, shown
from flaremq.spark.read.groupcommit import commit
from flaremq.spark.read.options import Selection

HOUR_MS = 3_600_000
T0_MS = 1_777_640_400_000
"""2026-05-01 13:00 in UTC."""


def messages(spark: SparkSession) -> DataFrame:
    """Ten hours of two queues: 100 messages an hour and queue, 1 ms to 100 ms late, tagged by turns."""
    rows = spark.range(2000).selectExpr("id", "id % 2 as q", "id div 2 as o", "id div 200 as h")
    return rows.selectExpr(
        "if(q = 0, 'Orders', 'Bills') as topic",
        "'b' as brokerName",
        "cast(q as int) as queueId",
        "o as queueOffset",
        "if(o % 4 = 0, null, concat('t', o % 4)) as tags",
        "cast(repeat('x', 10 + cast(q as int)) as binary) as body",
        f"timestamp_millis({T0_MS} + h * {HOUR_MS} + o % 100 * 1000) as storeTimestamp",
        f"timestamp_millis({T0_MS} + h * {HOUR_MS} + o % 100 * 1000 - o % 100 - 1) as bornTimestamp",
        "concat('10.0.0.', o % 2, ':', o) as bornHost",
        "if(o % 50 = 0, 4, 0) as sysFlag",
        "concat('k', o % 7, ' all') as keys",
    )


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> StatsTables:
    offsets = {
        "slow": {"Orders@b:0": 250, "Orders@b:9": 3},
        "quick": {"Orders@b:0": 1000, "Bills@b:1": 990, "Gone@b:0": 1},
    }
    return stats(spark, messages(spark), StatsPlan(keys_max=5, tags_max=3, offsets=offsets))


def test_everything_is_counted_in_one_pass(found: StatsTables) -> None:
    assert (found.messages, found.bytes) == (2000, 1000 * 10 + 1000 * 11)
    orders = next(row for row in found.rows("topics") if row["topic"] == "Orders")
    assert (orders["messages"], orders["bytes"], orders["sizeMax"], orders["sizeMean"]) == (
        1000,
        10_000,
        10,
        10.0,
    )
    assert orders["latencyP50Ms"] == pytest.approx(50, abs=1)
    assert orders["latencyP99Ms"] == pytest.approx(99, rel=1 / 32)
    assert orders["latencyMaxMs"] == 100
    assert orders["messagesPerSecond"] == pytest.approx(1000 / (9 * 3600 + 99))
    assert orders["first"].timestamp() * 1000 == T0_MS
    assert [
        (row["topic"], row["queueId"], row["firstOffset"], row["lastOffset"]) for row in found.rows("queues")
    ] == [
        ("Bills", 1, 0, 999),
        ("Orders", 0, 0, 999),
    ]
    assert {(row["host"], row["messages"]) for row in found.rows("hosts")} == {
        ("10.0.0.0", 1000),
        ("10.0.0.1", 1000),
    }
    assert len(found.rows("tags")) == 3 and {row["messages"] for row in found.rows("tags")} == {250}
    hours = [row for row in found.rows("hours") if row["topic"] == "Orders"]
    assert [row["messages"] for row in hours] == [100] * 10
    assert [row["total"] for row in hours] == list(range(100, 1001, 100))
    assert [row["total"] for row in found.rows("queuehours") if row["queueId"] == 1] == list(
        range(100, 1001, 100)
    )
    assert Counter({row["key"]: row["messages"] for row in found.rows("keys")}).most_common(1) == [
        ("all", 1000)
    ]


def test_a_backlog_is_exact_and_leaves_out_what_is_in_no_queue(found: StatsTables) -> None:
    backlog = {(row["group"], row["topic"]): row for row in found.rows("backlog")}
    assert {key: row["waiting"] for key, row in backlog.items()} == {
        ("slow", "Orders"): 750 - 15,
        ("quick", "Bills"): 10,
        ("quick", "Orders"): 0,
    }
    oldest = backlog["slow", "Orders"]["oldest"].timestamp() * 1000
    assert oldest == T0_MS + 2 * HOUR_MS + 51_000
    assert backlog["quick", "Orders"]["oldest"] is None
    grown = [row["total"] for row in found.rows("backloghours") if row["group"] == "slow"]
    assert grown == [49 + 98 * hour for hour in range(8)]


def test_results_are_written_shown_and_drawn(found: StatsTables, tmp_path: Path) -> None:
    (tmp_path / "mine.parquet").write_text("stays")
    for _ in range(2):
        assert [path.stem for path in write_stats(found, tmp_path)] == list(TABLES)
    assert len(list(tmp_path.iterdir())) == len(TABLES) + 1
    assert pq.read_table(tmp_path / "topics.parquet").equals(found.tables["topics"])
    tables = shown(found, 2)
    assert [table.title for table in tables] == [
        *("Topics", "Queues", "Tags, 2 of 3", "Producers", "Hours (UTC), 2 of 20"),
        *("Keys, 2 of 5", "Backlog, 2 of 3"),
    ]
    assert tables[-1].rows[0] == ("slow", "Orders", "735", "2", "2026-05-01 15:00:51")
    assert len(renderables(found)) == 7
    pictures = plot_stats(found, tmp_path / "plots")
    assert [path.name for path in pictures] == ["hours.png", "latency.png", "top.png", "backlog.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    empty = made_stats(_nothing(), None, Marks.of({}), 0.0)
    assert shown(empty) == [] and len(plot_stats(empty, tmp_path / "empty")) == 4
    assert (size(1536), span(950), span(90_000), span(86_400_000 * 3)) == (
        "1.5 KiB",
        "950 ms",
        "90.0 s",
        "3.0 d",
    )


def _nothing() -> pa.Table:
    return pa.table({"kind": pa.array([], pa.int64())})


def test_a_store_is_counted_with_the_offsets_beside_it(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path / "store", 400)
    config = tmp_path / "store" / "config"
    config.mkdir()
    table = {"A@g": {0: 3, 1: 10_000}, "Bee@g": {2: 0}, "A@h": {0: 1}}
    (config / "consumerOffset.json").write_bytes(fastjson.dumps({"offsetTable": table}))
    offsets = offsets_of_store(tmp_path / "store", groups=("g",))
    assert offsets == {"g": {"A@:0": 3, "A@:1": 10_000, "Bee@:2": 0}}
    reader = spark.read.format("rocketmq-store").option("columns", ",".join(COLUMNS_NEEDED))
    keys = spark.read.format("rocketmq-store").option("columns", ",".join(KEY_COLUMNS))
    root = str(tmp_path / "store")
    done = stats(spark, reader.load(root), StatsPlan(offsets=offsets), keys.load(root))
    assert done.messages == 400 and len(done.rows("keys")) == 20
    queues = {(row["topic"], row["queueId"]): row for row in done.rows("queues")}
    waiting = {row["topic"]: row["waiting"] for row in done.rows("backlog")}
    assert waiting == {"A": queues["A", 0]["lastOffset"] - 2, "Bee": queues["Bee", 2]["lastOffset"] + 1}
    with pytest.raises(UsageError, match="has no offsets of x: its groups are g, h"):
        offsets_of_store(tmp_path / "store", groups=("x",))
    assert offsets_of_store(tmp_path) == {}
    with pytest.raises(ConfigError, match="does not exist, so there are no offsets of g"):
        offsets_of_store(tmp_path, groups=("g",))
    (config / "consumerOffset.json").write_text('{"offsetTable": {"A@g": 3}}')
    with pytest.raises(ConfigError, match=r"no readable table at .*consumerOffset"):
        offsets_of_store(tmp_path / "store")


def test_offsets_that_a_real_broker_has_written_are_read_from_its_store(tmp_path: Path) -> None:
    with servers(tmp_path) as running:
        make_topic(running.namesrv, "Orders", queues=2)
        send(running.namesrv, [Message("Orders", b"12345") for _ in range(50)])
        commit(running.namesrv, "readers", {"Orders@broker-a:0": 20, "Orders@broker-a:1": 7})
        store = running.store()
    assert b"{0:20,1:7}" in (store / "config" / "consumerOffset.json").read_bytes()  # As Java writes it.
    found = offsets_of_store(store, "broker-a")
    assert found["readers"] == {"Orders@broker-a:0": 20, "Orders@broker-a:1": 7}


def test_messages_of_a_few_minutes_are_drawn_by_seconds_and_those_of_days_by_hours(
    spark: SparkSession, tmp_path: Path
) -> None:
    written(tmp_path / "store", 400)  # Within a second or two.
    reader = spark.read.format("rocketmq-store").option("columns", ",".join(COLUMNS_NEEDED))
    rows, plan = reader.load(str(tmp_path / "store")), StatsPlan(keys_max=0)
    found = stats(spark, rows, plan)
    fine = finer(spark, rows, plan, found)
    assert fine is not None and fine.step_ms == 1000 and fine.messages == found.messages
    assert sum(row["messages"] for row in fine.rows("hours")) == 400
    assert max(row["hour"] for row in fine.rows("hours")) <= max(row["last"] for row in found.rows("topics"))
    assert found.step_ms == 3_600_000 and all(row["hour"].minute == 0 for row in found.rows("hours"))
    assert len(plot_stats(found, tmp_path / "plots", fine)) == 4
    days = messages(spark)
    assert finer(spark, days, plan, stats(spark, days, plan)) is None


def test_topics_are_counted_with_what_brokers_know_of_groups(spark: SparkSession, tmp_path: Path) -> None:
    with servers(tmp_path) as running:
        make_topic(running.namesrv, "Orders", queues=1)
        send(running.namesrv, [Message("Orders", b"12345", tags="t", keys=["k"]) for _ in range(50)])
        commit(running.namesrv, "readers", {"Orders@broker-a:0": 20})
        offsets = offsets_of_brokers(running.namesrv, Selection(topics=("Orders",)), ("readers",))
        assert offsets == {"readers": {"Orders@broker-a:0": 20}}
        reader = spark.read.format("rocketmq").option("nameServer", running.namesrv).option("topic", "Orders")
        done = stats(spark, reader.load(), StatsPlan(offsets=offsets))
        assert (done.messages, done.bytes) == (50, 250)
        assert [row["waiting"] for row in done.rows("backlog")] == [30]
        assert done.rows("keys") == [{"topic": "Orders", "key": "k", "messages": 50}]
        plan = ArchivePlan(namesrv=running.namesrv, topics=("Orders",), to=tmp_path / "archive")
        assert run_archive(spark, plan).rows == 50
        archived = stats(spark, read_archive(spark, plan.to), StatsPlan(offsets=offsets))
        assert {name: archived.rows(name) for name in TABLES} == {name: done.rows(name) for name in TABLES}
        with pytest.raises(UsageError, match="brokers have no offsets of nobody in topics Orders"):
            offsets_of_brokers(running.namesrv, Selection(topics=("Orders",)), ("nobody",))


def test_what_cannot_be_counted_is_said(spark: SparkSession) -> None:
    with pytest.raises(
        UsageError, match="the source has no column queueOffset, body: read it with the option"
    ):
        stats(spark, messages(spark).drop("body", "queueOffset"))
    with pytest.raises(UsageError, match="the source has no column keys"):
        stats(spark, messages(spark).drop("keys"))
    with pytest.raises(ConfigError, match="keys_max=-1: expected 0 or more"):
        StatsPlan(keys_max=-1)
    with pytest.raises(UsageError, match="'Orders' is not a queue"):
        stats(spark, messages(spark), StatsPlan(offsets={"g": {"Orders": 1}}))
    with pytest.raises(FlareError, match="divi"):
        stats(spark, messages(spark).selectExpr("* except (body)", "queueOffset div 0 as bodySize"))
    nothing = stats(spark, messages(spark).where("false"), StatsPlan())
    assert nothing.messages == 0 and shown(nothing) == []
