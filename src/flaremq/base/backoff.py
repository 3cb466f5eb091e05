"""Trying again: pauses that grow, until a deadline.

The clock and the sleep come from outside, so tests and a simulated network own the time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from flaremq.base.errors import FlareError

T = TypeVar("T")


class Backoff:
    """Pauses between attempts: each twice as long as the one before, up to a limit, until a deadline."""

    def __init__(
        self, first_s: float, longest_s: float, *, timeout_s: float, now_s: Callable[[], float]
    ) -> None:
        self._next_s = first_s
        self._longest_s = longest_s
        self._now_s = now_s
        self._deadline_s = now_s() + timeout_s

    def pause_s(self) -> float | None:
        """How long to pause before the next attempt; None if it would come after the deadline."""
        pause_s = self._next_s
        if self._now_s() + pause_s > self._deadline_s:
            return None
        self._next_s = min(2 * pause_s, self._longest_s)
        return pause_s


async def retry(
    attempt: Callable[[], Awaitable[T]],
    backoff: Backoff,
    *,
    may_pass: Callable[[FlareError], bool],
    sleep: Callable[[float], Awaitable[None]],
) -> T:
    """Try until it succeeds. Raises the last error at the deadline, or at once if `may_pass` rejects it."""
    while True:
        try:
            return await attempt()
        except FlareError as error:
            pause_s = backoff.pause_s() if may_pass(error) else None
            if pause_s is None:
                raise
        await sleep(pause_s)
