"""Values about transactions that have not ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from flaremq.admin.values.messages import FoundMessage
from flaremq.base.text import both
from flaremq.model import properties


class HalfState(Enum):
    OPEN = "open"
    """Its producers are asked how it ended."""
    PARKED = "parked"
    """They were asked too often, or for too long: nothing happens until you decide."""


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A prepared message (RocketMQ: half message) that is neither committed nor rolled back."""

    state: HalfState
    message: FoundMessage
    """As it lies in the topic of prepared or of parked messages."""
    was_parked: bool = False
    """Whether it is parked, or was and is open again."""

    @property
    def message_id(self) -> str:
        """The id of its message and of its transaction."""
        return self.message.message_id

    @property
    def topic(self) -> str:
        """The topic that it is for."""
        return self.message.get(properties.REAL_TOPIC) or ""

    @property
    def group(self) -> str:
        """The producer group that prepared it."""
        return self.message.get(properties.PRODUCER_GROUP) or ""

    @property
    def checks(self) -> int | None:
        """How often a producer was asked; None if that is unknown, as for open ones at FlareMQ's brokers."""
        text = self.message.get(properties.TRANSACTION_CHECK_TIMES) or ""
        return int(text) if text.isascii() and text.isdigit() else None

    def document(self) -> dict[str, object]:
        return {
            "state": self.state.value,
            "message_id": self.message_id,
            "offset_id": self.message.offset_id,
            "topic": self.topic,
            "group": self.group,
            "broker": self.message.broker,
            "keys": list(self.message.keys),
            "tags": self.message.tags,
            "checks": self.checks,
            "was_parked": self.was_parked,
            **both("born_at", self.message.born_ms),
            **both("stored_at", self.message.stored_ms),
        }
