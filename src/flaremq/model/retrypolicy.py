"""How long a failed message waits for its next attempt."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from flaremq.base.units import HOUR_MS, MINUTE_MS, SECOND_MS
from flaremq.model.jsonfields import Fields

LEVELS_MS: Final = (
    *(1 * SECOND_MS, 5 * SECOND_MS, 10 * SECOND_MS, 30 * SECOND_MS),
    *(minutes * MINUTE_MS for minutes in range(1, 11)),
    *(20 * MINUTE_MS, 30 * MINUTE_MS, 1 * HOUR_MS, 2 * HOUR_MS),
)
"""The eighteen delay levels."""

_SKIPPED_LEVELS: Final = 2  # The first retry takes the third level, as in RocketMQ.
_TIMES_MAX: Final = 32


class RetryPolicyType(Enum):
    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


@dataclass(frozen=True, slots=True)
class Exponential:
    initial_ms: int = 5 * SECOND_MS
    max_ms: int = 2 * HOUR_MS
    multiplier: int = 2

    def delay_ms(self, reconsume_times: int) -> int:
        times = min(max(reconsume_times, 0), _TIMES_MAX)
        return min(self.max_ms, self.initial_ms * int(self.multiplier**times))


@dataclass(frozen=True, slots=True)
class Customized:
    next_ms: tuple[int, ...] = LEVELS_MS

    def delay_ms(self, reconsume_times: int) -> int:
        levels = self.next_ms or LEVELS_MS
        return levels[min(max(reconsume_times, 0) + _SKIPPED_LEVELS, len(levels) - 1)]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retry policy of a group. Both kinds may be set; `type` decides."""

    type: RetryPolicyType = RetryPolicyType.CUSTOMIZED
    exponential: Exponential | None = None
    customized: Customized | None = None

    def delay_ms(self, reconsume_times: int) -> int:
        chosen = self.exponential if self.type is RetryPolicyType.EXPONENTIAL else self.customized
        return (chosen or Customized()).delay_ms(reconsume_times)

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object] = {}
        if self.customized:
            found["customizedRetryPolicy"] = {"next": list(self.customized.next_ms)}
        if self.exponential:
            found["exponentialRetryPolicy"] = {
                "initial": self.exponential.initial_ms,
                "max": self.exponential.max_ms,
                "multiplier": self.exponential.multiplier,
            }
        return {**found, "type": self.type.name}

    @classmethod
    def of(cls, fields: Fields) -> "RetryPolicy":
        exponential, customized = (
            fields.inner("exponentialRetryPolicy"),
            fields.inner("customizedRetryPolicy"),
        )
        return cls(
            type=fields.enum("type", RetryPolicyType.CUSTOMIZED),
            exponential=None if exponential is None else _exponential(exponential),
            customized=None if customized is None else Customized(customized.integers("next", LEVELS_MS)),
        )


def _exponential(fields: Fields) -> Exponential:
    plain = Exponential()
    return Exponential(
        initial_ms=fields.integer("initial", plain.initial_ms),
        max_ms=fields.integer("max", plain.max_ms),
        multiplier=fields.integer("multiplier", plain.multiplier),
    )
