"""Delayed messages delivered to other brokers, by a slave that acts for its master."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from flaremq.broker.delay.copies import is_number
from flaremq.broker.delay.firing import Firing
from flaremq.broker.deliveries import Elsewhere
from flaremq.model import names, properties, timers
from flaremq.model.message import StoredMessage
from flaremq.model.properties import encode_properties
from flaremq.model.tags import java_hash
from flaremq.store.drafts import NewMessage, copy_of
from flaremq.store.timer.timerfiles import NewTimer

AT_ONCE: Final = 64
"""How many messages are under way at a time."""
_WAITED: Final = (
    *(properties.DELAY, properties.REAL_TOPIC, properties.REAL_QUEUE_ID, properties.TRANSACTION_PREPARED),
    *(*timers.ASKED, *timers.INTERNAL),
)
"""Properties that would make another broker hold it back once more."""


def outgoing(stored: StoredMessage, has_topic: Callable[[str], bool]) -> NewMessage:
    """A message that has waited, as it is sent. One of a topic that is gone is put aside, as at home."""
    known = dict(stored.properties)
    topic = known.get(properties.REAL_TOPIC, "")
    for name in _WAITED:
        known.pop(name, None)
    if not has_topic(topic) or topic in names.NO_SEND_TOPICS:
        topic = names.UNDELIVERED_TOPIC
    return replace(copy_of(stored), topic=topic.encode(), properties=encode_properties(known))


class FiringElsewhere(Firing):
    """The messages of one slot, sent to other brokers. What is to roll stays in the log as it is, and only
    moves in the wheel: a master rolls it once more when it is back."""

    async def send(self, elsewhere: Elsewhere, has_topic: Callable[[str], bool]) -> bool:
        """Send some. False when all is done, or when this broker stops to act: then more are left."""
        if self._messages and self._position < 0 and not self._markers:
            return await self._send_batch(elsewhere, has_topic)
        return self.step()

    @property
    def is_done(self) -> bool:
        return self._position < 0 and not self._markers and not self._messages

    async def _send_batch(self, elsewhere: Elsewhere, has_topic: Callable[[str], bool]) -> bool:
        batch = self._next_batch()
        if not batch:  # The next one rolls, or is not sent at all.
            self._send(self._messages[-1])
            self._messages.pop()
            return True
        done = await elsewhere([outgoing(stored, has_topic) for stored in batch])
        for stored in batch[:done]:
            self._left(stored.properties.get(properties.REAL_TOPIC, ""), 1)
        del self._messages[len(self._messages) - done :]
        return done == len(batch)

    def _next_batch(self) -> list[StoredMessage]:
        """The next messages, up to the first that is not just sent."""
        batch: list[StoredMessage] = []
        for position in self._messages[: -AT_ONCE - 1 : -1]:
            unit, stored = self._read(position)
            if stored is None or unit.rolls or self._is_cancelled(stored):
                break
            batch.append(stored)
        return batch

    def _belongs_here(self, slot_ms: int) -> bool:
        return slot_ms <= self.at_ms  # Those that came late wait for the next slot.

    def _roll(self, stored: StoredMessage) -> None:
        known = stored.properties
        text, topic = known.get(properties.TIMER_OUT_MS, ""), known.get(properties.REAL_TOPIC, "")
        assert is_number(text)  # It belongs to this slot.
        precision_ms = self._files.precision_ms
        slot_ms, now_ms = (ms // precision_ms * precision_ms for ms in (int(text), self._now_ms()))
        cancels = properties.TIMER_DEL_UNIQKEY in known
        unit = NewTimer(stored.physical_offset, stored.size, java_hash(topic), cancels)
        self._files.add(max(slot_ms, self.at_ms + precision_ms), now_ms, unit)
        if not cancels:
            self._left(topic, -1)
