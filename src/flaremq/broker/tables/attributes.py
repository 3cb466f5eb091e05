"""Attributes of topics and groups, which are changed by saying what is to be added and what removed.

A change is `+key` with a value or `-key`; as text, `+message.type=FIFO,-reserve.time`. What is kept
has no signs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flaremq.base.errors import UsageError
from flaremq.model.topic import ATTRIBUTE_CHOICES, CLEANUP_POLICY, QUEUE_TYPE, RESERVE_TIME

_ADD, _REMOVE = "+", "-"
_FIXED: Final = frozenset({QUEUE_TYPE, CLEANUP_POLICY})
"""Chosen when a topic is made: its queues are of that kind from then on."""


def parse_changes(text: str | None) -> dict[str, str]:
    """The changes that a text asks for; UsageError if it cannot be read."""
    found: dict[str, str] = {}
    for piece in (text or "").split(","):
        piece = piece.strip()
        if not piece:
            continue
        key, equals, value = piece.partition("=")
        if (key[:1] == _ADD and not equals) or (key[:1] == _REMOVE and equals):
            raise UsageError(f"attribute change {piece!r} cannot be read: say +key=value or -key")
        if key in found:
            raise UsageError(f"attribute {key[1:]!r} is changed twice in {text!r}: say it once")
        found[key] = value
    return found


def altered(
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
    known: Mapping[str, tuple[str, ...]] = ATTRIBUTE_CHOICES,
) -> dict[str, str]:
    """The attributes after these changes; `current` None while the thing itself is being made.

    `known` has the values that a key may have; one that is not in it may not be used at all.
    """
    found = dict(current or {})
    seen: set[str] = set()
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        _check_change(sign, key, current)
        if key in seen:
            raise UsageError(f"attribute {key!r} is changed twice: say it once")
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
        raise UsageError(f"attribute change {sign + key!r} cannot be read: say +key=value or -key")
    if sign == _REMOVE and current is None:
        raise UsageError(f"attribute {key!r} cannot be removed from what is only being made: say +key=value")
    if sign == _REMOVE and current is not None and key not in current:
        raise UsageError(f"attribute {key!r} cannot be removed: it is not set")


def _check_key(key: str, known: Mapping[str, tuple[str, ...]], *, is_new: bool) -> None:
    if key == RESERVE_TIME:
        raise UsageError(f"attribute {key} needs tiered storage, which is not here: leave it out")
    if key not in known:
        names = ", ".join(known) or "none"
        raise UsageError(f"attribute {key!r} is not known; what is: {names}")
    if key in _FIXED and not is_new:
        raise UsageError(f"attribute {key} is fixed when a topic is made: delete the topic and make it anew")
