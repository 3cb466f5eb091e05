"""From places to offsets: where a query begins and ends, found out by asking brokers once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from flaremq.base.errors import ConfigError
from flaremq.model.message import MessageQueue
from flaremq.model.queuekey import key_of
from flaremq.spark.read.bounds import EARLIEST, LATEST, Kind, Place
from flaremq.spark.read.offsetreader import Heads
from flaremq.spark.read.offsets import Span

_SYMBOLS: Final = (EARLIEST, LATEST)


class Resolver:
    """For one query."""

    def __init__(self, heads: Heads, queues: Iterable[MessageQueue], group: str | None) -> None:
        self._heads = heads
        self._queues = tuple(queues)
        self._group = group

    async def offsets(self, place: Place, spans: Mapping[str, Span], usual: Kind) -> dict[str, int]:
        """Of each queue. One that the place says nothing about is where it `usual`ly would be."""
        if place.kind is Kind.EARLIEST:
            return {key: span.begin for key, span in spans.items()}
        if place.kind is Kind.LATEST:
            return {key: span.end for key, span in spans.items()}
        if place.kind is Kind.TIME:
            found: Mapping[str, int | None] = await self._heads.at_time(self._asked(spans), place.time_ms)
        elif place.kind is Kind.GROUP:
            assert self._group is not None
            found = await self._heads.committed(self._asked(spans), self._group)
        else:
            return _given(place.offsets, spans, usual)
        return {key: _within(found.get(key), span, usual) for key, span in spans.items()}

    def _asked(self, spans: Mapping[str, Span]) -> list[MessageQueue]:
        return [each for each in self._queues if key_of(each) in spans]


def _usual(span: Span, usual: Kind) -> int:
    return span.begin if usual is Kind.EARLIEST else span.end


def _within(offset: int | None, span: Span, usual: Kind) -> int:
    """A time before all messages, or a group that was left behind, begins where the queue does."""
    return _usual(span, usual) if offset is None or offset < 0 else min(max(offset, span.begin), span.end)


def _given(offsets: Mapping[str, int], spans: Mapping[str, Span], usual: Kind) -> dict[str, int]:
    unknown = sorted(offsets.keys() - spans.keys())
    if unknown:
        raise ConfigError(
            f"offsets are given for {', '.join(unknown[:5])}, which is not read here: "
            f"there are {', '.join(sorted(spans)[:8])}{' ...' if len(spans) > 8 else ''}"
        )
    found: dict[str, int] = {}
    for key, span in spans.items():
        offset = offsets.get(key, EARLIEST if usual is Kind.EARLIEST else LATEST)
        if offset > span.end:
            raise ConfigError(
                f"offset {offset} is given for {key}, which ends at {span.end}: give at most that, "
                "or -1 for the latest"
            )
        found[key] = offset if offset not in _SYMBOLS else span.begin if offset == EARLIEST else span.end
    return found
