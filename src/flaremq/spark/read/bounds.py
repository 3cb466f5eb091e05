"""Where a read begins or ends, as set by its options: startingOffsets, endingTimestamp and the like."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from flaremq.base.errors import ConfigError, UsageError
from flaremq.model.queuekey import queue_of
from flaremq.spark.options import OptionReader, wrong

EARLIEST: Final = -2
LATEST: Final = -1
_EXAMPLE: Final = '{"Orders@broker-a:0": 1000, "Orders@broker-a:1": -2}'


class BoundKind(Enum):
    """What a bound refers to."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"
    """The committed offsets of a consumer group."""
    TIME = "time"
    OFFSETS = "offsets"


@dataclass(frozen=True, slots=True)
class Bound:
    """One position for all queues, or one for each."""

    kind: BoundKind
    time_ms: int = 0
    offsets: Mapping[str, int] = field(default_factory=dict, hash=False)
    """By queue; -2 is the earliest, -1 the latest. Queues that are not named get the default."""

    def to_dict(self) -> dict[str, object]:
        """As JSON, with the same text for the same bound: Spark compares texts."""
        found: dict[str, object] = {"at": self.kind.value}
        if self.kind is BoundKind.TIME:
            found["ms"] = self.time_ms
        if self.kind is BoundKind.OFFSETS:
            found["q"] = dict(sorted(self.offsets.items()))
        return found

    @classmethod
    def of_dict(cls, found: object) -> Bound:
        """The bound from which `to_dict` made this. UsageError if it did not."""
        try:
            assert isinstance(found, dict)
            return cls(BoundKind(found["at"]), int(found.get("ms", 0)), _offsets(found.get("q", {})))
        except (AssertionError, KeyError, ValueError, TypeError, UsageError):
            raise UsageError(
                f"{json.dumps(found)[:200]} is not a starting position: the checkpoint was written by "
                "another program; use another checkpointLocation"
            ) from None


def bound_of(given: OptionReader, which: str) -> Bound | None:
    """The bound set by `startingOffsets` or `startingTimestamp` (or ending...); None if neither is set."""
    name = given.one_of(f"{which}Offsets", f"{which}Timestamp")
    if name is None:
        return None
    if name.endswith("Timestamp"):
        return Bound(BoundKind.TIME, given.time_ms(name) or 0)
    text = given.text(name) or ""
    if text.startswith("{"):
        return Bound(BoundKind.OFFSETS, offsets=_read(given, name))
    try:
        kind = BoundKind(text.lower())
    except ValueError:
        kind = BoundKind.OFFSETS
    if kind in (BoundKind.TIME, BoundKind.OFFSETS):
        raise wrong(name, text, "earliest, latest, group or JSON by queue", _EXAMPLE)
    if kind is BoundKind.GROUP and not given.has("group"):
        raise ConfigError(f"{name}=group, but group is not set: set it, for example group=reports")
    return Bound(kind)


def _read(given: OptionReader, name: str) -> dict[str, int]:
    found = given.json(name, _EXAMPLE)
    try:
        return dict(_offsets(found))
    except (TypeError, ValueError):
        text = given.text(name)
        raise wrong(
            name, text, "an object of queues and offsets (-2 earliest, -1 latest)", _EXAMPLE
        ) from None
    except UsageError as error:
        raise ConfigError(f"{name}: {error}") from None


def _offsets(found: object) -> Mapping[str, int]:
    if not isinstance(found, dict):
        raise TypeError
    for key, offset in found.items():
        queue_of(str(key))
        if type(offset) is not int or not EARLIEST <= offset < 1 << 63:
            raise ValueError
    return found
