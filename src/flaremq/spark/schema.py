"""Columns of a message and their Spark types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from flaremq.arrow.schema import COLUMNS, TYPES, type_of
from flaremq.base.errors import UsageError

_OF_ARROW: Final[Mapping[pa.DataType, DataType]] = {
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.map_(pa.string(), pa.string()): MapType(StringType(), StringType()),
}


def spark_schema(columns: Sequence[str] = COLUMNS) -> StructType:
    """The Spark schema of these columns, in this order."""
    return StructType([StructField(name, _OF_ARROW[type_of(name)]) for name in columns])


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema, ours or the user's. UsageError if a message has no such column."""
    for field in schema.fields:
        wanted = _OF_ARROW[type_of(field.name)]
        if field.dataType != wanted:
            raise UsageError(
                f"column {field.name} is {field.dataType.simpleString()} in the schema, but can only be read "
                f"as {wanted.simpleString()}: use that type, and cast it afterwards"
            )
    if not schema.fields:
        raise UsageError(f"the schema has no columns: expected at least one of {', '.join(COLUMNS)}")
    return tuple(schema.fieldNames())


def row_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark compares batches with: its types, and its idea of which may be null."""
    return pa.schema([pa.field(field.name, TYPES[field.name], field.nullable) for field in schema.fields])
