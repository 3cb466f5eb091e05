"""Assertions about messages: sent, consumed, none left, dead letters. Each waits until it holds.

    assert_consumed("127.0.0.1:9876", "Orders", 3, "billing")

A count above the expected one fails at once, because counts never shrink. A failure shows the offsets of
each queue, so you see which one lacks messages.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from flaremq.admin.sync import Admin
from flaremq.admin.values.groups import GroupProgress
from flaremq.admin.values.outcome import Failed
from flaremq.base.errors import (
    FlareError,
    GroupNotFound,
    InvalidName,
    InvalidParameter,
    TopicNotFound,
    UsageError,
)
from flaremq.base.text import count
from flaremq.model.message import MessageQueue
from flaremq.model.names import dlq_topic, retry_topic

WITHIN_S: Final = 10.0
"""How long an assertion waits. By default consumers commit their offsets every five seconds."""
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Seen:
    """The state at one moment."""

    says: str
    """Words that continue the expectation: 'it consumed 2'."""
    rows: Sequence[tuple[str, ...]] = ()
    """A table, with its titles first."""
    is_so: bool = False
    is_hopeless: bool = False
    """Waiting longer cannot help."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """A number of messages, and what should happen to them."""

    what: str
    """With {count} in place of the number: 'group 'billing' to consume {count} of 'Orders''."""
    n: int
    at_least: bool = False
    unit: str = "message"

    def __post_init__(self) -> None:
        if self.n < 0:
            raise UsageError(f"n={self.n}: expected a number of messages, 0 or more")

    def __str__(self) -> str:
        number = f"{'at least ' if self.at_least else ''}{count(self.n, self.unit)}"
        return "expected " + self.what.replace("{count}", number)

    def seen(
        self, number: int, says: str, rows: Sequence[tuple[str, ...]] = (), failed: Failed | None = None
    ) -> Seen:
        if failed:  # A count without some of the brokers proves nothing.
            silent = ", ".join(f"{name}: {error}" for name, error in failed.items())
            return Seen(f"{says}, not counting brokers that did not answer ({silent})", rows)
        if self.at_least:
            return Seen(says, rows, number >= self.n)
        return Seen(says, rows, number == self.n, number > self.n)


class Asserts(ABC):
    """Assertions about the cluster of one NameServer, asked as clients ask."""

    def __init__(self) -> None:
        self._admin: Admin | None = None

    @property
    @abstractmethod
    def namesrv(self) -> str:
        """host:port of the NameServer, or several separated by semicolons."""

    @property
    def admin(self) -> Admin:
        """For anything else you want to inspect or change. Closed at the end of the test."""
        if self._admin is None:
            self._admin = Admin(self.namesrv)
        return self._admin

    def close_admin(self) -> None:
        if self._admin is not None:
            self._admin.stop()
            self._admin = None

    def assert_sent(self, topic: str, n: int, *, at_least: bool = False, within_s: float = WITHIN_S) -> None:
        """The topic received n messages, including any deleted since."""
        __tracebackhide__ = True
        admin, wanted = self.admin, Expectation(f"topic {topic!r} to receive {{count}}", n, at_least)
        _wait(lambda: _sent(admin, topic, wanted), str(wanted), within_s)

    def assert_consumed(
        self, topic: str, n: int, group: str, *, at_least: bool = False, within_s: float = WITHIN_S
    ) -> None:
        """The group committed n messages of the topic, counted from the very first.

        A message that failed counts too: it continues in the retry topic or as a dead letter.
        """
        __tracebackhide__ = True
        what = f"group {group!r} to consume {{count}} of {topic!r}"
        admin, wanted = self.admin, Expectation(what, n, at_least)
        _wait(lambda: _consumed(admin, topic, group, wanted), str(wanted), within_s)

    def assert_no_backlog(self, topic: str, group: str, *, within_s: float = WITHIN_S) -> None:
        """The group has consumed the whole topic, and no message waits for a retry."""
        __tracebackhide__ = True
        admin, wanted = self.admin, f"expected group {group!r} to have no backlog of {topic!r}"
        _wait(lambda: _backlog(admin, topic, group), wanted, within_s)

    def assert_dead_letters(
        self, group: str, n: int, *, at_least: bool = False, within_s: float = WITHIN_S
    ) -> None:
        """The group has n dead letters; with 0, none so far."""
        __tracebackhide__ = True
        what = f"group {group!r} to have {{count}}"
        admin, wanted = self.admin, Expectation(what, n, at_least, "dead letter")
        _wait(lambda: _dead_letters(admin, group, wanted), str(wanted), within_s)


class _At(Asserts):
    """Assertions about the servers at an address, for a single use."""

    def __init__(self, namesrv: str) -> None:
        super().__init__()
        self._namesrv = namesrv

    @property
    def namesrv(self) -> str:
        return self._namesrv

    def __enter__(self) -> Asserts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_admin()


def assert_sent(
    namesrv: str, topic: str, n: int, *, at_least: bool = False, within_s: float = WITHIN_S
) -> None:
    """See Asserts.assert_sent."""
    __tracebackhide__ = True
    with _At(namesrv) as at:
        at.assert_sent(topic, n, at_least=at_least, within_s=within_s)


def assert_consumed(
    namesrv: str, topic: str, n: int, group: str, *, at_least: bool = False, within_s: float = WITHIN_S
) -> None:
    """See Asserts.assert_consumed."""
    __tracebackhide__ = True
    with _At(namesrv) as at:
        at.assert_consumed(topic, n, group, at_least=at_least, within_s=within_s)


def assert_no_backlog(namesrv: str, topic: str, group: str, *, within_s: float = WITHIN_S) -> None:
    """See Asserts.assert_no_backlog."""
    __tracebackhide__ = True
    with _At(namesrv) as at:
        at.assert_no_backlog(topic, group, within_s=within_s)


def assert_dead_letters(
    namesrv: str, group: str, n: int, *, at_least: bool = False, within_s: float = WITHIN_S
) -> None:
    """See Asserts.assert_dead_letters."""
    __tracebackhide__ = True
    with _At(namesrv) as at:
        at.assert_dead_letters(group, n, at_least=at_least, within_s=within_s)


# Looking.


def _sent(admin: Admin, topic: str, wanted: Expectation) -> Seen:
    try:
        stats = admin.topics.stats(topic)
    except TopicNotFound:
        return wanted.seen(0, "the topic does not exist")
    received = sum(each.max_offset for each in stats.queues)
    rows = [("queue", "end"), *((_name(each.queue), str(each.max_offset)) for each in stats.queues)]
    return wanted.seen(received, f"it received {received:,}", rows, stats.failed)


def _consumed(admin: Admin, topic: str, group: str, wanted: Expectation) -> Seen:
    try:
        progress = admin.groups.progress(group, topic, owners=False)
    except (TopicNotFound, GroupNotFound) as error:
        return wanted.seen(0, f"it consumed none ({error})")
    consumed = sum(max(0, each.consumer_offset) for each in progress.queues)
    return wanted.seen(consumed, f"it consumed {consumed:,}", _offsets(progress, topic), progress.failed)


def _backlog(admin: Admin, topic: str, group: str) -> Seen:
    admin.topics.route(topic)  # Raises for an unknown topic, which has no backlog either.
    ours = (topic, retry_topic(group))
    progress = admin.groups.progress(group, owners=False)
    known = any(each.queue.topic == topic for each in progress.queues)
    left = sum(each.lag for each in progress.queues if each.queue.topic in ours)
    rows = _offsets(progress, *ours)
    if not known or left or progress.failed:
        says = f"{count(left, 'message')} left, retries included" if known else "it has not consumed any yet"
        return Seen(says, rows)
    delayed = admin.messages.waiting(retry_topic(group))
    if delayed or delayed.failed:
        return Seen(f"{count(len(delayed), 'retry', 'retries')} still delayed", rows)
    # A retry that was delivered between the two looks is in neither of them, but in the retry topic now.
    again = _offsets(admin.groups.progress(group, owners=False), *ours)
    return Seen("a retry has just been delivered", again, again == rows)


def _dead_letters(admin: Admin, group: str, wanted: Expectation) -> Seen:
    try:
        stats = admin.topics.stats(dlq_topic(group))
    except TopicNotFound:
        return wanted.seen(0, "it has none")
    rows = [("queue", "end"), *((_name(each.queue), str(each.max_offset)) for each in stats.queues)]
    return wanted.seen(stats.count, f"it has {stats.count:,}", rows, stats.failed)


def _offsets(progress: GroupProgress, *topics: str) -> list[tuple[str, ...]]:
    rows = [
        (_name(each.queue), str(each.consumer_offset), str(each.broker_offset))
        for each in progress.queues
        if each.queue.topic in topics
    ]
    return [("queue", "committed", "end"), *rows] if rows else []


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.broker_name}:{queue.queue_id}"


# Waiting.


def _wait(look: Callable[[], Seen], wanted: str, within_s: float) -> None:
    __tracebackhide__ = True
    _check_thread()
    pause, deadline_s = threading.Event(), time.monotonic() + within_s
    while True:
        try:
            seen = look()
        except (InvalidName, InvalidParameter):
            raise
        except FlareError as error:  # A group or a server that is not there yet.
            seen = Seen(f"{error}")
        if seen.is_so:
            return
        if seen.is_hopeless:
            raise AssertionError(_text(seen, wanted))
        if time.monotonic() >= deadline_s:
            raise AssertionError(_text(seen, f"{wanted} within {within_s:g} s"))
        pause.wait(_POLL_S)


def _check_thread() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "an assertion that waits would block the event loop and the clients it waits for: "
        "in an async test, use `await asyncio.to_thread(assert_consumed, ...)`"
    )


def _text(seen: Seen, wanted: str) -> str:
    lines = [f"{wanted}; {seen.says}"]
    if seen.rows:
        widths = [max(len(row[column]) for row in seen.rows) for column in range(len(seen.rows[0]))]
        for name, *numbers in seen.rows:
            cells = [name.ljust(widths[0])]
            cells += [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
            lines.append("  " + "  ".join(cells))
    return "\n".join(lines)
