"""Many frames at once: what all connections delivered in a turn, as rows of numbers.

`split` finds the frames and reads their headers without making an object for any of them. Its rows
go to batch handlers (sends, pulls); a frame that is not ordinary, or that has no batch handler,
becomes a Command by `command_of`.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

from __future__ import annotations

import os
from array import array
from typing import TYPE_CHECKING

from flaremq.base.errors import Malformed
from flaremq.model.columns import Bytes
from flaremq.protocol.bulk.columns import Broken, Chunk, Frame
from flaremq.protocol.command import Command
from flaremq.protocol.frame import decode_frame

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.protocol.bulk._burst_py import split
else:
    try:
        from flaremq.protocol.bulk._burst_c import split
    except ImportError:
        from flaremq.protocol.bulk._burst_py import split

__all__ = ["command_of", "fault_of", "split"]

_FAULTS = {
    Broken.LENGTH: "a length that no frame has",
    Broken.SERIALIZE_TYPE: "an unknown serialize type",
    Broken.HEADER_SIZE: "a header that is longer than its frame",
}


def command_of(data: Bytes, frames: array[int], row: int) -> Command:
    """One frame as a Command. Raises Malformed if its header cannot be read: close the connection."""
    f = row * Frame.WIDTH
    return decode_frame(bytes(data[frames[f + Frame.AT] : frames[f + Frame.END]]))


def fault_of(chunks: array[int], chunk: int) -> Malformed | None:
    """Why the connection of this chunk must be closed, if it must."""
    c = chunk * Chunk.WIDTH
    fault = _FAULTS.get(chunks[c + Chunk.BROKEN])
    at = chunks[c + Chunk.REST]
    return None if fault is None else Malformed(f"at byte {at}: {fault}: close the connection", at)
