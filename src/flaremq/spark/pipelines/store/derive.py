"""Queue and index entries derived from a log, piece by piece, with the broker's own code.

A piece of the log gives the queue entries of its records, by queue and queue file, and the number of their
index entries. That is all that `rebuild` writes and `audit` compares with. Records that a deleted topic has
left in the log belong to no queue; their index entries stay, because a broker keeps them too.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from flaremq.arrow.storefolder import ArrowStore, Damage, LogPiece, Moment, share
from flaremq.model.columns import Fact, Odd
from flaremq.model.delays import LEVELS, parse_levels
from flaremq.model.layout import ENTRY_SIZE
from flaremq.spark.errors import planned
from flaremq.spark.pipelines.store.auditindex import IndexAudit
from flaremq.store.index.indexfile import count_keys
from flaremq.store.queue.entries import Key, Run, group, set_delivery_times

FORMAT: Final = "flaremq-derived"
FINDINGS_MAX: Final = 100
"""The most findings of one piece or queue file: a badly damaged store must not flood the driver."""
_ROWS: Final = 8192
_SEGMENT_BYTES_MAX: Final = 4 << 20  # Entries are passed on when they have this size.
_DELAYS_MS: Final = parse_levels(LEVELS)

SCHEMA: Final = StructType(
    [
        StructField("topic", BinaryType()),
        StructField("queueId", IntegerType()),
        StructField("file", LongType()),
        StructField("first", LongType()),
        StructField("entries", BinaryType()),
        StructField("tally", StringType()),
    ]
)
"""A row is a run of entries of one queue file (named by the number of its first entry), or a tally."""
ARROW: Final = pa.schema(
    [
        ("topic", pa.binary()),
        ("queueId", pa.int32()),
        ("file", pa.int64()),
        ("first", pa.int64()),
        ("entries", pa.binary()),
        ("tally", pa.string()),
    ]
)


@dataclass(slots=True)
class Tally:
    """Counts of one piece of the log."""

    piece: LogPiece
    records: int = 0
    size: int = 0
    keys: int = 0
    last_key_ms: int = 0
    last_key_offset: int = -1
    """Of the last record that has keys."""
    light: int = 0
    """Records that name more queues (INNER_MULTI_DISPATCH)."""
    batches: int = 0
    """Records that hold several messages: they are in batch queues."""
    deleted: int = 0
    """Records of deleted topics."""
    damage: list[tuple[int, int]] = field(default_factory=list)
    """Ranges without a whole record."""
    findings: list[str] = field(default_factory=list)
    """The first findings of an audit about the index, in sentences."""
    found: int = 0
    """The number of all findings."""

    def note(self, finding: str) -> None:
        self.found += 1
        if self.found <= FINDINGS_MAX:
            self.findings.append(finding)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Tally:
        found = json.loads(text)
        return cls(**{**found, "piece": LogPiece(**found["piece"])})


def tallies_of(texts: Iterable[str | None]) -> list[Tally]:
    """Parsed tallies, in the order of the log."""
    found = (Tally.of_json(text) for text in texts if text is not None)
    return sorted(found, key=lambda tally: tally.piece.begin)


class Segment(NamedTuple):
    """A dense run of entries of one queue."""

    first: int
    entries: bytearray


@dataclass(slots=True)
class Derivation:
    """Collects the entries of one piece, and returns them by queue file."""

    per_file: int
    tally: Tally
    deleted: Mapping[bytes, int]
    """By deleted topic: the log offset before which its records were deleted with it."""
    counted: str = ""
    """A folder with a file for each piece, which says how many records were read so far."""
    open: dict[Key, Segment] = field(default_factory=dict)

    def add(self, facts: array[int], count: int, view: memoryview) -> Iterator[tuple[Key, int, Segment]]:
        """Add records. Yields finished runs of entries: queue, queue file, run."""
        self._count(facts, count, view)
        set_delivery_times(facts, count, view, _DELAYS_MS)
        keys, entries, runs, order = group(facts, count, view)
        for number, key in enumerate(keys):
            run = runs[number * Run.WIDTH : (number + 1) * Run.WIDTH]
            at, size = run[Run.FIRST] * ENTRY_SIZE, run[Run.COUNT] * ENTRY_SIZE
            deleted_below = self.deleted.get(key[0], 0)
            if run[Run.END] <= deleted_below:
                self.tally.deleted += run[Run.COUNT]
                continue
            if run[Run.DENSE] and run[Run.OFFSET] >= deleted_below:
                yield from self._put(key, run[Run.QUEUE_OFFSET], entries[at : at + size])
                continue
            rows = order[run[Run.FIRST] : run[Run.FIRST] + run[Run.COUNT]]
            for place, row in enumerate(rows):
                if facts[row * Fact.WIDTH + Fact.OFFSET] < deleted_below:
                    self.tally.deleted += 1
                    continue
                one = entries[at + place * ENTRY_SIZE : at + (place + 1) * ENTRY_SIZE]
                yield from self._put(key, facts[row * Fact.WIDTH + Fact.QUEUE_OFFSET], one)

    def _count(self, facts: array[int], count: int, view: memoryview) -> None:
        tally = self.tally
        tally.records += count
        if self.counted:
            with suppress(OSError):  # On another machine the folder may not exist.
                Path(self.counted, str(tally.piece.begin)).write_text(str(tally.records))
        table = np.frombuffer(facts, np.int64)[: count * Fact.WIDTH].reshape(count, Fact.WIDTH)
        tally.size += int(table[:, Fact.SIZE].sum())
        keys, last = count_keys(facts, count, view)
        tally.keys += keys
        if last >= 0:
            tally.last_key_ms = facts[last * Fact.WIDTH + Fact.STORE_TIMESTAMP]
            tally.last_key_offset = facts[last * Fact.WIDTH + Fact.OFFSET]
        odd = table[:, Fact.ODD]
        if odd.any():
            tally.light += int(np.count_nonzero(odd & Odd.MULTI_DISPATCH))
            tally.batches += int(np.count_nonzero(odd & Odd.INNER_BATCH))

    def _put(self, key: Key, first: int, entries: bytearray) -> Iterator[tuple[Key, int, Segment]]:
        held = self.open.get(key)
        if held is not None and held.first + len(held.entries) // ENTRY_SIZE != first:
            yield from self._given(key, self.open.pop(key))
            held = None
        if held is None:
            held = self.open[key] = Segment(first, bytearray())
        held.entries.extend(entries)
        if len(held.entries) >= _SEGMENT_BYTES_MAX:
            yield from self._given(key, self.open.pop(key))

    def rest(self) -> Iterator[tuple[Key, int, Segment]]:
        for key, held in self.open.items():
            yield from self._given(key, held)
        self.open.clear()

    def _given(self, key: Key, held: Segment) -> Iterator[tuple[Key, int, Segment]]:
        """Split a run by queue file: it may extend over the end of one."""
        first, entries = held
        while entries:
            file = first - first % self.per_file
            count = min(file + self.per_file - first, len(entries) // ENTRY_SIZE)
            yield key, file, Segment(first, entries[: count * ENTRY_SIZE])
            first, entries = first + count, entries[count * ENTRY_SIZE :]


def derived(
    folder: ArrowStore, piece: LogPiece, found: Derivation, index: IndexAudit | None = None
) -> Iterator[pa.RecordBatch]:
    """All rows of one piece, its tally last. With `index` it is an audit, which continues after damage."""
    rows = _Rows()
    damage: list[Damage] | None = None if index is None else []
    for walked in folder.walks(piece, lambda: _ROWS, damage):
        if index is not None:
            index.check(walked, found.tally.note)
        for key, file, segment in found.add(walked.facts, walked.count, walked.view):
            rows.add(key, file, segment)
        if rows.size >= _SEGMENT_BYTES_MAX:
            yield rows.taken()
    for key, file, segment in found.rest():
        rows.add(key, file, segment)
        if rows.size >= _SEGMENT_BYTES_MAX:
            yield rows.taken()
    yield rows.taken()
    found.tally.damage = [(each.begin, each.end) for each in damage or ()]
    yield pa.RecordBatch.from_arrays(
        [pa.nulls(1, kind) for kind in ARROW.types[:-1]] + [pa.array([found.tally.to_json()])], schema=ARROW
    )


class _Rows:
    """Rows that are collected to one batch."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._columns: tuple[list[object], ...] = ([], [], [], [], [])
        self.size = 0

    def add(self, key: Key, file: int, segment: Segment) -> None:
        values = (*key, file, segment.first, bytes(segment.entries))
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
        self.size += len(segment.entries)

    def taken(self) -> pa.RecordBatch:
        kinds = ARROW.types
        arrays = [pa.array(column, kind) for column, kind in zip(self._columns, kinds, strict=False)]
        batch = pa.RecordBatch.from_arrays([*arrays, pa.nulls(len(arrays[0]), kinds[-1])], schema=ARROW)
        self._clear()
        return batch


