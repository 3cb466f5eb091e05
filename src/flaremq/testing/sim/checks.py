"""What must hold of a history, and of what all queues hold in the end. Each check has a name.

What clients see of queues, after Jepsen's checks of Kafka:

refused send      a send that every broker refused is in no queue, and nobody reads it
two values        a place, by its queue offset or its physical one, has one value for all readers, for the
                  sender's receipt and in the end
unread send       a reader has read all acknowledged sends up to the last message that it read
poll order        within an assignment, polls neither skip nor go back
send order        the acknowledged sends of one client to one queue keep their order
unseen            in the end, each reader has seen all acknowledged sends
committed unread  a committed offset never passes a message that its group has not consumed
offset back       a failover takes a committed offset back by no more than what was committed last

Some promises hold only if no acknowledged send may be lost (`Evidence.is_lossless`): after a power failure
under ASYNC_FLUSH, a place may be used again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from flaremq.testing.sim.history import Content, History, QueueName, ReadOp

_EARLY_S: Final = 0.002  # Clocks count milliseconds.
_PLACED: Final = ("plain", "once", "fifo")
"""Messages that lie where their receipts say."""


class Violated(AssertionError):
    """A check has failed."""

    def __init__(self, check: str, text: str) -> None:
        super().__init__(re.sub(r"\.{3,}", "", f"{check}: {text}"))  # Values are filled up with dots.
        self.check = check


@dataclass(frozen=True)
class Evidence:
    history: History
    content: Content
    """Of all queues, in the end."""
    is_lossless: bool = True
    """Whether no acknowledged send may be lost."""
    has_true_clocks: bool = True
    topics: Mapping[str, Set[str]] = field(default_factory=dict)
    """The topics that each broker knows in the end."""


def examine(evidence: Evidence) -> None:
    """Raise the first check that fails."""
    for check in CHECKS:
        check(evidence)
    if evidence.is_lossless:
        for check in LOSSLESS_CHECKS:
            check(evidence)


# Sends.


def check_values(evidence: Evidence) -> None:
    """Nothing is there, or read, that was never sent."""
    sends = evidence.history.sends
    for queue, values in evidence.content.items():
        for offset, value in values.items():
            if value not in sends:
                raise Violated("unknown value", f"{value!r} at {queue}:{offset} was never sent")
    for read in _reads(evidence.history):
        if read.value not in sends:
            raise Violated("unknown value", f"{read.reader} read {read.value!r}, which was never sent")


def check_refused(evidence: Evidence) -> None:
    sends = evidence.history.sends
    for queue, values in evidence.content.items():
        for offset, value in values.items():
            if sends[value].is_refused:
                raise Violated("refused send", f"{value} was refused, and is at {queue}:{offset}")
    for read in _reads(evidence.history):
        if sends[read.value].is_refused:
            raise Violated("refused send", f"{read.value} was refused, and {read.reader} read it")


def check_places(evidence: Evidence) -> None:
    """Every acknowledged send is where its receipt says."""
    places = _places(evidence.content)
    for value, op in evidence.history.acknowledged.items():
        if op.kind not in _PLACED:
            continue
        if value not in places:
            raise Violated("lost send", f"{value} was acknowledged at {op.ended_s:.3f} s and is gone")
        if op.queue is not None and (op.queue, op.offset) not in places[value]:
            raise Violated("moved send", f"{value} is not at {op.queue}:{op.offset}, as its receipt says")


def check_numbers(evidence: Evidence) -> None:
    """A message with a number of its producer is stored once."""
    for value, found in _places(evidence.content).items():
        if evidence.history.sends[value].kind == "once" and len(found) > 1:
            raise Violated("stored twice", f"{value} has a number of its producer, and lies at {found}")


def check_order(evidence: Evidence) -> None:
    last: dict[tuple[str, QueueName], tuple[int, str]] = {}
    for op in evidence.history.acknowledged.values():
        if op.queue is None:
            continue
        key = op.client, op.queue
        before = last.get(key)
        if before is not None and op.offset <= before[0]:
            raise Violated(
                "send order", f"{op.value} at {op.offset} was sent after {before[1]} at {before[0]}"
            )
        last[key] = op.offset, op.value


# What readers see.


def check_single_values(evidence: Evidence) -> None:
    history = evidence.history
    by_offset: dict[tuple[QueueName, int], str] = {}
    by_place: dict[tuple[str, int], str] = {}
    receipts = (op for op in history.acknowledged.values() if op.queue is not None)
    seen = [
        *((op.value, op.queue, op.offset, op.place, "its receipt") for op in receipts),
        *((read.value, read.queue, read.offset, read.place, read.reader) for read in _reads(history)),
    ]
    for value, queue, offset, place, who in seen:
        assert queue is not None
        known = by_offset.setdefault((queue, offset), value)
        if known != value:
            raise Violated("two values", f"{queue}:{offset} was {known}, and {value} for {who}")
        known = by_place.setdefault((queue[1], place), value) if place >= 0 else value
        if known != value:
            raise Violated("two values", f"byte {place} of {queue[1]} was {known}, and {value} for {who}")


def check_poll_order(evidence: Evidence) -> None:
    last: dict[tuple[str, QueueName], int] = {}
    seeks = evidence.history.seeks
    at = 0
    for number, read in enumerate(evidence.history.pulls):
        while at < len(seeks) and seeks[at][0] <= number:
            last.pop(seeks[at][1:], None)
            at += 1
        key = read.reader, read.queue
        before = last.get(key)
        if before is not None and read.offset != before + 1:
            raise Violated(
                "poll order", f"{read.reader} read {read.queue}:{read.offset} after {before}, read {number}"
            )
        last[key] = read.offset


def check_read_values(evidence: Evidence) -> None:
    """What was read stays."""
    for read in evidence.history.pulls:
        final = evidence.content.get(read.queue, {}).get(read.offset)
        if final != read.value:
            raise Violated(
                "unread", f"{read.queue}:{read.offset} was read as {read.value}, and is {final} now"
            )


def check_unread_sends(evidence: Evidence) -> None:
    """A reader begins at the beginning of its queues."""
    read: dict[tuple[str, QueueName], set[int]] = {}
    for each in evidence.history.pulls:
        read.setdefault((each.reader, each.queue), set()).add(each.offset)
    for (reader, queue), offsets in read.items():
        highest = max(offsets)
        for op in evidence.history.acknowledged.values():
            if op.queue == queue and op.offset <= highest and op.offset not in offsets:
                raise Violated(
                    "unread send", f"{reader} read {queue} up to {highest}, and not {op.value} at {op.offset}"
                )


def check_unseen(evidence: Evidence) -> None:
    unseen = evidence.history.unseen()
    if unseen:
        reader, op = unseen[0]
        raise Violated("unseen", f"{reader} has not seen {op.value} at {op.queue}:{op.offset} in the end")


# Groups.


def check_groups(evidence: Evidence) -> None:
    """What was acknowledged has been handled by the group."""
    for op in evidence.history.unhandled():
        raise Violated("not consumed", f"{op.value} ({op.kind}) was acknowledged and never handled")


def check_fifo(evidence: Evidence) -> None:
    """In a queue of ordered messages, none is handled before the one in front of it."""
    history, content = evidence.history, evidence.content
    done: dict[QueueName, set[int]] = {}
    for read in history.handled:
        if history.sends[read.value].kind != "fifo":
            continue
        handled = done.setdefault(read.queue, set())
        missing = [
            offset for offset in content.get(read.queue, {}) if offset < read.offset and offset not in handled
        ]
        if missing:
            raise Violated(
                "fifo", f"{read.value} at {read.queue}:{read.offset} was handled before {missing[0]}"
            )
        if read.ok:
            handled.add(read.offset)


def check_committed(evidence: Evidence) -> None:
    """A message that failed is consumed too, unless it is an ordered one: it comes again by another queue."""
    history = evidence.history
    readers = {reader for _, reader, _ in history.seeks}
    consumed: dict[tuple[str, QueueName], set[int]] = {}
    pulled = handled = 0
    for each in history.progress:
        for read in history.pulls[pulled : each.pulled]:
            consumed.setdefault((read.reader, read.queue), set()).add(read.offset)
        for read in history.handled[handled : each.handled]:
            if read.ok or history.sends[read.value].kind != "fifo":
                consumed.setdefault(("", read.queue), set()).add(read.offset)
        pulled, handled = each.pulled, each.handled
        done = consumed.get((each.group if each.group in readers else "", each.queue), ())
        for offset, value in evidence.content.get(each.queue, {}).items():
            if offset < each.offset and offset not in done:
                raise Violated(
                    "committed unread",
                    f"{each.group} had committed {each.queue}:{each.offset}, and not consumed {value} at "
                    f"{offset}",
                )


def check_failovers(evidence: Evidence) -> None:
    for each in evidence.history.failovers:
        if each.found < each.kept:
            raise Violated(
                "offset back",
                f"{each.server} goes on at {each.at_s:.3f} s with {each.group} at {each.queue}:{each.found}, "
                f"and {each.kept} had been kept",
            )


# Transactions, moments, topics.


def check_transactions(evidence: Evidence) -> None:
    """Committed messages are there once, and those rolled back never."""
    counts = Counter(value for values in evidence.content.values() for value in values.values())
    for value, op in evidence.history.sends.items():
        if op.kind == "rollback" and counts[value]:
            raise Violated("rolled back", f"{value} was rolled back, and is there {counts[value]} times")
        if op.kind == "commit" and counts[value] > 1:
            raise Violated("committed twice", f"{value} is there {counts[value]} times")


def check_moments(evidence: Evidence) -> None:
    """No delayed message is handled before its time."""
    history = evidence.history
    for read in history.handled if evidence.has_true_clocks else ():
        op = history.sends[read.value]
        if read.at_s < op.due_s - _EARLY_S:
            raise Violated("early", f"{read.value} was due at {op.due_s:.3f} s and came at {read.at_s:.3f} s")


def check_cancelled(evidence: Evidence) -> None:
    """A message whose cancel was acknowledged does not come."""
    history = evidence.history
    for read in history.handled:
        op = history.sends[read.value]
        if op.cancelled_s is not None:
            raise Violated(
                "cancelled",
                f"the cancel of {read.value} was acknowledged at {op.cancelled_s:.3f} s, and it was handled "
                f"at {read.at_s:.3f} s",
            )


def check_topics(evidence: Evidence) -> None:
    """A topic whose creation was acknowledged is there."""
    for name, topic in evidence.history.topics:
        if topic not in evidence.topics.get(name, ()):
            raise Violated("lost topic", f"{topic} was created on {name}, and is gone")


def _reads(history: History) -> list[ReadOp]:
    return [*history.pulls, *history.handled]


def _places(content: Content) -> dict[str, list[tuple[QueueName, int]]]:
    places: dict[str, list[tuple[QueueName, int]]] = {}
    for queue, values in content.items():
        for offset, value in values.items():
            places.setdefault(value, []).append((queue, offset))
    return places


CHECKS: Final[tuple[Callable[[Evidence], None], ...]] = (
    *(check_topics, check_values, check_refused, check_numbers, check_transactions, check_moments),
)
"""Of every history."""
LOSSLESS_CHECKS: Final[tuple[Callable[[Evidence], None], ...]] = (
    *(check_places, check_order, check_fifo, check_single_values, check_poll_order, check_read_values),
    *(check_unread_sends, check_committed, check_failovers, check_cancelled, check_groups, check_unseen),
)
