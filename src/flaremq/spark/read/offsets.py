"""Offsets of a stream: their JSON form, and decisions about them. No I/O.

    {"v": 1, "q": {"Orders@broker-a:0": 1200, ...}}   the next offset of each queue
    {"v": 1, "start": {"at": "latest"}}               before batch 0: the option, not yet resolved

Spark compares offsets as texts, so queues are always in the same order. Spark does not keep the start of
batch 0: therefore that batch reads nothing, and its end is where the query begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from flaremq.base.errors import UsageError
from flaremq.model.queuekey import queue_of
from flaremq.spark.read.bounds import Bound

VERSION: Final = 1
_ELSEWHERE: Final = "use another checkpointLocation"


def dump(offsets: Mapping[str, int]) -> dict[str, Any]:
    """The form that Spark keeps."""
    return {"v": VERSION, "q": {key: offsets[key] for key in sorted(offsets)}}


def dump_start(place: Bound) -> dict[str, Any]:
    return {"v": VERSION, "start": place.to_dict()}


def load(offset: object) -> dict[str, int] | Bound:
    """The offset in a checkpoint. UsageError if it is not ours, or of another version."""
    if not isinstance(offset, dict) or "v" not in offset:
        raise UsageError(
            f"the checkpoint holds {json.dumps(offset)[:200]}, which is not an offset of this source: "
            f"{_ELSEWHERE}"
        )
    if offset["v"] != VERSION:
        raise UsageError(
            f"the checkpoint holds offsets of version {offset['v']!r}, expected version {VERSION}: "
            f"use the release that wrote it, or {_ELSEWHERE}"
        )
    if "start" in offset:
        return Bound.of_dict(offset["start"])
    queues = offset.get("q")
    if not isinstance(queues, dict) or not all(type(each) is int for each in queues.values()):
        raise UsageError(f"the checkpoint holds {json.dumps(offset)[:200]}, expected queues: {_ELSEWHERE}")
    for key in queues:
        queue_of(key)
    return queues


def fair_share(backlog: Mapping[str, int], limit: int) -> dict[str, int]:
    """How much of each queue's backlog a batch takes, up to `limit` in total.

    In proportion to the backlogs, but at least one message of each queue that has any. With more such queues
    than the limit each takes one: that exceeds the limit, but no queue is left behind.
    """
    waiting = {key: backlog[key] for key in sorted(backlog) if backlog[key] > 0}
    total = sum(waiting.values())
    if total <= limit:
        return waiting
    spare = limit - len(waiting)
    if spare <= 0:
        return dict.fromkeys(waiting, 1)
    beyond = total - len(waiting)  # Above 0, as the limit is below the total and above the count.
    shares = {key: 1 + (each - 1) * spare // beyond for key, each in waiting.items()}
    left = limit - sum(shares.values())
    by_remainder = sorted(waiting, key=lambda key: (-((waiting[key] - 1) * spare % beyond), key))
    for key in by_remainder[:left]:
        shares[key] += 1
    return shares


def fair_bytes(backlog: Mapping[str, int], sizes: Mapping[str, float], limit: int) -> dict[str, int]:
    """The same for a limit in bytes, with the approximate size of a message of each queue."""
    in_bytes = {
        key: max(1, round(count * sizes.get(key, 1.0))) for key, count in backlog.items() if count > 0
    }
    shares = fair_share(in_bytes, limit)
    return {
        key: min(backlog[key], max(1, int(share / max(1.0, sizes.get(key, 1.0)))))
        if share < in_bytes[key]
        else backlog[key]
        for key, share in shares.items()
    }


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """Offsets [begin, end) that a broker has of a queue."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages that were to be read and are gone: [begin, end) of a queue."""

    key: str
    begin: int
    end: int

    def __str__(self) -> str:
        return f"{self.key} [{self.begin}, {self.end})"


def gaps(known: Mapping[str, int], spans: Mapping[str, OffsetSpan]) -> list[Gap]:
    """Messages that were deleted before they were read."""
    return [
        Gap(key, offset, spans[key].begin)
        for key, offset in sorted(known.items())
        if key in spans and offset < spans[key].begin
    ]


def backlog(known: Mapping[str, int], spans: Mapping[str, OffsetSpan]) -> dict[str, int]:
    """How many messages of each known queue can be read now; 0 if its end has moved back."""
    return {
        key: max(0, spans[key].end - max(offset, spans[key].begin))
        for key, offset in known.items()
        if key in spans
    }


def advanced(
    known: Mapping[str, int], spans: Mapping[str, OffsetSpan], taken: Mapping[str, int]
) -> dict[str, int]:
    """The stream's offsets after a batch has taken that many messages of each queue.

    A new queue starts at its first offset and is read from the next batch on, so a batch that is run again
    never has to ask where it began. A queue that has vanished keeps its offset, as it may come back.
    """
    found = dict(known)
    for key, span in spans.items():
        if key not in known:
            found[key] = span.begin
        elif taken.get(key, 0) > 0:
            found[key] = max(known[key], span.begin) + taken[key]
    return found


def check_same_query(known: Iterable[str], takes: Iterable[bool], selection: str) -> None:
    """UsageError if no queue of a checkpoint is to be read: it is another query's."""
    keys = list(known)
    if keys and not any(takes):
        raise UsageError(
            f"the checkpoint is of {', '.join(sorted(keys)[:3])}{' ...' if len(keys) > 3 else ''}, but "
            f"{selection} should be read: it belongs to another query; {_ELSEWHERE}"
        )
