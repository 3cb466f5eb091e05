"""An event loop that does not wait: when nobody has anything to do, time leaps to whoever is next.

So what happens every twenty seconds is seen in milliseconds, with the real seconds in the code. It is
for programs whose every part lives in this loop, real sockets included; a thread would see no time pass.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final

START_MS: Final = 1_700_000_000_000
_BREATH_S: Final = 0.0005  # For the kernel, to carry bytes from one socket of ours to another.


class _Selector(selectors.DefaultSelector):
    def __init__(self, leap: Callable[[float], None]) -> None:
        super().__init__()
        self._leap = leap

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        found = super().select(_BREATH_S)
        if not found:
            self._leap(timeout)
        return found


class LeapingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_Selector(self._leap))

    def _leap(self, by_s: float) -> None:
        self._now_s += by_s

    def time(self) -> float:
        return self._now_s


class LoopClock:
    """A clock that shows the time of the running loop."""

    def now_ms(self) -> int:
        return START_MS + round(self.monotonic_s() * 1000)

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()


def leaping(story: Coroutine[Any, Any, None]) -> None:
    """Run a story to its end in a loop of this kind."""
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        runner.run(story)


async def reach(at_s: float) -> None:
    """Until that time has come."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.call_at(at_s, over.set)
    await over.wait()
