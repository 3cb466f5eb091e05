"""Times: parsed as people write them, and formatted for people."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Final

from flaremq.base.errors import ConfigError
from flaremq.base.text import moment
from flaremq.base.units import parse_span_ms
from flaremq.cli.render import BadValue

_AGO: Final = re.compile(r"-?\s*([0-9.]+\s*[a-z]+)(\s+ago)?")
_CLOCK: Final = re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?")
_MQADMIN: Final = re.compile(r"([0-9-]{10})#([0-9:]{8}):([0-9]{1,3})")
_SECONDS_DIGITS: Final = 10  # Ten digits are seconds until the year 2286.
BEGIN: Final = "begin"
END: Final = "end"
_PLACES: Final = {
    **dict.fromkeys((BEGIN, "beginning", "earliest", "start", "first"), BEGIN),
    **dict.fromkeys((END, "latest", "last"), END),
}


def place_of(text: str) -> str | None:
    """BEGIN or END of a queue, by any of its common names; None for other words."""
    return _PLACES.get(text.strip().lower())


def parse_time_ms(text: str, now_ms: int | None = None) -> int:
    """Milliseconds since 1970, from any common way to write a time. Raises BadValue for others.

    now, 10m, -10m, 10m ago, 12:30, 2024-05-01, 2024-05-01T12:30[:00][Z], 1714566600, 1714566600000 and
    mqadmin's 2024-05-01#12:30:00:000. Without a time zone it is local time.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    said = text.strip()
    if said.lower() in ("now", "0s"):
        return now_ms
    if said.isascii() and said.isdigit():
        return int(said) * 1000 if len(said) <= _SECONDS_DIGITS else int(said)
    ago = _AGO.fullmatch(said.lower())
    if ago:
        try:
            return now_ms - parse_span_ms(ago[1].replace(" ", ""))
        except ConfigError:
            raise _wrong(text) from None
    return _calendar_ms(said, text, now_ms)


def _calendar_ms(said: str, text: str, now_ms: int) -> int:
    mqadmin = _MQADMIN.fullmatch(said)
    if mqadmin:
        said = f"{mqadmin[1]}T{mqadmin[2]}.{mqadmin[3]:0>3}"
    elif _CLOCK.fullmatch(said):
        hour, _, rest = said.partition(":")
        said = f"{datetime.fromtimestamp(now_ms / 1000):%Y-%m-%d}T{hour:0>2}:{rest}"
    try:
        return round(datetime.fromisoformat(said).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise _wrong(text) from None


def _wrong(text: str) -> BadValue:
    return BadValue(
        f"{text!r} is not a time: expected now, 10m (ago), 12:30, 2024-05-01T12:30 or milliseconds since 1970"
    )


def local(at_ms: int) -> str:
    """For people: in local time."""
    at = moment(at_ms)
    if at is None:
        return "-"
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S.") + f"{at_ms % 1000:03d}"
