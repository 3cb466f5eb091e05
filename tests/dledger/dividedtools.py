"""Store folders as RocketMQ's broker leaves them that was put into DLedger mode on the store that it had.

    commitlog/           the old files; the last one is closed with a blank record
    dledger-n0/data/     entries from index 0 on, from the divide on, where the last old file ends

Queue entries lead to records on both sides of it.
"""

from __future__ import annotations

import shutil
import struct
from array import array
from pathlib import Path
from typing import NamedTuple

from flaremq.dledger.ledger.checkpoint import ledger_folder
from flaremq.dledger.ledgerfiles import LedgerWriter
from flaremq.model import layout
from flaremq.model.columns import facts_table
from flaremq.model.message import StoredMessage
from flaremq.model.record import decode, walk
from flaremq.store.files.disk import Disk
from flaremq.store.offline.scan import StoreScan

_BLANK = struct.Struct(">ii")
_OFFSET = struct.Struct(">q")
_UNCHECKED = 0


class Divided(NamedTuple):
    root: Path
    divide: int
    """Offset at which the ledger begins."""


def divide_store(root: Path, old: int) -> Divided:
    """Leave the first `old` records of a plain store where they are, and make entries of the others."""
    records = [
        bytes(walked.record(row)) for walked in StoreScan(root).records() for row in range(walked.count)
    ]
    first = decode(records[old]).physical_offset
    size = min((root / "commitlog").iterdir()).stat().st_size
    divide = _close_plain(root / "commitlog", first, size)
    writer = LedgerWriter(Disk(), ledger_folder(root, "n0"), size, divide, 0)
    for record in records[old:]:
        _point(root, decode(record), _put(writer, record))
    writer.synced()
    writer.finish()
    writer.close()
    shutil.rmtree(root / "index", ignore_errors=True)  # It names places in the log, too.
    return Divided(root, divide)


def _close_plain(folder: Path, end: int, size: int) -> int:
    """End the old log at this offset, as Java does when it first starts in DLedger mode: the divide."""
    for path in folder.iterdir():
        base = int(path.name)
        if base >= end:
            path.unlink()
        elif end < base + size:
            with path.open("r+b") as file:
                file.seek(end - base)
                file.write(_BLANK.pack(base + size - end, layout.BLANK_MAGIC).ljust(base + size - end, b"\0"))
    return -(-end // size) * size


def _put(writer: LedgerWriter, record: bytes) -> int:
    """Write an entry around a copy of this record; where the copy lies."""
    facts, moved = facts_table(1), array("q", bytes(8))
    assert walk(memoryview(record), 0, len(record), 0, facts, _UNCHECKED)[0] == 1
    while writer.put(memoryview(record), facts, 0, 1, moved) == 0:
        writer.roll()
    return moved[0]


def _point(root: Path, message: StoredMessage, offset: int) -> None:
    """Let the queue entry of a message lead to another place."""
    folder = root / "consumequeue" / message.topic / str(message.queue_id)
    at = message.queue_offset * layout.ENTRY_SIZE
    path = max(path for path in folder.iterdir() if int(path.name) <= at)
    with path.open("r+b") as file:
        file.seek(at - int(path.name))
        file.write(_OFFSET.pack(offset))
