"""The way of timer messages into the topic in which they wait, and of the markers that cancel them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError, MessageIllegal
from flaremq.base.units import SECOND_MS
from flaremq.broker.delay.timers import Timers
from flaremq.broker.send.rewrites import Arrival
from flaremq.model import names, properties, timers
from flaremq.model.properties import encode_properties
from flaremq.model.timers import RECALL_TAG, WHEEL_TOPIC, Handle
from flaremq.store.drafts import NewMessage
from flaremq.store.store import MessageStore

_HALF_TOPIC: Final = names.TRANS_HALF_TOPIC.encode()


class TimerRewrite:
    """Sends a message for a later moment to the wheel's topic. One for the past is stored at once."""

    def __init__(self, store: MessageStore, wheel: Timers, clock: Clock, rng: random.Random) -> None:
        self._store = store
        self._wheel = wheel
        self._clock = clock
        self._rng = rng

    def __call__(self, message: NewMessage, known: dict[str, str], _arrival: Arrival) -> NewMessage:
        for name in timers.INTERNAL:
            known.pop(name, None)
        if message.topic == _HALF_TOPIC:  # Its wait begins when the transaction is committed.
            if not _has_level(known):
                self._moment_ms(known)  # What would be refused then is refused now.
            return message
        return self.later(message, known)

    def later(self, message: NewMessage, known: dict[str, str]) -> NewMessage:
        """The message as it waits, if its properties ask for a later moment. They are changed in place."""
        moment_ms, settings = self._moment_ms(known), self._store.settings
        if moment_ms is None:
            return message
        slot_ms = timers.slot_ms(moment_ms, settings.timer_precision_ms)
        self._check_congestion(slot_ms, settings.timer_slot_max)
        known[properties.TIMER_OUT_MS] = str(slot_ms)
        known[properties.REAL_TOPIC] = message.topic.decode()
        known[properties.REAL_QUEUE_ID] = str(message.queue_id)
        return replace(message, topic=WHEEL_TOPIC, queue_id=0)

    def _moment_ms(self, known: dict[str, str]) -> int | None:
        """The later moment that is asked for, if any. Raises if no message may wait until then."""
        now_ms, settings = self._clock.now_ms(), self._store.settings
        moment_ms = timers.asked_ms(known, now_ms)
        if moment_ms is None or moment_ms <= now_ms:
            return None
        if not settings.timer_enabled:
            raise FlareError(
                "timer messages are switched off here: set timerWheelEnable=true, or send without TIMER_*"
            )
        delay_max_ms = settings.timer_delay_max_s * SECOND_MS
        if delay_max_ms and moment_ms - now_ms > delay_max_ms:
            raise MessageIllegal(
                f"timer message delayed by {(moment_ms - now_ms) / SECOND_MS:.0f} s, "
                f"limit is {settings.timer_delay_max_s} s (timerMaxDelaySec)"
            )
        return moment_ms

    def _check_congestion(self, slot_ms: int, limit: int) -> None:
        """The more a second is over its limit, the fewer messages for it are taken; from twice that, none."""
        over = self._wheel.slot_count(slot_ms) - limit
        if over > 0 and self._rng.random() < over / limit:
            raise FlareError(
                f"{limit + over} messages are due in the same second, limit is {limit} "
                "(timerCongestNumEachSlot): choose another moment, or send again later"
            )


def _has_level(known: dict[str, str]) -> bool:
    """Whether a delay level wins over a moment."""
    return int(known.get(properties.DELAY, "0")) > 0


def markers(
    handle: Handle, precision_ms: int, group: str, now_ms: int, host: bytes
) -> list[tuple[str, NewMessage]]:
    """The messages that cancel another, as RocketMQ writes them, each with what it names.

    There are two, so that whoever has the folder next finds its own: 5.3 looks for topic and key, 5.1 and
    versions from 5.4 on for the key alone.
    """
    return [
        (marks, _marker(handle, marks, precision_ms, group, now_ms, host))
        for marks in (handle.marks, handle.unique_key)
    ]


def _marker(
    handle: Handle, marks: str, precision_ms: int, group: str, now_ms: int, host: bytes
) -> NewMessage:
    known = {
        properties.TAGS: RECALL_TAG,
        properties.UNIQ_KEY: handle.unique_key,
        properties.TIMER_DEL_UNIQKEY: marks,
        properties.TIMER_DELIVER_MS: str(handle.moment_ms),
        properties.BORN_TIMESTAMP: str(now_ms),
        properties.PRODUCER_GROUP: group or None,
        properties.TIMER_OUT_MS: str(timers.slot_ms(handle.moment_ms, precision_ms)),
        properties.REAL_TOPIC: handle.topic,
        properties.REAL_QUEUE_ID: "0",
    }
    return NewMessage(
        topic=WHEEL_TOPIC,
        body=b"0",
        properties=encode_properties(known),
        born_timestamp_ms=now_ms,
        born_host=host,
    )
