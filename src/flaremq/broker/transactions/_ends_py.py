"""Ends of transactions as rows of drafts: the reference twin. _ends_c.pyx stores the same.

    ends = Ends(store.offsets, op)
    left = ends.take(data, rows, log.window, ledger.is_alone, is_known)
    stored = ends.done(store.put_many(ends.drafts()))

A commit is two rows that are stored together, the message and its op; a rollback is the op alone. An end that
needs more than that is left: it is not an ordinary request, or does not name a prepared message that is open,
or the message has properties for which a committed one is more than a copy.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final, TypeAlias

from flaremq.model import layout, names, sysflag
from flaremq.model.columns import Bytes, Drafts
from flaremq.protocol.bulk.columns import Kind, Request
from flaremq.store.copyrows import CopyRows, Glance, glance
from flaremq.store.drafts import NewMessage
from flaremq.store.queue.nextoffsets import QueueOffsets

FIELDS: Final = (
    *(b"producerGroup", b"tranStateTableOffset", b"commitLogOffset", b"commitOrRollback"),
    *(b"fromTransactionCheck", b"msgId", b"transactionId", b"topic", b"bname"),
)
READ: Final = 4
"""The first of the fields are read."""
WIDTH: Final = 1 + Request.FIELD * len(FIELDS)
MORE: Final = (b"DELAY\x01", b"TIMER_", b"INNER_", b"__CRC32#")
"""Parts of names of properties for which a committed message needs more than a copy."""
DIGITS_MAX: Final = 18
"""Of an offset."""
QUEUE_DIGITS_MAX: Final = 9
_HALF_TOPIC: Final = names.TRANS_HALF_TOPIC.encode()
_COMMIT, _ROLLBACK = b"%d" % sysflag.TRANSACTION_COMMIT, b"%d" % sysflag.TRANSACTION_ROLLBACK

Window: TypeAlias = Callable[[int], tuple[memoryview, int] | None]
"""The file of the log in which an offset lies: its bytes, and where they begin."""


class Ends:
    """Those of one turn that can be stored at once, a column per list."""

    def __init__(self, offsets: QueueOffsets, op: NewMessage) -> None:
        """`op` is the message that says that a prepared one has ended; its body is made here."""
        self._copies = CopyRows(offsets)
        self._op = op
        self._rows: list[int] = []  # Of the op of each.
        self._taken: set[int] = set()
        self.frames: list[int] = []
        self.queue_offsets: list[int] = []
        self.keys: list[str] = []
        self.topics: list[str] = []
        """Of committed messages; empty for those that are rolled back."""

    def __len__(self) -> int:
        return len(self.frames)

    def take(
        self,
        data: Bytes,
        rows: array[int],
        window: Window,
        is_alone: Callable[[int, str], bool],
        is_known: Callable[[str], bool],
    ) -> list[int]:
        """Take what requests ask for; the frames of those that are left.

        `is_alone` says whether a prepared message is open, without copies; `is_known` speaks of topics."""
        return [
            rows[r]
            for r in range(0, len(rows), WIDTH)
            if not self._take(data, rows[r : r + WIDTH], window, is_alone, is_known)
        ]

    def _take(
        self,
        data: Bytes,
        row: array[int],
        window: Window,
        is_alone: Callable[[int, str], bool],
        is_known: Callable[[str], bool],
    ) -> bool:
        texts = []
        for field in range(1, 1 + Request.FIELD * READ, Request.FIELD):
            at, size, kind = row[field : field + Request.FIELD]
            if at < 0 or kind != Kind.TEXT:
                return False
            texts.append(bytes(data[at : at + size]))
        group, decision = texts[0], texts[3]
        queue_offset, offset = (_number(text, DIGITS_MAX) for text in texts[1:3])
        if queue_offset is None or offset is None or decision not in (_COMMIT, _ROLLBACK):
            return False
        seen = _seen(offset, window)
        if seen is None or seen.topic != _HALF_TOPIC or seen.queue_offset != queue_offset:
            return False
        if seen.property(b"PGROUP") != group or queue_offset in self._taken:
            return False
        key, topic = (seen.property(b"UNIQ_KEY") or b"").decode("utf-8", "replace"), ""
        if not is_alone(queue_offset, key):
            return False
        if decision == _COMMIT:
            found = self._commit(seen, is_known)
            if found is None:
                return False
            topic = found
        self._copies.add_new(self._op, b"%d" % queue_offset)
        self._taken.add(queue_offset)
        self.frames.append(row[0])
        self.queue_offsets.append(queue_offset)
        self.keys.append(key)
        self.topics.append(topic)
        self._rows.append(len(self._copies) - 1)
        return True

    def _commit(self, seen: Glance, is_known: Callable[[str], bool]) -> str | None:
        """Add the committed message. Its topic, or None if there is more to do than that."""
        topic, known = seen.property(b"REAL_TOPIC"), seen.properties
        queue_id = _number(seen.property(b"REAL_QID") or b"", QUEUE_DIGITS_MAX)
        if topic is None or queue_id is None or any(part in known for part in MORE):
            return None
        name = topic.decode("utf-8", "replace")  # Perhaps damaged.
        if not is_known(name):
            return None
        self._copies.add(
            seen,
            topic,
            queue_id,
            known,
            sys_flag=seen.sys_flag & ~sysflag.TRANSACTION_MASK | sysflag.TRANSACTION_COMMIT,
            prepared_offset=seen.physical_offset,
            together=2,
        )
        return name

    def drafts(self) -> Drafts:
        return self._copies.drafts()

    def done(self, rows: int) -> int:
        """How many ends are stored, if so many rows are."""
        return sum(row < rows for row in self._rows)

    def places(self, count: int) -> list[int]:
        """The queue offsets of the ops of the first ends."""
        return [self._copies.place(row)[2] for row in self._rows[:count]]

    def end(self, count: int) -> int:
        """Where the first ends are over in the log."""
        offset, size, _ = self._copies.place(self._rows[count - 1])
        return offset + size

    def sizes(self, count: int) -> dict[str, tuple[int, int]]:
        """Of the first ends, by topic: how many messages were committed, and the bytes of their records."""
        found: dict[str, tuple[int, int]] = {}
        for row, topic in zip(self._rows[:count], self.topics, strict=False):
            if topic:
                messages, total = found.get(topic, (0, 0))
                found[topic] = messages + 1, total + self._copies.place(row - 1)[1]
        return found


def _seen(offset: int, window: Window) -> Glance | None:
    """The record at an offset of the log."""
    found = window(offset)
    if found is None:
        return None
    view, base = found
    at = offset - base
    if at + layout.FIXED_SIZE > len(view):
        return None
    size = int.from_bytes(view[at : at + 4], "big", signed=True)
    return glance(view[at : at + size]) if layout.FIXED_SIZE <= size <= len(view) - at else None


def _number(text: bytes, digits_max: int) -> int | None:
    return int(text) if len(text) <= digits_max and text.isdigit() else None
