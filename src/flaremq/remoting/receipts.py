"""Answers to sends for those who have many of them under way, without a Command for each."""

from __future__ import annotations

from typing import Final, cast

from flaremq.protocol.bulk.columns import Frame, Plain, Stored
from flaremq.protocol.bulk.receipts import parse_receipts
from flaremq.remoting.connection import Connection
from flaremq.remoting.turn import Batch

_WIDTH: Final = Stored.WIDTH
_PLAIN: Final = Frame.PLAIN
_FRAME_WIDTH: Final = Frame.WIDTH


def take_receipts(batch: Batch) -> int:
    """Hand out what takers wait for, and say how many that were. All others go the plain way."""
    sources = batch.sources
    if not any(cast(Connection, source).pending.taken_by for source in sources):
        return 0
    rows = parse_receipts(batch.data, batch.chunks, batch.frames, batch.pairs)
    data, frames, taken = batch.data, batch.frames, 0
    for at in range(0, len(rows), _WIDTH):
        frame, chunk, opaque, queue_id, queue_offset, id_at, id_size = rows[at : at + _WIDTH]
        taker = cast(Connection, sources[chunk]).pending.taken_by.pop(opaque, None)
        if taker is not None:
            taker.stored(opaque, queue_id, queue_offset, str(data[id_at : id_at + id_size], "utf-8"))
            frames[frame * _FRAME_WIDTH + _PLAIN] = Plain.TAKEN
            taken += 1
    return taken
