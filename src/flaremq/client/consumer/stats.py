"""Consumption rates by topic, which a consumer reports to operators."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from flaremq.base.clock import Clock
from flaremq.protocol.bodies.running import ConsumeStatus

_MINUTE_S: Final = 60.0
_HOUR_S: Final = 3600.0
_SAMPLE_S: Final = 5.0


@dataclass(slots=True)
class Totals:
    """Totals since the start."""

    at_s: float = 0.0
    pulls: int = 0
    pulled: int = 0
    pull_s: float = 0.0
    ok: int = 0
    failed: int = 0
    consume_s: float = 0.0


class Figures:
    """Totals, and samples of them every few seconds: rates are differences."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now: dict[str, Totals] = {}
        self._samples: dict[str, deque[Totals]] = {}

    def _of(self, topic: str) -> Totals:
        found = self._now.get(topic)
        if found is None:
            found = self._now[topic] = Totals()
            self._samples[topic] = deque([Totals(at_s=self._clock.monotonic_s())])
        return found

    def pulled(self, topic: str, took_s: float, count: int) -> None:
        if count:  # The broker held an empty answer on purpose: its time means nothing.
            totals = self._of(topic)
            totals.pulls += 1
            totals.pulled += count
            totals.pull_s += took_s

    def consumed(self, topic: str, took_s: float, ok: int, failed: int) -> None:
        totals = self._of(topic)
        totals.ok += ok
        totals.failed += failed
        totals.consume_s += took_s

    def sample(self) -> None:
        """Record a sample. Called every few seconds."""
        now_s = self._clock.monotonic_s()
        for topic, totals in self._now.items():
            samples = self._samples[topic]
            if now_s - samples[-1].at_s >= _SAMPLE_S:
                samples.append(replace(totals, at_s=now_s))
            while len(samples) > 1 and now_s - samples[1].at_s > _HOUR_S:
                samples.popleft()

    def statuses(self) -> dict[str, ConsumeStatus]:
        """The last minute of each topic, and the failures of the last hour."""
        return {topic: self._status(topic) for topic in self._now}

    def _status(self, topic: str) -> ConsumeStatus:
        now_s, totals, samples = self._clock.monotonic_s(), self._now[topic], self._samples[topic]
        young = (each for each in samples if now_s - each.at_s <= _MINUTE_S)
        since = next(young, samples[-1])
        span_s = max(now_s - since.at_s, 1.0)
        pulls, handled = totals.pulls - since.pulls, totals.ok + totals.failed - since.ok - since.failed
        return ConsumeStatus(
            pull_rt=_mean_ms(totals.pull_s - since.pull_s, pulls),
            pull_tps=(totals.pulled - since.pulled) / span_s,
            consume_rt=_mean_ms(totals.consume_s - since.consume_s, handled),
            consume_ok_tps=(totals.ok - since.ok) / span_s,
            consume_failed_tps=(totals.failed - since.failed) / span_s,
            consume_failed_msgs=totals.failed - samples[0].failed,
        )


def _mean_ms(sum_s: float, count: int) -> float:
    return sum_s * 1000 / count if count else 0.0
