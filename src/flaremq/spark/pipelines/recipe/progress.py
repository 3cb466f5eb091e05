"""A stream's progress: what Spark reports of a batch, in a few numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.streaming.listener import StreamingQueryProgress

from flaremq.base.errors import UsageError
from flaremq.spark.read import offsets
from flaremq.spark.read.bounds import Bound


@dataclass(frozen=True, slots=True)
class SinkProgress:
    """One batch of one sink."""

    sink: str
    batch: int
    rows: int
    """Rows written."""
    rows_per_s: float
    """Rows read per second of the batch."""
    seconds: float
    """How long the batch took."""
    lag: Mapping[str, int] = field(default_factory=dict)
    """Messages that the batch left unread, by topic@broker:queueId."""

    @property
    def lag_total(self) -> int:
        return sum(self.lag.values())


def rows_of(progress: StreamingQueryProgress, sink: str) -> int | None:
    """How many rows the batch has written; None if this is not the report of a batch."""
    if "addBatch" not in progress.durationMs:
        return None
    observed = progress.observedMetrics.get(sink)
    return int(observed["rows"] or 0) if observed is not None else progress.numInputRows


def progress_of(progress: StreamingQueryProgress, sink: str, rows: int) -> SinkProgress:
    lag: dict[str, int] = {}
    for source in progress.sources:
        lag |= lag_of(source.latestOffset, source.endOffset)
    seconds = progress.durationMs.get("triggerExecution", progress.batchDuration) / 1000
    return SinkProgress(sink, progress.batchId, rows, progress.processedRowsPerSecond, seconds, lag)


def lag_of(latest: str | None, end: str | None) -> dict[str, int]:
    """The lag of each queue; empty if these are not offsets of our source."""
    try:
        heads, done = offsets.load(json.loads(latest or "null")), offsets.load(json.loads(end or "null"))
    except (ValueError, UsageError):
        return {}
    if isinstance(heads, Bound) or isinstance(done, Bound):
        return {}
    return {key: max(0, head - done[key]) for key, head in heads.items() if key in done}
