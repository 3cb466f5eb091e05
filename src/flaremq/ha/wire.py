"""The HA stream as bytes: reports of a slave, chunks of its master's log. Pure.

    slave  > master   [position:8]                    how far the slave has the log
    master > slave    [offset:8][size:4][size bytes]  a chunk of the log; size 0 is a heartbeat

There is no handshake: the first report also asks the master to begin there. A stray byte shifts all that
follow, so whoever sees a value that cannot be closes the connection.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from flaremq.base.errors import Malformed
from flaremq.base.units import MiB

_REPORT: Final = struct.Struct(">q")
_CHUNK: Final = struct.Struct(">qi")
REPORT_SIZE: Final = _REPORT.size
HEADER_SIZE: Final = _CHUNK.size
BUFFER_SIZE: Final = 4 * MiB
"""The buffer of a slave, ours and Java's: a chunk with its header is never larger."""
CHUNK_MAX: Final = BUFFER_SIZE - HEADER_SIZE


def encode_report(position: int) -> bytes:
    return _REPORT.pack(position)


def encode_header(offset: int, size: int) -> bytes:
    return _CHUNK.pack(offset, size)


class Reports:
    """The reports of a slave, however its bytes are cut."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes | memoryview) -> int | None:
        """The newest whole report among these bytes and those before; None if none is whole yet."""
        data = self._rest + bytes(data)
        whole = len(data) // REPORT_SIZE * REPORT_SIZE
        self._rest = data[whole:]
        if not whole:
            return None
        return int(_REPORT.unpack_from(data, whole - REPORT_SIZE)[0])


class LogChunk(NamedTuple):
    """A part of the master's log. Its bytes stay valid until the buffer is filled again."""

    offset: int
    data: memoryview


class ChunkBuffer:
    """The bytes of a master, taken apart where they were read to."""

    __slots__ = ("_begin", "_buffer", "_end")

    def __init__(self, size: int = BUFFER_SIZE) -> None:
        self._buffer = memoryview(bytearray(size))
        self._begin = self._end = 0

    def room(self) -> memoryview:
        """Where to read to. Never empty: a chunk that does not fit was refused by its header."""
        if self._begin:
            rest = self._end - self._begin
            self._buffer[:rest] = self._buffer[self._begin : self._end]
            self._begin, self._end = 0, rest
        return self._buffer[self._end :]

    def filled(self, size: int) -> None:
        """So many bytes were read into `room`."""
        self._end += size

    def peek(self) -> LogChunk | None:
        """The next whole chunk; None if it has not arrived yet. Raises Malformed for one that cannot be."""
        if self._end - self._begin < HEADER_SIZE:
            return None
        offset, size = _CHUNK.unpack_from(self._buffer, self._begin)
        limit = len(self._buffer) - HEADER_SIZE
        if not 0 <= size <= limit or offset < 0:
            raise Malformed(
                f"a chunk at {offset} of {size} bytes: expected an offset from 0 on and at most {limit} "
                "bytes; lower haTransferBatchSize of the master, or see what listens at its HA address"
            )
        begin = self._begin + HEADER_SIZE
        if self._end - begin < size:
            return None
        return LogChunk(offset, self._buffer[begin : begin + size])

    def drop(self, chunk: LogChunk) -> None:
        """Go on behind this chunk, the one that `peek` returned."""
        self._begin += HEADER_SIZE + len(chunk.data)
