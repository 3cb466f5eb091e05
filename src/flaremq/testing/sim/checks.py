"""What must hold of a history, and of what all queues hold in the end. Each check has a name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from flaremq.testing.sim.history import History, QueueName

Content = Mapping[QueueName, Mapping[int, str]]
"""What a queue holds in the end: offset to value."""
_EARLY_S = 0.002  # Clocks count milliseconds.


class Violated(AssertionError):
    """A check has failed."""

    def __init__(self, check: str, text: str) -> None:
        super().__init__(re.sub(r"\.{3,}", "", f"{check}: {text}"))  # Values are filled up with dots.
        self.check = check


def check_sends(history: History, content: Content, *, lossless: bool) -> None:
    """Every acknowledged send is where its receipt says; nothing is there that was never sent."""
    places: dict[str, list[tuple[QueueName, int]]] = {}
    for queue, values in content.items():
        for offset, value in values.items():
            if value not in history.sends:
                raise Violated("unknown value", f"{value!r} at {queue}:{offset} was never sent")
            places.setdefault(value, []).append((queue, offset))
    for value, op in history.acknowledged.items():
        if op.kind not in ("plain", "once", "fifo"):
            continue
        if lossless and value not in places:
            raise Violated("lost send", f"{value} was acknowledged at {op.ended_s:.3f} s and is gone")
        if lossless and op.queue is not None and (op.queue, op.offset) not in places[value]:
            raise Violated("moved send", f"{value} is not at {op.queue}:{op.offset}, as its receipt says")
    for value, found in places.items():
        if history.sends[value].kind == "once" and len(found) > 1:
            raise Violated("stored twice", f"{value} has a number of its producer, and lies at {found}")


def check_order(history: History) -> None:
    """The acknowledged sends of one client to one queue keep their order."""
    last: dict[tuple[str, QueueName], tuple[int, str]] = {}
    for op in history.acknowledged.values():
        if op.queue is None or op.kind != "fifo":
            continue
        key = op.client, op.queue
        before = last.get(key)
        if before is not None and op.offset <= before[0]:
            raise Violated(
                "send order", f"{op.value} at {op.offset} was sent after {before[1]} at {before[0]}"
            )
        last[key] = op.offset, op.value


def check_pulls(history: History, content: Content, *, lossless: bool) -> None:
    """Each place has one value for all readers; polls neither skip nor go back within an assignment."""
    fresh = {(at, reader, queue) for at, reader, queue in history.seeks}
    last: dict[tuple[str, QueueName], int] = {}
    seen: dict[tuple[QueueName, int], str] = {}
    begun: dict[tuple[str, QueueName], int] = {}
    for at, reader, queue in sorted(fresh):
        begun.setdefault((reader, queue), at)
    for number, read in enumerate(history.pulls):
        key = read.reader, read.queue
        known = seen.setdefault((read.queue, read.offset), read.value)
        if lossless and known != read.value:
            raise Violated("two values", f"{read.queue}:{read.offset} was {known} and then {read.value}")
        before = last.get(key)
        if lossless and before is not None and read.offset != before + 1:
            raise Violated(
                "poll order", f"{read.reader} read {read.queue}:{read.offset} after {before}, read {number}"
            )
        last[key] = read.offset
        final = content.get(read.queue, {}).get(read.offset)
        if lossless and final != read.value:
            raise Violated(
                "unread", f"{read.queue}:{read.offset} was read as {read.value}, and is {final} now"
            )


def check_groups(history: History, dead_letters: Counter[str], *, lossless: bool) -> None:
    """What was acknowledged has been handled by the group, or is a dead letter."""
    done = {read.value for read in history.handled if read.ok}
    for value, op in history.acknowledged.items():
        if lossless and op.kind != "rollback" and value not in done and value not in dead_letters:
            raise Violated("not consumed", f"{value} ({op.kind}) was acknowledged and never handled")


def check_fifo(history: History, content: Content) -> None:
    """In a queue of ordered messages, none is handled before the one in front of it."""
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


def check_transactions(history: History, content: Content) -> None:
    """Committed messages are there once, and those rolled back never."""
    counts = Counter(value for values in content.values() for value in values.values())
    for value, op in history.sends.items():
        if op.kind == "rollback" and counts[value]:
            raise Violated("rolled back", f"{value} was rolled back, and is there {counts[value]} times")
        if op.kind == "commit" and counts[value] > 1:
            raise Violated("committed twice", f"{value} is there {counts[value]} times")


def check_moments(history: History) -> None:
    """No delayed message is handled before its time."""
    for read in history.handled:
        op = history.sends[read.value]
        if read.at_s < op.due_s - _EARLY_S:
            raise Violated("early", f"{read.value} was due at {op.due_s:.3f} s and came at {read.at_s:.3f} s")
