"""A stream while it runs: one line on a terminal that tells what it does. On a pipe there is none."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Watched:
    """Shows how a query gets on, whenever somebody asks it to look."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._status: Any = None
        self._rows = 0
        self._batch = -1

    def __enter__(self) -> Watched:
        if sys.stderr.isatty():
            console = import_module("rich.console").Console(stderr=True)
            self._status = console.status("waiting for messages")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def look(self) -> None:
        from flaremq.spark.pipelines.runprogress import lag_of

        last = self._query.lastProgress if self._status is not None else None
        if last is None or last.batchId == self._batch:
            return
        self._batch, self._rows = last.batchId, self._rows + last.numInputRows
        took_s = last.durationMs.get("triggerExecution", 0) / 1000
        lag = sum(sum(lag_of(each.latestOffset, each.endOffset).values()) for each in last.sources)
        self._status.update(
            f"{self._rows:,} messages, {last.processedRowsPerSecond or 0:,.0f} a second in the last batch, "
            f"which took {took_s:.1f} s; {lag:,} are waiting"
        )
