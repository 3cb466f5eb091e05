"""A running stream in one status line; on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

STARTING: Final = "starting: asking brokers where their queues begin and end"


@dataclass(frozen=True, slots=True)
class BatchSpeed:
    """The speed of the last batch that had messages."""

    rows_per_s: float
    seconds: float
    waiting: int | None
    """Messages not read yet; None if the batch only found where to begin."""


def line_of(status: Mapping[str, object], rows: int, last: BatchSpeed | None) -> str:
    """What a query does now. It waits for messages only if it reads none and the last batch left none.

    The first batch of a stream has no rows: it finds out where the queues begin, which can take long even if
    there are many messages.
    """
    text = f"{rows:,} messages"
    if rows and last is not None:
        text += f", {last.rows_per_s:,.0f} per second in the last batch, which took {last.seconds:.1f} s"
    if status.get("isTriggerActive") and status.get("isDataAvailable"):
        return f"{text}; reading"
    if last is None or last.waiting is None:
        return STARTING
    return f"{text}; {last.waiting:,} are waiting" if last.waiting else f"{text}; waiting for messages"


class QueryStatus:
    """Shows the progress of a query; each `look` updates it."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._status: Any = None
        self._rows = 0
        self._number = -1
        self._last: BatchSpeed | None = None

    def __enter__(self) -> QueryStatus:
        if sys.stderr.isatty():
            console = import_module("rich.console").Console(stderr=True)
            self._status = console.status(STARTING)
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def look(self) -> None:
        if self._status is None:
            return
        progress = self._query.lastProgress
        if progress is not None and progress.batchId != self._number:
            self._number, self._rows = progress.batchId, self._rows + progress.numInputRows
            self._last = _batch_of(progress, self._last)
        self._status.update(line_of(self._query.status, self._rows, self._last))


def _batch_of(progress: StreamingQueryProgress, before: BatchSpeed | None) -> BatchSpeed:
    from flaremq.spark.pipelines.recipe.progress import lag_of

    lags = [lag_of(source.latestOffset, source.endOffset) for source in progress.sources]
    waiting = sum(sum(lag.values()) for lag in lags) if any(lags) else None
    if before is not None and not progress.numInputRows:
        return replace(before, waiting=waiting)
    took_s = progress.durationMs.get("triggerExecution", 0) / 1000
    return BatchSpeed(progress.processedRowsPerSecond or 0.0, took_s, waiting)
