"""Queue ranges cut into ranges of one pull each, and what an answer means for such a range. No I/O.

Without a filter a broker returns the messages that follow an offset, up to a number that it does not
announce. The first answer shows this stride, and then many pulls can be under way at a time. With a filter
an answer may end anywhere: pull ranges are larger then, and each sends one pull after the other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from flaremq.base.backoff import Backoff
from flaremq.client.api import PullResult
from flaremq.model.layout import QUEUE_OFFSET_AT
from flaremq.protocol.bodies.group import ALL, SQL92, TAG
from flaremq.protocol.bodies.route import MASTER_ID
from flaremq.protocol.codes import ResponseCode
from flaremq.protocol.headers.pull import SUBSCRIPTION, PullMessageRequestHeader
from flaremq.spark.read.options import Filter
from flaremq.spark.read.partitions import QueueRange

COUNT_MAX: Final = 1024
"""Messages to ask for in one pull: no broker returns more."""
FILTERED_STRIDE: Final = 4096
_USUAL: Final = 32
_FULL_RUN: Final = 256
"""Full answers in a row after which a larger stride is tried."""

_LONG: Final = struct.Struct(">q")


class PulledRecords(NamedTuple):
    """Records of one answer. Ignore those outside of [begin, end)."""

    data: bytes | memoryview
    begin: int
    end: int
    is_whole: bool
    """All records lie in [begin, end)."""


@dataclass(slots=True, eq=False)
class PullRange:
    """Part of a queue range, read by one pull or a few in a row."""

    of: QueueRange
    at: int
    """The next offset to ask for."""
    end: int
    is_probe: bool = False
    """Its first answer shows the broker's stride, and the range then ends where that answer ends."""
    asked: int = 0
    """How many messages the last pull asked for; then as which group, and of which broker id."""
    asked_as: str = ""
    asked_of: int = MASTER_ID
    parts: list[PulledRecords] = field(default_factory=list)
    backoff: Backoff | None = None
    """Set while its pulls fail."""

    @property
    def is_done(self) -> bool:
        return self.at >= self.end

    def take(self, pulled: PullResult) -> None:
        """Add the records of an answer."""
        body, begin = pulled.body, self.at
        if self.is_probe:
            self.end, self.is_probe = min(self.end, pulled.next_offset), False
        if len(body):
            first = _LONG.unpack_from(body, QUEUE_OFFSET_AT)[0]
            whole = first >= begin and pulled.next_offset <= self.end
            self.parts.append(PulledRecords(body, begin, self.end, whole))
        self.moved(pulled.next_offset)

    def skip(self, to: int) -> None:
        """Move on to an offset: no message before it is available."""
        if to > self.at:
            self.moved(min(to, self.end))
            self.is_probe = False

    def moved(self, to: int) -> None:
        self.at = to
        self.backoff = None


class Strides:
    """How many offsets one answer of a broker covers, learned from its answers."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._full: dict[str, int] = {}

    def of(self, broker: str) -> int | None:
        return self._known.get(broker)

    def learn(self, broker: str, asked: int, got: int) -> None:
        """An answer covers `got` offsets where `asked` were asked for."""
        if got < 1:
            return
        if got < asked or broker not in self._known:
            # A full answer to a small request shows no limit: assume at least the usual one.
            self._known[broker] = min(got if got < asked else max(got, _USUAL), COUNT_MAX)
            self._full[broker] = 0
            return
        self._full[broker] += 1
        if self._full[broker] >= _FULL_RUN:
            self._known[broker], self._full[broker] = min(2 * self._known[broker], COUNT_MAX), 0


def cut(ranges: Iterable[QueueRange], strides: Strides, *, filtered: bool) -> Iterator[PullRange]:
    """Cut all ranges, in order. After a probe, ask for the next one only when the probe was answered."""
    for each in ranges:
        at = each.begin
        while at < each.end:
            stride = FILTERED_STRIDE if filtered else strides.of(each.broker)
            if stride is None:
                probe = PullRange(each, at, min(each.end, at + COUNT_MAX), is_probe=True)
                yield probe
                assert not probe.is_probe
                at = probe.end
                continue
            pull = PullRange(each, at, min(each.end, at + stride))
            at = pull.end
            yield pull


class Meaning(Enum):
    """What an answer to a pull means."""

    TAKEN = "taken"
    """It brought records."""
    PASSED = "passed"
    """No message matched the filter: continue after them."""
    LOST = "lost"
    """Messages are gone."""
    BEHIND = "behind"
    """The broker has less than it had: a slave that has yet to catch up, or messages lost by a failover."""
    AGAIN = "again"
    """It says nothing about the messages: ask again."""


def meaning(pull: PullRange, pulled: PullResult, *, filtered: bool) -> tuple[Meaning, int]:
    """What an answer means, and the offset to continue at."""
    at = pull.at
    if pulled.code == ResponseCode.SUCCESS:
        return (Meaning.TAKEN, pulled.next_offset) if pulled.next_offset > at else (Meaning.AGAIN, at)
    if pulled.min_offset > at:
        return Meaning.LOST, pulled.min_offset
    if pulled.code == ResponseCode.PULL_RETRY_IMMEDIATELY and pulled.next_offset > at:
        # Without a filter, a broker answers this for a log file that was deleted a moment ago.
        return (Meaning.PASSED if filtered else Meaning.LOST), pulled.next_offset
    if at >= pulled.max_offset:
        return Meaning.BEHIND, at
    return Meaning.AGAIN, at


TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""A group that every broker has, even if it does not create groups automatically."""


def pull_header(of: QueueRange, group: str, wanted: Filter) -> PullMessageRequestHeader:
    """A pull with its own subscription, so that no consumer need be registered. It commits no offset."""
    return PullMessageRequestHeader(
        consumer_group=group,
        topic=of.topic,
        queue_id=of.queue,
        queue_offset=of.begin,
        max_msg_nums=COUNT_MAX,
        sys_flag=SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=wanted.sql or " || ".join(wanted.tags) or ALL,
        sub_version=0,
        expression_type=SQL92 if wanted.sql is not None else TAG,
        bname=of.broker,
    )
