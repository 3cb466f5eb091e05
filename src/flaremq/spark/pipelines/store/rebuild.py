"""ConsumeQueue and IndexFile rebuilt from a CommitLog by Spark, byte for byte as the broker writes them.

    pieces of the log ─► runs of entries ─► by queue file ─► consumequeue/
                     └─► tallies of keys ─► by index file ─► index/, its first file at the same time

For a store whose queues are lost or cannot be trusted, also if it is too large for one machine. The existing
folders stay until everything is written. Only then the new folders replace them, and the old ones are kept
next to them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from flaremq.arrow.storefolder import ArrowStore
from flaremq.base.errors import CorruptStore, StoreLocked, UsageError
from flaremq.base.localpath import local_path
from flaremq.base.units import cores
from flaremq.model.layout import ENTRY_SIZE, index_slots
from flaremq.protocol.configfiles import deleted_topics
from flaremq.spark.jobs import beside
from flaremq.spark.pipelines.store.derive import Tally, Work, derive, tallies_of
from flaremq.spark.pipelines.store.indexfiles import (
    IndexFileShape,
    IndexPart,
    first_part,
    parts_of,
    write_index,
)
from flaremq.spark.pipelines.store.queuefiles import REPORT, files_of, report, write_file

_INDEX_REPORT: Final = "number int, entries long, begin_ms long"
_INDEX_ARROW: Final = pa.schema([("number", pa.int32()), ("entries", pa.int64()), ("begin_ms", pa.int64())])
_KINDS: Final = ("consumequeue", "index")


@dataclass(frozen=True, slots=True)
class FileShape:
    """Sizes of the files that a broker with these settings makes."""

    queue_file_size: int = 300_000 * ENTRY_SIZE
    """mappedFileSizeConsumeQueue."""
    index_slots: int = 5_000_000
    """maxHashSlotNum."""
    index_entries: int = 20_000_000
    """maxIndexNum."""

    def __post_init__(self) -> None:
        if self.queue_file_size <= 0 or self.queue_file_size % ENTRY_SIZE:
            raise UsageError(
                f"queue files of {self.queue_file_size} bytes: expected a multiple of {ENTRY_SIZE}, the "
                "broker's mappedFileSizeConsumeQueue"
            )
        if self.index_slots < 1 or self.index_entries < 2:
            raise UsageError(
                f"an index of {self.index_slots} slots and {self.index_entries} entries is not valid: "
                "expected the broker's maxHashSlotNum and maxIndexNum"
            )

    @property
    def per_file(self) -> int:
        """Entries per queue file."""
        return self.queue_file_size // ENTRY_SIZE

    @property
    def index(self) -> IndexFileShape:
        return IndexFileShape(self.index_slots, self.index_entries)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was rebuilt, and what was left out."""

    folder: Path
    records: int
    bytes: int
    queues: int
    queue_files: int
    index_files: int
    index_entries: int
    repeated: int
    """Records whose queue offset another record has."""
    missing: int
    """Queue positions without a record: they are filled, and consumers skip them."""
    light: int
    """Records that name more queues (INNER_MULTI_DISPATCH): those are not rebuilt."""
    batches: int
    """Records that hold several messages: batch queues are not rebuilt."""
    deleted: int
    """Records of deleted topics: their queues are not rebuilt."""
    kept: tuple[Path, ...]
    """Where the old folders are now."""
    seconds: float


