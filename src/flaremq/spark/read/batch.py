"""Batch reads. Offsets are resolved once, when Spark plans the first action on a DataFrame."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from flaremq.base.errors import DataLost
from flaremq.client.client import Client
from flaremq.spark.clients import cluster_client
from flaremq.spark.read.bounds import BoundKind
from flaremq.spark.read.fetch import FetchPlan
from flaremq.spark.read.offsetreader import OffsetReader
from flaremq.spark.read.offsets import gaps
from flaremq.spark.read.options import ReadOptions, hasty
from flaremq.spark.read.partitions import QueueRange, pack, ranges
from flaremq.spark.read.resolve import Resolver
from flaremq.spark.read.task import ReadTask, RowReader

log = logging.getLogger(__name__)


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._reader = RowReader(schema)

    def partitions(self) -> list[InputPartition]:
        cluster, plan = cluster_client(self._options.name_server), FetchPlan.of(self._options)
        found = cluster.run(planned(cluster.client, self._options))
        tasks: list[InputPartition] = [ReadTask(each, plan) for each in pack(found, self._options.shape)]
        return tasks or [ReadTask((), plan)]  # For an empty list Spark would make a partition of None.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadTask)
        return self._reader.rows(partition)


def check_readable(options: ReadOptions) -> None:
    """Raise the error with which planning a batch would fail, without Spark."""
    cluster = cluster_client(options.name_server)
    cluster.run(planned(cluster.client, hasty(options)))


async def planned(client: Client, options: ReadOptions) -> list[QueueRange]:
    """The ranges that a batch reads."""
    reader = OffsetReader(client, options.broker_timeout_s)
    queues = await reader.queues(options.selection, options.broker_timeout_s, strict=True)
    if options.filter.sql is not None:
        await reader.check_sql(queues, options.filter.sql, options.reading_group)
    spans = await reader.all_spans(queues)
    resolver = Resolver(reader, queues, options.group)
    begin = await resolver.offsets(options.starting, spans, BoundKind.EARLIEST)
    end = await resolver.offsets(
        options.ending,
        spans,
        BoundKind.EARLIEST if options.ending.kind is BoundKind.GROUP else BoundKind.LATEST,
    )
    lost = gaps(begin, spans)
    if lost and options.fail_on_data_loss:
        raise DataLost(
            f"messages to be read are gone: {', '.join(map(str, lost[:5]))}. "
            "Set later offsets, or failOnDataLoss=false to continue without them"
        )
    for gap in lost:
        log.warning("messages to be read are gone, and were skipped: %s", gap)
        begin[gap.key] = gap.end
    return ranges(begin, end)
