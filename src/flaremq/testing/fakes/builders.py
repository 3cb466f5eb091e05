"""Builders of small valid values for tests."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from flaremq.base.units import KiB
from flaremq.model.batch import join_batch
from flaremq.model.columns import Drafts
from flaremq.model.encode import Encoder
from flaremq.store.api import PutResult
from flaremq.store.drafts import Drafting, NewMessage
from flaremq.store.queue.nextoffsets import QueueOffsets
from flaremq.store.settings import StoreSettings
from flaremq.store.store import MessageStore

STORE_HOST = bytes((10, 0, 0, 2)) + (10911).to_bytes(4, "big")
BORN_HOST = bytes((10, 0, 0, 1)) + (5000).to_bytes(4, "big")
NOW_MS = 1_700_000_000_123


def a_message(body: bytes = b"hello", **other: Any) -> NewMessage:
    given: dict[str, Any] = {
        "topic": b"TopicTest",
        "properties": b"TAGS\x01TagA\x02",
        "born_timestamp_ms": NOW_MS - 123,
        "born_host": BORN_HOST,
    }
    return NewMessage(**{**given, **other, "body": body})


def batch_of(messages: Sequence[NewMessage]) -> NewMessage:
    """These messages as one batch. Fields that an element lacks come from the first message."""
    body = join_batch(
        [message.body for message in messages],
        [message.properties for message in messages],
        [message.flag for message in messages],
    )
    return replace(messages[0], body=body, properties=b"")


def put_together(
    store: MessageStore, messages: Sequence[NewMessage], *, wait: bool = True
) -> list[PutResult]:
    """Put a batch. Returns where each of its messages was stored."""
    found = store.put_batch(batch_of(messages), wait=wait)
    borders = pairwise([*found.physical_offsets, found.end])
    return [
        PutResult(found.status, offset, end - offset, found.queue_offset + number, found.store_timestamp_ms)
        for number, (offset, end) in enumerate(borders)
    ]


def drafts_of(messages: Sequence[NewMessage], offsets: QueueOffsets | None = None) -> Drafts:
    """Rows for these messages, each separate: they may be in different files."""
    drafting = Drafting(offsets or QueueOffsets(), append_crc=False, lmq=False, auto_v2=True)
    rows, heads, bodies = array("q"), bytearray(), bytearray()
    for message in messages:
        one = drafting.one(message)
        for column in (0, 2, 6):
            one.rows[column] += len(heads)
        one.rows[4] += len(bodies)
        rows.extend(one.rows)
        heads += one.heads
        bodies += one.bodies
    return Drafts(rows, heads, bodies)


def records_of(messages: Sequence[NewMessage], base: int = 0, *, append_crc: bool = False) -> bytearray:
    """The bytes of these messages in a log that begins at `base`."""
    offsets = QueueOffsets()
    drafts = drafts_of(messages, offsets)
    out = bytearray(sum(300 + len(m.body) + len(m.properties) + len(m.topic) for m in messages) + 8)
    encoder = Encoder(STORE_HOST, append_crc)
    written = encoder.encode_many(drafts, 0, out, 0, base, offsets.next, NOW_MS)
    assert written == len(messages)
    end = drafts.rows[-3] + drafts.rows[-2] - base if messages else 0
    return out[:end]


def small_settings(root: Path, **other: Any) -> StoreSettings:
    """Files so small that a few dozen messages roll them."""
    given: dict[str, Any] = {
        "root": root,
        "commitlog_file_size": 64 * KiB,
        "message_size_max": 16 * KiB,
        "consumequeue_file_size": 1000,
        "ext_file_size": 4 * KiB,
        "batch_queue_file_size": 46 * 20,
        "index_slots": 50,
        "index_entries": 200,
        "disk_max_used_percent": 95,
    }
    return StoreSettings(**{**given, **other})
