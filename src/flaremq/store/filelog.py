"""Reading a log that lies in a queue of files: what the commit log and a ledger have in common.

All offsets here are physical.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from flaremq.model import layout
from flaremq.model.columns import Bytes, Stop
from flaremq.model.record import walk
from flaremq.store.api import Stretch, Window
from flaremq.store.files.filequeue import FileQueue

_INT = struct.Struct(">i")
Walk: TypeAlias = "staticmethod[[Bytes, int, int, int, array[int], int], tuple[int, int, int]]"


class FileLog:
    """The part of `store.api.Log` that follows from the files alone."""

    files: FileQueue
    walk_file: ClassVar[staticmethod[[Bytes, int, int, int, array[int], int], tuple[int, int, int]]] = (
        staticmethod(walk)
    )
    """How the records of one file are walked."""
    head: ClassVar[int] = 0
    """Bytes before each record that belong to it."""

    @property
    def file_size(self) -> int:
        return self.files.file_size

    @property
    def begin(self) -> int:
        return self.files.begin

    def slice(self, offset: int, size: int) -> memoryview | None:
        """The bytes [offset, offset + size), as they lie in the map; None if they are not all there."""
        file = self.files.find(offset)
        if file is None or size < 0 or offset - file.offset + size > file.committed:
            return None
        at = offset - file.offset
        return file.view[at : at + size].toreadonly()

    def window(self, offset: int) -> Window | None:
        file = self.files.find(offset)
        return None if file is None else (file.view[: file.committed], file.offset)

    def walk(self, begin: int, end: int, facts: array[int], check: int) -> Stretch | None:
        """The one walk over records and files, for all who follow the log; see api.Log."""
        file = self.files.find(begin)
        if file is None:
            return None
        base = file.offset
        at, limit = begin - base, min(end - base, file.committed)
        if at >= limit:
            return None
        view = file.view
        count, at, stop = self.walk_file(view, at, limit, base, facts, check)
        # Behind the blank record there is nothing more in this file.
        next_at = file.size if stop == Stop.BLANK else at
        return Stretch(count, view, base, base + next_at, base + limit, stop)

    def store_time(self, offset: int, size: int) -> int:
        """Store time of the record that lies there; -1 if it cannot be read."""
        record = self.slice(offset, size) if offset >= self.begin else None
        if record is None or size < layout.FIXED_SIZE:
            return -1
        (sys_flag,) = struct.unpack_from(">i", record, layout.SYS_FLAG_AT)
        host = layout.HOST_SIZE_V6 if sys_flag & 0x10 else layout.HOST_SIZE_V4
        (stored,) = struct.unpack_from(">q", record, layout.BORN_HOST_AT + host)
        return int(stored)

    def damaged_size(self, view: memoryview, at: int) -> int:
        """How long something that is no sound record says that it is."""
        return int(_INT.unpack_from(view, at)[0])

    def starts(self) -> Sequence[int]:
        return [file.offset for file in self.files.files]
