"""Delay levels: numbers from 1 on, each for a span of time."""

import re
from functools import cache
from typing import Final

from flaremq.base.errors import ConfigError
from flaremq.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's default for messageDelayLevel."""
SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"
"""The topic in which delayed messages wait."""

_SPAN: Final = re.compile(r"([0-9]{1,9})([smhd])")
_UNITS_MS: Final = {"s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}


@cache
def parse_levels(text: str) -> tuple[int, ...]:
    """The spans in ms; level n is at index n - 1."""
    found = [_SPAN.fullmatch(part) for part in text.split()]
    spans = tuple(int(match[1]) * _UNITS_MS[match[2]] for match in found if match)
    if not spans or len(spans) < len(found):
        raise ConfigError(
            f"messageDelayLevel={text!r}: expected time spans separated by spaces, "
            "each a number and one of s, m, h, d, for example 1s 30s 5m"
        )
    return spans
