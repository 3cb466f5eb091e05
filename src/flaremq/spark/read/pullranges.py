"""Ranges cut into what one pull can bring, and what an answer means for one of them. No I/O.

Without a filter a broker gives the messages that follow an offset, up to a number that it does not
tell: so the first answer shows the stride, and then many pulls can be under way at a time. With a filter
it is unknown where an answer will end: ranges are larger then, and each asks one pull after the other.
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
"""Messages that are asked for at once: no broker gives more."""
FILTERED_STRIDE: Final = 4096
_USUAL: Final = 32
_FULL_RUN: Final = 256
"""Full answers in a row after which a larger stride is tried."""

_LONG: Final = struct.Struct(">q")


class PulledRecords(NamedTuple):
    """Records of one answer, those of which count that lie in [begin, end)."""

    data: bytes | memoryview
    begin: int
    end: int
    is_whole: bool
    """All of them do: no filtering is needed."""


@dataclass(slots=True, eq=False)
class PullRange:
    of: QueueRange
    at: int
    """The next offset to ask for."""
    end: int
    is_probe: bool = False
    """Its first answer shows how much the broker gives; where that ends, it ends."""
    asked: int = 0
    """How much the last pull asked for; the next two: in whose name, and of the broker with which id."""
    asked_as: str = ""
    asked_of: int = MASTER_ID
    parts: list[PulledRecords] = field(default_factory=list)
    backoff: Backoff | None = None
    """While it fails."""

    @property
    def is_done(self) -> bool:
        return self.at >= self.end

    def take(self, pulled: PullResult) -> None:
        """Records that an answer brought."""
        body, begin = pulled.body, self.at
        if self.is_probe:
            self.end, self.is_probe = min(self.end, pulled.next_offset), False
        if len(body):
            first = _LONG.unpack_from(body, QUEUE_OFFSET_AT)[0]
            whole = first >= begin and pulled.next_offset <= self.end
            self.parts.append(PulledRecords(body, begin, self.end, whole))
        self.moved(pulled.next_offset)

    def skip(self, to: int) -> None:
        """There is nothing before that offset."""
        if to > self.at:
            self.moved(min(to, self.end))
            self.is_probe = False

    def moved(self, to: int) -> None:
        self.at = to
        self.backoff = None


class Strides:
    """How much a broker gives at a time, as its answers show it."""

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
            # A full answer to a small question tells nothing: then it is what brokers usually give.
            self._known[broker] = min(got if got < asked else max(got, _USUAL), COUNT_MAX)
            self._full[broker] = 0
            return
        self._full[broker] += 1
        if self._full[broker] >= _FULL_RUN:
            self._known[broker], self._full[broker] = min(2 * self._known[broker], COUNT_MAX), 0


def cut(ranges: Iterable[QueueRange], strides: Strides, *, filtered: bool) -> Iterator[PullRange]:
    """Pieces of all ranges, in order. Behind a probe, come again when it has been answered."""
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
    TAKEN = "taken"
    """It brought records."""
    PASSED = "passed"
    """Nothing there is wanted: go on behind it."""
    LOST = "lost"
    """Messages are gone."""
    BEHIND = "behind"
    """The broker has less than it had: a copy that has yet to catch up, or what a failover has cost."""
    AGAIN = "again"
    """It says nothing about the messages: ask once more."""


def meaning(pull: PullRange, pulled: PullResult, *, filtered: bool) -> tuple[Meaning, int]:
    """What an answer says, and where to go on."""
    at = pull.at
    if pulled.code == ResponseCode.SUCCESS:
        return (Meaning.TAKEN, pulled.next_offset) if pulled.next_offset > at else (Meaning.AGAIN, at)
    if pulled.min_offset > at:
        return Meaning.LOST, pulled.min_offset
    if pulled.code == ResponseCode.PULL_RETRY_IMMEDIATELY and pulled.next_offset > at:
        # Without a filter this is what a broker says of a log file that was deleted a moment ago.
        return (Meaning.PASSED if filtered else Meaning.LOST), pulled.next_offset
    if at >= pulled.max_offset:
        return Meaning.BEHIND, at
    return Meaning.AGAIN, at


TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""Every broker has it, also those that do not make groups by themselves."""


def pull_header(of: QueueRange, group: str, wanted: Filter) -> PullMessageRequestHeader:
    """A pull that carries its subscription, so that no consumer need be registered, and commits nothing."""
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
