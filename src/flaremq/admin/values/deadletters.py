"""Values about dead letters: messages that a group could not consume."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from flaremq.admin.values.messages import FoundMessage, TimeRange
from flaremq.base.errors import FlareError, InvalidParameter
from flaremq.base.text import both
from flaremq.model import properties
from flaremq.model.properties import Failure, failure_in

_DETAILS: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")

_ANY: Final = TimeRange()


def kind_of(reason: str) -> str:
    """A reason without its numbers, which differ from message to message: `no order #`."""
    return _DETAILS.sub("#", reason)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that its group gave up."""

    group: str
    message: FoundMessage
    """As it lies in the dead-letter topic."""

    @property
    def origin_topic(self) -> str | None:
        """The topic that it was sent to; None if it does not say."""
        return self.message.get(properties.RETRY_TOPIC) or self.message.get(properties.DLQ_ORIGIN_TOPIC)

    @property
    def attempts(self) -> int:
        """How many deliveries have failed."""
        return self.message.reconsume_times

    @property
    def failure(self) -> Failure | None:
        """Why the last one failed; None if its consumer did not say, as RocketMQ's do not."""
        return failure_in(self.message.get)

    def document(self) -> dict[str, object]:
        failure = self.failure
        return {
            "group": self.group,
            "origin_topic": self.origin_topic,
            "message_id": self.message.message_id,
            "offset_id": self.message.offset_id,
            "broker": self.message.broker,
            "queue_offset": self.message.queue_offset,
            "tags": self.message.tags,
            "keys": list(self.message.keys),
            "attempts": self.attempts,
            "reason": None if failure is None else failure.reason,
            **both("died_at", self.message.stored_ms),
            **both("born_at", self.message.born_ms),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Which dead letters are meant. Those that were resent or purged never are."""

    group: str | None = None
    """None: of all groups."""
    reason: str | None = None
    """Only those whose reason contains this text, in upper or lower case."""
    within: TimeRange = _ANY
    """When they became dead letters."""
    limit: int | None = None
    """At most this number of each group, the oldest of each broker first."""

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise InvalidParameter(f"limit={self.limit}: expected at least 1")

    def matches(self, letter: DeadLetter) -> bool:
        if self.reason is None:
            return True
        failure, text = letter.failure, self.reason.casefold()
        if failure is None:
            return False
        said = failure.reason.casefold()
        return text in said or text in kind_of(said)


@dataclass(frozen=True, slots=True)
class LetterSummary:
    """The dead letters of one group."""

    group: str
    count: int
    oldest_ms: int
    newest_ms: int
    reasons: Mapping[str | None, int] = field(hash=False)
    """How many died of each kind of reason, the most frequent first; None for those that do not say."""

    def document(self) -> dict[str, object]:
        return {
            "group": self.group,
            "count": self.count,
            **both("oldest_at", self.oldest_ms),
            **both("newest_at", self.newest_ms),
            "reasons": [{"reason": reason, "count": count} for reason, count in self.reasons.items()],
        }


@dataclass(frozen=True, slots=True)
class ResendOutcome:
    """What became of an attempt to send dead letters again."""

    sent: int
    failed: Mapping[str, FlareError] = field(hash=False)
    """Message ids of those that could not be sent, and why. They stay dead letters."""
    is_cut_short: bool = False
    """Whether it ended early, because too many failed."""
