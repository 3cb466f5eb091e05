"""What an archive lacks, has twice or has otherwise than its store is found, message by message."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.pipelines.test_rebuild import written

from flaremq.base.errors import UsageError
from flaremq.spark.pipelines.store import auditarchive
from flaremq.spark.pipelines.store.auditarchive import compare_archive

ARCHIVE = Path("archive")


def archived_as(frame: DataFrame, patch: pytest.MonkeyPatch) -> None:
    """Let this be what the archive holds."""
    patch.setattr(auditarchive, "read_archive", lambda _spark, _folder: frame)


def test_each_kind_of_deviation_is_told_with_its_place(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 400)
    reader = spark.read.format("rocketmq-store").option("brokerName", "broker-a")
    whole = reader.option("topic", "A").load(str(tmp_path))
    archived_as(whole, monkeypatch)
    same = compare_archive(spark, tmp_path, ARCHIVE)
    assert (same.rows, same.later, same.findings, same.found) == (whole.count(), 0, (), 0)
    zero = whole.where("queueId = 0")
    last = zero.agg({"queueOffset": "max"}).first()
    assert last is not None
    changed = (
        zero.where(f"queueOffset not in (2, {last[0]})")
        .selectExpr("* except (tags)", "if(queueOffset = 5, 'other', tags) as tags")
        .unionByName(zero.where("queueOffset = 7"))
        .unionByName(zero.where("queueOffset = 1").selectExpr("* except (queueId)", "9 as queueId"))
    )
    archived_as(changed, monkeypatch)
    found = compare_archive(spark, tmp_path, ARCHIVE, broker="broker-a")
    assert found.findings == (
        "archive: message 2 of queue 0 of A is missing",
        "archive: message 5 of queue 0 of A differs from the one in the store",
        "archive: message 7 of queue 0 of A is archived 2 times",
    )
    rest = whole.where("queueId in (1, 2)").count()
    assert (found.found, found.later) == (3, 1 + rest)


def test_a_message_that_the_store_has_nothing_for_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 100)
    whole = spark.read.format("rocketmq-store").option("topic", "A").load(str(tmp_path))
    whole = whole.selectExpr("* except (brokerName)", "'broker-a' as brokerName")
    beyond = whole.where("queueId = 0 and queueOffset = 3").selectExpr(
        "* except (queueOffset)", "queueOffset + 1000 as queueOffset"
    )
    archived_as(whole.unionByName(beyond), monkeypatch)
    found = compare_archive(spark, tmp_path, ARCHIVE)
    assert found.findings == ("archive: message 1003 of queue 0 of A is not in the store",)
    assert (found.found, found.later) == (1, 0)


def test_an_archive_of_several_brokers_asks_whose_store_it_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 20)
    reader = spark.read.format("rocketmq-store")
    both = [reader.option("brokerName", name).load(str(tmp_path)) for name in ("broker-a", "broker-b")]
    archived_as(both[0].unionByName(both[1]), monkeypatch)
    with pytest.raises(UsageError, match="has messages of broker-a, broker-b: name the store's broker"):
        compare_archive(spark, tmp_path, ARCHIVE)
    with pytest.raises(UsageError, match="no messages of broker 'x'"):
        compare_archive(spark, tmp_path, ARCHIVE, broker="x")
