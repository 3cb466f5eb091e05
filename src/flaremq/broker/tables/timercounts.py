"""How many timer messages wait for each topic, kept in the file timermetrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from flaremq.base.clock import Clock
from flaremq.broker.offload import Offload
from flaremq.broker.tables.configfile import ConfigFile, Saving
from flaremq.model.topic import DataVersion
from flaremq.protocol import beans
from flaremq.protocol.bodies.timer import TimerMetric, TimerMetrics


class TimerCounts:
    def __init__(self, path: Path, offload: Offload, clock: Clock) -> None:
        self._clock = clock
        self._saving = Saving(ConfigFile(path), offload, self._take)
        self._table: dict[str, TimerMetric] = {}
        self._version = DataVersion()
        self._is_told = False
        """Whether the table is just as the master told it, with its version."""
        self.total = 0

    @property
    def is_kept(self) -> bool:
        """Whether there is a file to load."""
        return self._saving.file.path.exists()

    def load(self) -> None:
        """Load the file. Blocks."""
        kept = self._saving.file.load_as(lambda text: beans.decode(TimerMetrics, text))
        if kept is not None:
            self._version = kept.data_version or DataVersion()
            self.set({topic: metric.count for topic, metric in kept.timing_count.items()})

    def set(self, counts: Mapping[str, int]) -> None:
        now_ms = self._clock.now_ms()
        self._table = {
            topic: TimerMetric(count=count, time_stamp=now_ms) for topic, count in counts.items() if count > 0
        }
        self.total = sum(counts.values())
        self._is_told = False
        self._saving.changes += 1

    @property
    def version(self) -> DataVersion:
        return self._version

    def replace(self, told: TimerMetrics) -> None:
        """Take over the table of a slave's master."""
        self._table = {topic: metric for topic, metric in told.timing_count.items() if metric.count > 0}
        self.total = sum(metric.count for metric in self._table.values())
        self._version = told.data_version or DataVersion()
        self._saving.changes += 1
        self._is_told = True

    def add(self, topic: str, number: int) -> None:
        self._is_told = False
        known = self._table.get(topic)
        count = max(0, (known.count if known is not None else 0) + number)
        self._table[topic] = TimerMetric(count=count, time_stamp=self._clock.now_ms())
        self.total = max(0, self.total + number)
        self._saving.changes += 1

    async def save(self) -> None:
        if self._saving.dirty:
            if not self._is_told:
                self._version = self._version.next(self._clock.now_ms())
            self._is_told = False
            await self._saving.save()

    def wrapper(self) -> TimerMetrics:
        """A copy of the table."""
        return TimerMetrics(data_version=self._version, timing_count=dict(self._table))

    def _take(self) -> Callable[[], bytes]:
        wrapper = self.wrapper()
        return lambda: beans.encode(wrapper)
