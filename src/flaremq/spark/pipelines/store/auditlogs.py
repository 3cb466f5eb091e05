"""Audit of two logs, byte by byte: of a slave and its master, or of a copy and its origin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from flaremq.arrow.storefolder import ArrowStore, LogPiece, share
from flaremq.base.units import MiB
from flaremq.model.columns import Fact
from flaremq.spark.pipelines.store.derive import FINDINGS_MAX

_STEP: Final = 1 * MiB
_ROWS: Final = 8192
_FINDINGS: Final = "finding string, size long"
_ARROW: Final = pa.schema([("finding", pa.string()), ("size", pa.int64())])


@dataclass(frozen=True, slots=True)
class Compared:
    """The outcome of comparing two logs."""

    size: int
    findings: tuple[str, ...]
    found: int


def compare_logs(spark: SparkSession, one: ArrowStore, two: ArrowStore, tasks: int) -> Compared:
    """Both logs must be equal where they overlap, and end at the same offset."""
    spans = [_span(one), _span(two)]
    begin, end = max(span[0] for span in spans), min(span[1] for span in spans)
    longest = max(span[1] for span in spans)
    findings = [
        f"log: {folder.root} ends at {span[1]}, {longest - span[1]} bytes before the other one"
        for folder, span in zip((one, two), spans, strict=True)
        if span[1] < longest
    ]
    pieces = [piece for piece in one.log_pieces(tasks=tasks) if piece.begin < end and piece.end > begin]
    shares = share(pieces, tasks)
    if not shares:
        return Compared(0, tuple(findings), len(findings))
    rows = spark.range(len(shares), numPartitions=len(shares)).mapInArrow(
        partial(_compare, one=one, two=two, shares=shares, begin=begin, end=end), _FINDINGS
    )
    found = rows.collect()
    findings += [row["finding"] for row in found if row["finding"] is not None]
    return Compared(sum(row["size"] for row in found), tuple(findings), len(findings))


def _span(folder: ArrowStore) -> tuple[int, int]:
    """Where the log begins, and where its last whole record ends."""
    pieces = folder.log_pieces()
    begin = end = pieces[0].begin if pieces else 0
    for piece in reversed(pieces):
        for walked in folder.walks(piece, lambda: _ROWS, []):
            last = (walked.count - 1) * Fact.WIDTH
            end = walked.facts[last + Fact.OFFSET] + walked.facts[last + Fact.SIZE]
        if end > piece.begin:
            break
    return begin, end


def _compare(
    batches: Iterable[pa.RecordBatch],
    one: ArrowStore,
    two: ArrowStore,
    shares: Sequence[tuple[LogPiece, ...]],
    begin: int,
    end: int,
) -> Iterator[pa.RecordBatch]:
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        findings: list[str] = []
        size = 0
        for piece in shares[number]:
            first, last = max(begin, piece.begin), min(end, piece.end)
            size += last - first
            for at in range(first, last, _STEP):
                findings += _differences(one, two, at, min(at + _STEP, last))
        rows: list[str | None] = [*findings[:FINDINGS_MAX]] or [None]
        sizes = [size, *([0] * (len(rows) - 1))]
        yield pa.RecordBatch.from_arrays([pa.array(rows, pa.string()), pa.array(sizes)], schema=_ARROW)


def _differences(one: ArrowStore, two: ArrowStore, begin: int, end: int) -> list[str]:
    """Empty if these bytes are equal, else a sentence that says where they begin to differ."""
    a, b = one.scan.bytes_at(begin, end), two.scan.bytes_at(begin, end)
    if a == b:
        return []
    if len(a) != len(b):
        return [f"log: one store has {len(a)} of the bytes {begin} to {end}, the other {len(b)}"]
    first = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    return [f"log: the two differ from offset {begin + first} on, in the bytes {begin} to {end}"]
