"""What a handler can raise or return to have a message redelivered or rejected."""

from __future__ import annotations

from typing import Final, NamedTuple

from flaremq.model.properties import one_line

DEAD: Final = -1
"""The delay level that sends a message to the dead-letter queue."""


class Later(Exception):
    """Raise or return it from a handler to have the message redelivered later.

    `delay_level` is one of the broker's (1 is 1 s, 2 is 5 s, 3 is 10 s and so on by default); 0 leaves the
    choice to the broker, which waits longer each time. An orderly consumer waits for `suspend_s` instead.
    Any other exception means the same, but is logged as a failure.
    """

    def __init__(self, why: str = "", *, delay_level: int = 0) -> None:
        super().__init__(why or "later")
        self.delay_level = delay_level


def reject(why: str = "") -> Later:
    """Raise or return it from a handler to send the message to the dead-letter queue at once."""
    return Later(why or "rejected", delay_level=DEAD)


class Verdict(NamedTuple):
    """What follows from a failure."""

    level: int
    """A delay level; 0 leaves the choice to the broker."""
    reason: str


def verdict_of(error: BaseException) -> Verdict:
    if isinstance(error, Later):
        return Verdict(error.delay_level, one_line(str(error)))
    return Verdict(0, one_line(f"{type(error).__name__}: {error}".removesuffix(": ")))
