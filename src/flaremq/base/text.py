"""Sizes, spans, counts and times as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def count(number: int, what: str, many: str = "") -> str:
    """`1 message`, `2,000 messages`, `2 entries` if the plural is given."""
    return f"{number:,} {what if number == 1 else many or f'{what}s'}"


def size(number: float) -> str:
    """A size in bytes as text: 17 B, 4.0 KiB, 512 MiB."""
    shown, unit = float(number), 0
    while shown >= 1024 and unit < len(_SIZES) - 1:
        shown, unit = shown / 1024, unit + 1
    return f"{shown:.0f} {_SIZES[unit]}" if unit == 0 or shown >= 100 else f"{shown:.1f} {_SIZES[unit]}"


def span(ms: float) -> str:
    """A span of time as text: 350 ms, 12.0 s, 5.0 m, 3.0 h, 2.0 d."""
    if ms < 10_000:
        return f"{ms:,.0f} ms"
    seconds = ms / 1000
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.1f} s"


def short_span(ms: int) -> str:
    """An exact span as people write it: 500ms, 90s, 5m, 2h, 3d."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if ms and ms % length == 0:
            return f"{ms // length}{unit}"
    return f"{ms}ms" if ms else "0s"


def iso(at_ms: int) -> str | None:
    """A time in ISO format, in UTC; None for 0 and less, which mean never."""
    at = moment(at_ms)
    return None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def both(name: str, at_ms: int) -> dict[str, object]:
    """Two keys of a JSON document: `stored_at` and `stored_at_ms`."""
    return {name: iso(at_ms), f"{name}_ms": at_ms}


def moment(at_ms: int) -> datetime | None:
    """Milliseconds since 1970 as a datetime in UTC, if there is one."""
    if at_ms <= 0:
        return None
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)
    except OverflowError:
        return None
