"""Audit of an archive: it must hold each message of a store once, with the same contents.

The two need not cover the same time. Messages that the store has deleted by age are not compared. Messages
after the last archived one are counted separately: they are missing only if the archive is complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - The usual name.

from flaremq.arrow.schema import COLUMNS
from flaremq.base.errors import UsageError
from flaremq.spark.archive.reader import read_archive
from flaremq.spark.pipelines.store.derive import FINDINGS_MAX

_KEY: Final = ("topic", "queueId", "queueOffset")
_COMPARED: Final = tuple(name for name in COLUMNS if name not in (*_KEY, "brokerName", "properties"))
_QUEUED: Final = "sysFlag & 12 IN (0, 8)"  # Prepared and rolled back messages are in no queue.


@dataclass(frozen=True, slots=True)
class ComparedArchive:
    """The outcome of comparing a store with an archive."""

    rows: int
    """Rows of the archive that were compared."""
    later: int
    """Messages of the store after the last archived one of their queue."""
    findings: tuple[str, ...]
    found: int


def compare_archive(
    spark: SparkSession, store: Path, archive: Path, *, broker: str | None = None
) -> ComparedArchive:
    """Compare the topics of an archive. Raises UsageError if it has several brokers and none is named."""
    archived = read_archive(spark, archive)
    archived = archived.where(F.col("brokerName") == _broker(archived, archive, broker))
    topics = sorted(row[0] for row in archived.select("topic").distinct().collect())
    if not topics:
        return ComparedArchive(0, 0, (), 0)
    stored = spark.read.format("rocketmq-store").option("topics", ",".join(topics)).option("via", "log")
    rows = _digest(stored.load(str(store)).where(_QUEUED), 1, 0).unionByName(_digest(archived, 0, 1))
    both = rows.groupBy(*_KEY).agg(
        F.sum("stored").alias("stored"),
        F.sum("archived").alias("archived"),
        F.min("digest").alias("low"),
        F.max("digest").alias("high"),
    )
    both = both.persist()
    try:
        return _compared(both)
    finally:
        both.unpersist()


def _broker(archived: DataFrame, archive: Path, wanted: str | None) -> str:
    names = sorted(str(row[0]) for row in archived.select("brokerName").distinct().collect())
    if wanted is not None:
        if names and wanted not in names:
            raise UsageError(f"{archive} has no messages of broker {wanted!r}, only of {', '.join(names)}")
        return wanted
    if len(names) > 1:
        raise UsageError(
            f"{archive} has messages of {', '.join(names)}: name the store's broker with --broker"
        )
    return names[0] if names else ""


def _digest(rows: DataFrame, stored: int, archived: int) -> DataFrame:
    """A row's queue offset, and a hash of its contents. Maps have no order, so their entries are sorted."""
    contents = [F.col(name) for name in _COMPARED]
    contents.append(F.array_sort(F.map_entries("properties")))
    return rows.select(
        *_KEY,
        F.xxhash64(*contents).alias("digest"),
        F.lit(stored).alias("stored"),
        F.lit(archived).alias("archived"),
    )


def _compared(both: DataFrame) -> ComparedArchive:
    begin = F.min(F.when(F.col("stored") > 0, F.col("queueOffset"))).alias("begin")
    end = F.max(F.when(F.col("archived") > 0, F.col("queueOffset"))).alias("end")
    bounds = F.broadcast(both.groupBy("topic", "queueId").agg(begin, end))
    # If the store has nothing left of a queue, begin is null: all its messages were deleted by age.
    placed = both.join(bounds, ["topic", "queueId"]).where("queueOffset >= begin")
    kind = (
        F.when(F.col("archived") > 1, "twice")
        .when((F.col("archived") == 0) & (F.col("queueOffset") > F.coalesce("end", F.lit(-1))), "later")
        .when(F.col("archived") == 0, "missing")
        .when(F.col("stored") == 0, "extra")
        .when(F.col("low") != F.col("high"), "differs")
    )
    placed = placed.withColumn("kind", kind)
    counts = {row[0]: row[1] for row in placed.groupBy("kind").count().collect()}
    later = counts.pop("later", 0)
    same = counts.pop(None, 0)
    wrong = placed.where("kind IN ('twice', 'missing', 'extra', 'differs')").orderBy(*_KEY)
    findings = tuple(
        _sentence(*row) for row in wrong.select("kind", *_KEY, "archived").limit(FINDINGS_MAX).collect()
    )
    rows = same + sum(counts.get(name, 0) for name in ("twice", "extra", "differs"))
    return ComparedArchive(rows, later, findings, sum(counts.values()))


def _sentence(kind: str, topic: str, queue_id: int, offset: int, times: int) -> str:
    place = f"archive: message {offset} of queue {queue_id} of {topic}"
    return {
        "twice": f"{place} is archived {times} times",
        "missing": f"{place} is missing",
        "extra": f"{place} is not in the store",
        "differs": f"{place} differs from the one in the store",
    }[kind]