@dataclass(frozen=True, slots=True)
class DerivedPartition(InputPartition):
    pieces: tuple[LogPiece, ...]


@dataclass(frozen=True, slots=True)
class _Terms:
    """Options that are the same for all pieces."""

    per_file: int
    slots: int
    index_end: int | None
    deleted: Mapping[bytes, int]
    counted: str


class DerivedReader(DataSourceReader):
    def __init__(self, folder: ArrowStore, shared: Sequence[tuple[LogPiece, ...]], terms: _Terms) -> None:
        self._folder, self._shared, self._terms = folder, shared, terms

    def partitions(self) -> Sequence[InputPartition]:
        return [DerivedPartition(task) for task in self._shared] or [DerivedPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, DerivedPartition)
        terms = self._terms
        index = IndexAudit(self._folder.root, terms.slots, terms.index_end) if terms.slots else None
        for piece in partition.pieces:
            found = Derivation(terms.per_file, Tally(piece), terms.deleted, terms.counted)
            yield from derived(self._folder, piece, found, index)


class DerivedSource(DataSource):
    """Internal: used by our own pipelines only."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DerivedReader:  # noqa: ARG002 - There is one schema.
        options: Mapping[str, str] = self.options
        logs = tuple(Path(part) for part in json.loads(options["logs"]))
        folder = ArrowStore(Path(options["root"]), logs, options["skip"] == "true")
        shared = [tuple(LogPiece(*piece) for piece in task) for task in json.loads(options["shared"])]
        terms = _Terms(
            int(options["perFile"]),
            int(options["slots"]),
            json.loads(options["indexEnd"]),
            {topic.encode(): end for topic, end in json.loads(options["deleted"]).items()},
            options["counted"],
        )
        return DerivedReader(folder, shared, terms)


@dataclass(frozen=True, slots=True)
class Work:
    """Which pieces to derive entries from, and how. With `slots` (of index files) it is an audit."""

    pieces: Sequence[LogPiece]
    tasks: int
    per_file: int
    slots: int = 0
    moment: Moment | None = None
    """If a broker has the store open: how far to read."""
    deleted: Mapping[str, int] = field(default_factory=dict)
    """Deleted topics, each with the end of the log at that time."""
    counted: Path | None = None
    """A folder in which tasks report how far they are."""


def derive(spark: SparkSession, folder: ArrowStore, work: Work) -> DataFrame:
    """Rows of all pieces of a log, including tallies. Those of a queue file are in one task, in order."""
    spark.dataSource.register(DerivedSource)
    shared = [[astuple(piece) for piece in task] for task in share(work.pieces, work.tasks)]
    reader = (
        spark.read.format(FORMAT)
        .option("root", str(folder.root))
        .option("logs", json.dumps([str(path) for path in folder.log_folders]))
        .option("skip", str(folder.skips_damage).lower())
        .option("shared", json.dumps(shared))
        .option("perFile", work.per_file)
        .option("slots", work.slots)
        .option("indexEnd", json.dumps(None if work.moment is None else work.moment.index_end))
        .option("deleted", json.dumps(dict(work.deleted)))
        .option("counted", str(work.counted or ""))
    )
    rows = planned(reader.load)
    place = ("topic", "queueId", "file")
    return rows.repartition(work.tasks, *place).sortWithinPartitions(*place, "first")
