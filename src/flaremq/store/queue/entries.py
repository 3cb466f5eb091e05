"""Queue entries: made from records by the batch, and followed back to records by the batch.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from flaremq.model.columns import Bytes, Fact, Odd
from flaremq.model.delays import SCHEDULE_TOPIC
from flaremq.model.layout import ENTRY_FORMAT, FILLER_SIZE
from flaremq.model.properties import find_property
from flaremq.store.queue._entries_py import Key, Limit, Run

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.store.queue._entries_py import choose, gather, group, take, valid
else:
    try:
        from flaremq.store.queue._entries_c import choose, gather, group, take, valid
    except ImportError:
        from flaremq.store.queue._entries_py import choose, gather, group, take, valid

__all__ = [
    "FILLER",
    "Key",
    "Limit",
    "Run",
    "choose",
    "gather",
    "group",
    "set_delivery_times",
    "take",
    "valid",
]


FILLER: Final = struct.pack(ENTRY_FORMAT, 0, FILLER_SIZE, 0)
"""Holds the place of an entry that is not there."""


def set_delivery_times(facts: array[int], count: int, log: Bytes, delays_ms: Sequence[int]) -> None:
    """A delayed message waits under its delivery time, which takes the place of the tags code."""
    if not any(facts[Fact.ODD : count * Fact.WIDTH : Fact.WIDTH]):
        return
    for f in range(0, count * Fact.WIDTH, Fact.WIDTH):
        if not facts[f + Fact.ODD] & Odd.DELAY:
            continue
        at = facts[f + Fact.TOPIC_AT]
        if log[at : at + facts[f + Fact.TOPIC_SIZE]] != SCHEDULE_TOPIC:
            continue
        at = facts[f + Fact.PROPERTIES_AT]
        text = find_property(bytes(log[at : at + facts[f + Fact.PROPERTIES_SIZE]]), b"DELAY") or b""
        level = int(text) if text.isdigit() else 0
        if level > 0:
            delay_ms = delays_ms[min(level, len(delays_ms)) - 1]
            facts[f + Fact.TAGS_CODE] = facts[f + Fact.STORE_TIMESTAMP] + delay_ms
