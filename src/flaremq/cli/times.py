"""Times as people write them, and as we write them for people and for programs."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from flaremq.base.errors import ConfigError
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
    """BEGIN or END of a queue, in any of the words that people have for them; None for other words."""
    return _PLACES.get(text.strip().lower())


def parse_time_ms(text: str, now_ms: int | None = None) -> int:
    """Milliseconds since 1970, from any of the ways in which people write a time; BadValue for others.

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


def iso(at_ms: int) -> str | None:
    """For programs: UTC. None for a time that is none, as of a message that was never stored."""
    moment = _moment(at_ms)
    return None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local(at_ms: int) -> str:
    """For people: the time of this machine."""
    moment = _moment(at_ms)
    if moment is None:
        return "-"
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S.") + f"{at_ms % 1000:03d}"


def both(name: str, at_ms: int) -> dict[str, object]:
    """Two keys of a document: `stored_at` and `stored_at_ms`."""
    return {name: iso(at_ms), f"{name}_ms": at_ms}


def span(ms: float) -> str:
    """How long something is: 350 ms, 12 s, 5 min, 3 h, 2 days."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    for unit, size, up_to in (("s", 1e3, 120e3), ("min", 60e3, 7200e3), ("h", 3600e3, 172_800e3)):
        if ms < up_to:
            return f"{ms / size:.0f} {unit}"
    return f"{ms / 86_400e3:.0f} days"


def _moment(at_ms: int) -> datetime | None:
    if at_ms <= 0:
        return None
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)
    except OverflowError:
        return None
