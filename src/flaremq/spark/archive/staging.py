"""Rows staged in Parquet files: one for each hour of each topic, sorted by queue, synced at the end.

The files of a task are not part of the archive until its batch is committed. Their names are always new, so
two attempts at the same rows do not collide.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from flaremq.base.errors import StoreError
from flaremq.base.files import sync_folder
from flaremq.base.units import MiB
from flaremq.spark.archive.partitions import (
    DAY,
    FILE_SCHEMA,
    FULL_SCHEMA,
    HOUR,
    HOUR_US,
    DataFile,
    HourPartition,
)

_GROUP_BYTES: Final = 64 * MiB
_HELD_BYTES: Final = 192 * MiB
_OPEN_MAX: Final = 64
_ORDER: Final = [("brokerName", "ascending"), ("queueId", "ascending"), ("queueOffset", "ascending")]


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Where and how to write files. It is sent to the executors."""

    base: str
    """The folder that holds the partitions."""
    suffix: str = ".parquet"
    is_full: bool = False
    """Whether files also have the columns that are in the names of their folders."""
    group_bytes: int = _GROUP_BYTES
    """Rows of a partition are sorted and written when they have this size."""
    held_bytes: int = _HELD_BYTES
    """The most bytes to hold in memory, for all partitions together."""
    open_max: int = _OPEN_MAX

    @property
    def schema(self) -> pa.Schema:
        return FULL_SCHEMA if self.is_full else FILE_SCHEMA


@dataclass(slots=True)
class _Open:
    """A partition that is being written."""

    path: str
    batches: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0
    rows: int = 0
    writer: Any = None


class Stage:
    """The files of one task. End it with `finish`, or with `discard`, which deletes them."""

    def __init__(self, plan: StagePlan) -> None:
        self._plan = plan
        self._base = Path(plan.base)
        self._open: dict[HourPartition, _Open] = {}
        self._held = 0
        self._done: list[DataFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of any partitions."""
        for part, rows in by_part(batch):
            self.add_to(part, rows)

    def add_to(self, part: HourPartition, rows: pa.RecordBatch) -> None:
        found = self._open.get(part)
        if found is None:
            if len(self._open) >= self._plan.open_max:
                self._close(next(iter(self._open)))  # The least recently used.
            found = self._open[part] = _Open(f"{part.path}/part-{uuid.uuid4().hex}{self._plan.suffix}")
        else:
            self._open[part] = self._open.pop(part)
        found.batches.append(rows)
        size = rows.nbytes
        found.size += size
        found.rows += rows.num_rows
        self._held += size
        if found.size >= self._plan.group_bytes:
            self._write(part)
        while self._held > self._plan.held_bytes:
            self._write(max(self._open, key=lambda each: self._open[each].size))

    def finish(self) -> tuple[DataFile, ...]:
        for part in list(self._open):
            self._close(part)
        with _disk_errors(self._base):
            for folder in {each for file in self._done for each in (self._base / file.path).parents}:
                if folder == self._base or self._base in folder.parents:
                    sync_folder(folder)  # A file is only as safe as its name.
        return tuple(self._done)

    def discard(self) -> None:
        for each in self._open.values():
            if each.writer is not None:
                with contextlib.suppress(OSError, pa.ArrowException):
                    each.writer.close()
        for path in [*(each.path for each in self._open.values()), *(file.path for file in self._done)]:
            with contextlib.suppress(OSError):
                (self._base / path).unlink(missing_ok=True)

    def _write(self, part: HourPartition) -> None:
        """Write the held rows of a partition as a row group."""
        found = self._open[part]
        if not found.batches:
            return
        table = pa.Table.from_batches(found.batches).sort_by(_ORDER)
        self._held -= found.size
        found.batches, found.size = [], 0
        with _disk_errors(self._base / found.path):
            if found.writer is None:
                path = self._base / found.path
                path.parent.mkdir(parents=True, exist_ok=True)
                found.writer = pq.ParquetWriter(path, self._plan.schema, compression="zstd")
            found.writer.write_table(_whole(table, part, self._plan.schema), row_group_size=len(table))

    def _close(self, part: HourPartition) -> None:
        self._write(part)
        found = self._open.pop(part)
        path = self._base / found.path
        self._done.append(DataFile(found.path, found.rows, 0))  # So that `discard` knows it if closing fails.
        with _disk_errors(path):
            found.writer.close()
            size = _synced(path)
        self._done[-1] = DataFile(found.path, found.rows, size)


def _whole(table: pa.Table, part: HourPartition, schema: pa.Schema) -> pa.Table:
    """A table in the given schema, with the columns of its partition if the schema has them."""
    own = {"topic": (part.topic, pa.string()), "day": (part.day, DAY), "hour": (part.hour, HOUR)}
    columns = [
        pa.repeat(pa.scalar(*own[each.name]), len(table))
        if each.name in own
        else table.column(each.name).cast(each.type)
        for each in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _synced(path: Path) -> int:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        return os.fstat(handle).st_size
    finally:
        os.close(handle)


@contextlib.contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}; check that every executor can "
            "write to the archive's folder, and that its disk has room"
        ) from error


def by_part(batch: pa.RecordBatch) -> Iterator[tuple[HourPartition, pa.RecordBatch]]:
    """The rows of each partition, in their order. Most batches have one partition."""
    if not batch.num_rows:
        return
    stored = pc.cast(batch.column("storeTimestamp"), pa.int64()).fill_null(0)
    hours = np.asarray(stored) // HOUR_US
    topics = pc.dictionary_encode(batch.column("topic"))
    codes = np.asarray(topics.indices)
    if hours.min() == hours.max() and len(topics.dictionary) == 1:
        yield HourPartition.of_hour(topics.dictionary[0].as_py(), int(hours[0])), batch
        return
    both = np.stack((codes.astype(np.int64), hours), axis=1)
    found, which = np.unique(both, axis=0, return_inverse=True)
    which = which.reshape(-1)
    for number, (code, hour) in enumerate(found):
        rows = batch.take(pa.array(np.flatnonzero(which == number)))
        yield HourPartition.of_hour(topics.dictionary[int(code)].as_py(), int(hour)), rows
