"""Topics written to an archive: every message exactly once, whichever process is killed.

    brokers ─► tasks: hidden Parquet files ─► one commit a batch ─► Parquet, Delta or Iceberg

    plan = ArchivePlan(namesrv="127.0.0.1:9876", topics=("Orders",), to=Path("/archive"))
    archived = run_archive(spark, plan)

Three things ensure this. A batch has the same messages when it is run again, because its offsets are in the
checkpoint before it begins. The archive records the number of its last batch in the same step that adds its
files. And only one run at a time may add to an archive; a run that was thought dead is refused.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final, Self

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from flaremq.base.errors import ConfigError, FlareError, UsageError
from flaremq.base.localpath import local_path
from flaremq.base.units import GiB
from flaremq.model.queuekey import queue_of
from flaremq.spark.archive.identity import (
    CHECKPOINT,
    check_checkpoint,
    check_format,
    checked_identity,
    made_identity,
    prepare_checkpoint,
)
from flaremq.spark.archive.lease import WriterLease
from flaremq.spark.archive.reader import opened_table
from flaremq.spark.archive.sink import NAME, ArchiveSink
from flaremq.spark.errors import is_worker_late, planned, spark_error
from flaremq.spark.launch.session import RAISED
from flaremq.spark.read.bounds import Bound
from flaremq.spark.read.groupcommit import commit
from flaremq.spark.read.offsets import load
from flaremq.spark.read.options import ReadOptions, hasty
from flaremq.spark.read.planner import StreamPlanner
from flaremq.spark.read.progress import ProgressListener, told_of, watch_progress

log = logging.getLogger(__name__)

_OURS: Final = {
    "columns": "an archive has all columns",
    "includeproperties": "an archive has all columns",
    "nameserver": "use namesrv",
    "topic": "use topics",
    "topics": "use topics",
    "topicpattern": "use pattern",
    "group": "use group",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePlan:
    """Which topics to archive, where and how."""

    namesrv: str
    to: Path
    """The archive's folder, shared by the driver and all executors."""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """Instead of topics: a regular expression, which also takes topics created later."""
    format: str = "parquet"
    """parquet, delta or iceberg."""
    checkpoint: Path | None = None
    """Spark's checkpoint; None: a folder inside the archive."""
    interval_s: float = 10.0
    """The shortest time from one batch to the next; longer means larger files."""
    offsets_max: int = 2_000_000
    """The most messages of a batch."""
    bytes_max: int = 1 * GiB
    """The same in bytes. An interrupted batch is repeated as a whole."""
    group: str | None = None
    """Consumer group whose offsets show the archive's progress in the brokers."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of the format "rocketmq": startingOffsets, tags, failOnDataLoss ..."""

    def __post_init__(self) -> None:
        check_format(self.format)
        for path in (self.to, self.checkpoint):
            local_path(path or "")
        if bool(self.topics) == (self.pattern is not None):
            raise ConfigError(
                "expected either topics or pattern, for example topics=('Orders',) or pattern='order-.*'"
            )
        if self.interval_s < 0:
            raise ConfigError(
                f"interval_s={self.interval_s:g}: expected 0 or more, for example interval_s=10"
            )
        for name, limit in (("offsets_max", self.offsets_max), ("bytes_max", self.bytes_max)):
            if limit < 1:
                raise ConfigError(f"{name}={limit}: expected a whole number of at least 1")
        for name in self.options:
            if name.casefold() in _OURS:
                raise ConfigError(f"{name} cannot be set for an archive: {_OURS[name.casefold()]}")
        ReadOptions.of(self.read_options, streaming=True)

    @property
    def read_options(self) -> dict[str, str]:
        """The options of format("rocketmq") for this plan."""
        found = {"nameServer": self.namesrv}
        if self.pattern is not None:
            found["topicPattern"] = self.pattern
        else:
            found["topics"] = ",".join(self.topics)
        said = {name.casefold() for name in self.options}
        if not said & {"startingoffsets", "startingtimestamp"}:
            found["startingOffsets"] = "earliest"
        limits = {"maxOffsetsPerTrigger": self.offsets_max, "maxBytesPerTrigger": self.bytes_max}
        found |= {name: str(limit) for name, limit in limits.items() if name.casefold() not in said}
        if self.group is not None:
            found["group"] = self.group
        return found | dict(self.options)

    @property
    def folder(self) -> Path:
        return local_path(self.to)

    @property
    def checkpoint_folder(self) -> Path:
        return local_path(self.checkpoint or self.folder / CHECKPOINT)


@dataclass(frozen=True, slots=True)
class Archived:
    """What a run added, and what the archive holds now."""

    folder: Path
    format: str
    rows: int
    """Added by this run."""
    total_rows: int
    files: int
    size: int
    """Of all files."""
    seconds: float


