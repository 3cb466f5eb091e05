"""What a test says about messages: sent, consumed, nothing left, given up. They wait until it is so.

    assert_consumed("127.0.0.1:9876", "Orders", 3, "billing")

A count that has gone beyond what was expected fails at once: it never comes back. What fails shows the
offsets of each queue, so that one sees which of them is missing something.
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
from flaremq.model.message import MessageQueue
from flaremq.model.names import dlq_topic, retry_topic

WITHIN_S: Final = 10.0
"""How long an assert waits. Consumers tell how far they are every five seconds unless told otherwise."""
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found at one look."""

    says: str
    """It in words: 'group billing has consumed 2 messages of topic Orders'."""
    rows: Sequence[tuple[str, ...]] = ()
    """A table, its titles first."""
    is_so: bool = False
    is_hopeless: bool = False
    """Waiting cannot make it so."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many it should be."""

    n: int
    at_least: bool

    def __post_init__(self) -> None:
        if self.n < 0:
            raise UsageError(f"{self.n} messages cannot be expected: give 0 or more")

    def __str__(self) -> str:
        return f"expected are {'at least ' if self.at_least else ''}{self.n}"

    def seen(
        self, count: int, says: str, rows: Sequence[tuple[str, ...]] = (), failed: Failed | None = None
    ) -> Seen:
        if failed:  # A count without some of the brokers is none.
            silent = ", ".join(f"{name}: {error}" for name, error in failed.items())
            return Seen(f"{says}, as far as it is known ({silent})", rows)
        if self.at_least:
            return Seen(says, rows, count >= self.n)
        return Seen(says, rows, count == self.n, count > self.n)


class Asserts(ABC):
    """The asserts about what one NameServer knows. Asking goes the way that clients go."""

    def __init__(self) -> None:
        self._admin: Admin | None = None

    @property
    @abstractmethod
    def namesrv(self) -> str:
        """host:port of the NameServer; of several, with semicolons between them."""

    @property
    def admin(self) -> Admin:
        """For whatever else is to be looked at or changed. It is closed at the end of the test."""
        if self._admin is None:
            self._admin = Admin(self.namesrv)
        return self._admin

    def close_admin(self) -> None:
        if self._admin is not None:
            self._admin.stop()
            self._admin = None

    def assert_sent(self, topic: str, n: int, *, at_least: bool = False, within_s: float = WITHIN_S) -> None:
        """The topic has got n messages, those that were deleted meanwhile among them."""
        __tracebackhide__ = True
        admin, wanted = self.admin, Wanted(n, at_least)
        _wait(lambda: _sent(admin, topic, wanted), str(wanted), within_s)

    def assert_consumed(
        self, topic: str, n: int, group: str, *, at_least: bool = False, within_s: float = WITHIN_S
    ) -> None:
        """The group has said that it is done with n messages of the topic, counted from the first ever.

        One that it could not cope with counts too: it goes on in the retry topic or with the dead letters.
        """
        __tracebackhide__ = True
        admin, wanted = self.admin, Wanted(n, at_least)
        _wait(lambda: _consumed(admin, topic, group, wanted), str(wanted), within_s)

    def assert_no_backlog(self, topic: str, group: str, *, within_s: float = WITHIN_S) -> None:
        """The group has consumed all of the topic, and nothing waits to be tried again."""
        __tracebackhide__ = True
        admin = self.admin
        _wait(lambda: _backlog(admin, topic, group), "expected is none", within_s)

    def assert_dead_letters(
        self, group: str, n: int, *, at_least: bool = False, within_s: float = WITHIN_S
    ) -> None:
        """n messages lie with the dead letters of the group. 0 says that none lies there so far."""
        __tracebackhide__ = True
        admin, wanted = self.admin, Wanted(n, at_least)
        _wait(lambda: _dead_letters(admin, group, wanted), str(wanted), within_s)


class _At(Asserts):
    """The asserts at an address, for as long as one of them takes."""

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


def _sent(admin: Admin, topic: str, wanted: Wanted) -> Seen:
    try:
        stats = admin.topics.stats(topic)
    except TopicNotFound:
        return wanted.seen(0, f"topic {topic!r} is not there and has got 0 messages")
    count = sum(each.max_offset for each in stats.queues)
    rows = [("queue", "end"), *((_name(each.queue), str(each.max_offset)) for each in stats.queues)]
    says = f"topic {topic!r} has got {count} messages"
    return wanted.seen(count, says, rows, stats.failed)


def _consumed(admin: Admin, topic: str, group: str, wanted: Wanted) -> Seen:
    try:
        progress = admin.groups.progress(group, topic, owners=False)
    except (TopicNotFound, GroupNotFound) as error:
        return wanted.seen(0, f"group {group!r} has consumed 0 messages of topic {topic!r} ({error})")
    count = sum(max(0, each.consumer_offset) for each in progress.queues)
    says = f"group {group!r} has consumed {count} messages of topic {topic!r}"
    return wanted.seen(count, says, _offsets(progress, topic), progress.failed)


def _backlog(admin: Admin, topic: str, group: str) -> Seen:
    admin.topics.route(topic)  # Of a topic that is not there nothing is left, but that is not what is meant.
    progress = admin.groups.progress(group, owners=False)
    ours = (topic, retry_topic(group))
    known = any(each.queue.topic == topic for each in progress.queues)
    count = sum(each.lag for each in progress.queues if each.queue.topic in ours)
    says = f"group {group!r} has {count} messages of topic {topic!r} and its retries before it"
    if not known:
        says = f"group {group!r} has consumed nothing of topic {topic!r} yet"
    return Seen(says, _offsets(progress, *ours), known and not count and not progress.failed)


def _dead_letters(admin: Admin, group: str, wanted: Wanted) -> Seen:
    try:
        stats = admin.topics.stats(dlq_topic(group))
    except TopicNotFound:
        return wanted.seen(0, f"group {group!r} has no dead letters")
    rows = [("queue", "end"), *((_name(each.queue), str(each.max_offset)) for each in stats.queues)]
    says = f"group {group!r} has {stats.count} dead letters"
    return wanted.seen(stats.count, says, rows, stats.failed)


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
            raise AssertionError(_text(seen, f"{wanted}, after {within_s:g} s"))
        pause.wait(_POLL_S)


def _check_thread() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "an assert that waits would stop the event loop, and with it the clients that it waits for: "
        "write `await asyncio.to_thread(assert_consumed, ...)` in an async test"
    )


def _text(seen: Seen, wanted: str) -> str:
    lines = [f"{seen.says}; {wanted}"]
    if seen.rows:
        widths = [max(len(row[column]) for row in seen.rows) for column in range(len(seen.rows[0]))]
        for name, *numbers in seen.rows:
            cells = [name.ljust(widths[0])]
            cells += [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
            lines.append("  " + "  ".join(cells))
    return "\n".join(lines)
