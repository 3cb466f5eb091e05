"""Rewrites of many messages at once: those that are delayed, and those that are prepared for a transaction.

The fast lane's counterpart of the rewrites: what one of them would refuse is left to the plain lane, and for
all others the bytes are the same. Most of the work is done once for all messages that wait in the same place.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final, NamedTuple

from flaremq.base.clock import Clock
from flaremq.base.live import Live
from flaremq.base.units import SECOND_MS
from flaremq.broker.send.rows import TopicState
from flaremq.broker.settings import BrokerSettings
from flaremq.model import layout, names, timers
from flaremq.model.columns import Draft
from flaremq.model.delays import SCHEDULE_TOPIC
from flaremq.model.timers import WHEEL_TOPIC, Handle
from flaremq.protocol.bulk.columns import Frame, Plain, Send, SendKind
from flaremq.remoting.turn import Batch
from flaremq.store.store import MessageStore

_HALF_TOPIC: Final = names.TRANS_HALF_TOPIC.encode()
_SEND, _DRAFT = Send.WIDTH, Draft.WIDTH
assert Draft.TOPIC_AT == 0 and Draft.PROPERTIES_SIZE == 3


class _Place(NamedTuple):
    """Where a message waits."""

    target: int
    """Row of its topic."""
    topic_at: int
    topic_size: int
    queue_id: int
    queue: int
    """Number of the queue in the table of next offsets."""
    lead: bytes
    """Properties that come before those that say where it goes afterwards."""
    slot_ms: int


class BulkRewrites:
    def __init__(
        self,
        settings: Live[BrokerSettings],
        store: MessageStore,
        clock: Clock,
        *,
        slot_count: Callable[[int], int],
    ) -> None:
        """`slot_count` tells how many timer messages wait in a slot."""
        self._live = settings
        self._store = store
        self._clock = clock
        self._slot_count = slot_count

    def apply(
        self, batch: Batch, drafts: array[int], sends: array[int], topics: list[TopicState], tail: bytes
    ) -> bool:
        """Redirect the rows that ask for it. Their topics are added to `topics`.

        False if some were left to the plain lane instead: then nothing here is of use, parse again.
        """
        turn = _Turn(self, batch.heads, drafts, sends, topics, tail, self._clock.now_ms())
        left = False
        for row, kind in enumerate(sends[Send.KIND :: _SEND]):
            if kind and not turn.redirect(row, kind, sends[row * _SEND + Send.VALUE]):
                batch.frames[sends[row * _SEND + Send.FRAME] * Frame.WIDTH + Frame.PLAIN] = Plain.FIELDS
                left = True
        return not left

    def handle(self, topic: str, slot_ms: int, key: str) -> bytes:
        """What cancels a timer message; its moment is inside its slot, not at the edge."""
        return str(Handle(topic, self._live.now.broker_name, slot_ms + 1, key)).encode()

    def number(self, topic: bytes, queue_id: int) -> int:
        return self._store.offsets.number(topic, queue_id)

    def takes_level(self, level: int) -> bool:
        return level <= len(self._store.settings.delay_levels_ms)

    def takes_prepared(self) -> bool:
        return not self._live.now.reject_transactions

    def takes_timer(self, slot_ms: int) -> bool:
        settings = self._store.settings
        return settings.timer_enabled and self._slot_count(slot_ms) <= settings.timer_slot_max

    def slot(self, moment_ms: int) -> int:
        return timers.slot_ms(moment_ms, self._store.settings.timer_precision_ms)

    def is_near(self, delay_ms: int) -> bool:
        limit_s = self._store.settings.timer_delay_max_s
        return not limit_s or delay_ms <= limit_s * SECOND_MS


class _Turn:
    """The rows of one turn."""

    def __init__(
        self,
        rules: BulkRewrites,
        heads: bytearray,
        drafts: array[int],
        sends: array[int],
        topics: list[TopicState],
        tail: bytes,
        now_ms: int,
    ) -> None:
        self._rules = rules
        self._heads = heads
        self._drafts = drafts
        self._sends = sends
        self._topics = topics
        self._tail = tail
        self._now_ms = now_ms
        self._places: dict[tuple[int, int], _Place | None] = {}
        self._topic_rows: dict[bytes, tuple[int, int]] = {}
        self._targets: dict[int, bytes] = {}

    def redirect(self, row: int, kind: int, value: int) -> bool:
        """Send a row to the place in which it waits; False if only the plain lane knows what to do."""
        if kind in (SendKind.AFTER, SendKind.MOMENT):
            moment_ms = value if kind == SendKind.MOMENT else self._now_ms + value
            if moment_ms <= self._now_ms:
                return True
            if not self._rules.is_near(moment_ms - self._now_ms):
                return False
            kind, value = SendKind.MOMENT, self._rules.slot(moment_ms)
        where = kind, value
        place = self._places[where] if where in self._places else self._found(kind, value)
        return place is not None and self._move(row, place)

    def _found(self, kind: int, value: int) -> _Place | None:
        rules, place = self._rules, None
        if kind == SendKind.LEVEL and rules.takes_level(value):
            place = self._place(SCHEDULE_TOPIC, value - 1)
        elif kind == SendKind.PREPARED and rules.takes_prepared():
            place = self._place(_HALF_TOPIC, 0)
        elif kind == SendKind.MOMENT and rules.takes_timer(value):
            place = self._place(WHEEL_TOPIC, 0, b"TIMER_OUT_MS\x01%d\x02" % value, value)
        self._places[kind, value] = place
        return place

    def _place(self, topic: bytes, queue_id: int, lead: bytes = b"", slot_ms: int = 0) -> _Place:
        known = self._topic_rows.get(topic)
        if known is None:
            known = self._topic_rows[topic] = len(self._topics), len(self._heads)
            self._heads += topic
            self._topics.append(TopicState(topic.decode(), topic, [], 0))
        target, at = known
        number = self._rules.number(topic, queue_id)
        return _Place(target, at, len(topic), queue_id, number, lead, slot_ms)

    def _move(self, row: int, place: _Place) -> bool:
        heads, drafts, sends = self._heads, self._drafts, self._sends
        s, d = row * _SEND, row * _DRAFT
        at, size = drafts[d + Draft.PROPERTIES_AT], drafts[d + Draft.PROPERTIES_SIZE]
        target, begin = sends[s + Send.TARGET], len(heads)
        real = self._targets.get(target)
        if real is None:
            queue_id, topic = drafts[d + Draft.QUEUE_ID], self._topics[target].topic
            real = b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (topic, queue_id)
            self._targets[target] = real
        heads += heads[at : at + size - len(self._tail)]
        heads += place.lead + real
        key_at = sends[s + Send.UNIQUE_KEY_AT]
        key = bytes(heads[key_at : key_at + sends[s + Send.UNIQUE_KEY_SIZE]])
        if place.queue_id == 0 and self._topics[place.target].topic == _HALF_TOPIC:
            heads += b"__transactionId__\x01%b\x02" % key
        heads += self._tail
        end = len(heads)
        if end - begin > layout.PROPERTIES_SIZE_MAX:
            return False
        drafts[d : d + 4] = array("q", (place.topic_at, place.topic_size, begin, end - begin))
        drafts[d + Draft.QUEUE_ID] = place.queue_id
        drafts[d + Draft.QUEUE] = place.queue
        sends[s + Send.TARGET] = place.target
        if place.lead:
            handle = self._rules.handle(self._topics[target].name, place.slot_ms, key.decode())
            heads += handle
            sends[s + Send.HANDLE_AT], sends[s + Send.HANDLE_SIZE] = end, len(handle)
        return True