def rebuild(
    spark: SparkSession,
    store: Path | ArrowStore,
    to: Path | None = None,
    *,
    shape: FileShape | None = None,
    tasks: int | None = None,
) -> Rebuilt:
    """Rebuild queues and index of a store, in `to` or, if no broker has it open, in the store itself."""
    folder = store if isinstance(store, ArrowStore) else ArrowStore(local_path(store))
    folder.check()
    shape, tasks, begun_s = shape or shape_of(folder.root), tasks or 2 * cores(), monotonic()
    target = local_path(to or folder.root)
    _check_target(folder, target, is_own=to is None)
    work = target / ".rebuild"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        pieces, deleted = folder.log_pieces(tasks=tasks), deleted_topics(folder.root)
        index = _Indexing(spark, folder, shape.index, work / "index")
        with beside(spark, partial(index.write, [first_part(pieces, shape.index)])) as first:
            rows = derive(spark, folder, Work(pieces, tasks, shape.per_file, deleted=deleted))
            files, tallies = _write_queues(rows, work / "consumequeue", shape)
        entries = index.finish(first.result(), tallies)
        kept = _take_places(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return Rebuilt(
        folder=target,
        records=sum(tally.records for tally in tallies),
        bytes=sum(tally.size for tally in tallies),
        queues=len({(row[0], row[1]) for row in files}),
        queue_files=len(files),
        index_files=len(entries),
        index_entries=sum(entries),
        repeated=sum(row[2] for row in files),
        missing=sum(row[3] for row in files),
        light=sum(tally.light for tally in tallies),
        batches=sum(tally.batches for tally in tallies),
        deleted=sum(tally.deleted for tally in tallies),
        kept=kept,
        seconds=monotonic() - begun_s,
    )


def shape_of(root: Path) -> FileShape:
    """File sizes as in the existing files; without files, RocketMQ's defaults.

    Four entries per slot are assumed, the default: an index file does not say how it is divided.
    """
    queue_size = next((path.stat().st_size for path in root.glob("consumequeue/*/*/[0-9]*")), 0)
    index_size = next((path.stat().st_size for path in root.glob("index/[0-9]*")), 0)
    usual = FileShape()
    slots = index_slots(index_size)
    return FileShape(
        queue_size if queue_size and not queue_size % ENTRY_SIZE else usual.queue_file_size,
        slots or usual.index_slots,
        4 * slots if slots else usual.index_entries,
    )


def _check_target(folder: ArrowStore, target: Path, *, is_own: bool) -> None:
    if is_own and folder.scan.is_live:
        raise StoreLocked(
            f"{folder.root}: a broker has this store open: stop it first, or use another folder"
        )
    there = [target / kind for kind in _KINDS if not is_own and any((target / kind).glob("*"))]
    if there:
        raise UsageError(f"{there[0]} is not empty: expected a new or empty folder")


def _write_queues(
    rows: DataFrame, folder: Path, shape: FileShape
) -> tuple[list[tuple[bytes, int, int, int]], list[Tally]]:
    """Write the queue files. Returns topic, queue, repeated and missing of each, and the tallies."""
    folder.mkdir()
    written = rows.mapInArrow(partial(_write_all, folder=folder, size=shape.queue_file_size), REPORT)
    reported = written.collect()
    files = [
        (bytes(row["topic"]), row["queueId"], row["repeated"], row["missing"])
        for row in reported
        if row["tally"] is None
    ]
    return files, tallies_of(row["tally"] for row in reported)


def _write_all(batches: Iterable[pa.RecordBatch], folder: Path, size: int) -> Iterator[pa.RecordBatch]:
    tallies: list[str] = []
    for found in files_of(batches, tallies):
        write_file(found, folder, size)
        yield report([found], ())
    yield report((), tallies)


class _WrittenIndex(NamedTuple):
    """An index file that was written, under its number."""

    number: int
    entries: int
    begin_ms: int


@dataclass(frozen=True, slots=True)
class _Indexing:
    """Writes the index. The first file is written while the keys are still being counted."""

    spark: SparkSession
    folder: ArrowStore
    shape: IndexFileShape
    to: Path

    def write(self, parts: Sequence[IndexPart]) -> list[_WrittenIndex]:
        if not parts:
            return []
        rows = self.spark.range(len(parts), numPartitions=len(parts)).mapInArrow(
            partial(_write_parts, folder=self.folder, parts=parts, shape=self.shape, to=self.to),
            _INDEX_REPORT,
        )
        return [_WrittenIndex(row["number"], row["entries"], row["begin_ms"]) for row in rows.collect()]

    def finish(self, first: Sequence[_WrittenIndex], tallies: Sequence[Tally]) -> list[int]:
        """Write the other files, and name all by the time at which they begin. Returns their entry counts."""
        parts = parts_of(tallies, self.shape)
        if not parts:
            (self.to / "0").unlink()  # The log has no keys.
            return []
        made = sorted([*first, *self.write(parts[1:])])
        for part, file in zip(parts, made, strict=True):
            if file.entries != part.keys:
                raise CorruptStore(
                    f"{self.folder.root}: {part.keys} keys were counted, but {file.entries} were found: "
                    "the log has changed"
                )
        name = datetime.min
        for file in made:
            name = max(datetime.fromtimestamp(file.begin_ms / 1000), name + timedelta(milliseconds=1))
            (self.to / str(file.number)).rename(self.to / name.strftime("%Y%m%d%H%M%S%f")[:17])
        return [file.entries for file in made]


def _write_parts(
    batches: Iterable[pa.RecordBatch],
    folder: ArrowStore,
    parts: Sequence[IndexPart],
    shape: IndexFileShape,
    to: Path,
) -> Iterator[pa.RecordBatch]:
    for part in (parts[at] for batch in batches for at in batch.column(0).to_pylist()):
        number = part.number
        entries, begin_ms = write_index(folder, part, shape, to / str(number))
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([value], kind)
                for value, kind in zip((number, entries, begin_ms), _INDEX_ARROW.types, strict=True)
            ],
            schema=_INDEX_ARROW,
        )


def _take_places(work: Path, target: Path) -> tuple[Path, ...]:
    """Put the new folders in place of the old ones, which are kept for comparison."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    kept: list[Path] = []
    for kind in _KINDS:
        if (target / kind).exists():
            kept.append((target / kind).rename(target / f"{kind}.before-{stamp}"))
        (work / kind).rename(target / kind)
    return tuple(kept)
