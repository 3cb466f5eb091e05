"""Sinks of the tests. Workers import this module: a class defined in a test would travel by value."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from flaremq.spark.source import RocketMQ
from flaremq.spark.write.options import WriteOptions
from flaremq.spark.write.writer import RowWriter, StreamWriter, Written


class BrokenOff(RocketMQ):
    """The format itself, but of a batch that is written nobody ever hears."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-broken-off"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return _BrokenOff(RowWriter(WriteOptions.of(self.options, streaming=True), schema, overwrite))


class _BrokenOff(StreamWriter):
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if any(isinstance(each, Written) and each.count for each in messages):
            raise RuntimeError("broken off on purpose")
