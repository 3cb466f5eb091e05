"""Sizes and spans of time, as numbers and as people write them; the number of cores."""

import os
import re
from typing import Final

from flaremq.base.errors import ConfigError

KiB: Final = 1024
MiB: Final = 1024 * KiB
GiB: Final = 1024 * MiB

SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

_SIZES = {"": 1, "b": 1, "k": KiB, "kib": KiB, "m": MiB, "mib": MiB, "g": GiB, "gib": GiB}
_SPANS_MS = {"": 1, "ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
_QUANTITY = re.compile(r"\s*([0-9]{1,18})\s*([a-zA-Z]*)\s*")  # No more digits than a long holds.


def parse_size(text: str) -> int:
    """Bytes: `4096`, `16MiB`, `1 GiB`, `64k`."""
    return _parse(text, _SIZES, "a size such as 4096, 64KiB or 1GiB")


def parse_span_ms(text: str) -> int:
    """Milliseconds: `500`, `500ms`, `10s`, `48h`, `3d`."""
    return _parse(text, _SPANS_MS, "a span of time such as 500ms, 10s, 48h or 3d")


def _parse(text: str, units: dict[str, int], wanted: str) -> int:
    match = _QUANTITY.fullmatch(text)
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ConfigError(f"{text!r} is not {wanted}")
    return int(match[1]) * factor


def cores() -> int:
    """Cores of this machine that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
