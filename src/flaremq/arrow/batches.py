"""Records decoded into Arrow record batches: those of a pull's answer, or of a log file.

    bytes ─► walk (facts) ─► sift (wanted rows) ─► odd ones opened ─► a buffer per column ─► RecordBatch

Only the wanted columns are built. Compressed bodies are decompressed, a record that holds several messages
becomes several rows, and texts that are not UTF-8 get the replacement characters that Java would give them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import pyarrow as pa

from flaremq.arrow import columns as buffers
from flaremq.arrow.columnspec import Number, Only, TextColumn
from flaremq.arrow.schema import COLUMNS, TYPES, arrow_schema
from flaremq.arrow.unwrap import open_bodies, unwrapped
from flaremq.base.errors import Malformed
from flaremq.base.units import KiB
from flaremq.model.columns import Bytes, Check, Fact, Stop, facts_table
from flaremq.model.properties import decode_text
from flaremq.model.record import walk

BATCH_BYTES: Final = 256 * KiB
"""The target size of a batch: below 0.2 MiB its fixed costs show, and a larger one costs the JVM more."""
ROWS_MAX: Final = 8192
_ROWS_MIN: Final = 16
_FIRST_ROWS: Final = 1024

_Build: TypeAlias = "Callable[[Bytes, Bytes, array[int], int], pa.Array]"


class Decoder:
    """Decodes records into batches that all have the same columns."""

    def __init__(
        self,
        columns: Sequence[str] = COLUMNS,
        *,
        broker_name: str | None = None,
        tags: Collection[str] | None = None,
        only: Only | None = None,
    ) -> None:
        """`tags` are compared in full, because a broker compares only hashes. `only` filters further."""
        self.schema = arrow_schema(columns)
        wanted = tuple(sorted(tag.encode() for tag in tags)) if tags else ()
        self._only = replace(only or Only(), tags=wanted) if wanted else only or Only()
        self._broker_name = broker_name
        self._builds = [self._build_of(name) for name in columns]
        self._body = "body" in columns
        self._row_bytes = BATCH_BYTES // _FIRST_ROWS
        self._table = facts_table(_FIRST_ROWS)

    def batches(
        self, data: Bytes, begin: int = 0, end: int | None = None, check: int = Check.NOTHING
    ) -> Iterator[pa.RecordBatch]:
        """Rows of the records that lie back to back in `data` and have begin <= queue offset < end.

        `check` is for bytes that no broker has vouched for (model.columns.Check). Raises Malformed at the
        first byte that does not begin a record, after yielding the rows before it.
        """
        only = self._only
        if begin or end is not None:
            last = only.offset_end if end is None else min(end, only.offset_end)
            only = replace(only, offset_begin=max(begin, only.offset_begin), offset_end=last)
        at = 0
        while at < len(data):
            facts = self._room()
            begun = at
            count, at, stop = walk(data, at, len(data), 0, facts, check)
            if not count and stop != Stop.LIMIT:
                raise Malformed(f"no record at byte {at} of {len(data)} ({stop})", at)
            self._learn(at - begun, count)
            yield from self._rows(data, facts, count, only)

    def of_walk(self, data: Bytes, facts: array[int], count: int) -> Iterator[pa.RecordBatch]:
        """Rows of records that have been walked already. Changes the table of facts."""
        last = (count - 1) * Fact.WIDTH
        self._learn(facts[last + Fact.OFFSET] + facts[last + Fact.SIZE] - facts[Fact.OFFSET], count)
        yield from self._rows(data, facts, count, self._only)

    @property
    def rows_next(self) -> int:
        """How many rows make a batch of the target size, by the size of the last rows."""
        return max(_ROWS_MIN, min(ROWS_MAX, BATCH_BYTES // self._row_bytes))

    def _learn(self, size: int, count: int) -> None:
        if count:
            self._row_bytes = max(1, size // count)

    def _room(self) -> array[int]:
        rows = self.rows_next
        if len(self._table) // Fact.WIDTH < rows:
            self._table = facts_table(rows)
        return self._table if len(self._table) == rows * Fact.WIDTH else self._table[: rows * Fact.WIDTH]

    def _rows(self, data: Bytes, facts: array[int], count: int, only: Only) -> Iterator[pa.RecordBatch]:
        count, odd = buffers.sift(data, facts, count, only)
        if not count:
            return
        extra: Bytes = b""
        if odd:
            opened = unwrapped(data, facts, count)
            if opened is not None:
                yield from self._unwrapped_rows(opened, only)
                return
            if self._body:
                extra = open_bodies(data, facts, count)
        arrays = [build(data, extra, facts, count) for build in self._builds]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _unwrapped_rows(self, data: bytes, only: Only) -> Iterator[pa.RecordBatch]:
        """Rows of records that were unwrapped: each holds one message now."""
        at = 0
        while at < len(data):
            facts = facts_table(ROWS_MAX)
            count, at, _ = walk(data, at, len(data), 0, facts, Check.NOTHING)
            assert count, "what we wrote ourselves can be walked"
            yield from self._rows(data, facts, count, only)

    def _build_of(self, name: str) -> _Build:
        if name == "brokerName":
            return self._broker_names
        return _BUILDS[name]

    def _broker_names(self, _data: Bytes, _extra: Bytes, _facts: array[int], count: int) -> pa.Array:
        return pa.repeat(pa.scalar(self._broker_name, pa.string()), count)


def _number(name: str, which: int) -> _Build:
    kind = TYPES[name]

    def build(data: Bytes, _extra: Bytes, facts: array[int], count: int) -> pa.Array:
        numbers = pa.py_buffer(buffers.numbers(data, facts, count, which))
        return pa.Array.from_buffers(kind, count, [None, numbers])

    return build


def _place(name: str, column: int, *, nullable: bool = False) -> _Build:
    kind = TYPES[name]

    def build(data: Bytes, extra: Bytes, facts: array[int], count: int) -> pa.Array:
        found = buffers.gather(data, extra, facts, Fact.WIDTH, column, count, nullable)
        return _text(kind, found, count)

    return build


def _ids(data: Bytes, _extra: Bytes, facts: array[int], count: int) -> pa.Array:
    return _text(TYPES["msgId"], buffers.ids(data, facts, count), count)


def _hosts(*, store: bool) -> _Build:
    def build(data: Bytes, _extra: Bytes, facts: array[int], count: int) -> pa.Array:
        return _text(pa.string(), buffers.hosts(data, facts, count, store), count)

    return build


def _properties(data: Bytes, _extra: Bytes, facts: array[int], count: int) -> pa.Array:
    found = buffers.pairs(data, facts, count)
    total = len(found.names.offsets) // 4 - 1
    names = _text(pa.string(), found.names, total)
    values = _text(pa.string(), found.values, total)
    rows = pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(found.rows)])
    return pa.MapArray.from_arrays(rows, names, values)


def _text(kind: pa.DataType, found: TextColumn, count: int) -> pa.Array:
    valid = None if found.valid is None else pa.py_buffer(found.valid)
    held = [valid, pa.py_buffer(found.offsets), pa.py_buffer(found.values)]
    if kind != pa.string() or found.values.isascii():
        return pa.Array.from_buffers(kind, count, held)
    array_ = pa.Array.from_buffers(kind, count, held)
    try:
        array_.validate(full=True)
    except pa.ArrowInvalid:
        raw = pa.Array.from_buffers(pa.binary(), count, held).to_pylist()
        return pa.array([None if one is None else decode_text(one) for one in raw], kind)
    return array_


_BUILDS: Final[dict[str, _Build]] = {
    "topic": _place("topic", Fact.TOPIC_AT),
    "queueId": _number("queueId", Number.QUEUE_ID),
    "queueOffset": _number("queueOffset", Number.QUEUE_OFFSET),
    "physicalOffset": _number("physicalOffset", Number.PHYSICAL_OFFSET),
    "msgId": _ids,
    "keys": _place("keys", Fact.KEYS_AT, nullable=True),
    "tags": _place("tags", Fact.TAGS_AT, nullable=True),
    "body": _place("body", Fact.BODY_AT),
    "properties": _properties,
    "bornTimestamp": _number("bornTimestamp", Number.BORN_TIME),
    "storeTimestamp": _number("storeTimestamp", Number.STORE_TIME),
    "bornHost": _hosts(store=False),
    "storeHost": _hosts(store=True),
    "sysFlag": _number("sysFlag", Number.SYS_FLAG),
    "reconsumeTimes": _number("reconsumeTimes", Number.RECONSUME_TIMES),
    "preparedTransactionOffset": _number("preparedTransactionOffset", Number.PREPARED_OFFSET),
}
