"""Data sources of the tests. Workers import this module: a class defined in a test would travel by value."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import Row, StructType

import flaremq.base.errors
from flaremq.base.errors import BodyTooLarge, CallTimeout, ConnectFailed, FlareError, InvalidName


def fail(how: str) -> None:
    if how == "flare":
        raise InvalidName("topic 'a b': a blank is not allowed, rename it")
    if how == "chain":
        try:
            raise ConnectFailed("127.0.0.1:1 refused the connection")
        except FlareError as error:
            raise CallTimeout("no answer from 127.0.0.1:1 within 3 s: is the broker up?") from error
    if how == "arguments":
        raise BodyTooLarge(9, 4)
    if how == "value":
        raise ValueError("not a number: 'seven'")


def where_we_are(_: int) -> tuple[str, str]:
    return sys.executable, str(flaremq.base.errors.__file__)


class Failing(DataSource):
    """Fails where and how its options say. What does not fail has two rows."""

    @classmethod
    def name(cls) -> str:
        return "failing"

    def schema(self) -> str:
        if self.options.get("where") == "schema":
            fail(self.options["how"])
        return "n int, origin string"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name.
        return _StreamReader(dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return _Writer(dict(self.options))


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        if self._options.get("where") == "partitions":
            fail(self._options["how"])
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        if self._options.get("where") == "read":
            fail(self._options["how"])
        yield partition.value, flaremq.base.errors.__file__


class _StreamReader(DataSourceStreamReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        if options.get("where") == "stream":
            fail(options["how"])

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"n": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        if self._options.get("where") == "latest":
            fail(self._options["how"])
        return {"n": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        fail(self._options["how"])
        yield partition.value, ""

    def commit(self, end: dict[str, int]) -> None:
        pass

    def stop(self) -> None:
        pass


class _Writer(DataSourceWriter):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        if self._options.get("where") == "write":
            fail(self._options["how"])
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        fail(self._options["how"])
