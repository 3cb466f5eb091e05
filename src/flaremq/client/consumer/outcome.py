"""What a handler can say besides "done", which it says by returning."""

from __future__ import annotations

from typing import Final

DEAD: Final = -1
"""The level that leads to the dead letters."""


class Later(Exception):
    """Not now: raised or returned by a handler, the message is delivered again later.

    `delay_level` is one of the broker's (1 is 1 s, 2 is 5 s, 3 is 10 s and so on by default); 0 leaves the
    choice to the broker, which waits longer each time. An orderly consumer rests its own time instead.
    Any other exception means the same, but is logged as a failure.
    """

    def __init__(self, why: str = "", *, delay_level: int = 0) -> None:
        super().__init__(why or "later")
        self.delay_level = delay_level


def reject(why: str = "") -> Later:
    """Never: raise or return it, and the message goes to the dead letters at once."""
    return Later(why or "rejected", delay_level=DEAD)


def level_of(error: BaseException) -> int:
    return error.delay_level if isinstance(error, Later) else 0
