"""Where the last whole record of a log ends that grows by pieces of any size.

A slave gets its master's log in chunks that end wherever they end. Consumers, and the checkpoint, may go as
far as the last whole record.
"""

from __future__ import annotations

import struct
from typing import Final

from flaremq.model import layout
from flaremq.model.columns import Check, Fact, Stop, facts_table
from flaremq.store.api import Log

_ROWS: Final = 1024
_HEAD: Final = struct.Struct(">ii")
_MAGICS: Final = (layout.MAGIC_V1, layout.MAGIC_V2, layout.BLANK_MAGIC)


class WholeRecords:
    """Follows a log. `end` is a boundary between records, never behind what has arrived."""

    def __init__(self, log: Log, end: int) -> None:
        self._log = log
        self._facts = facts_table(_ROWS)
        self.end = end
        self.last_store_ms = 0
        """Of the newest whole record; 0 if none has come yet."""

    def grown(self, end: int) -> None:
        """The log reaches to `end` now."""
        while self.end < end:
            stretch = self._log.walk(self.end, end, self._facts, Check.NOTHING)
            if stretch is None:
                return
            if stretch.count:
                last = (stretch.count - 1) * Fact.WIDTH
                self.last_store_ms = self._facts[last + Fact.STORE_TIMESTAMP]
                self.end = self._facts[last + Fact.OFFSET] + self._facts[last + Fact.SIZE]
            if stretch.stop == Stop.BLANK and stretch.next <= end:
                self.end = stretch.next
            elif not stretch.count:
                if self._is_damaged(end):
                    self.end = min(end, stretch.limit)  # Dispatch reports it, and skips the same bytes.
                return

    def _is_damaged(self, end: int) -> bool:
        """Whether no record begins here, rather than one that has not arrived whole."""
        room = min(layout.BLANK_SIZE, end - self.end)
        head = self._log.slice(self.end, room)
        if head is None or room < _HEAD.size:
            return False
        size, magic = _HEAD.unpack_from(head)
        left = self._log.file_size - self.end % self._log.file_size
        return magic not in _MAGICS or not layout.BLANK_SIZE <= size <= left or size <= end - self.end

    def cut(self, end: int) -> None:
        """The log ends at `end` now, behind a whole record."""
        self.end = min(self.end, end)
