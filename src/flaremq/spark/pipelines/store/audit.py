"""Audit of a store: records, queues and index against each other, and against another store or an archive.

the log ─► every record's CRC, lengths and offset ─► derived entries ─► compared with the queues' files
                                                 └─► keys ─► compared with the index files' entries
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

from pyspark.sql import SparkSession

from flaremq.arrow.storefolder import ArrowStore, Moment
from flaremq.base.errors import UsageError
from flaremq.base.localpath import local_path
from flaremq.base.text import count
from flaremq.base.units import MiB, cores
from flaremq.model.layout import ENTRY_SIZE
from flaremq.protocol.configfiles import deleted_topics
from flaremq.spark.errors import planned
from flaremq.spark.pipelines.store.auditarchive import compare_archive
from flaremq.spark.pipelines.store.auditindex import chain_findings, index_files
from flaremq.spark.pipelines.store.auditlogs import compare_logs
from flaremq.spark.pipelines.store.auditqueues import FINDINGS, beyond, compare
from flaremq.spark.pipelines.store.derive import FINDINGS_MAX, Tally, Work, derive, tallies_of
from flaremq.spark.pipelines.store.rebuild import FileShape, shape_of
from flaremq.store.index.indexfile import file_size

_SHOWN_MAX: Final = 1000
_TASK_BYTES: Final = 128 * MiB
_TASKS_MAX: Final = 512


@dataclass(frozen=True, slots=True)
class AuditedArchive:
    """An archive to compare with a store."""

    folder: Path
    broker: str | None = None
    """The store's broker, if the archive has messages of several."""


@dataclass(slots=True)
class Audit:
    """What was checked, and the deviations that were found."""

    store: Path
    records: int = 0
    bytes: int = 0
    queues: int = 0
    queue_files: int = 0
    index_files: int = 0
    index_keys: int = 0
    compared_bytes: int = 0
    """Bytes compared with a second store."""
    archived: int = 0
    """Rows of an archive that were compared."""
    findings: list[str] = field(default_factory=list)
    """The first thousand deviations, in sentences."""
    found: int = 0
    """The number of all deviations."""
    notes: list[str] = field(default_factory=list)
    """What was not checked, and why."""
    seconds: float = 0.0

    @property
    def is_sound(self) -> bool:
        return not self.found

    def add(self, findings: Sequence[str], found: int | None = None) -> None:
        self.found += len(findings) if found is None else found
        self.findings += findings[: max(0, _SHOWN_MAX - len(self.findings))]


def audit(
    spark: SparkSession,
    store: Path | ArrowStore,
    other: Path | None = None,
    *,
    against: AuditedArchive | None = None,
    shape: FileShape | None = None,
    tasks: int | None = None,
    counted: Path | None = None,
) -> Audit:
    """Check all of a store, and compare it with another store and an archive, if given.

    Tasks on this machine write to the folder `counted` how many records they have read so far.
    """
    folder = store if isinstance(store, ArrowStore) else ArrowStore(local_path(store))
    folder.check()
    begun_s, shape = monotonic(), shape or shape_of(folder.root)
    tasks = tasks or _tasks(folder)
    result = Audit(folder.root)
    _check_index_size(folder.root, shape)
    moment = folder.moment()
    if moment is not None:
        result.notes.append(
            "a broker has this store open: the audit covers what it had finished when the audit began, "
            f"queues up to offset {moment.log_end} of the log and the index up to {moment.index_end}"
        )
    pieces = folder.log_pieces(tasks=tasks, moment=moment)
    deleted = deleted_topics(folder.root)
    work = Work(pieces, tasks, shape.per_file, shape.index_slots, moment, deleted, counted)
    _audit_log(spark, folder, work, result)
    _audit_chains(folder.root, shape, moment, result)
    if other is not None:
        second = ArrowStore(local_path(other))
        second.check()
        compared = compare_logs(spark, folder, second, tasks)
        result.compared_bytes = compared.size
        result.add(compared.findings, compared.found)
    if against is not None:
        _audit_archive(spark, folder, against, result)
    result.seconds = monotonic() - begun_s
    return result


