"""Values about the health of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from flaremq.admin.values.brokers import BrokerInfo
from flaremq.base.errors import InvalidParameter
from flaremq.base.units import MiB

LAG_MAX: Final = 10_000
BEHIND_MAX: Final = 256 * MiB


class HealthVerdict(Enum):
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    """It serves, but has problems."""
    DOWN = "down"
    """No NameServer or no broker answers: nothing can be sent or consumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimits:
    """Limits above which a figure is a problem."""

    lag_max: int = LAG_MAX
    """Messages that a consumer group may be behind."""
    behind_max: int = BEHIND_MAX
    """Bytes that a broker may have stored but not yet flushed to the disk, or not yet dispatched."""
    backlog_max: float = 0.5
    """Share of the capacity for waiting requests."""
    wait_max_ms: int = 1000
    """How long the first request of a backlog may have waited."""

    def __post_init__(self) -> None:
        if self.lag_max < 0 or self.behind_max < 0:
            raise InvalidParameter(
                f"lag_max={self.lag_max}, behind_max={self.behind_max}: expected 0 or more for both"
            )


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a cluster."""

    subject: str
    """Name of a broker or a group, or address of a NameServer."""
    kind: str
    """namesrv, registration, missing, broker, master, disk, degraded, dispatch, flush, backlog or lag."""
    text: str


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    verdict: HealthVerdict
    problems: tuple[Problem, ...]
    brokers: tuple[BrokerInfo, ...]
    """All brokers that are registered at any NameServer."""
    namesrvs: Mapping[str, bool] = field(hash=False)
    """Whether each NameServer answers, by address."""
    groups: int = 0
    """How many consumer groups were checked for lag."""
    unchecked: tuple[str, ...] = ()
    """What could not be checked, and why."""
