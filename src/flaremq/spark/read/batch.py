"""Reading a batch: offsets are found out once, when Spark plans the first action on a frame."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from flaremq.base.errors import DataLost
from flaremq.client.client import Client
from flaremq.spark.clients import link_to
from flaremq.spark.read.bounds import Kind
from flaremq.spark.read.fetch import FetchPlan
from flaremq.spark.read.offsetreader import Heads
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
        link, plan = link_to(self._options.name_server), FetchPlan.of(self._options)
        found = link.run(planned(link.client, self._options))
        tasks: list[InputPartition] = [ReadTask(each, plan) for each in pack(found, self._options.shape)]
        return tasks or [ReadTask((), plan)]  # Of an empty list Spark would make a partition of nothing.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadTask)
        return self._reader.rows(partition)


def check_readable(options: ReadOptions) -> None:
    """Raises what a batch would fail of when it is planned, for those who have not started Spark yet."""
    link = link_to(options.name_server)
    link.run(planned(link.client, hasty(options)))


async def planned(client: Client, options: ReadOptions) -> list[QueueRange]:
    """The ranges that a batch reads."""
    heads = Heads(client, options.broker_timeout_s)
    queues = await heads.queues(options.selection, options.broker_timeout_s, strict=True)
    if options.filter.sql is not None:
        await heads.check_sql(queues, options.filter.sql, options.reading_group)
    spans = await heads.all_spans(queues)
    resolver = Resolver(heads, queues, options.group)
    begin = await resolver.offsets(options.starting, spans, Kind.EARLIEST)
    end = await resolver.offsets(
        options.ending, spans, Kind.EARLIEST if options.ending.kind is Kind.GROUP else Kind.LATEST
    )
    lost = gaps(begin, spans)
    if lost and options.fail_on_data_loss:
        raise DataLost(
            f"messages are gone that were to be read: {', '.join(map(str, lost[:5]))}. "
            "Give offsets behind them, or set failOnDataLoss=false to go on without them"
        )
    for gap in lost:
        log.warning("messages are gone that were to be read, and left out: %s", gap)
        begin[gap.key] = gap.end
    return ranges(begin, end)
