"""Changes to the attributes of topics and groups.

A change is `+key` with a value, or `-key`; as text, `+message.type=FIFO,-reserve.time`. Stored attributes
have no signs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flaremq.base.errors import UsageError
from flaremq.model.topic import ATTRIBUTE_CHOICES, CLEANUP_POLICY, QUEUE_TYPE, RESERVE_TIME

_ADD, _REMOVE = "+", "-"
_FIXED: Final = frozenset({QUEUE_TYPE, CLEANUP_POLICY})
"""Fixed when a topic is created, because its queues are of that kind from then on."""


def parse_changes(text: str | None) -> dict[str, str]:
    """The changes in a text. Raises UsageError if it cannot be read."""
    found: dict[str, str] = {}
    for change in (text or "").split(","):
        change = change.strip()
        if not change:
            continue
        key, equals, value = change.partition("=")
        if (key[:1] == _ADD and not equals) or (key[:1] == _REMOVE and equals):
            raise UsageError(f"attribute change {change!r} cannot be read: expected +key=value or -key")
        if key in found:
            raise UsageError(f"attribute {key[1:]!r} is changed twice in {text!r}: expected one change")
        found[key] = value
    return found


def altered(
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
    known: Mapping[str, tuple[str, ...]] = ATTRIBUTE_CHOICES,
) -> dict[str, str]:
    """The attributes after these changes; `current` is None for a topic or group that is being created.

    `known` has the allowed values of each key; a key that is not in it is not allowed.
    """
    found = dict(current or {})
    seen: set[str] = set()
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        _check_change(sign, key, current)
        if key in seen:
            raise UsageError(f"attribute {key!r} is changed twice: expected one change")
        seen.add(key)
        _check_key(key, known, is_new=current is None)
        if sign == _REMOVE:
            del found[key]
            continue
        if value not in known[key]:
            raise UsageError(f"attribute {key} is {value!r}, expected one of {', '.join(known[key])}")
        found[key] = value
    return found


def _check_change(sign: str, key: str, current: Mapping[str, str] | None) -> None:
    if sign not in (_ADD, _REMOVE) or not key or _ADD in key or _REMOVE in key:
        raise UsageError(f"attribute change {sign + key!r} cannot be read: expected +key=value or -key")
    if sign == _REMOVE and current is None:
        raise UsageError(f"attribute {key!r} cannot be removed on creation: expected +key=value")
    if sign == _REMOVE and current is not None and key not in current:
        raise UsageError(f"attribute {key!r} cannot be removed: it is not set")


def _check_key(key: str, known: Mapping[str, tuple[str, ...]], *, is_new: bool) -> None:
    if key == RESERVE_TIME:
        raise UsageError(
            f"attribute {key} needs tiered storage, which this broker does not have: leave it out"
        )
    if key not in known:
        names = ", ".join(known) or "none"
        raise UsageError(f"attribute {key!r} is unknown; known attributes: {names}")
    if key in _FIXED and not is_new:
        raise UsageError(
            f"attribute {key} is fixed when a topic is created: delete the topic and create it again"
        )
