"""Wall-clock and monotonic time behind one interface, so that tests can control both."""

import time
from typing import Protocol


class Clock(Protocol):
    """Passed to everything that needs the time, instead of asking the system."""

    def now_ms(self) -> int:
        """Wall clock in Unix milliseconds. It may step back: NTP, an operator, a leap second."""
        ...

    def monotonic_s(self) -> float:
        """Never steps back; only differences mean anything. For deadlines."""
        ...


class SystemClock:
    monotonic_s = staticmethod(time.monotonic)  # The function itself: turns ask twice each.

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