class RunningArchive:
    """An archive that is being written, until it is stopped. The next run repeats an interrupted batch."""

    def __init__(self, spark: SparkSession, plan: ArchivePlan, lease: WriterLease, rows_before: int) -> None:
        self._spark = spark
        self._plan = plan
        self._lease = lease
        self._rows_before = rows_before
        self._begun_s = monotonic()
        self._listener: ProgressListener | None = None
        self._query: StreamingQuery | None = None
        self._once = False
        self._tries_left = 1

    def start(self, *, once: bool) -> Self:
        plan = self._plan
        self._once = once
        self._spark.dataSource.register(ArchiveSink)
        if plan.group is not None and self._listener is None:
            self._listener = watch_progress(self._spark)
        rows = planned(self._spark.readStream.format("rocketmq").options(**plan.read_options).load)
        writer = rows.writeStream.format(NAME).outputMode("append")
        writer = writer.option("folder", str(plan.folder)).option("run", self._lease.run)
        writer = writer.option("checkpointLocation", str(plan.checkpoint_folder))
        if once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(plan.interval_s * 1000)} milliseconds")
        self._query = writer.start()
        return self

    @property
    def query(self) -> StreamingQuery:
        """Spark's query, with its progress."""
        assert self._query is not None
        return self._query

    @property
    def is_running(self) -> bool:
        return self.query.isActive

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; False if it does not come in time. Raises the error that the run failed with."""
        try:
            has_ended = self.query.awaitTermination(timeout_s)  # type: ignore[arg-type]
        except RAISED as error:
            if is_worker_late(error) and self._tries_left:
                self._tries_left -= 1  # The checkpoint says where to continue, as after a restart by hand.
                return self.start(once=self._once).wait(timeout_s)
            self._leave()
            raise spark_error(error) from error
        if timeout_s is not None and not has_ended:
            return False
        self._leave()
        return True

    def stop(self) -> None:
        """Idempotent."""
        if self._query is not None:
            with contextlib.suppress(*RAISED):  # `wait` raises its error.
                self._query.stop()
        self._leave()

    def archived(self) -> Archived:
        """The archive as of now."""
        with opened_table(self._plan.folder, self._plan.format) as table:
            files = table.files()
        total = sum(file.rows for file in files)
        return Archived(
            folder=self._plan.folder,
            format=self._plan.format,
            rows=total - self._rows_before,
            total_rows=total,
            files=len(files),
            size=sum(file.size for file in files),
            seconds=monotonic() - self._begun_s,
        )

    def _leave(self) -> None:
        if self._listener is not None:
            listener, self._listener = self._listener, None
            with contextlib.suppress(*RAISED):
                self._spark.streams.removeListener(listener)
                self._tell_last()
        self._lease.release()

    def _tell_last(self) -> None:
        """Commit the last batch: the listener may have been removed before it was notified."""
        last = self._query.lastProgress if self._query is not None else None
        for source in last.sources if last is not None else ():
            reached = told_of(source.latestOffset, source.endOffset)
            try:
                if reached is not None:
                    commit(*reached)
            except FlareError as error:
                log.warning("cannot commit the offsets of %s: %s", self._plan.group, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def check_plan(plan: ArchivePlan) -> None:
    """Check folder, checkpoint and topics, without Spark and before anything is written.

    Raises the error with which the query would fail at its start: TopicNotFound, ConfigError for offsets,
    UsageError for a folder or checkpoint of another archive. Brokers are asked only for a new archive: an
    existing one knows where to continue.
    """
    identity = checked_identity(plan.folder, plan.format)
    check_checkpoint(plan.checkpoint_folder, plan.folder, None if identity is None else identity.query)
    options = hasty(ReadOptions.of(plan.read_options, streaming=True))
    known = _known_queues(plan.checkpoint_folder)
    if known is None:
        StreamPlanner(options).begin(options.starting)
    elif known and not any(options.selection.takes(queue_of(key)) for key in known):
        held = ", ".join(sorted({queue_of(key).topic for key in known})[:3])
        raise UsageError(
            f"{plan.folder} holds {held}, not {options.selection}: use another folder, or name a topic that "
            "it holds as well"
        )


def _known_queues(checkpoint: Path) -> list[str] | None:
    """Queues of a checkpoint's last batch; None without a batch. Empty if unreadable: Spark reports that."""
    try:
        numbers = [int(each.name) for each in (checkpoint / "offsets").iterdir() if each.name.isdigit()]
        if not numbers:
            return None
        text = (checkpoint / "offsets" / str(max(numbers))).read_text()
        found = load(json.loads(text.splitlines()[-1]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, IndexError, UsageError):
        return []
    return [] if isinstance(found, Bound) else list(found)


def run_archive(spark: SparkSession, plan: ArchivePlan) -> Archived:
    """Add all messages that are available now and not yet in the archive, then return.

    Raises UsageError for a folder or checkpoint of another archive, StoreLocked if another run writes to it.
    """
    with _started(spark, plan, once=True) as running:
        running.wait()
        return running.archived()


def start_archive(spark: SparkSession, plan: ArchivePlan) -> RunningArchive:
    """Add messages as they come, until stopped. Raises the same errors."""
    return _started(spark, plan, once=False)


def _started(spark: SparkSession, plan: ArchivePlan, *, once: bool) -> RunningArchive:
    check_plan(plan)
    identity = made_identity(plan.folder, plan.format)
    lease = WriterLease(plan.folder).take(_jvm_of(spark))
    try:
        with opened_table(plan.folder, plan.format) as table:
            table.create()
            table.settle()
            rows = sum(file.rows for file in table.files())
            last = table.last_batch(identity.query)
        prepare_checkpoint(plan.checkpoint_folder, plan.folder, identity.query, last)
        running = RunningArchive(spark, plan, lease, rows)
        try:
            return running.start(once=once)
        except BaseException:
            running.stop()
            raise
    except RAISED as error:
        lease.release()
        raise spark_error(error) from error
    except BaseException:
        lease.release()
        raise


def _jvm_of(spark: SparkSession) -> int | None:
    """The process id of Spark's JVM, if it runs on this machine."""
    try:
        found = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    except (*RAISED, AttributeError):
        return None  # Spark Connect: it runs on another machine.
    return int(found)
