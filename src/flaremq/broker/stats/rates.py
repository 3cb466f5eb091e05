"""Figures of the broker as a whole: recent rates, how long puts took, and daily totals.

Sends and pulls only add to counters; tasks sample them once a second and once a minute.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from enum import IntEnum
from typing import Final

WINDOWS_S: Final = (10, 60, 600)

_SAMPLES_MAX: Final = WINDOWS_S[-1] + 1
_SPREAD_MS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_SPREAD_NAMES: Final = (
    *("<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s"),
    *("1~2s", "2~3s", "3~4s", "4~5s", "5~10s", "10s~"),
)
_STEPS_MS: Final = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))


def _bounds_ms() -> tuple[int, ...]:
    """Fine for short times: from steps of 1 ms up to 20 ms, to steps of a second up to ten."""
    bounds: list[int] = []
    for step, times in _STEPS_MS:
        for _ in range(times):
            bounds.append((bounds[-1] if bounds else 0) + step)
    return tuple(bounds)


_BOUNDS_MS: Final = _bounds_ms()


class Rate(IntEnum):
    """The columns of a sample, after its time."""

    PUT = 1
    FOUND = 2
    MISSED = 3
    TRANSFERRED = 4


class Rates:
    """Counters since the start, and their samples of the last ten minutes."""

    def __init__(self, now_ms: int) -> None:
        self.put = self.put_size = self.put_failed = self.put_repeated = 0
        self.found = self.missed = self.transferred = 0
        self._width = len(Rate) + 1
        self._samples = array("q", (now_ms, *[0] * len(Rate)))

    def sample(self, now_ms: int) -> None:
        """Take a sample; called once a second."""
        samples, width = self._samples, self._width
        if now_ms <= samples[-width]:
            return  # A rate over no time means nothing.
        samples.extend((now_ms, self.put, self.found, self.missed, self.transferred))
        if len(samples) > width * _SAMPLES_MAX:
            del samples[:width]

    def per_second(self, rate: Rate, window_s: int) -> float:
        """The rate over the window, or since the start if that is shorter."""
        samples, width = self._samples, self._width
        back = min(window_s * width, len(samples) - width)
        if back <= 0:
            return 0.0
        last, first = len(samples) - width, len(samples) - width - back
        return (samples[last + rate] - samples[first + rate]) * 1000 / (samples[last] - samples[first])


class PutTimes:
    """How long puts took: the distribution over the last full minute, and the longest since the start."""

    def __init__(self) -> None:
        self.longest_ms = 0
        self._spread, self._last_spread = _zeros(_SPREAD_MS), _zeros(_SPREAD_MS)
        self._counts, self._last_counts = _zeros(_BOUNDS_MS), _zeros(_BOUNDS_MS)

    def add(self, elapsed_ms: float, count: int) -> None:
        self._spread[bisect_right(_SPREAD_MS, elapsed_ms)] += count
        self._counts[bisect_left(_BOUNDS_MS, elapsed_ms)] += count
        if elapsed_ms > self.longest_ms:
            self.longest_ms = int(elapsed_ms)

    def turn(self) -> None:
        """Called once a minute: what was counted is now what is reported."""
        self._last_spread, self._spread = self._spread, _zeros(_SPREAD_MS)
        self._last_counts, self._counts = self._counts, _zeros(_BOUNDS_MS)

    def spread(self) -> str:
        """`[<=0ms]:7 [0~10ms]:1 ... `, as tools show it."""
        return "".join(
            f"[{name}]:{count} " for name, count in zip(_SPREAD_NAMES, self._last_spread, strict=True)
        )

    def percentile_ms(self, share: float) -> float:
        """The time that this share of the puts did not exceed, interpolated within its step."""
        wanted, passed, before = int(sum(self._last_counts) * share), 0, 0
        for bound, count in zip(_BOUNDS_MS, self._last_counts, strict=False):
            if wanted <= passed + count:
                return before + ((bound - before) * (wanted - passed) / count if count else 0.0)
            passed, before = passed + count, bound
        return float(self.longest_ms)


class Day:
    """A total as of the last two midnights."""

    def __init__(self) -> None:
        self.yesterday_morning = self.this_morning = 0

    def midnight(self, total: int) -> None:
        self.yesterday_morning, self.this_morning = self.this_morning, total


def _zeros(bounds: tuple[int, ...]) -> list[int]:
    return [0] * (len(bounds) + 1)
