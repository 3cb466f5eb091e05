"""The queue extension: store time and filter bits of each message, which do not fit in a queue entry.

The entry then holds an address instead of a tags code: a number so far below zero that it
cannot be a hash. Units vary in size and never straddle two files: a file that cannot take the next one
ends in a mark.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from flaremq.base.errors import DiskFull
from flaremq.base.logs import fields, logger
from flaremq.model.layout import (
    EXT_ADDRESS_BASE,
    EXT_ADDRESS_MAX,
    EXT_END_MARK,
    EXT_FILE_TAIL,
    EXT_UNIT_FIXED_SIZE,
    EXT_UNIT_FORMAT,
    EXT_UNIT_SIZE_MAX,
)
from flaremq.store.files.filequeue import FileQueue
from flaremq.store.files.mappedfile import MappedFile

log = logger("store.consumequeue_ext")

_HEAD: Final = struct.Struct(EXT_UNIT_FORMAT)
_SHORT: Final = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class StoredUnit:
    tags_code: int
    store_ms: int
    bit_map: bytes


def is_address(tags_code: int) -> bool:
    """Whether the tags code of a queue entry is the address of a unit: no 32-bit hash is that small."""
    return tags_code <= EXT_ADDRESS_MAX


class ConsumeQueueExt:
    """Units back to back, found by address alone.

    Invariants:
      E1  a unit lies in one file, with room for the end mark after it.
      E2  an address is given out once: what an old entry points to is never overwritten by another unit.
    """

    def __init__(self, files: FileQueue) -> None:
        self._files = files

    def load(self) -> None:
        """Find the files; `recover` must follow before anything is put."""
        self._files.load()

    def put(self, tags_code: int, store_ms: int, bit_map: bytes = b"") -> int | None:
        """Store a unit and give its address; None if it cannot be, so that the plain code must do."""
        size = EXT_UNIT_FIXED_SIZE + len(bit_map)
        if size > min(EXT_UNIT_SIZE_MAX, self._files.file_size - EXT_FILE_TAIL):
            return None
        try:
            file = self._file_for(size)
            address = EXT_ADDRESS_BASE + file.offset + file.wrote
            if not is_address(address):
                return None
            file.append(_HEAD.pack(size, tags_code, store_ms, len(bit_map)) + bit_map)
        except DiskFull as error:
            log.warning("a unit is left out, filters see the tags code only", extra=fields(why=str(error)))
            return None
        return address

    def has_room(self, count: int, bit_map_size: int) -> bool:
        """Whether this many units can be stored without making a file."""
        files, size = self._files.files, count * (EXT_UNIT_FIXED_SIZE + bit_map_size) + EXT_FILE_TAIL
        return bool(files) and files[-1].wrote + size <= files[-1].size

    def get(self, address: int) -> StoredUnit | None:
        """The unit at an address, which may be any number; None if there is no unit."""
        if not is_address(address):
            return None
        offset = address - EXT_ADDRESS_BASE
        file = self._files.find(offset)
        if file is None:
            return None
        at, view = offset - file.offset, file.view
        size = _unit_size(view, at, file.committed)
        if not size:
            return None
        _, tags_code, store_ms, _ = _HEAD.unpack_from(view, at)
        return StoredUnit(tags_code, store_ms, bytes(view[at + EXT_UNIT_FIXED_SIZE : at + size]))

    @property
    def end(self) -> int:
        """Offset behind the last unit or end mark."""
        files = self._files.files
        return files[-1].offset + files[-1].wrote if files else 0

    def recover(self, max_address: int) -> None:
        """Find the end again, and cut what lies behind the unit of the largest address in the queue.

        With `max_address` that is no address (0, say) everything whole is kept.
        """
        files = self._files.files
        for file in files[:-1]:
            file.set_positions(file.size)  # A later file means that this one was full.
        if files:
            last = files[-1]
            at, marked = _end_of_units(last)
            if not marked:  # Else the file is full, and the next one not yet made.
                last.cut(at)
        if is_address(max_address):
            self.truncate_after(max_address)

    def truncate_after(self, address: int) -> None:
        """Forget all units behind the one at `address`."""
        unit, offset = self.get(address), address - EXT_ADDRESS_BASE
        if unit is not None:
            self._files.truncate(offset + EXT_UNIT_FIXED_SIZE + len(unit.bit_map))
            return
        files, size = self._files.files, self._files.file_size
        if not files or offset >= files[-1].end:
            # Files were lost: go on behind all that entries point to (E2).
            self._files.destroy()
            self._files.add(offset - offset % size + size)
        elif self.end <= offset:
            # The unit was lost with its page, the entry that points to it was not. Whatever we put
            # there next would be taken for it, so this file takes no more (E2).
            _fill(files[-1])
        log.warning("the last unit is lost", extra=fields(address=address, end=self.end))

    def delete_before(self, min_address: int) -> int:
        """Delete files that end before the smallest address that is still alive; how many."""
        if not is_address(min_address):
            return 0
        deleted = 0
        while len(self._files.files) > 1 and self._files.files[0].end <= min_address - EXT_ADDRESS_BASE:
            file = self._files.files[0]
            file.delete()
            self._files.drop_first(file)
            deleted += 1
        return deleted

    def flush(self, least_pages: int = 0) -> None:
        """Sync files with at least this many pages begun since their last sync; 0 means any byte."""
        for file in self._files.files:
            if file.flushed < file.committed and file.dirty_pages() >= least_pages:
                file.flush()

    def close(self) -> None:
        self._files.close()

    def destroy(self) -> None:
        self._files.destroy()

    def _file_for(self, size: int) -> MappedFile:
        """The last file if it has room for a unit and the mark, else a new one."""
        files = self._files.files
        if not files:
            return self._files.add(0)
        if files[-1].wrote + size + EXT_FILE_TAIL <= files[-1].size:
            return files[-1]
        if files[-1].wrote < files[-1].size:
            _fill(files[-1])
        return self._files.add(files[-1].end)


def _fill(file: MappedFile) -> None:
    """Write the end mark and let the file count as full."""
    file.reserve(file.wrote + _SHORT.size)
    _SHORT.pack_into(file.view, file.wrote, EXT_END_MARK)
    file.wrote = file.committed = file.size


def _end_of_units(file: MappedFile) -> tuple[int, bool]:
    """Where the whole units of a file end, and whether the end mark follows."""
    at, view = 0, file.view
    while size := _unit_size(view, at, file.size):
        at += size
    marked = at + _SHORT.size <= file.size and _SHORT.unpack_from(view, at)[0] == EXT_END_MARK
    return at, marked


def _unit_size(view: memoryview, at: int, end: int) -> int:
    """Size of the unit that lies at this place and before `end`, 0 if there is none."""
    if at + EXT_UNIT_FIXED_SIZE > end:
        return 0
    size, _, _, bit_map_size = _HEAD.unpack_from(view, at)
    whole = bit_map_size >= 0 and size == EXT_UNIT_FIXED_SIZE + bit_map_size and at + size <= end
    return int(size) if whole else 0