def _tasks(folder: ArrowStore) -> int:
    """Enough for all cores, and small enough for visible progress."""
    size = sum(file.size for file in folder.scan.log_files())
    return max(2 * cores(), min(_TASKS_MAX, size // _TASK_BYTES))


def _audit_archive(spark: SparkSession, folder: ArrowStore, archive: AuditedArchive, result: Audit) -> None:
    is_live = folder.scan.is_live
    compared = compare_archive(spark, folder.root, archive.folder, broker=archive.broker)
    result.archived = compared.rows
    result.add(compared.findings, compared.found)
    if compared.later and is_live:
        result.notes.append(
            f"{count(compared.later, 'message')} newer than the last archived one of their queue"
        )
    elif compared.later:
        result.add(
            [f"archive: {count(compared.later, 'message')} missing, newer than the last of their queue"]
        )


def _check_index_size(root: Path, shape: FileShape) -> None:
    wanted = file_size(shape.index_slots, shape.index_entries)
    for path in root.glob("index/[0-9]*"):
        if path.stat().st_size != wanted:
            raise UsageError(
                f"{path} has {path.stat().st_size} bytes, but an index file of {shape.index_slots} slots and "
                f"{shape.index_entries} entries {wanted}: give the broker's maxHashSlotNum and maxIndexNum"
            )


def _note_tallies(result: Audit, tallies: Sequence[Tally]) -> None:
    for tally in tallies:
        result.records += tally.records
        result.bytes += tally.size
        result.index_keys += tally.keys
        result.add(
            [
                f"log: no whole record at offset {begin}, {end - begin} bytes cannot be read"
                for begin, end in tally.damage
            ]
        )
        result.add(tally.findings, tally.found)
    light, batches = (sum(getattr(tally, name) for tally in tallies) for name in ("light", "batches"))
    deleted = sum(tally.deleted for tally in tallies)
    if deleted:
        result.notes.append(f"{count(deleted, 'record')} of deleted topics, which belong to no queue")
    if light:
        result.notes.append(
            f"{count(light, 'record')} with more queues (INNER_MULTI_DISPATCH), which were not checked"
        )
    if batches:
        result.notes.append(
            f"{count(batches, 'record')} with several messages; batch queues were not checked"
        )


def _audit_log(spark: SparkSession, folder: ArrowStore, work: Work, result: Audit) -> None:
    """Check all records and queues."""
    log = range(work.pieces[0].begin, work.pieces[-1].end) if work.pieces else range(0)
    compared = derive(spark, folder, work).mapInArrow(
        partial(compare, folder=folder.root / "consumequeue", log=log, moment=work.moment), FINDINGS
    )
    reported = planned(compared.collect)
    _note_tallies(result, tallies_of(row["tally"] for row in reported))
    # Read again: a broker records that a topic is deleted before it deletes its queues.
    deleted = deleted_topics(folder.root)
    gone = deleted.keys() - work.deleted.keys()
    seen: set[tuple[str, int, int]] = set()
    for row in reported:
        if row["tally"] is not None:
            continue
        topic = bytes(row["topic"]).decode("utf-8", "replace")
        seen.add((topic, row["queueId"], row["file"]))
        if topic not in gone:
            result.add([row["finding"]] if row["finding"] is not None else [], row["found"])
    result.queue_files = len(seen)
    result.queues = len({(topic, queue_id) for topic, queue_id, _ in seen})
    for finding in _unknown_files(folder, seen, log, deleted):
        result.add([finding])
    result.notes += [f"topic {topic} was deleted during the audit: not checked" for topic in sorted(gone)]


def _unknown_files(
    folder: ArrowStore, seen: set[tuple[str, int, int]], log: range, deleted: Mapping[str, int]
) -> Iterator[str]:
    """Findings in queue files without records: they may only point at deleted or future records."""
    for topic, queue_id in folder.scan.queues():
        begin = max(log.start, deleted.get(topic, 0))
        for path in sorted((folder.root / "consumequeue" / topic / str(queue_id)).glob("[0-9]*")):
            if not path.name.isdigit() or (topic, queue_id, int(path.name) // ENTRY_SIZE) in seen:
                continue
            name, first = f"queue {queue_id} of {topic}", int(path.name) // ENTRY_SIZE
            with suppress(FileNotFoundError):  # Deleted by the broker meanwhile.
                data = path.read_bytes()
                yield from list(beyond(data, 0, first, name, range(begin, log.stop)))[:FINDINGS_MAX]


def _audit_chains(root: Path, shape: FileShape, moment: Moment | None, result: Audit) -> None:
    files = index_files(root, shape.index_slots)
    result.index_files = len(files)
    if not files:
        result.notes.append("there is no index: nothing was compared with it")
    for file in files:
        found, findings = chain_findings(file, FINDINGS_MAX, moment)
        result.add(findings, found)
