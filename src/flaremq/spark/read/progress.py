"""Progress of streams, committed to brokers after each batch, so that tools show it.

Spark notifies a source of a finished batch only when the next one begins, and never after the last. A
listener is notified at once: call `watch_progress(spark)` once in a session, for all queries that have the
option `group`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from flaremq.base.errors import UsageError
from flaremq.spark.read import offsets
from flaremq.spark.read.bounds import Bound
from flaremq.spark.read.groupcommit import commit

Tell = Callable[[str, str, Mapping[str, int]], None]


class ProgressListener(StreamingQueryListener):
    """Commits the offsets of each finished batch.

    The group and NameServer are in the latest offset that the source reports.
    """

    def __init__(self, tell: Tell = commit) -> None:
        self._tell = tell

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        for source in event.progress.sources:
            reached = told_of(source.latestOffset, source.endOffset)
            if reached is not None:
                self._tell(*reached)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass


def told_of(latest: str | None, end: str | None) -> tuple[str, str, dict[str, int]] | None:
    """NameServer, group and offsets to commit; None unless these are offsets of our source with a group."""
    try:
        heads, done = json.loads(latest or "null"), json.loads(end or "null")
        if not isinstance(heads, dict) or "group" not in heads or "nameServer" not in heads:
            return None
        reached = offsets.load(done)
    except (ValueError, UsageError):
        return None  # Another source's.
    if isinstance(reached, Bound) or not reached:
        return None
    return str(heads["nameServer"]), str(heads["group"]), reached


def watch_progress(spark: SparkSession) -> ProgressListener:
    """Commit the progress of all queries of this session. `spark.streams.removeListener` ends it."""
    listener = ProgressListener()
    spark.streams.addListener(listener)
    return listener
