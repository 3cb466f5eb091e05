"""Tasks of batches and streams, and how their rows are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from flaremq.arrow.batches import Decoder
from flaremq.spark.read.fetch import FetchPlan, chunks
from flaremq.spark.read.partitions import QueueRange
from flaremq.spark.schema import columns_of, row_schema


class ReadTask(InputPartition):
    """The queue ranges that one task reads, and how to fetch them."""

    def __init__(self, ranges: Sequence[QueueRange], plan: FetchPlan) -> None:
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)
        self.plan = plan


class RowReader:
    """Reads the rows of tasks. It is sent to the executors, so it holds values only."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema
        self._columns = columns_of(schema)

    def rows(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        if not task.ranges:
            return
        wanted, decoders = row_schema(self._schema), dict[str, Decoder]()
        for chunk in chunks(task.plan, task.ranges):
            decoder = decoders.get(chunk.broker)
            if decoder is None:
                decoder = decoders[chunk.broker] = self._decoder(chunk.broker, task.plan)
            for batch in decoder.batches(chunk.data, chunk.begin, chunk.end):
                if batch.schema.equals(wanted):
                    yield batch
                else:  # In the user's schema a column is not nullable.
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=wanted)

    def _decoder(self, broker: str, plan: FetchPlan) -> Decoder:
        return Decoder(self._columns, broker_name=broker, tags=plan.filter.tags or None)
