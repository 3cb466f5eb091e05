"""The format "rocketmq": its data source, with readers and writers.

While it plans a query, Spark forks a Python process for each of its calls, and each process imports this
module again. So the rooms that read and write are imported only when they are needed.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from flaremq.spark.read.options import ReadOptions
from flaremq.spark.schema import spark_schema


class RocketMQ(DataSource):
    """Topics of RocketMQ and FlareMQ as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        return spark_schema(ReadOptions.of(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        from flaremq.spark.read.batch import BatchReader

        return BatchReader(ReadOptions.of(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from flaremq.spark.read.stream import StreamReader

        return StreamReader(ReadOptions.of(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from flaremq.spark.write.options import WriteOptions
        from flaremq.spark.write.writer import BatchWriter, RowWriter

        return BatchWriter(RowWriter(WriteOptions.of(self.options, streaming=False), schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        from flaremq.spark.write.options import WriteOptions
        from flaremq.spark.write.writer import RowWriter, StreamWriter

        return StreamWriter(RowWriter(WriteOptions.of(self.options, streaming=True), schema, overwrite))
