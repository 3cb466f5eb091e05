"""Streaming reads: offsets for Spark's batches, and a wait while there is nothing new.

Batch 0 reads nothing: its end is where the query begins, so that is in the checkpoint before the first row is
read. The reader lives in one process of the driver from the start of a query to its end; tasks get what they
need with their ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from flaremq.base.errors import UsageError
from flaremq.spark.read import groupcommit, offsets
from flaremq.spark.read.bounds import Bound
from flaremq.spark.read.fetch import FetchPlan
from flaremq.spark.read.options import BatchLimits, ReadOptions
from flaremq.spark.read.partitions import pack, ranges
from flaremq.spark.read.planner import StreamPlanner
from flaremq.spark.read.task import ReadTask, RowReader

POLL_S = 10.0
"""How long to keep Spark waiting for new messages. Stopping a query does not take as long."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._reader = RowReader(schema)
        self._planner: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the planner, which tasks do not need."""
        return {**self.__dict__, "_planner": None}

    # Called by Spark, in this order.

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._run().freeze()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return offsets.dump_start(self._options.starting)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limits = self._options.limits
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        return ReadAllAvailable() if limits.bytes_max is None else ReadMaxBytes(limits.bytes_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        known = offsets.load(start)
        if isinstance(known, Bound):
            return offsets.dump(self._run().begin(known))
        return offsets.dump(self._run().next(known, self._limits(limit), POLL_S))

    def _limits(self, limit: ReadLimit) -> BatchLimits:
        """Spark's limit, with those of our limits that Spark has no form for."""
        own = self._options.limits
        if isinstance(limit, ReadMaxRows):
            return BatchLimits(limit.max_rows, own.bytes_max, own.offsets_min, own.delay_s)
        if isinstance(limit, ReadMaxBytes):
            return BatchLimits(None, limit.max_bytes, own.offsets_min, own.delay_s)
        return BatchLimits(None, None, own.offsets_min, own.delay_s)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The ends of all queues, and the group, for the listener that commits its offsets."""
        found = offsets.dump(self._run().ends)
        if self._options.group is not None:
            found |= {"group": self._options.group, "nameServer": self._options.name_server}
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, last = offsets.load(start), offsets.load(end)
        if isinstance(last, Bound):
            raise UsageError(f"a batch cannot end at {end}: use another checkpointLocation")
        if isinstance(begin, Bound):
            return []  # Batch 0 only sets where the query begins.
        plan = FetchPlan.of(self._options)
        return [ReadTask(each, plan) for each in pack(ranges(begin, last), self._options.shape)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadTask)
        return self._reader.rows(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the group's offsets, one batch late. The listener (`watch_progress`) commits at once."""
        done = offsets.load(end)
        if self._options.group is None or isinstance(done, Bound):
            return
        groupcommit.commit(self._options.name_server, self._options.group, done)

    def stop(self) -> None:
        if self._planner is not None:
            with suppress(Exception):  # An error here would hide the one that ended the query.
                self._planner.close()

    def _run(self) -> StreamPlanner:
        if self._planner is None:
            self._planner = StreamPlanner(self._options)
        return self._planner
