"""What a verification found, and how it is worded."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from flaremq.model import layout
from flaremq.model.columns import Check, Stop, facts_table
from flaremq.model.record import walk

_PROBLEMS_MAX: Final = 1000
_HEAD: Final = struct.Struct(">ii")


@dataclass(slots=True)
class VerifyReport:
    """The result of a verification."""

    records: int = 0
    bytes: int = 0
    entries: int = 0
    index_entries: int = 0
    problems: list[str] = field(default_factory=list)
    """The first thousand problems, with their places."""
    problems_count: int = 0
    notes: list[str] = field(default_factory=list)
    """Oddities that are no damage."""

    def wrong(self, sentence: str) -> None:
        self.problems_count += 1
        if len(self.problems) < _PROBLEMS_MAX:
            self.problems.append(sentence)

    @property
    def is_sound(self) -> bool:
        return self.problems_count == 0


def why(view: memoryview, at: int, base: int) -> str:
    """Why there is no sound record here."""
    facts = facts_table(1)
    size, magic = _HEAD.unpack_from(view, at)
    if size == 0 and magic == 0:
        return "zeros, but the log goes on behind them"
    if magic not in (layout.MAGIC_V1, layout.MAGIC_V2):
        return f"magic {magic & 0xFFFF_FFFF:#010x} is of no record"
    if size < layout.FIXED_SIZE or size > len(view) - at:
        return f"a record of {size} bytes cannot be"
    count, _, stop = walk(view, at, len(view), base, facts, Check.NOTHING)
    if not count or stop == Stop.HALF:
        return "the lengths within the record do not add up to its size"
    count, _, _ = walk(view, at, len(view), base, facts, Check.OFFSET)
    if not count:
        (stored,) = struct.unpack_from(">q", view, at + layout.PHYSICAL_OFFSET_AT)
        return f"the record says that it lies at {stored}"
    return "the CRC of the body is wrong"
