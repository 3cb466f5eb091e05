"""Texts of servers parsed into values: settings as Java's properties, versions by name, figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from flaremq.base.errors import InvalidParameter
from flaremq.base.propertiesfile import parse_properties, properties_line
from flaremq.model.properties import decode_text

_FIRST: Final = 212  # V4_0_0_SNAPSHOT: from here on each release has two numbers, its snapshot and itself.
_HIGHER: Final = 612
_SIZE: Final = re.compile(r"([0-9.]+) ?([KMGTPE]?)i?B")
_LONG_MAX: Final = (1 << 63) - 1


def version_name(version: int) -> str:
    """The name of a version number on the wire, such as `V5_3_3`."""
    if version >= _HIGHER:
        return "HIGHER_VERSION"
    if version < _FIRST:
        return f"V3 ({version})"  # Before Apache: these numbers follow no rule.
    step = (version - _FIRST) // 2
    end = "" if version % 2 else "_SNAPSHOT"
    return f"V{4 + step // 100}_{step // 10 % 10}_{step % 10}{end}"


def settings_of_text(body: bytes | memoryview | None) -> dict[str, str]:
    """The settings in a server's answer."""
    return parse_properties(decode_text(bytes(body or b"")))


def settings_to_text(changes: Mapping[str, str]) -> bytes:
    """Settings as Java reads them: plain ASCII, everything else escaped."""
    if not changes:
        raise InvalidParameter(
            "no settings given: expected at least one, for example {'fileReservedTime': '48'}"
        )
    for name in changes:
        if not name.strip():
            raise InvalidParameter(f"setting {name!r}: expected a RocketMQ option name")
    return "".join(properties_line(name, value) for name, value in changes.items()).encode("ascii")


def whole(text: str | None) -> int | None:
    """A whole number, if it is one."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def first_number(text: str | None) -> float | None:
    """The first of several numbers separated by blanks, if it is one."""
    try:
        return float(text.split()[0]) if text and text.strip() else None
    except ValueError:
        return None


def bytes_of(text: str | None) -> int | None:
    """A size as brokers write it for people: `1.5 MiB`."""
    match = _SIZE.fullmatch((text or "").strip())
    return None if match is None else round(float(match[1]) * 1024 ** " KMGTPE".index(match[2] or " "))


def time_or_none(timestamp_ms: int) -> int | None:
    """None for 0, negative numbers and the largest number, by which servers mean that there is no time."""
    return timestamp_ms if 0 < timestamp_ms < _LONG_MAX else None
