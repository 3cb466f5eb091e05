"""A histogram of latencies: any number of them in little memory, each accurate to 1 %."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

_STEPS: Final = 100  # Per unit of the natural logarithm: neighbours are 1 % apart.


class LatencyHistogram:
    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.most_s = 0.0

    def add(self, elapsed_s: float, times: int = 1) -> None:
        bucket = round(math.log(max(elapsed_s, 1e-9)) * _STEPS)
        self._counts[bucket] = self._counts.get(bucket, 0) + times
        self.count += times
        if elapsed_s > self.most_s:
            self.most_s = elapsed_s

    def extend(self, many: Iterable[float]) -> None:
        for elapsed_s in many:
            self.add(elapsed_s)

    def percentile(self, share: float) -> float:
        """The time that this share of all (for example 0.99) did not exceed; 0 if nothing was counted."""
        wanted, seen = math.ceil(share * self.count), 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return min(math.exp(bucket / _STEPS), self.most_s)
        return 0.0
