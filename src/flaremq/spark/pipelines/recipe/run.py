"""A recipe, run: its views are made, tables written, and streams run until they end or are stopped.

    ran = run_recipe(spark, load_recipe(Path("paid-orders.yaml")))

Each run has a separate session in the same Spark, so its views and settings do not affect others.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Self

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - The usual name.
from pyspark.sql.streaming.query import StreamingQuery

from flaremq.base.logs import logger
from flaremq.spark.errors import is_worker_late
from flaremq.spark.launch.session import RAISED
from flaremq.spark.pipelines.recipe.model import Recipe, SinkSpec, usual_mode
from flaremq.spark.pipelines.recipe.progress import SinkProgress, progress_of, rows_of
from flaremq.spark.pipelines.recipe.views import Views, about
from flaremq.spark.read.groupcommit import commit
from flaremq.spark.read.progress import ProgressListener, told_of, watch_progress
from flaremq.spark.write.options import WriteOptions, check_columns

_LOOK_S: Final = 0.2

Tell = Callable[[SinkProgress], None]


@dataclass(slots=True)
class SinkResult:
    """The outcome of one sink."""

    name: str
    stream: bool
    rows: int = 0
    """Rows written by this run."""
    batches: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Ran:
    """The outcome of a run."""

    name: str
    sinks: tuple[SinkResult, ...]
    """In the order of the file."""
    seconds: float


log = logger("spark.run")


@dataclass(slots=True)
class _RunningSink:
    """A stream, and the last batch that was reported of it."""

    sink: SinkSpec
    query: StreamingQuery
    result: SinkResult
    frame: DataFrame | None = None
    is_second: bool = False
    """It was restarted, because a Python worker was late."""
    told: int = -1
    begun_s: float = field(default_factory=monotonic)


def run_recipe(spark: SparkSession, recipe: Recipe, progress: Tell | None = None) -> Ran:
    """Run a recipe. A stream without an end runs until it is interrupted; finished batches stay.

    Raises FlareError with the file and line, never an exception of Spark.
    """
    with RecipeRun(spark, recipe, progress) as running:
        try:
            running.start()
            running.wait()
        except KeyboardInterrupt:
            # This is the way to end a stream without an end; any other run was cut short.
            if not recipe.is_streaming or recipe.trigger.once:
                raise
    return running.ran()


class RecipeRun:
    """A running recipe. `stop` may be called from any thread."""

    def __init__(self, spark: SparkSession, recipe: Recipe, progress: Tell | None = None) -> None:
        self._recipe = recipe
        self._spark = spark.newSession()
        self._tell = progress
        self._stopped = threading.Event()
        self._results = {sink.name: SinkResult(sink.name, False) for sink in recipe.sinks}
        self._running: list[_RunningSink] = []
        self._listener: ProgressListener | None = None
        self._begun_s = monotonic()

    def start(self) -> None:
        """Make all views, write all tables, and start all streams. Nothing is written if a view fails."""
        self._configure()
        views = Views(self._spark, self._recipe)
        frames = {sink.name: views.made()[sink.view] for sink in self._recipe.sinks}
        for sink in self._recipe.sinks:
            with self._about(sink):
                self._check(sink, frames[sink.name])
        self._watch_groups()
        # Tables first: a stream may never end.
        for sink in sorted(self._recipe.sinks, key=lambda each: frames[each.name].isStreaming):
            if self._stopped.is_set():
                return
            with self._about(sink):
                if frames[sink.name].isStreaming:
                    self._start(sink, frames[sink.name])
                else:
                    self._write(sink, frames[sink.name])

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all streams have ended; False at the timeout. Raises the error of one that fails."""
        until_s = None if timeout_s is None else monotonic() + timeout_s
        while True:
            active = [each for each in self._running if self._look(each)]
            if not active or self._stopped.is_set():
                return not active
            if until_s is not None and monotonic() >= until_s:
                return False
            self._stopped.wait(_LOOK_S)

    def stop(self) -> None:
        """Idempotent. The next run repeats an interrupted batch."""
        self._stopped.set()
        for each in self._running:
            with contextlib.suppress(*RAISED):
                each.query.stop()

    def ran(self) -> Ran:
        """The outcome as of now."""
        return Ran(self._recipe.name, tuple(self._results.values()), monotonic() - self._begun_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for each in self._running:
            with contextlib.suppress(*RAISED):
                self._note(each)
        self._leave_groups()
        with contextlib.suppress(*RAISED):
            for name in (
                *(each.name for each in self._recipe.sources),
                *(s.name for s in self._recipe.steps),
            ):
                self._spark.catalog.dropTempView(name)

    # Starting.

    def _configure(self) -> None:
        """Apply SQL settings to this run only. Other settings must be set before Spark starts."""
        for name, value in self._recipe.spark.items():
            if self._spark.conf.isModifiable(name):
                self._spark.conf.set(name, value)

    def _check(self, sink: SinkSpec, frame: DataFrame) -> None:
        if sink.format == "rocketmq":
            options = {name: text.value for name, text in sink.options.items()}
            check_columns(frame.schema, WriteOptions.of(options, streaming=frame.isStreaming))

    def _write(self, sink: SinkSpec, frame: DataFrame) -> None:
        begun_s, seen = monotonic(), Observation()
        result = self._results[sink.name]
        writer = frame.observe(seen, F.count(F.lit(1)).alias("rows")).write
        writer = writer.mode(sink.mode or usual_mode(sink, is_stream=False)).format(sink.format)
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
        if sink.format == "console":
            frame.show(**_shown(sink))
            result.rows = frame.count()
        else:
            writer.options(**_values(sink)).save()
            result.rows = seen.get["rows"]
        result.batches, result.seconds = 1, monotonic() - begun_s
        if self._tell is not None:
            self._tell(
                SinkProgress(
                    sink.name, 0, result.rows, result.rows / max(result.seconds, 1e-3), result.seconds
                )
            )

    def _start(self, sink: SinkSpec, frame: DataFrame) -> None:
        result = self._results[sink.name]
        result.stream = True
        self._running.append(_RunningSink(sink, self._query(sink, frame), result, frame))

    def _query(self, sink: SinkSpec, frame: DataFrame) -> StreamingQuery:
        observed = frame.observe(sink.name, F.count(F.lit(1)).alias("rows"))
        writer = observed.writeStream.format(sink.format).options(**_values(sink))
        writer = writer.outputMode(sink.mode or usual_mode(sink, is_stream=True))
        writer = writer.option("checkpointLocation", self._recipe.checkpoint_of(sink))
        # Two sessions of one Spark may run recipes with sinks of the same name.
        writer = writer.queryName(f"{self._recipe.name}_{sink.name}")
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
        trigger = self._recipe.trigger
        if trigger.once:
            # The first batch of format rocketmq only sets where to begin, so a single one would read nothing.
            writer = writer.trigger(availableNow=True)
        elif trigger.every_ms is not None:
            writer = writer.trigger(processingTime=f"{trigger.every_ms} milliseconds")
        return writer.start()

    # Watching.

    def _look(self, running: _RunningSink) -> bool:
        """Report new batches of a stream. Returns whether it still runs; raises its error if it failed."""
        with self._about(running.sink):
            is_active = running.query.isActive  # Before the progress, so that no batch is missed.
            self._note(running)
            error = None if is_active else running.query.exception()
            if error is None:
                return is_active
            if running.frame is None or running.is_second or not is_worker_late(error):
                raise error
            # As the user would do by hand: the checkpoint says where to continue.
            log.warning("a Python worker of Spark started too late: restarting the stream once")
            running.query, running.is_second = self._query(running.sink, running.frame), True
        return True

    def _note(self, running: _RunningSink) -> None:
        for each in running.query.recentProgress:
            if each.batchId <= running.told:
                continue
            rows = rows_of(each, running.sink.name)
            if rows is None:
                continue  # Spark also reports that it is idle, without a batch.
            running.told = each.batchId
            running.result.rows += rows
            running.result.batches += 1
            running.result.seconds = monotonic() - running.begun_s
            if self._tell is not None:
                self._tell(progress_of(each, running.sink.name, rows))

    @contextlib.contextmanager
    def _about(self, sink: SinkSpec) -> Iterator[None]:
        """Errors raised inside get the file and line of this sink."""
        with about(self._recipe, sink.node):
            yield

    # Groups, whose offsets are committed to brokers.

    def _watch_groups(self) -> None:
        if any(each.stream and "group" in map(str.casefold, each.options) for each in self._recipe.sources):
            self._listener = watch_progress(self._spark)

    def _leave_groups(self) -> None:
        if self._listener is None:
            return
        listener, self._listener = self._listener, None
        with contextlib.suppress(*RAISED):
            self._spark.streams.removeListener(listener)
            for each in self._running:  # The listener may not have been notified of the last batch.
                last = each.query.lastProgress
                for source in last.sources if last is not None else ():
                    reached = told_of(source.latestOffset, source.endOffset)
                    if reached is not None:
                        commit(*reached)


def _values(sink: SinkSpec) -> dict[str, str]:
    return {name: text.value for name, text in sink.options.items()}


def _shown(sink: SinkSpec) -> Mapping[str, Any]:
    """The options that Spark's console has for streams, for a table."""
    options = {name.casefold(): text.value for name, text in sink.options.items()}
    return {
        "n": int(options.get("numrows", "20")),
        "truncate": options.get("truncate", "true").lower() == "true",
    }
