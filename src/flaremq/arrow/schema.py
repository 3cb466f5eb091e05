"""The columns of a message and their Arrow types, which are those that Spark converts its own types to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from flaremq.base.errors import UsageError

_TIME: Final = pa.timestamp("us", tz="UTC")

TYPES: Final[Mapping[str, pa.DataType]] = MappingProxyType(
    {
        "topic": pa.string(),
        "brokerName": pa.string(),
        "queueId": pa.int32(),
        "queueOffset": pa.int64(),
        "physicalOffset": pa.int64(),
        "msgId": pa.string(),
        "keys": pa.string(),
        "tags": pa.string(),
        "body": pa.binary(),
        "properties": pa.map_(pa.string(), pa.string()),
        "bornTimestamp": _TIME,
        "storeTimestamp": _TIME,
        "bornHost": pa.string(),
        "storeHost": pa.string(),
        "sysFlag": pa.int32(),
        "reconsumeTimes": pa.int32(),
        "preparedTransactionOffset": pa.int64(),
    }
)
"""In the order of a whole row. `keys` is the property KEYS, keys separated by spaces; `msgId` is the
producer's id, or, if it set none, the one made of the store host and physical offset."""

COLUMNS: Final = tuple(TYPES)


def arrow_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """The Arrow schema of these columns, in this order."""
    return pa.schema([pa.field(name, type_of(name)) for name in columns])


def type_of(column: str) -> pa.DataType:
    """The Arrow type of a column. Raises UsageError if messages have no such column."""
    found = TYPES.get(column)
    if found is not None:
        return found
    near = get_close_matches(column, COLUMNS, 1, 0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"expected {', '.join(COLUMNS)}"
    raise UsageError(f"a message has no column {column!r}: {hint}")
