"""The messages of one slot of the timer wheel, on their way out.

    walk the units, newest first  >  markers  >  messages, oldest first  >  done

Each part is done in small steps, so that a slot of millions holds nobody up. Markers come first: they name
the messages of this slot that were cancelled.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final, NamedTuple

from flaremq.base.errors import PropertiesTooLong
from flaremq.base.logs import fields, logger
from flaremq.broker.delay.copies import Copies, is_number, with_properties
from flaremq.broker.delay.waiting import Due
from flaremq.model import properties
from flaremq.model.message import StoredMessage
from flaremq.model.timers import WHEEL_TOPIC
from flaremq.store.drafts import copy_of
from flaremq.store.store import MessageStore
from flaremq.store.timer.timerfiles import TimerFiles
from flaremq.store.timer.timerlog import TimerUnit
from flaremq.store.timer.wheel import NOWHERE

log = logger("broker.timer")

_WHEEL: str = WHEEL_TOPIC.decode()
_AT_ONCE: Final = 256
_UNITS_AT_ONCE: Final = 4096


class Done(NamedTuple):
    """How far another member of the group has delivered."""

    read_ms: int
    """Slots before it, and of those"""
    queue_offset: int
    """the messages before it in the queue in which they wait."""


class Firing:
    """A step that raises has changed nothing, and may be repeated."""

    def __init__(
        self,
        at_ms: int,
        files: TimerFiles,
        store: MessageStore,
        copies: Copies,
        left: Callable[[str, int], None],
        now_ms: Callable[[], int],
        done: Done | None = None,
    ) -> None:
        """`left` is told how many messages of a topic wait no longer. What is `done` is not delivered."""
        self.at_ms = at_ms
        self._files = files
        self._store = store
        self._copies = copies
        self._left = left
        self._now_ms = now_ms
        self._done = done
        slot = files.wheel.get(at_ms)
        self._position = slot.last if slot is not None else NOWHERE
        # Positions of units, the oldest last.
        self._markers: array[int] = array("q")
        self._messages: array[int] = array("q")
        self._cancelled: set[str] = set()

    def step(self) -> bool:
        """Do a little; False when all is done."""
        if self._position >= 0:
            self._walk()
        elif self._markers:
            self._mark(self._markers[-1])
            self._markers.pop()
        elif self._messages:
            if not self._send_some():
                self._send(self._messages[-1])
                self._messages.pop()
        else:
            return False
        return True

    def _walk(self) -> None:
        """Note some units."""
        found = self._files.log.chain(self._position, self.at_ms, _UNITS_AT_ONCE)
        if found is not None:
            messages, markers, self._position, is_sound = found
            self._messages += messages
            self._markers += markers
            if is_sound:
                return
        log.error(
            "the timer log is damaged: earlier messages of this second may be missing",
            extra=fields(position=self._position, slot_ms=self.at_ms),
        )
        self._position = NOWHERE

    def _mark(self, position: int) -> None:
        unit, stored = self._read(position)
        if stored is None:
            return
        if unit.rolls:
            if not self._is_done(stored):
                self._roll(stored)
        elif key := stored.properties.get(properties.TIMER_DEL_UNIQKEY):
            self._cancelled.add(key)

    def _send_some(self) -> int:
        """Deliver the next ordinary messages in one append. How many: 0 if the next one must go alone."""
        if self._done is not None:
            return 0
        waiting = self._files.log.waiting(self._messages[: -_AT_ONCE - 1 : -1])
        due = Due(
            WHEEL_TOPIC,
            self._store.settings.message_size_max,
            self._files.precision_ms,
            self.at_ms,
            self._now_ms(),
            frozenset(each.encode() for each in self._cancelled if each.isascii()),
        )
        done = self._copies.put_some(waiting, due)
        for topic, count in done.items():
            self._left(topic, count)
        gone = sum(done.values())
        del self._messages[len(self._messages) - gone :]
        return gone

    def _send(self, position: int) -> None:
        unit, stored = self._read(position)
        if stored is None:
            return
        topic = stored.properties.get(properties.REAL_TOPIC, "")
        if self._is_done(stored):
            pass
        elif unit.rolls:
            self._roll(stored)
        elif not self._is_cancelled(stored):
            times = {
                properties.TIMER_ENQUEUE_MS: str(unit.written_ms),
                properties.TIMER_DEQUEUE_MS: str(self._now_ms()),
            }
            self._copies.deliver(stored, times)
        self._left(topic, 1)

    def _is_done(self, stored: StoredMessage) -> bool:
        done = self._done
        if done is None or stored.queue_offset >= done.queue_offset:
            return False
        return self._slot_ms(stored) < done.read_ms

    def _is_cancelled(self, stored: StoredMessage) -> bool:
        """Some versions of RocketMQ write the key of a marker without the topic."""
        topic, key = stored.properties.get(properties.REAL_TOPIC, ""), stored.unique_key or ""
        return bool(self._cancelled) and (f"{topic}+{key}" in self._cancelled or key in self._cancelled)

    def _read(self, position: int) -> tuple[TimerUnit, StoredMessage | None]:
        """A unit and its message; None if another record lies where it was."""
        unit = self._files.log.get(position)
        assert unit is not None  # It was walked.
        stored = self._copies.read(unit.offset, unit.size)
        if stored is not None and (stored.topic != _WHEEL or not self._belongs(unit, stored)):
            log.error("a unit of the timer log names another message", extra=fields(position=position))
            stored = None
        return unit, stored

    def _belongs(self, unit: TimerUnit, stored: StoredMessage) -> bool:
        slot_ms = self._slot_ms(stored)
        if slot_ms < 0:
            return False
        return slot_ms >= self.at_ms if unit.rolls else self._belongs_here(slot_ms)

    def _belongs_here(self, slot_ms: int) -> bool:
        return slot_ms == self.at_ms

    def _slot_ms(self, stored: StoredMessage) -> int:
        """The slot of the moment that a message names; -1 if it names none."""
        text = stored.properties.get(properties.TIMER_OUT_MS, "")
        if not is_number(text):
            return -1
        return int(text) // self._files.precision_ms * self._files.precision_ms

    def _roll(self, stored: StoredMessage) -> None:
        """Put it back: it is entered again, nearer to its moment."""
        text = stored.properties.get(properties.TIMER_ROLL_TIMES, "0")
        times = int(text) + 1 if is_number(text) else 1
        try:
            self._store.put(with_properties(stored, {properties.TIMER_ROLL_TIMES: str(times)}), wait=False)
        except PropertiesTooLong:
            self._store.put(copy_of(stored), wait=False)
