"""Small files of an archive merged into large ones, while it is read and while it grows.

The rows of several files of an hour are written to a new one, and then one commit replaces them by it. A
reader sees the old files or the new one. Delta merges its files itself.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from flaremq.base.errors import ConfigError, CorruptStore, StoreError, UsageError
from flaremq.base.localpath import local_path
from flaremq.base.units import MiB, cores
from flaremq.spark.archive.identity import OWN, known_identity
from flaremq.spark.archive.partitions import DataFile, HourPartition
from flaremq.spark.archive.publish import locked
from flaremq.spark.archive.reader import opened_table
from flaremq.spark.archive.staging import Stage, StagePlan
from flaremq.spark.archive.table import ArchiveTable, Vacuumed, deleted, stage_of
from flaremq.spark.errors import spark_error

DAY_S: Final = 24 * 3600.0
_AT_ONCE: Final = 32
"""Merges that are committed together: a commit costs Iceberg more than the merge of a few small files."""
_ROWS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Compacted:
    """An archive before and after a compaction."""

    files_before: int
    files: int
    rows: int
    size_before: int
    size: int
    vacuumed: Vacuumed
    seconds: float


@dataclass(frozen=True, slots=True)
class Merge:
    """Files of one partition to merge. It is sent to the executors."""

    stage: StagePlan
    files: tuple[DataFile, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Merge:
        found = json.loads(text)
        return cls(StagePlan(**found["stage"]), tuple(DataFile(**file) for file in found["files"]))

    def run(self) -> tuple[DataFile, ...]:
        """Write the new files, which are not visible yet. Raises StoreError."""
        part, stage = self.files[0].part, Stage(self.stage)
        try:
            for file in self.files:
                for rows in _rows_of(Path(self.stage.base) / file.path):
                    stage.add_to(part, rows)
            made = stage.finish()
            if sum(file.rows for file in made) != sum(file.rows for file in self.files):
                raise CorruptStore(
                    f"{part.path}: {sum(file.rows for file in self.files)} rows should be merged, but "
                    f"{sum(file.rows for file in made)} were read: nothing was changed; audit the archive"
                )
        except BaseException:
            stage.discard()
            raise
        return made


def _rows_of(path: Path) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(_ROWS)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"cannot read {path}: {error}") from error


def compact(
    spark: SparkSession | None,
    folder: Path,
    *,
    small_below: int = 32 * MiB,
    target: int = 128 * MiB,
    vacuum_after_s: float = DAY_S,
) -> Compacted:
    """Merge files below `small_below` bytes into files of about `target`, and delete those no longer needed.

    Without Spark it runs in this process. Files that are no longer part of the archive are kept for
    `vacuum_after_s`: running queries may still read them. Raises UsageError if there is no archive.
    """
    if not 0 < small_below <= target:
        raise ConfigError(f"small_below={small_below}, target={target}: expected 0 < small_below <= target")
    _check_age(vacuum_after_s)
    folder, begun_s = local_path(folder), monotonic()
    identity = known_identity(folder)
    with locked(folder / OWN / "compact.lock"), opened_table(folder, identity.format) as table:
        table.settle()
        before = table.files()
        if not table.optimize(target):
            merges = [
                Merge(stage_of(identity.format, folder), each) for each in bins(before, small_below, target)
            ]
            for at in range(0, len(merges), _AT_ONCE):
                _replace(table, merges[at : at + _AT_ONCE], spark)
        vacuumed, after = table.vacuum(vacuum_after_s), table.files()
    return Compacted(
        files_before=len(before),
        files=len(after),
        rows=sum(file.rows for file in after),
        size_before=sum(file.size for file in before),
        size=sum(file.size for file in after),
        vacuumed=vacuumed,
        seconds=monotonic() - begun_s,
    )


def vacuum(folder: Path, older_than_s: float = DAY_S) -> Vacuumed:
    """Delete files that were merged, or written by failed attempts, longer ago than that.

    A running attempt has its files in the same place, so the time must be longer than a batch takes.
    """
    _check_age(older_than_s)
    folder = local_path(folder)
    identity = known_identity(folder)
    with locked(folder / OWN / "compact.lock"), opened_table(folder, identity.format) as table:
        return table.vacuum(older_than_s)


def _check_age(age_s: float) -> None:
    if age_s < 0:
        raise UsageError(f"an age of {age_s:g} s: expected 0 or more; the default is a day")


def bins(files: Iterable[DataFile], small_below: int, target: int) -> list[tuple[DataFile, ...]]:
    """Which files to merge: small ones of a partition, as many as make a large one, never one alone."""
    by_part: dict[HourPartition, list[DataFile]] = defaultdict(list)
    for file in sorted(files):
        if file.size < small_below:
            by_part[file.part].append(file)
    found: list[tuple[DataFile, ...]] = []
    for _, small in sorted(by_part.items()):
        taken: list[DataFile] = []
        for file in small:
            taken.append(file)
            if sum(each.size for each in taken) >= target:
                found.append(tuple(taken))
                taken = []
        found.append(tuple(taken))
    return [each for each in found if len(each) > 1]


def _replace(table: ArchiveTable, merges: Sequence[Merge], spark: SparkSession | None) -> None:
    made = _run_here(merges) if spark is None else _run_in_spark(spark, merges)
    removed = [file for merge in merges for file in merge.files]
    added = [file for files in made for file in files]
    if not table.replace(removed, added):
        # Another tool has merged some of them.
        deleted(Path(merges[0].stage.base), [file.path for file in added])


def _run_here(merges: Sequence[Merge]) -> list[tuple[DataFile, ...]]:
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(Merge.run, merges))


def _run_in_spark(spark: SparkSession, merges: Sequence[Merge]) -> list[tuple[DataFile, ...]]:
    todo = spark.createDataFrame([(merge.to_json(),) for merge in merges], "merge string")
    try:
        rows = todo.repartition(len(merges)).mapInArrow(_run_all, "made string").collect()
    except Exception as error:
        raise spark_error(error) from error
    return [tuple(DataFile(**file) for file in json.loads(row["made"])) for row in rows]


def _run_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        made = [Merge.of_json(text).run() for text in batch.column("merge").to_pylist()]
        yield pa.RecordBatch.from_pydict(
            {"made": [json.dumps([asdict(file) for file in each]) for each in made]}
        )
