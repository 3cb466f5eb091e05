"""The two clocks of a process, behind one door so that a test can hold both hands."""

import time
from typing import Protocol


class Clock(Protocol):
    """Whoever needs the time is given one of these and never asks the system itself."""

    def now_ms(self) -> int:
        """Wall clock, Unix milliseconds. It may step back: NTP, an operator, a leap second."""
        ...

    def monotonic_s(self) -> float:
        """Never steps back; only differences mean anything. Deadlines are made of this one."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()
