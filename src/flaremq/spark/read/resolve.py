"""Bounds resolved to offsets: where a query begins and ends, by asking brokers once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from flaremq.base.errors import ConfigError
from flaremq.model.message import MessageQueue
from flaremq.model.queuekey import key_of
from flaremq.spark.read.bounds import EARLIEST, LATEST, Bound, BoundKind
from flaremq.spark.read.offsetreader import OffsetReader
from flaremq.spark.read.offsets import OffsetSpan

_SYMBOLS: Final = (EARLIEST, LATEST)


class Resolver:
    """Resolves the bounds of one query."""

    def __init__(self, reader: OffsetReader, queues: Iterable[MessageQueue], group: str | None) -> None:
        self._reader = reader
        self._queues = tuple(queues)
        self._group = group

    async def offsets(
        self, place: Bound, spans: Mapping[str, OffsetSpan], usual: BoundKind
    ) -> dict[str, int]:
        """The offset of each queue. A queue to which the bound does not apply gets the `usual` one."""
        if place.kind is BoundKind.EARLIEST:
            return {key: span.begin for key, span in spans.items()}
        if place.kind is BoundKind.LATEST:
            return {key: span.end for key, span in spans.items()}
        if place.kind is BoundKind.TIME:
            found: Mapping[str, int | None] = await self._reader.at_time(self._asked(spans), place.time_ms)
        elif place.kind is BoundKind.GROUP:
            assert self._group is not None
            found = await self._reader.committed(self._asked(spans), self._group)
        else:
            return _given(place.offsets, spans, usual)
        return {key: _within(found.get(key), span, usual) for key, span in spans.items()}

    def _asked(self, spans: Mapping[str, OffsetSpan]) -> list[MessageQueue]:
        return [each for each in self._queues if key_of(each) in spans]


def _usual(span: OffsetSpan, usual: BoundKind) -> int:
    return span.begin if usual is BoundKind.EARLIEST else span.end


def _within(offset: int | None, span: OffsetSpan, usual: BoundKind) -> int:
    """An offset before the first message, of an early time or a late group, becomes the first."""
    return _usual(span, usual) if offset is None or offset < 0 else min(max(offset, span.begin), span.end)


def _given(offsets: Mapping[str, int], spans: Mapping[str, OffsetSpan], usual: BoundKind) -> dict[str, int]:
    unknown = sorted(offsets.keys() - spans.keys())
    if unknown:
        raise ConfigError(
            f"offsets are given for {', '.join(unknown[:5])}, which is not read: "
            f"expected {', '.join(sorted(spans)[:8])}{' ...' if len(spans) > 8 else ''}"
        )
    found: dict[str, int] = {}
    for key, span in spans.items():
        offset = offsets.get(key, EARLIEST if usual is BoundKind.EARLIEST else LATEST)
        if offset > span.end:
            raise ConfigError(
                f"offset {offset} is given for {key}, which ends at {span.end}: expected at most that, "
                "or -1 for the latest"
            )
        found[key] = offset if offset not in _SYMBOLS else span.begin if offset == EARLIEST else span.end
    return found
