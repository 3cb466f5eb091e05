"""Rewrites of many messages at once: those that are delayed, and those that are prepared for a transaction.

The fast lane's counterpart of the rewrites: what one of them would refuse is left to the plain lane, and for
all others the bytes are the same. Rows that ask for the same, and are for the same queue, are redirected in
one call.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.live import Live
from flaremq.base.units import SECOND_MS
from flaremq.broker.send.redirect import WaitingPlace, redirect
from flaremq.broker.send.rows import TopicState
from flaremq.broker.settings import BrokerSettings
from flaremq.model import names, timers
from flaremq.model.delays import SCHEDULE_TOPIC
from flaremq.model.timers import WHEEL_TOPIC, handle_lead
from flaremq.protocol.bulk.columns import Frame, Plain, Send, SendKind
from flaremq.remoting.turn import Batch
from flaremq.store.store import MessageStore

_HALF_TOPIC: Final = names.TRANS_HALF_TOPIC.encode()
_SEND: Final = Send.WIDTH


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
        turn, left = _Turn(batch.heads, topics, self._store), list[int]()
        for (kind, value, target), rows in _grouped(sends).items():
            if kind == SendKind.AT_ONCE or self._is_due(kind, value):
                continue
            queue_id = sends[rows[0] * _SEND + Send.QUEUE_ID]
            place = self._place(turn, kind, value, topics[target], queue_id)
            if place is None:
                left += rows
            else:
                left += redirect(batch.heads, drafts, sends, rows, place, len(tail))
        for row in left:
            batch.frames[sends[row * _SEND + Send.FRAME] * Frame.WIDTH + Frame.PLAIN] = Plain.FIELDS
        return not left

    def _is_due(self, kind: int, value: int) -> bool:
        """Whether a message asks for a moment that is over."""
        if kind == SendKind.AFTER:
            return value <= 0
        return kind == SendKind.MOMENT and value <= self._clock.now_ms()

    def _place(
        self, turn: _Turn, kind: int, value: int, asked: TopicState, queue_id: int
    ) -> WaitingPlace | None:
        """Where messages wait that ask for this; None if only the plain lane knows what to do."""
        real = b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (asked.topic, queue_id)
        settings = self._store.settings
        if kind == SendKind.LEVEL:
            known = value <= len(settings.delay_levels_ms)
            return turn.place(SCHEDULE_TOPIC, value - 1, real) if known else None
        if kind == SendKind.PREPARED:
            refused = self._live.now.reject_transactions
            return None if refused else turn.place(_HALF_TOPIC, 0, real, names_transaction=True)
        now_ms = self._clock.now_ms()
        delay_ms = value if kind == SendKind.AFTER else value - now_ms
        limit_ms = settings.timer_delay_max_s * SECOND_MS
        slot_ms = timers.slot_ms(now_ms + delay_ms, settings.timer_precision_ms)
        if not settings.timer_enabled or (limit_ms and delay_ms > limit_ms):
            return None
        if self._slot_count(slot_ms) > settings.timer_slot_max:
            return None
        # What cancels it names a moment inside its slot, not at the edge.
        handle = handle_lead(asked.name, self._live.now.broker_name, slot_ms + 1)
        return turn.place(WHEEL_TOPIC, 0, b"TIMER_OUT_MS\x01%d\x02" % slot_ms + real, handle=handle)


def _grouped(sends: array[int]) -> dict[tuple[int, int, int], list[int]]:
    """The rows that ask for the same: their kind, its value, and where they are for."""
    columns = (sends[column::_SEND] for column in (Send.KIND, Send.VALUE, Send.TARGET))
    found: dict[tuple[int, int, int], list[int]] = {}
    for row, asked in enumerate(zip(*columns, strict=True)):
        rows = found.get(asked)
        if rows is None:
            found[asked] = [row]
        else:
            rows.append(row)
    return found


class _Turn:
    """The topics in which messages of one turn wait."""

    def __init__(self, heads: bytearray, topics: list[TopicState], store: MessageStore) -> None:
        self._heads = heads
        self._topics = topics
        self._store = store
        self._rows: dict[bytes, tuple[int, int]] = {}

    def place(
        self,
        topic: bytes,
        queue_id: int,
        added: bytes,
        *,
        names_transaction: bool = False,
        handle: bytes = b"",
    ) -> WaitingPlace:
        known = self._rows.get(topic)
        if known is None:
            known = self._rows[topic] = len(self._topics), len(self._heads)
            self._heads += topic
            self._topics.append(TopicState(topic.decode(), topic, [], 0))
        target, at = known
        number = self._store.offsets.number(topic, queue_id)
        return WaitingPlace(target, at, len(topic), queue_id, number, added, names_transaction, handle)
