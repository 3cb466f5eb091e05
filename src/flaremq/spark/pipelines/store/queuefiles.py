"""Queue files written from runs of entries, each as a whole by one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from flaremq.base.errors import CorruptStore
from flaremq.model.layout import ENTRY_SIZE
from flaremq.store.queue.entries import FILLER

REPORT: Final = (
    "topic binary, queueId int, file long, first long, end long, repeated long, missing long, tally string"
)
REPORT_ARROW: Final = pa.schema(
    [
        ("topic", pa.binary()),
        ("queueId", pa.int32()),
        ("file", pa.int64()),
        ("first", pa.int64()),
        ("end", pa.int64()),
        ("repeated", pa.int64()),
        ("missing", pa.int64()),
        ("tally", pa.string()),
    ]
)
_COLUMNS: Final = ("topic", "queueId", "file", "first", "entries", "tally")
_NAME_DIGITS: Final = 20


@dataclass(slots=True)
class QueueFileWriter:
    """One file, built from its runs in the order of their first entries."""

    topic: bytes
    queue_id: int
    file: int
    """Number of the first entry that the file has room for."""
    first: int = -1
    repeated: int = 0
    missing: int = 0
    entries: bytearray = field(default_factory=bytearray)

    @property
    def key(self) -> tuple[bytes, int, int]:
        return self.topic, self.queue_id, self.file

    @property
    def end(self) -> int:
        return self.file + len(self.entries) // ENTRY_SIZE

    def add(self, first: int, run: bytes) -> None:
        """Add a run. If two records have the same queue offset, the earlier one stays, as in a broker."""
        if self.first < 0:
            self.first = first
            self.entries += FILLER * (first - self.file)
        if first > self.end:
            self.missing += first - self.end
            self.entries += FILLER * (first - self.end)
        known = min(self.end - first, len(run) // ENTRY_SIZE)
        self.repeated += known
        self.entries += run[known * ENTRY_SIZE :]

    def path(self, folder: Path) -> Path:
        name = f"{self.file * ENTRY_SIZE:0{_NAME_DIGITS}d}"
        return folder / self.topic.decode() / str(self.queue_id) / name

    def row(self) -> tuple[object, ...]:
        return self.topic, self.queue_id, self.file, self.first, self.end, self.repeated, self.missing, None


def files_of(batches: Iterable[pa.RecordBatch], tallies: list[str]) -> Iterator[QueueFileWriter]:
    """Whole files from rows that are sorted by queue, file and first entry. Appends tallies to the list."""
    current: QueueFileWriter | None = None
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in _COLUMNS]
        for topic, queue_id, file, first, entries, tally in zip(*columns, strict=True):
            if tally is not None:
                tallies.append(tally)
                continue
            if current is None or current.key != (topic, queue_id, file):
                if current is not None:
                    yield current
                current = QueueFileWriter(topic, queue_id, file)
            current.add(first, entries)
    if current is not None:
        yield current


def write_file(found: QueueFileWriter, folder: Path, size: int) -> None:
    """Write a file. Another attempt of the same task overwrites it with the same bytes."""
    if b"/" in found.topic or found.topic in (b"", b".", b".."):
        raise CorruptStore(f"a record names the topic {found.topic!r}, which cannot be the name of a folder")
    path = found.path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        out.write(found.entries)
        out.truncate(size)


def report(found: Iterable[QueueFileWriter], tallies: Iterable[str]) -> pa.RecordBatch:
    nothing = (None,) * (len(REPORT_ARROW) - 1)
    rows = [*(each.row() for each in found), *((*nothing, tally) for tally in tallies)]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(REPORT_ARROW)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, REPORT_ARROW.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=REPORT_ARROW)
