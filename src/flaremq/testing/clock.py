"""A clock that moves when told to, and a way to wait for quiet instead of for time."""

import asyncio
from typing import Final

START_MS: Final = 1_700_000_000_000
"""Where a ManualClock begins unless told otherwise: 14 November 2023, 22:13:20 UTC."""

_ROUNDS: Final = 10  # Enough for a chain of ten tasks, each waking the next.


class ManualClock:
    """A `Clock` that stands still between two calls of `advance_ms`."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._wall_start_ms = now_ms
        self._elapsed_ms = 0

    def now_ms(self) -> int:
        return self._wall_start_ms + self._elapsed_ms

    def monotonic_s(self) -> float:
        return self._elapsed_ms / 1000

    def advance_ms(self, by: int) -> None:
        """Time passes, on both clocks."""
        assert by >= 0, "time does not run backwards; step_wall_ms moves the wall clock alone"
        self._elapsed_ms += by

    def step_wall_ms(self, by: int) -> None:
        """Somebody sets the wall clock, forwards or back. The monotonic clock does not notice."""
        self._wall_start_ms += by


async def settle() -> None:
    """Let every ready task run until it waits for something."""
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)
