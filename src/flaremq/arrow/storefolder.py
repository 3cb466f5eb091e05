"""A store folder as Arrow batches, without its broker: planned in one process, read in pieces by others.

A piece is a range of the log that begins and ends between records, or a range of one queue. Reading a piece
again gives the same rows, because nothing before the confirmed end ever changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa

from flaremq.arrow.batches import Decoder
from flaremq.base.errors import CorruptStore, Malformed, StoreError, UsageError
from flaremq.base.units import MiB
from flaremq.model.columns import Check, Fact
from flaremq.store.offline.moment import Moment, last_entry, moment_of
from flaremq.store.offline.scan import LogFile, StoreScan, Walked, ledger_data

__all__ = [
    "ALWAYS",
    "ArrowStore",
    "Damage",
    "LogPiece",
    "Moment",
    "Piece",
    "QueuePiece",
    "Times",
    "Walked",
    "share",
]

_CUT_BYTES: Final = 8 * MiB
_QUEUE_ROWS_MIN: Final = 16_384  # A task with fewer costs more than it saves.


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Records that begin in [begin, end) of the log, in one file."""

    begin: int
    end: int
    file_offset: int
    size: int
    """About how many bytes to read: its weight against other pieces."""
    is_last: bool
    """The log may end within it."""


class Damage(NamedTuple):
    """A range of the log without a whole record."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class QueuePiece:
    """Entries [begin, end) of one queue."""

    topic: str
    queue_id: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


Piece: TypeAlias = LogPiece | QueuePiece
P = TypeVar("P", LogPiece, Piece)


@dataclass(frozen=True, slots=True)
class Times:
    """Store times to read: [begin, end), in ms. They are assumed never to fall along the log."""

    begin_ms: int = -(1 << 63)
    end_ms: int = (1 << 63) - 1


ALWAYS: Final = Times()


@dataclass(frozen=True, slots=True)
class ArrowStore:
    """A store folder. Its log may lie elsewhere, in several folders."""

    root: Path
    log_folders: tuple[Path, ...] = ()
    skips_damage: bool = False
    """Whether to continue after damage, instead of raising CorruptStore."""
    scan: StoreScan = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scan", StoreScan(self.root, self.log_folders))

    def __reduce__(self) -> tuple[type[ArrowStore], tuple[object, ...]]:
        return ArrowStore, (self.root, self.log_folders, self.skips_damage)

    def check(self) -> None:
        """Raises UsageError if there is no store."""
        logs = self.log_folders or ledger_data(self.root) or (self.root / "commitlog",)
        for folder in (self.root, *logs):
            if not folder.is_dir():
                raise UsageError(
                    f"{folder} does not exist: expected a store, the folder that holds commitlog/ "
                    "(its broker's storePathRootDir)"
                )

    # Planning.

    def moment(self) -> Moment | None:
        """How far the running broker has written; None if no broker has the store open."""
        return moment_of(self.scan)

    def log_pieces(
        self, times: Times = ALWAYS, *, tasks: int = 1, moment: Moment | None = None
    ) -> list[LogPiece]:
        """The trusted part of the log that may hold these times, in order.

        With fewer files than tasks, files are cut, which takes a walk over them; else each file is a piece.
        To compare the log with other files as of the same moment, pass that moment.
        """
        moment = moment or self.moment()  # Before listing files: one that is created later lies after it.
        end = None if moment is None else moment.log_end
        files = self._files_of(times)
        pieces: list[LogPiece] = []
        for file, is_last in files:
            limit = file.offset + file.size if end is None else min(end, file.offset + file.size)
            if limit <= file.offset:
                continue
            is_last = is_last or (end is not None and end <= file.offset + file.size)
            cuts, size_max = [file.offset], file.size
            if len(files) < tasks:
                cuts = [cut for cut in self.scan.cuts(file, _CUT_BYTES) if cut < limit]
                size_max = 2 * _CUT_BYTES  # After the last cut a file may be empty.
            for begin, stop in zip(cuts, [*cuts[1:], limit], strict=True):
                last = is_last and stop == limit and end is None
                pieces.append(LogPiece(begin, stop, file.offset, min(stop - begin, size_max), last))
        return pieces

    def _files_of(self, times: Times) -> list[tuple[LogFile, bool]]:
        """Files that may hold these times, and whether each is the last."""
        files = self.scan.log_files()
        while files and not self._has_records(files[-1]):
            files.pop()  # Preallocated by the broker: the log ends before it.
        found = []
        for i, file in enumerate(files):
            last = i == len(files) - 1
            if not last and self._first_ms(files[i + 1], times.begin_ms) < times.begin_ms:
                continue  # Even the next file begins too early, so all of this one is too early.
            if self._first_ms(file, times.begin_ms) >= times.end_ms:
                break
            found.append((file, last))
        return found

    def _has_records(self, file: LogFile) -> bool:
        first = next(self.scan.file_records(file, rows=1), None)
        return first is not None or self.scan.next_record(file, 0) is not None

    def _first_ms(self, file: LogFile, otherwise: int) -> int:
        walked = next(self.scan.file_records(file, rows=1), None)
        return otherwise if walked is None else walked.facts[Fact.STORE_TIMESTAMP]

    def queues(self, topics: Sequence[str] = (), pattern: str | None = None) -> list[tuple[str, int]]:
        """Queues of these topics, or of those whose whole name matches the pattern."""
        wanted, fits = frozenset(topics), re.compile(pattern) if pattern is not None else None
        return [
            (topic, queue_id)
            for topic, queue_id in self.scan.queues()
            if (topic in wanted if fits is None else fits.fullmatch(topic))
        ]

    def queue_pieces(self, queues: Sequence[tuple[str, int]]) -> list[QueuePiece]:
        """The trusted entries of these queues."""
        is_live = self.scan.is_live
        found = []
        for topic, queue_id in queues:
            begin, end = self.scan.queue_bounds(topic, queue_id)
            if is_live:  # The last entries may be half written.
                last = last_entry(self.scan, topic, queue_id)
                end = begin if last is None else min(end, last.queue_offset + 1)
            found.append(QueuePiece(topic, queue_id, begin, max(begin, end)))
        return [piece for piece in found if piece.size]

    # Reading.

    def read(self, piece: Piece, decoder: Decoder) -> Iterator[pa.RecordBatch]:
        if isinstance(piece, LogPiece):
            for walked in self.walks(piece, lambda: decoder.rows_next):
                yield from decoder.of_walk(walked.view, walked.facts, walked.count)
            return
        pieces = self.scan.queue_pieces(
            piece.topic, piece.queue_id, piece.begin, piece.end, decoder.rows_next
        )
        for data in pieces:
            try:
                yield from decoder.batches(data, piece.begin, piece.end, Check.BODY_CRC)
            except Malformed as error:
                if self.skips_damage:
                    continue
                raise CorruptStore(
                    f"{self.root}: queue {piece.queue_id} of {piece.topic} points at something that is not a "
                    f"record: {error}"
                ) from None

    def walks(
        self, piece: LogPiece, rows: Callable[[], int], damage: list[Damage] | None = None
    ) -> Iterator[Walked]:
        """The records of a piece, `rows()` at a time.

        With a list for `damage`, unreadable ranges are appended to it and skipped instead of raised.
        """
        file = next((f for f in self.scan.log_files() if f.offset == piece.file_offset), None)
        if file is None:
            raise StoreError(
                f"{self.root}: the log file at offset {piece.file_offset} is gone: its broker deletes old "
                "files; read again, or copy the store first"
            )
        at = piece.begin
        while True:
            for walked in self.scan.file_records(file, at - file.offset, piece.end, rows):
                last = (walked.count - 1) * Fact.WIDTH
                at = walked.facts[last + Fact.OFFSET] + walked.facts[last + Fact.SIZE]
                yield walked
            found = self._behind(file, at, piece, damage)
            if found is None:
                return
            at = found

    def _behind(self, file: LogFile, at: int, piece: LogPiece, damage: list[Damage] | None) -> int | None:
        """Where to continue if a walk ended too early at offset `at`; None if it ended where it should."""
        if at >= piece.end or self.scan.ends(file, at - file.offset):
            return None
        place = self.scan.next_record(file, at - file.offset)
        found = None if place is None else file.offset + place
        if found is None and piece.is_last:
            return None  # The log ends here, with zeros or with a record that a crash has torn.
        if damage is not None:
            damage.append(Damage(at, piece.end if found is None else min(found, piece.end)))
        elif not self.skips_damage:
            following = "" if found is None else f", the next one is at {found}"
            raise CorruptStore(f"{file.path}: no whole record at offset {at}{following}")
        return found if found is not None and found < piece.end else None


def share(pieces: Sequence[P], tasks: int) -> list[tuple[P, ...]]:
    """Adjacent pieces grouped into about equal shares, one for each task. Large queues are split."""
    fair = max(1, -(-sum(piece.size for piece in pieces) // max(1, tasks)))
    shares: list[list[P]] = []
    room = 0
    for piece in (part for whole in pieces for part in _split(whole, fair)):
        if not shares or (room < piece.size // 2 and len(shares) < tasks):
            shares.append([])
            room = fair
        shares[-1].append(piece)
        room -= piece.size
    return [tuple(found) for found in shares]


def _split(piece: P, fair: int) -> Iterator[P]:
    if isinstance(piece, LogPiece):  # Cut already, or a whole file.
        yield piece
        return
    step = max(fair, _QUEUE_ROWS_MIN)
    for begin in range(piece.begin, piece.end, step):
        yield replace(piece, begin=begin, end=min(begin + step, piece.end))
