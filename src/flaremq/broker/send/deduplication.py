"""Deduplication: a numbered message that is sent again is not stored again, and gets the first receipt.

    send with PRODUCER_SEQ > known to the window of its producer? > no: append, and remember where it is
                                                                  > yes: answer as the first time

A producer numbers its messages in the property PRODUCER_SEQ (<producer id>:<sequence>). Messages without it
are never compared, and neither are copies: retries, dead letters, delivered delays and committed halves.

The windows (windows.py) are in memory; after a start they are read from the log. A small file says
from where on, so that a broker without numbered messages walks nothing. Without that file, the walk begins
where the time of the window does.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError, MessageIllegal
from flaremq.base.live import Live
from flaremq.base.logs import fields, logger
from flaremq.base.units import SECOND_MS
from flaremq.broker.features import Feature
from flaremq.broker.offload import Offload
from flaremq.broker.send.windows import WAITING, Windows
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tasks import MINUTE_S, Task
from flaremq.model import properties
from flaremq.model.batch import split_batch
from flaremq.model.columns import Bytes, Check, Fact, Remembered, Stop, WindowHead, facts_table
from flaremq.model.compression import decompress
from flaremq.model.message import StoredMessage
from flaremq.model.properties import find_property, parse_sequence
from flaremq.model.record import decode
from flaremq.protocol.headers.send import SendMessageRequestHeader
from flaremq.store.store import MessageStore

log = logger("broker.deduplication")

MARKER: Final = "deduplication.json"
"""In the config folder: {"walkFrom": physical offset}, before which no numbered message matters."""
_WALK_FROM: Final = "walkFrom"
_NAME: Final = properties.PRODUCER_SEQ.encode()
_ROWS: Final = 4096  # Records of one step of a walk.


@dataclass(frozen=True, slots=True)
class Numbered:
    """A message to be stored once."""

    producer: bytes
    sequence: int

    @property
    def text(self) -> str:
        """As the property says it."""
        return f"{self.producer.decode()}:{self.sequence}"

    def __str__(self) -> str:
        return f"sequence {self.sequence} of producer {self.producer.decode()!r}"


@dataclass(frozen=True, slots=True)
class FirstSend:
    """Where the message lies that another one repeats."""

    physical_offset: int
    queue_id: int
    queue_offset: int
    record: StoredMessage | None
    """None: it has left the log, or cannot be read yet."""


class Deduplication(Feature):
    """What a broker knows of numbered messages. Used in the event loop, except while it starts."""

    def __init__(
        self,
        settings: Live[BrokerSettings],
        store: MessageStore,
        folder: Path,
        offload: Offload,
        clock: Clock,
    ) -> None:
        """`folder` is for the file that says where to begin reading the log."""
        self._live = settings
        self._store = store
        self._path = folder / MARKER
        self._offload = offload
        self._clock = clock
        self._windows = Windows()
        self._made_under: BrokerSettings | None = None
        self._is_on = False
        self._marked = -1
        self._read_to = 0
        """As far the last walk has read the log. What a slave copies behind that is not in its windows."""
        self.walked = 0
        """Records that the start has read."""

    @property
    def is_on(self) -> bool:
        if self._made_under is not self._live.now:
            self._settings_changed(self._live.now)
        return self._is_on

    def _settings_changed(self, settings: BrokerSettings) -> None:
        self._made_under, count = settings, settings.deduplication_count
        self._is_on = count > 0
        self._windows.count_max = 1 << max(0, count - 1).bit_length()
        self._windows.span_ms = settings.deduplication_span_s * SECOND_MS
        self._windows.producers_max = settings.deduplication_producers_max
        if not self._is_on:
            self._windows.by_id.clear()

    # The sends of a turn.

    def sift(self, heads: Bytes, sends: array[int], first: int) -> int:
        """The end of the rows of Send, from `first` on, that may be stored together; `first` itself if this
        one needs a closer look."""
        return self._windows.sift(heads, sends, first)

    def note_many(self, heads: Bytes, sends: array[int], drafts: array[int]) -> None:
        """These rows were stored."""
        self._windows.note(heads, sends, drafts, self._clock.now_ms())

    # One by one.

    def asked(self, header: SendMessageRequestHeader, known: dict[str, str]) -> Numbered | None:
        """What a message says of itself; None if it is not to be compared."""
        text = known.get(properties.PRODUCER_SEQ)
        if text is None or properties.REAL_TOPIC in known or not self._is_compared(header):
            return None
        return _numbered(text.encode())

    def asked_of_batch(
        self, header: SendMessageRequestHeader, outer: dict[str, str], body: bytes, *, whole: bool
    ) -> list[tuple[Numbered, bytes]]:
        """The same for the messages of a batch, with the body of each: all of them, or none if the first has
        no number. A batch that is stored `whole`, as one record, goes by its first message."""
        first_size = int.from_bytes(
            body[:4], "big"
        )  # A search through all of them would cost more than this.
        is_numbered = properties.PRODUCER_SEQ in outer or body.find(_NAME, 0, first_size) >= 0
        if not is_numbered or not self._is_compared(header):
            return []
        parts = split_batch(body)
        values = [find_property(part.raw_properties, _NAME) for part in parts]
        if values[:1] == [None] and properties.PRODUCER_SEQ not in outer:
            return []  # The name was in the body of the first.
        if any(value is None for value in values):
            raise MessageIllegal(
                f"only some parts of a batch have {properties.PRODUCER_SEQ}: expected it in the properties "
                "of every message of the batch"
            )
        found = [_numbered(value or b"") for value in values]
        if len(set(found)) < len(found):
            raise MessageIllegal("two messages of a batch have the same sequence: expected one for each")
        if whole:
            return [(found[0], body)]
        return [(each, part.body) for each, part in zip(found, parts, strict=True)]

    def _is_compared(self, header: SendMessageRequestHeader) -> bool:
        return self.is_on and not header.reconsume_times and not header.topic.startswith("%")

    def first(self, asked: Numbered, topic: str, body: bytes, sys_flag: int) -> FirstSend | None:
        """The message that this one repeats; None if it is new.

        Raises MessageIllegal if it is older than the window, or differs from the first with its number."""
        row = self._windows.find(asked.producer, asked.sequence)
        if row[Remembered.SEQUENCE] > asked.sequence:
            newest, settings = self._windows.newest(asked.producer), self._live.now
            raise MessageIllegal(
                f"{asked} is too old to be told from a repeated one: the newest is {newest}, and the window "
                f"holds up to {settings.deduplication_count} messages (deduplicationWindowCount); send it "
                "with a new sequence if it was never stored"
            )
        if row[Remembered.SEQUENCE] < asked.sequence:
            self._check_room(asked)
            return None
        record = self._record(row[Remembered.PHYSICAL_OFFSET])
        if record is not None:
            size_max = self._store.settings.message_size_max
            _check_same(asked, record, topic, body, sys_flag, size_max)
        return FirstSend(
            row[Remembered.PHYSICAL_OFFSET], row[Remembered.QUEUE_ID], row[Remembered.QUEUE_OFFSET], record
        )

    def _check_room(self, asked: Numbered) -> None:
        windows = self._windows
        if windows.window(asked.producer) is None:
            windows.forget(self._clock.now_ms() - windows.span_ms)
        if windows.window(asked.producer) is None:
            raise MessageIllegal(
                f"producer {asked.producer.decode()!r} is one too many: {len(windows.by_id)} number "
                f"their messages, limit is {windows.producers_max} (deduplicationProducersMax): raise it, or "
                "send without a producer id"
            )

    def _record(self, physical_offset: int) -> StoredMessage | None:
        record = self._store.record(physical_offset)
        return None if record is None else decode(record, check=Check.NOTHING)

    def note(self, asked: Numbered, physical_offset: int, queue_id: int, queue_offset: int) -> None:
        """This message was stored."""
        stored = physical_offset, queue_id, queue_offset
        self._windows.put(asked.producer, asked.sequence, stored, self._clock.now_ms())

    def safe_end(self, firsts: Sequence[FirstSend]) -> int:
        """Up to where the log must be safe before a repeated send is answered."""
        last = firsts[-1]
        if last.record is not None:
            return last.physical_offset + last.record.size
        return self._store.log.end if last.physical_offset >= self._store.log.begin else 0

    # Figures.

    def figures(self) -> dict[str, str]:
        """For the runtime information."""
        return {"deduplicationProducers": str(len(self._windows.by_id))}

    # Starting, stopping and in between.

    async def start(self) -> None:
        if self.is_on:
            await self._offload.run(self.rebuild)

    async def stop(self) -> None:
        if self.is_on:
            await self._offload.run(lambda: self._mark(self._oldest()))

    def tasks(self) -> Iterable[Task]:
        yield Task("forget-idle-producers", MINUTE_S, MINUTE_S, self._tidy)

    async def _tidy(self) -> None:
        if not self.is_on:
            return
        self._windows.forget(self._clock.now_ms() - self._windows.span_ms)
        if not self._windows.by_id:  # A start need not look at anything that is there by now.
            end = self._known_to
            await self._offload.run(lambda: self._mark(end))

    @property
    def _known_to(self) -> int:
        """Before this, no record is in the log that was not compared. What a group has not decided on may
        still become something else."""
        return self._read_to if self._store.follows else self._store.log.confirmed

    def _oldest(self) -> int:
        """Before the first record that a window needs; where the windows end if none does."""
        windows = list(self._windows.by_id.values())
        newest_ms = max((window[WindowHead.USED_MS] for window in windows), default=0)
        since_ms, found = newest_ms - self._windows.span_ms, self._known_to
        head = self._store.log.head
        for window in windows:
            rows = window[WindowHead.WIDTH :]
            offsets, times = (
                rows[Remembered.PHYSICAL_OFFSET :: Remembered.WIDTH],
                rows[Remembered.STORE_MS :: Remembered.WIDTH],
            )
            held = zip(rows[:: Remembered.WIDTH], offsets, times, strict=True)
            needed = (at - head for number, at, ms in held if number >= 0 and ms >= since_ms)
            found = min([found, *needed])
        return found

    def _mark(self, begin: int) -> None:
        """Note where to begin next time. Without the note more is walked, nothing else."""
        if begin == self._marked:
            return
        try:
            self._store.disk.replace(self._path, json.dumps({_WALK_FROM: begin}).encode())
            self._marked = begin
        except (FlareError, OSError) as error:
            log.warning("the next start reads more of the log", extra=fields(why=error))

    def rebuild(self) -> None:
        """Read the windows from the log. Blocks."""
        first, since_ms = self._begin()
        marked = self._load_mark()
        records = None
        if marked is not None and first <= marked <= self._store.log.confirmed:
            records = self._walk(marked, since_ms)
        if records is None:  # The note is about another log.
            self._windows.by_id.clear()
            records = self._walk(first, since_ms) or 0
        self.walked = records
        log.info(
            "numbered messages are known",
            extra=fields(producers=len(self._windows.by_id), records=records),
        )
        self._mark(self._oldest())  # What was noted may be about records that a crash took.

    def _begin(self) -> tuple[int, int]:
        """Where a walk without a note begins, and the store time from which on records count.

        The time of the last record is known only after a walk, so the span ends at the first record of the
        last file. The time in which the broker was down does not count.
        """
        facts, since_ms = facts_table(1), None
        commit_log = self._store.log
        for start in reversed(commit_log.starts()):
            stretch = commit_log.walk(start, commit_log.end, facts, Check.OFFSET)
            if stretch is None or not stretch.count:
                continue
            stored_ms = facts[Fact.STORE_TIMESTAMP]
            if since_ms is None:
                since_ms = stored_ms - self._windows.span_ms
            if stored_ms <= since_ms:
                return start, since_ms
        return commit_log.begin, since_ms or 0

    def _walk(self, at: int, since_ms: int) -> int | None:
        """Read all records from `at` on, and count them; None if no record begins there."""
        commit_log, facts, records = self._store.log, facts_table(_ROWS), 0
        end = commit_log.end
        while at < end:
            stretch = commit_log.walk(at, end, facts, Check.OFFSET)
            if stretch is None:
                break
            if not stretch.count and stretch.stop != Stop.BLANK:
                if not records:
                    return None
                break
            self._windows.recall(stretch.view, facts, stretch.count, since_ms)
            records += stretch.count
            at = stretch.next
        self._read_to = at
        return records

    def _load_mark(self) -> int | None:
        with suppress(OSError, ValueError, TypeError, KeyError):
            found = json.loads(self._store.disk.read(self._path))[_WALK_FROM]
            return found if type(found) is int else None
        return None


def _numbered(value: bytes) -> Numbered:
    found = parse_sequence(value)
    if found is None:
        raise MessageIllegal(
            f"{properties.PRODUCER_SEQ}={value.decode(errors='replace')[:100]!r}: expected "
            "<producer id>:<sequence>, 1 to 64 letters, digits, dots, hyphens or underscores, and a number "
            "from 0 to 9223372036854775807"
        )
    return Numbered(*found)


def _topic_of(record: StoredMessage) -> str:
    """The topic that a producer named."""
    waits = record.topic.encode() in WAITING
    return (record.get(properties.REAL_TOPIC) if waits else None) or record.topic


def _check_same(
    asked: Numbered, record: StoredMessage, topic: str, body: bytes, sys_flag: int, size_max: int
) -> None:
    """Raise MessageIllegal if another message is stored with the number."""
    differs = None
    if _topic_of(record) != topic:
        differs = f"for topic {_topic_of(record)}"
    elif not _is_same_body(record, body, sys_flag, size_max):
        differs = "with another body"
    if differs is not None:
        raise MessageIllegal(f"{asked} is stored already, {differs}: expected a number for each message")


def _is_same_body(record: StoredMessage, body: bytes, sys_flag: int, size_max: int) -> bool:
    if record.body == body:
        return True
    try:  # A body can be compressed in more than one way.
        unpacked = decompress(record.body, record.sys_flag, size_max), decompress(body, sys_flag, size_max)
    except FlareError:
        return False
    return unpacked[0] == unpacked[1]
