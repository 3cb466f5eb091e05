"""The format "rocketmq": what Spark asks when somebody writes `format("rocketmq")`."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from flaremq.spark.batch import BatchReader
from flaremq.spark.options import ReadOptions
from flaremq.spark.rows import spark_schema
from flaremq.spark.stream import StreamReader
from flaremq.spark.writer import BatchWriter, RowWriter, StreamWriter
from flaremq.spark.writing import WriteOptions


class RocketMQ(DataSource):
    """Topics of RocketMQ and FlareMQ as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        return spark_schema(ReadOptions.of(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(ReadOptions.of(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(ReadOptions.of(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BatchWriter(RowWriter(WriteOptions.of(self.options, streaming=False), schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return StreamWriter(RowWriter(WriteOptions.of(self.options, streaming=True), schema, overwrite))
