"""Tables of facts made by hand, for tests of rooms that read what a walk has noted."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from flaremq.model.columns import Fact


@dataclass(slots=True)
class FactRows:
    """Rows and the bytes they speak of, one `add` per record. Offsets are as given, not places."""

    facts: array[int] = field(default_factory=lambda: array("q"))
    log: bytearray = field(default_factory=bytearray)

    def __len__(self) -> int:
        return len(self.facts) // Fact.WIDTH

    def add(
        self,
        offset: int,
        store_ms: int,
        *,
        topic: bytes = b"TopicTest",
        unique_key: bytes = b"",
        keys: bytes = b"",
        sys_flag: int = 0,
    ) -> None:
        row = array("q", bytes(8 * Fact.WIDTH))
        row[Fact.OFFSET], row[Fact.STORE_TIMESTAMP], row[Fact.SYS_FLAG] = offset, store_ms, sys_flag
        pieces = ((Fact.TOPIC_AT, topic), (Fact.UNIQUE_KEY_AT, unique_key), (Fact.KEYS_AT, keys))
        for column, piece in pieces:
            row[column], row[column + 1] = len(self.log), len(piece)
            self.log += piece
        self.facts += row
