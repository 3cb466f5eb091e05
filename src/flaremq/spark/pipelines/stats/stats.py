"""Statistics of messages: how many, how large and how late, by topic, queue, tag, producer and hour.

    rows ─► cells: counted by queue, tag, host, hour and latency ─► all tables at once ─► small Arrow tables

    reader = spark.read.format("rocketmq-store").option("columns", ",".join(COLUMNS_NEEDED))
    found = stats(spark, reader.load("/data/store"), StatsPlan(keys_max=0))

The rows are read once for all tables, and once more for keys. Cells are few, so every table is made of them.
The latency of a cell is rounded, which makes it possible to compute percentiles from cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - The usual name.

from flaremq.base.errors import ConfigError, UsageError
from flaremq.base.units import HOUR_MS
from flaremq.spark.errors import planned, spark_error
from flaremq.spark.launch.session import RAISED
from flaremq.spark.pipelines.stats.tables import SETS, Marks, StatsTables, made_stats, set_number

COLUMNS_NEEDED: Final = (
    *("topic", "brokerName", "queueId", "queueOffset", "tags", "body"),
    *("bornTimestamp", "storeTimestamp", "bornHost", "sysFlag"),
)
"""Set these in the option `columns` when you read topics or a store: more columns cost time for nothing."""
KEY_COLUMNS: Final = ("topic", "keys")
"""The same for the DataFrame in which keys are counted."""

_FINE_BELOW_S: Final = 3 * 3600
_BARS_MAX: Final = 90
_STEPS_S: Final = (1, 2, 5, 10, 30, 60, 120)
_SIZE: Final = "bodySize"
_TRANSACTION: Final = 12
_NO_QUEUE: Final = (4, 12)
"""Flags of prepared and rolled back messages: they are in the log, but in no queue."""
_EXACT_MS: Final = 64
"""Shorter latencies are exact. Longer ones keep their leading six bits, so that a percentile is wrong by a
sixty-fourth at most, and there are some hundred different values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsPlan:
    """What to count."""

    keys_max: int = 20
    """How many of the most frequent keys to report. 0: keys are not counted, and rows are read only once."""
    tags_max: int = 1000
    """How many tags and hosts to report, those with the most messages."""
    hosts_max: int = 1000
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Committed offsets by group and topic@broker:queueId, for the backlog. In rows of a store the broker is
    empty (topic@:queueId) unless the option brokerName is set."""
    step_ms: int = HOUR_MS
    """The length of an "hour" in the tables by time. `finer` uses a shorter one, for plots of a few hours."""

    def __post_init__(self) -> None:
        for name, least in (("keys_max", 0), ("tags_max", 1), ("hosts_max", 1), ("step_ms", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)}: expected {least} or more")


def stats(
    spark: SparkSession, source: DataFrame, plan: StatsPlan | None = None, keys: DataFrame | None = None
) -> StatsTables:
    """Count the messages of a DataFrame: topics, a store or an archive.

    `keys` is a DataFrame of the same messages with KEY_COLUMNS, if that is cheaper than reading `source`
    twice. Raises FlareError, never an exception of Spark.
    """
    plan, begun_s = plan or StatsPlan(), monotonic()
    _check_columns(source, COLUMNS_NEEDED)
    if plan.keys_max:
        _check_columns(source if keys is None else keys, KEY_COLUMNS)
    marks = Marks.of(plan.offsets)
    try:
        counted = planned(_counted(spark, source, plan, marks).toArrow)
        top = None
        if plan.keys_max:
            top = planned(_top_keys(source if keys is None else keys, plan.keys_max).toArrow)
    except RAISED as error:
        raise spark_error(error) from error
    return made_stats(counted, top, marks, monotonic() - begun_s, plan.step_ms)


def finer(spark: SparkSession, source: DataFrame, plan: StatsPlan, found: StatsTables) -> StatsTables | None:
    """The same messages counted by minutes or seconds; None if they span three hours or more.

    They are read once more, because the usual tables are by the hour.
    """
    rows = found.rows("topics")
    if not rows:
        return None
    span_s = (max(row["last"] for row in rows) - min(row["first"] for row in rows)).total_seconds()
    if span_s >= _FINE_BELOW_S:
        return None
    step_s = next(step_s for step_s in _STEPS_S if span_s <= _BARS_MAX * step_s)
    return stats(spark, source, replace(plan, keys_max=0, step_ms=1000 * step_s))


def _check_columns(frame: DataFrame, needed: tuple[str, ...]) -> None:
    missing = [
        name
        for name in needed
        if name not in frame.columns and not (name == "body" and _SIZE in frame.columns)
    ]
    if missing:
        raise UsageError(
            f"the source has no column {', '.join(missing)}: read it with the option "
            f"columns={','.join(needed)}, or without columns; an archive has them all"
        )


def _counted(spark: SparkSession, source: DataFrame, plan: StatsPlan, marks: Marks) -> DataFrame:
    """A row for each topic, queue, tag, host and hour. `kind` says which of these a row is for."""
    names = tuple(dict.fromkeys(name for each in SETS.values() for name in each))
    cells = _cells(_with_segments(spark, _plain(source, plan.step_ms), marks))
    found = cells.groupingSets([[F.col(name) for name in each] for each in SETS.values()], *names).agg(
        F.grouping_id().alias("kind"), *_added_up()
    )
    rank = F.row_number().over(Window.partitionBy("kind").orderBy(F.desc("messages"), *names))
    limits = {set_number("tags", names): plan.tags_max, set_number("hosts", names): plan.hosts_max}
    limit = F.lit((1 << 31) - 1)
    for kind, most in limits.items():
        limit = F.when(F.col("kind") == kind, most).otherwise(limit)
    return found.withColumn("rank", rank).where(F.col("rank") <= limit).drop("rank")


def _plain(source: DataFrame, step_ms: int) -> DataFrame:
    """The needed columns of each row, as numbers and texts that are never null."""
    size = F.col(_SIZE) if _SIZE in source.columns else F.octet_length("body")
    stored = F.unix_millis("storeTimestamp")
    # Negative if the producer's clock is ahead of the broker's.
    latency = F.greatest(stored - F.unix_millis("bornTimestamp"), F.lit(0))
    return source.select(
        F.coalesce("topic", F.lit("")).alias("topic"),
        F.coalesce("brokerName", F.lit("")).alias("brokerName"),
        F.coalesce("queueId", F.lit(0)).alias("queueId"),
        F.coalesce("queueOffset", F.lit(0)).alias("queueOffset"),
        F.coalesce("tags", F.lit("")).alias("tag"),
        F.regexp_replace(F.coalesce("bornHost", F.lit("")), r":\d+$", "").alias("host"),
        F.coalesce(stored, F.lit(0)).alias("stored"),
        F.coalesce(size, F.lit(0)).cast("bigint").alias("size"),
        F.coalesce(latency, F.lit(0)).alias("latency"),
        F.coalesce(F.col("sysFlag").bitwiseAND(_TRANSACTION).isin(*_NO_QUEUE), F.lit(False)).alias(
            "unqueued"
        ),
    ).withColumn("hour", F.expr(f"stored div {step_ms}"))


def _with_segments(spark: SparkSession, rows: DataFrame, marks: Marks) -> DataFrame:
    """Adds to each row how many groups' offsets in its queue are at or before it.

    So rows before and after each group's offset are counted separately, and a backlog is a sum of cells.
    """
    if not marks.by_queue:
        return rows.withColumn("segment", F.lit(0))
    listed = [(*queue, list(offsets)) for queue, offsets in marks.by_queue.items()]
    table = spark.createDataFrame(listed, "topic string, brokerName string, queueId int, marks array<bigint>")
    joined = rows.join(F.broadcast(table), ["topic", "brokerName", "queueId"], "left")
    passed = F.size(F.filter("marks", lambda mark: mark <= F.col("queueOffset")))
    waits_for_nobody = F.col("marks").isNull() | F.col("unqueued")
    return joined.withColumn("segment", F.when(waits_for_nobody, 0).otherwise(passed)).drop("marks")


def _cells(rows: DataFrame) -> DataFrame:
    return rows.groupBy(
        *("topic", "brokerName", "queueId", "tag", "host", "hour", "segment"),
        _rounded(F.col("latency")).alias("about"),
    ).agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum("size").alias("bytes"),
        F.max("size").alias("sizeMax"),
        F.min("stored").alias("first"),
        F.max("stored").alias("last"),
        F.max("latency").alias("latencyMax"),
        F.min("queueOffset").alias("offsetMin"),
        F.max("queueOffset").alias("offsetMax"),
    )


def _rounded(latency: Column) -> Column:
    step = F.pow(F.lit(2.0), F.floor(F.log2(latency)) - 5).cast("bigint")
    middle = latency - latency % step + F.floor(step / 2)
    return F.when(latency < _EXACT_MS, latency).otherwise(middle)


def _added_up() -> tuple[Column, ...]:
    """Sums of cells. Percentiles weight the latency of a cell by its messages."""
    return (
        F.percentile("about", [0.5, 0.99], F.col("messages")).alias("percentiles"),
        F.max("latencyMax").alias("latencyMax"),
        F.sum("bytes").alias("bytes"),
        F.max("sizeMax").alias("sizeMax"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.min("offsetMin").alias("offsetMin"),
        F.max("offsetMax").alias("offsetMax"),
        F.sum("messages").alias("messages"),
    )


def _top_keys(frame: DataFrame, most: int) -> DataFrame:
    """The most frequent keys. A message has its keys in one text, separated by spaces."""
    keys = frame.select("topic", F.explode(F.split("keys", " ")).alias("key")).where("key != ''")
    counted = keys.groupBy("topic", "key").agg(F.count(F.lit(1)).alias("messages"))
    return counted.orderBy(F.desc("messages"), "topic", "key").limit(most)
