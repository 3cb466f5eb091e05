"""Messages that wait before they come to their queue, many at once: the reference twin of _redirect_c.pyx."""

from __future__ import annotations

from array import array
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import NamedTuple

from flaremq.model import layout
from flaremq.model.columns import Draft
from flaremq.protocol.bulk.columns import Send


class WaitingPlace(NamedTuple):
    """Where messages wait, and what is added to them."""

    target: int
    """Row of its topic among those of the turn."""
    topic_at: int
    """In `heads`."""
    topic_size: int
    queue_id: int
    queue: int
    """Number of the queue in the table of next offsets."""
    added: bytes
    """Properties, which come before those that a broker adds to every message."""
    names_transaction: bool
    """Whether their own ids are added too, as those of their transactions."""
    handle: bytes
    """The beginning of what cancels one of them; its id is the end. Empty: nothing does."""


def redirect(
    heads: bytearray,
    drafts: array[int],
    sends: array[int],
    rows: Sequence[int],
    place: WaitingPlace,
    tail_size: int,
) -> list[int]:
    """Change rows of Draft and Send so that these messages wait at a place.

    Returns the rows that were left as they are, because their properties would be too long. `tail_size` is
    the size of what a broker adds to every message.
    """
    left = []
    for row in rows:
        s, d = row * Send.WIDTH, row * Draft.WIDTH
        at, size = drafts[d + Draft.PROPERTIES_AT], drafts[d + Draft.PROPERTIES_SIZE]
        key_at, key_size = sends[s + Send.UNIQUE_KEY_AT], sends[s + Send.UNIQUE_KEY_SIZE]
        is_there = 0 <= at <= at + size <= len(heads) and 0 <= key_at <= key_at + key_size <= len(heads)
        if not is_there or size < tail_size:
            raise ValueError(f"row {row} speaks of what is not there")
        own, tail = bytes(heads[at : at + size - tail_size]), bytes(heads[at + size - tail_size : at + size])
        key = bytes(heads[key_at : key_at + key_size])
        transaction = b"__transactionId__\x01%b\x02" % key if place.names_transaction else b""
        properties = own + place.added + transaction + tail
        if len(properties) > layout.PROPERTIES_SIZE_MAX:
            left.append(row)
            continue
        begin = len(heads)
        heads += properties
        drafts[d : d + 4] = array("q", (place.topic_at, place.topic_size, begin, len(properties)))
        drafts[d + Draft.QUEUE_ID], drafts[d + Draft.QUEUE] = place.queue_id, place.queue
        sends[s + Send.TARGET] = place.target
        if place.handle:
            handle = urlsafe_b64encode(place.handle + key)
            sends[s + Send.HANDLE_AT], sends[s + Send.HANDLE_SIZE] = len(heads), len(handle)
            heads += handle
    return left


assert Draft.TOPIC_AT == 0 and Draft.PROPERTIES_SIZE == 3
