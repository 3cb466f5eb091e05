"""How long a failed message waits for its next attempt."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from flaremq.base.errors import InvalidParameter
from flaremq.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from flaremq.model.jsonfields import Fields

LEVELS_MS: Final = (
    *(1 * SECOND_MS, 5 * SECOND_MS, 10 * SECOND_MS, 30 * SECOND_MS),
    *(minutes * MINUTE_MS for minutes in range(1, 11)),
    *(20 * MINUTE_MS, 30 * MINUTE_MS, 1 * HOUR_MS, 2 * HOUR_MS),
)
"""The eighteen delay levels."""

_SKIPPED_LEVELS: Final = 2  # The first retry takes the third level, as in RocketMQ.
_TIMES_MAX: Final = 32
_DELAY_MAX_MS: Final = 365 * DAY_MS
_DELAYS_MAX: Final = 1000


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
    """A list of delays. As in RocketMQ, the first retry takes the third of them; the last one is repeated."""

    next_ms: tuple[int, ...] = LEVELS_MS

    @classmethod
    def after(cls, delays_ms: tuple[int, ...]) -> "Customized":
        """These delays for the first retry, the second, and so on."""
        return cls((*delays_ms[:1] * _SKIPPED_LEVELS, *delays_ms))

    @property
    def delays_ms(self) -> tuple[int, ...]:
        """The delay of the first retry, of the second, and so on."""
        return self.next_ms[_SKIPPED_LEVELS:] or self.next_ms[-1:] or LEVELS_MS[_SKIPPED_LEVELS:]

    def delay_ms(self, reconsume_times: int) -> int:
        levels = self.next_ms or LEVELS_MS
        return levels[min(max(reconsume_times, 0) + _SKIPPED_LEVELS, len(levels) - 1)]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retry policy of a group. Both kinds may be set; `type` decides."""

    type: RetryPolicyType = RetryPolicyType.CUSTOMIZED
    exponential: Exponential | None = None
    customized: Customized | None = None

    @property
    def chosen(self) -> Exponential | Customized | None:
        """What was set for this group; None if nothing was, so that the delay levels count."""
        return self.exponential if self.type is RetryPolicyType.EXPONENTIAL else self.customized

    def delay_ms(self, reconsume_times: int) -> int:
        return (self.chosen or Customized()).delay_ms(reconsume_times)

    def check(self) -> None:
        """Raises InvalidParameter for delays that cannot be."""
        if self.customized is not None:
            if len(self.customized.next_ms) > _DELAYS_MAX:
                raise InvalidParameter(
                    f"a retry policy with {len(self.customized.next_ms)} delays: the limit is {_DELAYS_MAX}"
                )
            for delay_ms in self.customized.next_ms:
                _check_delay(delay_ms)
        if self.exponential is not None:
            first, most, factor = (
                self.exponential.initial_ms,
                self.exponential.max_ms,
                self.exponential.multiplier,
            )
            _check_delay(first)
            _check_delay(most)
            if first > most:
                raise InvalidParameter(
                    f"a retry policy begins with {first} ms, above its own limit of {most} ms: "
                    "expected the shorter delay first"
                )
            if not 1 <= factor <= _DELAYS_MAX:
                raise InvalidParameter(
                    f"a retry policy with factor {factor}: expected a whole number from 1 to {_DELAYS_MAX}"
                )

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


def _check_delay(delay_ms: int) -> None:
    if not 0 <= delay_ms <= _DELAY_MAX_MS:
        raise InvalidParameter(
            f"a retry policy with a delay of {delay_ms} ms: expected 0 to {_DELAY_MAX_MS}, which is a year"
        )


def _exponential(fields: Fields) -> Exponential:
    plain = Exponential()
    return Exponential(
        initial_ms=fields.integer("initial", plain.initial_ms),
        max_ms=fields.integer("max", plain.max_ms),
        multiplier=fields.integer("multiplier", plain.multiplier),
    )
