"""Audit of queues: each entry must point at its record, and each record must have its entry."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from flaremq.arrow.storefolder import Moment
from flaremq.base.text import count
from flaremq.model.layout import ENTRY_FORMAT, ENTRY_SIZE, EXT_ADDRESS_MAX, FILLER_SIZE
from flaremq.spark.pipelines.store.derive import FINDINGS_MAX
from flaremq.spark.pipelines.store.queuefiles import QueueFileWriter, files_of

FINDINGS: Final = "topic binary, queueId int, file long, finding string, found long, tally string"
_ARROW: Final = pa.schema(
    [
        ("topic", pa.binary()),
        ("queueId", pa.int32()),
        ("file", pa.int64()),
        ("finding", pa.string()),
        ("found", pa.int64()),
        ("tally", pa.string()),
    ]
)
_ENTRY: Final = struct.Struct(ENTRY_FORMAT)


def compare(
    batches: Iterable[pa.RecordBatch], folder: Path, log: range, moment: Moment | None
) -> Iterator[pa.RecordBatch]:
    """A row for each queue file that the log has records for, and one for each finding about it.

    Tallies come last. While a broker runs, a finding is checked again: the broker may still be writing the
    entries of a batch, queue by queue.
    """
    tallies: list[str] = []
    for file in files_of(batches, tallies):
        look = partial(_counted, file, folder, log)
        found, findings = look() if moment is None else moment.settled(look, lambda seen: not seen[0])
        rows = findings or [None]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([file.topic] * len(rows), pa.binary()),
                pa.array([file.queue_id] * len(rows), pa.int32()),
                pa.array([file.file] * len(rows), pa.int64()),
                pa.array(rows, pa.string()),
                pa.array([found, *([0] * (len(rows) - 1))], pa.int64()),
                pa.nulls(len(rows), pa.string()),
            ],
            schema=_ARROW,
        )
    nothing = [pa.nulls(len(tallies), kind) for kind in _ARROW.types[:-1]]
    yield pa.RecordBatch.from_arrays([*nothing, pa.array(tallies, pa.string())], schema=_ARROW)


def _counted(file: QueueFileWriter, folder: Path, log: range) -> tuple[int, list[str | None]]:
    """The number of findings about a file, and the first of them."""
    findings: list[str | None] = []
    found = 0
    for finding in _findings(file, folder, log):
        found += 1
        if found <= FINDINGS_MAX:
            findings.append(finding)
    return found, findings


def _findings(file: QueueFileWriter, folder: Path, log: range) -> Iterator[str]:
    name = f"queue {file.queue_id} of {file.topic.decode('utf-8', 'replace')}"
    yield from _gaps(file, name)
    path = file.path(folder)
    if not path.is_file():
        yield f"{name}: {path.name} is missing: expected the entries of {file.end - file.first} records in it"
        return
    data = path.read_bytes()
    begin, end = (file.first - file.file) * ENTRY_SIZE, len(file.entries)
    if data[begin:end] != file.entries[begin:end]:
        yield from _wrong_entries(file, data, name)
    yield from beyond(data, file.end - file.file, file.file, name, log)


def _gaps(file: QueueFileWriter, name: str) -> Iterator[str]:
    if file.missing:
        yield f"{name}: {file.missing} offsets between {file.first} and {file.end} have no record"
    if file.repeated:
        yield f"{name}: {count(file.repeated, 'record')} with the offset of another record"


def _wrong_entries(file: QueueFileWriter, data: bytes, name: str) -> Iterator[str]:
    for number in range(file.first, file.end):
        at = (number - file.file) * ENTRY_SIZE
        wanted = _ENTRY.unpack_from(file.entries, at)
        if wanted[1] == FILLER_SIZE:
            continue
        there = _ENTRY.unpack_from(data, at) if at + ENTRY_SIZE <= len(data) else (0, 0, 0)
        if there == wanted or (there[:2] == wanted[:2] and there[2] <= EXT_ADDRESS_MAX):
            continue  # The tags code is the address of an extension.
        if there[1] == 0:
            yield f"{name}: offset {number} has no entry, but its record is at {wanted[0]}"
        elif there[:2] == wanted[:2]:
            yield f"{name}: entry {number} has tags code {there[2]}, but its record has {wanted[2]}"
        else:
            yield (
                f"{name}: entry {number} points at {there[0]} ({there[1]} bytes), but its record is at "
                f"{wanted[0]} ({wanted[1]} bytes)"
            )


def beyond(data: bytes, begin: int, first: int, name: str, log: range) -> Iterator[str]:
    """Check entries from position `begin` on, which have no record: they must not point into the log.

    They may point at records that are already deleted or not yet written.
    """
    for place in range(begin, len(data) // ENTRY_SIZE):
        offset, size, _ = _ENTRY.unpack_from(data, place * ENTRY_SIZE)
        if size <= 0:
            return
        if size != FILLER_SIZE and offset in log:
            yield f"{name}: entry {first + place} points at {offset}, where this queue has no record"
