"""Replay: all or some archived messages sent again, in their original order.

    archive ─► filter ─► one partition per share of the keys, sorted ─► the format "rocketmq", ordered

A message gets a new offset and a new time; properties say where it came from (`ORIGIN`). The user's
properties are kept. System properties are not: brokers and clients set new ones, and a replayed message is
never delayed, a request or half of a transaction, whatever the original was.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - The usual name.
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from flaremq.base.errors import ConfigError, UsageError
from flaremq.base.localpath import local_path
from flaremq.model import properties as names
from flaremq.model.names import check_group, check_topic
from flaremq.spark.archive.identity import identity_of
from flaremq.spark.archive.reader import read_archive
from flaremq.spark.errors import spark_error
from flaremq.spark.launch.session import RAISED
from flaremq.spark.options import DEFAULT_GROUP
from flaremq.spark.schema import spark_schema
from flaremq.spark.write.ids import derived_id_sql
from flaremq.spark.write.options import AT_LEAST_ONCE, IDEMPOTENT

if TYPE_CHECKING:
    from collections.abc import Mapping

ORIGIN: Final[Mapping[str, str]] = {
    "REPLAY_MSG_ID": "msgId",
    "REPLAY_TOPIC": "topic",
    "REPLAY_BROKER": "brokerName",
    "REPLAY_QUEUE_ID": "cast(queueId AS string)",
    "REPLAY_QUEUE_OFFSET": "cast(queueOffset AS string)",
    "REPLAY_STORE_TIMESTAMP": "cast(unix_millis(storeTimestamp) AS string)",
    "REPLAY_BORN_TIMESTAMP": "cast(unix_millis(bornTimestamp) AS string)",
}
"""Properties of a replayed message, and the field of the original that each holds. Times are in ms."""

NOT_KEPT: Final = names.RESERVED | {
    *(names.SHARDING_KEY, names.START_DELIVER_TIME, names.REDIRECT, names.FORWARD_QUEUE_ID),
    *(names.TRANSACTION_ID, names.TRANSACTION_CHECK_TIMES, names.CHECK_IMMUNITY_TIME_IN_SECONDS),
    *(names.INNER_NUM, names.INNER_BASE, names.INNER_MULTI_DISPATCH, names.TRACE_CONTEXT),
}
"""System properties, which are not sent again. The sharding key is sent, but not as a user property."""

_NEEDED: Final = (
    *("topic", "brokerName", "queueId", "queueOffset", "msgId", "keys", "tags", "body", "properties"),
    *("bornTimestamp", "storeTimestamp"),
)
_ORDER: Final = ("storeTimestamp", "brokerName", "queueId", "queueOffset")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """Which messages are sent again, where, and how fast."""

    namesrv: str
    topic: str | None = None
    """Target topic. None: each message goes to its original topic."""
    from_topics: tuple[str, ...] = ()
    """Only messages of these topics."""
    from_ms: int | None = None
    """Only messages stored at this time or later."""
    until_ms: int | None = None
    """Only messages stored before this time."""
    key: str | None = None
    """Only messages with this key."""
    where: str | None = None
    """Only messages for which this Spark SQL condition on their columns is true."""
    rate: int | None = None
    """The most messages per second, over all tasks."""
    replay_id: str | None = None
    """Makes message ids repeatable: another replay with this name gives each message the same id."""
    group: str = DEFAULT_GROUP
    tasks: int | None = None
    """None: as many as can run at once."""
    dry_run: bool = False
    """Count only; send nothing."""

    def __post_init__(self) -> None:
        check_group(self.group)
        for topic in (*self.from_topics, *(() if self.topic is None else (self.topic,))):
            check_topic(topic)
        for name in ("rate", "tasks"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value}: expected 1 or more")
        if self.from_ms is not None and self.until_ms is not None and self.from_ms >= self.until_ms:
            raise ConfigError(
                f"from {_iso(self.from_ms)} until {_iso(self.until_ms)}: expected an end after the beginning"
            )


@dataclass(frozen=True, slots=True)
class TopicSpan:
    """The chosen messages of one topic."""

    topic: str
    count: int
    first_ms: int
    last_ms: int
    """When the first and the last of them were stored."""


@dataclass(frozen=True, slots=True)
class Replayed:
    count: int
    """Messages sent; in a dry run, those that would be."""
    first_ms: int | None
    last_ms: int | None
    """When the first and the last of them were stored; None without messages."""
    topics: tuple[TopicSpan, ...] = ()
    """In a dry run: by original topic."""


def replay(spark: SparkSession, source: str | Path | DataFrame, plan: ReplayPlan) -> Replayed:
    """Send archived messages again, from a folder or a DataFrame with the columns of messages.

    Raises FlareError, never an exception of Spark. After a failure some messages may have been sent.
    """
    try:
        found = chosen(source if isinstance(source, DataFrame) else archived(spark, source, plan), plan)
        return _counted(found) if plan.dry_run else _sent(spark, found, plan)
    except RAISED as error:
        raise spark_error(error) from error


def check_source(folder: str | Path) -> None:
    """UsageError if this cannot be an archive; works without Spark."""
    path = local_path(folder)
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise UsageError(f"{path} {what}: expected an archive, or a folder of Parquet files")


def archived(spark: SparkSession, folder: str | Path, plan: ReplayPlan) -> DataFrame:
    """An archive as it is now; or any folder of Parquet files, below topic=.../day=.../hour=... or not.

    With a schema given, Spark does not guess that a topic called 2026 is a number.
    """
    folder = local_path(folder)
    if identity_of(folder) is not None:
        begin, end = (None if ms is None else _time(ms) for ms in (plan.from_ms, plan.until_ms))
        topics = plan.from_topics or None
        return read_archive(spark, folder, topics=topics, begin=begin, end=end)
    more = [StructField("day", StringType()), StructField("hour", IntegerType())]
    schema = StructType([*spark_schema().fields, *more])
    return spark.read.schema(schema).parquet(str(folder))


# Selecting messages.


def chosen(frame: DataFrame, plan: ReplayPlan) -> DataFrame:
    """The rows that a plan selects. UsageError for a DataFrame without messages, or an invalid condition."""
    missing = [name for name in _NEEDED if name not in frame.columns]
    if missing:
        raise UsageError(
            f"the source has no column {', '.join(missing)}: expected all columns of a message, as in an "
            "archive, "
            'or in a DataFrame read with format("rocketmq") without the option columns'
        )
    if plan.from_topics:
        frame = frame.where(F.col("topic").isin(*plan.from_topics))
    frame = _in_time(frame, plan)
    if plan.key is not None:
        frame = frame.where(F.array_contains(F.split("keys", " "), plan.key))
    return frame if plan.where is None else _where(frame, plan.where)


def _in_time(frame: DataFrame, plan: ReplayPlan) -> DataFrame:
    day = F.col("day").cast("string") if "day" in frame.columns else None
    stored = F.col("storeTimestamp")
    if plan.from_ms is not None:
        frame = frame.where(stored >= F.timestamp_millis(F.lit(plan.from_ms)))
        if day is not None:  # Lets Spark skip whole folders.
            frame = frame.where(day.isNull() | (day >= _iso(plan.from_ms)[:10]))
    if plan.until_ms is not None:
        frame = frame.where(stored < F.timestamp_millis(F.lit(plan.until_ms)))
        if day is not None:
            frame = frame.where(day.isNull() | (day <= _iso(plan.until_ms)[:10]))
    return frame


def _where(frame: DataFrame, condition: str) -> DataFrame:
    try:
        return frame.where(condition)
    except PySparkException as error:
        raise UsageError(
            f"where={condition!r} is not valid: {spark_error(error)}; expected a condition on the "
            "columns of a message, for example tags = 'paid' AND properties['amount'] > 100"
        ) from None


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _iso(ms: int) -> str:
    return _time(ms).isoformat()


# Counting and sending them.


def _span() -> tuple[Column, Column, Column]:
    ms = F.unix_millis("storeTimestamp")
    return F.count(F.lit(1)).alias("count"), F.min(ms).alias("first"), F.max(ms).alias("last")


def _counted(frame: DataFrame) -> Replayed:
    rows = frame.groupBy("topic").agg(*_span()).orderBy("topic").collect()
    spans = tuple(TopicSpan(row["topic"], row["count"], row["first"], row["last"]) for row in rows)
    first_ms = min((span.first_ms for span in spans), default=None)
    last_ms = max((span.last_ms for span in spans), default=None)
    return Replayed(sum(span.count for span in spans), first_ms, last_ms, spans)


def _sent(spark: SparkSession, frame: DataFrame, plan: ReplayPlan) -> Replayed:
    tasks = plan.tasks or spark.sparkContext.defaultParallelism
    if plan.rate is not None:
        tasks = min(tasks, plan.rate)  # So that each may send at least one per second.
    seen = Observation()
    ordered = in_order(frame, tasks).observe(seen, *_span())
    writer = outgoing(ordered, plan).write.format("rocketmq").option("nameServer", plan.namesrv)
    writer = writer.option("producerGroup", plan.group).option("ordered", "true")
    if plan.topic is not None:
        writer = writer.option("topic", plan.topic)
    if plan.rate is not None:
        writer = writer.option("ratePerTask", str(plan.rate // tasks))
    writer = writer.option("delivery", AT_LEAST_ONCE if plan.replay_id is None else IDEMPOTENT)
    if plan.replay_id is not None:
        writer = writer.option("writeId", plan.replay_id)
    writer.mode("append").save()
    found = seen.get
    return Replayed(found["count"], found["first"], found["last"])


def in_order(frame: DataFrame, tasks: int) -> DataFrame:
    """All messages of a key in one task, in the order in which they were stored. Adds the column orderKey.

    It is the sharding key, or else the keys, or else the queue of the original message.
    """
    sharding = f"nullif(trim(properties['{names.SHARDING_KEY}']), '')"
    queue = "concat_ws('/', topic, brokerName, queueId)"
    key = F.expr(f"coalesce({sharding}, nullif(trim(keys), ''), {queue})")
    return frame.withColumn("orderKey", key).repartition(tasks, "orderKey").sortWithinPartitions(*_ORDER)


def outgoing(frame: DataFrame, plan: ReplayPlan) -> DataFrame:
    """The columns to write."""
    columns = [
        F.col("body"),
        F.col("keys"),
        F.expr("nullif(trim(tags), '')").alias("tags"),
        F.expr(_properties()).alias("properties"),
        F.expr(f"nullif(trim(properties['{names.SHARDING_KEY}']), '')").alias("shardingKey"),
        F.col("orderKey"),
    ]
    if plan.topic is None:
        columns.append(F.col("topic"))
    if plan.replay_id is not None:
        columns.append(F.expr(derived_id_sql(plan.replay_id, "msgId")).alias("msgId"))
    return frame.select(*columns)


def _properties() -> str:
    """The user's properties and those of the origin, without what no client may set, such as blank values."""
    left_out = ", ".join(f"'{name}'" for name in sorted({*NOT_KEPT, *ORIGIN}))
    legal = "trim(k) != '' AND trim(v) != '' AND instr(concat(k, v), char(1)) = 0"
    transient = f"startswith(k, '{names.TRANSIENT_PREFIX}')"
    user = f"map_filter(properties, (k, v) -> NOT k IN ({left_out}) AND {legal} AND NOT {transient})"
    origin = ", ".join(f"'{name}', {value}" for name, value in ORIGIN.items())
    return f"map_concat(coalesce({user}, map()), map({origin}))"
