"""Bodies about timer messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flaremq.model.topic import DataVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerMetric:
    count: int = 0
    time_stamp: int = 0
    """Of the last change, in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerMetrics:
    """How many messages wait for each topic. Also the file timermetrics."""

    data_version: DataVersion | None = None
    timing_count: Mapping[str, TimerMetric] = field(default_factory=dict)
