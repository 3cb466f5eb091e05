"""Timers: messages for any moment, how they ask for it, and the handle that cancels one.

A wheel of slots holds them. A slot stands for a span of time, a second by default, and is read when that span
is over: a message may come up to a span late, but never early.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

from flaremq.base.errors import InvalidParameter, MessageIllegal
from flaremq.model import properties

WHEEL_TOPIC: Final = b"rmq_sys_wheel_timer"
"""The topic in which timer messages wait."""
ASKED: Final = (properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS, properties.TIMER_DELIVER_MS)
"""The properties with which a client asks for a moment. The first that is there counts."""
INTERNAL: Final = (
    *(properties.TIMER_OUT_MS, properties.TIMER_ENQUEUE_MS, properties.TIMER_DEQUEUE_MS),
    *(properties.TIMER_ROLL_TIMES, properties.TIMER_DEL_UNIQKEY),
)
"""The properties that the wheel sets. From a client they would switch the timer off, or cancel another."""

RECALL_TAG: Final = "_RECALL_TAG_"
_VERSION: Final = "v1"
_TIME_MAX: Final = (1 << 63) - 1


def asked_ms(known: Mapping[str, str], now_ms: int) -> int | None:
    """The moment that a message asks for; None if it asks for none. Raises MessageIllegal."""
    name = next((name for name in ASKED if name in known), None)
    if name is None:
        return None
    text = known[name]
    try:
        number = int(text)
    except ValueError:
        raise MessageIllegal(f"{name}={text!r}: expected a whole number") from None
    if name == properties.TIMER_DELIVER_MS:
        moment_ms = number
    else:
        moment_ms = now_ms + number * (1000 if name == properties.TIMER_DELAY_SEC else 1)
    if not -_TIME_MAX <= moment_ms <= _TIME_MAX:
        raise MessageIllegal(f"{name}={text!r}: no time is that far away")
    return moment_ms


def slot_ms(moment_ms: int, precision_ms: int) -> int:
    """The slot of a moment: read when it is over, which is at the moment or up to `precision_ms` later."""
    return (moment_ms - 1) // precision_ms * precision_ms


def handle_lead(topic: str, broker_name: str, moment_ms: int) -> bytes:
    """The beginning of a handle before it is encoded; the unique key is its end."""
    return f"{_VERSION} {topic} {broker_name} {moment_ms} ".encode()


class Handle(NamedTuple):
    """What cancels a timer message: it came with the answer to its send."""

    topic: str
    broker_name: str
    moment_ms: int
    unique_key: str

    def __str__(self) -> str:
        lead = handle_lead(self.topic, self.broker_name, self.moment_ms)
        return base64.urlsafe_b64encode(lead + self.unique_key.encode()).decode()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InvalidParameter."""
        try:
            version, topic, broker, moment, key = base64.b64decode(
                text.encode(), altchars=b"-_", validate=True
            ).decode().split(" ")  # fmt: skip
            if version == _VERSION and moment.isascii() and moment.isdigit() and topic and broker and key:
                return cls(topic, broker, int(moment), key)
        except (binascii.Error, ValueError):
            pass
        raise InvalidParameter(f"{text[:80]!r} is not a recall handle: expected one that a send returned")

    @property
    def marks(self) -> str:
        """What the marker that cancels the message names."""
        return f"{self.topic}+{self.unique_key}"
