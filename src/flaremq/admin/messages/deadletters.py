"""Dead letters: found, counted, sent again, and put away.

    %DLQ%group  >  what its consumers gave up      never changes: a log deletes whole files, not messages
    marks       >  which of them are dealt with    one message for many of them, in the same log

A dead letter that was sent again or purged is marked, and from then on it is not found any more. A mark names
letters by their place in the log of their broker, and lies in that log behind them, so it is never deleted
before them. Copies are stored before their mark: a crash in between repeats up to MARKED_AT_ONCE of them, and
loses none.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from typing import Final

from flaremq.admin.messages import scans
from flaremq.admin.messages.resend import Resender, send_to
from flaremq.admin.servers import ServerAddress, ServerCalls
from flaremq.admin.topics import Topics
from flaremq.admin.values.deadletters import DeadLetter, LetterFilter, LetterSummary, ResendOutcome, kind_of
from flaremq.admin.values.messages import Scan
from flaremq.admin.values.outcome import Answers
from flaremq.admin.values.topics import TopicKind, TopicSettings
from flaremq.base.errors import FlareError, Incomplete, InvalidParameter, NoRoute, TopicNotFound
from flaremq.model.message import MessageQueue
from flaremq.model.names import DLQ_MARKS_TOPIC, DLQ_PREFIX, check_group, check_topic, dlq_topic, is_dlq
from flaremq.protocol.bodies.route import MASTER_ID

MARKED_AT_ONCE: Final = 32
"""How many dead letters are sent again before they are marked."""
_PURGED_AT_ONCE: Final = 1000
_FAILURES_MAX: Final = 20
_ALL: Final = 1 << 62


class DeadLetterQueues:
    """Works with RocketMQ's brokers too. Messages without a reason come from consumers that give none."""

    def __init__(self, servers: ServerCalls) -> None:
        self._servers = servers
        self._topics = Topics(servers)

    async def list(self, chosen: LetterFilter | None = None) -> Answers[LetterSummary]:
        """The groups that have such dead letters, with their number, age and reasons."""
        chosen = chosen or LetterFilter()
        found: list[LetterSummary] = []
        failed: dict[str, FlareError] = {}
        marks = _Marks(self._servers, self._topics)
        for group in await self._groups(chosen):
            times: list[int] = []
            reasons: Counter[str | None] = Counter()
            try:
                async for letter in self._scan(chosen, group, marks):
                    times.append(letter.message.stored_ms)
                    failure = letter.failure
                    reasons[None if failure is None else kind_of(failure.reason)] += 1
            except TopicNotFound:
                continue  # It has none, or they were deleted meanwhile.
            except Incomplete as error:
                failed.update({f"{group} at {name}": each for name, each in error.failed.items()})
            except FlareError as error:
                failed[group] = error
            if times:
                most = dict(reasons.most_common())
                found.append(LetterSummary(group, len(times), min(times), max(times), most))
        return Answers(tuple(found), failed)

    async def scan(self, chosen: LetterFilter) -> AsyncGenerator[DeadLetter, None]:
        """Such dead letters, group by group and oldest first. None that comes after the start.

        If a broker fails, those of the others are read, and then Incomplete is raised.
        """
        marks = _Marks(self._servers, self._topics)
        for group in await self._groups(chosen):
            try:
                async for letter in self._scan(chosen, group, marks):
                    yield letter
            except TopicNotFound:
                continue

    async def resend(
        self, chosen: LetterFilter, *, to: str | None = None, to_group: bool = False
    ) -> ResendOutcome:
        """Send them again: to the topics that they came from, to this topic, or to their group alone.

        A copy keeps id, keys, tags, properties and born time, and has all its attempts again. What was sent
        is marked and not sent a second time, unless this is interrupted: then up to MARKED_AT_ONCE may be.
        """
        if to is not None:
            check_topic(to)
            if to_group:
                raise InvalidParameter(f"both to={to!r} and to_group: expected only one of them")
            if is_dlq(to):
                raise InvalidParameter(f"topic {to!r} holds dead letters: expected another topic")
        marks, resender = _Marks(self._servers, self._topics), Resender(self._servers)
        sent, failed = 0, dict[str, FlareError]()
        try:
            async for letter in self.scan(chosen):
                await marks.prepare(letter)
                try:
                    await resender.send(letter, to, to_group=to_group)
                except FlareError as error:
                    failed[letter.message.message_id] = error
                    if len(failed) >= _FAILURES_MAX:
                        return ResendOutcome(sent, failed, True)
                    continue
                sent += 1
                await marks.add(letter, "resent", MARKED_AT_ONCE)
        finally:
            await marks.write("resent")
        return ResendOutcome(sent, failed)

    async def purge(self, chosen: LetterFilter) -> int:
        """Mark them, so that they are not found any more. Returns how many.

        They stay readable in their topic until the broker deletes its old files.
        """
        marks, count = _Marks(self._servers, self._topics), 0
        try:
            async for letter in self.scan(chosen):
                await marks.prepare(letter)
                await marks.add(letter, "purged", _PURGED_AT_ONCE)
                count += 1
        finally:
            await marks.write("purged")
        return count

    async def _groups(self, chosen: LetterFilter) -> Iterable[str]:
        if chosen.group is not None:
            check_group(chosen.group)
            return (chosen.group,)
        topics = await self._topics.list()
        return [each.name.removeprefix(DLQ_PREFIX) for each in topics if each.kind is TopicKind.DLQ]

    async def _scan(
        self, chosen: LetterFilter, group: str, marks: _Marks
    ) -> AsyncGenerator[DeadLetter, None]:
        left = chosen.limit
        wanted = Scan(topic=dlq_topic(group), within=chosen.within, count_max=_ALL)
        async for message in scans.scan(self._servers, wanted):
            letter = DeadLetter(group, message)
            if not chosen.matches(letter) or await marks.has(letter):
                continue
            yield letter
            if left is not None:
                left -= 1
                if not left:
                    return


class _Marks:
    """The marks of all brokers, as far as they are needed."""

    def __init__(self, servers: ServerCalls, topics: Topics) -> None:
        self._servers = servers
        self._topics = topics
        self._known: dict[str, set[int]] = {}
        self._writable: dict[str, ServerAddress] = {}
        self._added: dict[str, list[int]] = {}

    async def has(self, letter: DeadLetter) -> bool:
        broker = letter.message.broker
        if broker not in self._known:
            self._known[broker] = await self._read(broker)
        return letter.message.stored.physical_offset in self._known[broker]

    async def _read(self, broker: str) -> set[int]:
        having = await self._servers.of_topic_or_none(DLQ_MARKS_TOPIC) or ()
        server = next((each for each in having if each.name == broker), None)
        if server is None:
            return set()
        queue, api = MessageQueue(DLQ_MARKS_TOPIC, broker, 0), self._servers.api
        begin = max(0, await api.min_offset(server.address, queue))
        end = await api.max_offset(server.address, queue)
        found: set[int] = set()
        async for message in scans.between(self._servers, server, queue, begin, end):
            found.update(_offsets_in(message.body))
        return found

    async def prepare(self, letter: DeadLetter) -> None:
        """Make sure that this letter can be marked. Raises if not, before anything is done with it."""
        broker = letter.message.broker
        if broker in self._writable:
            return
        server = await self._servers.one(broker)
        if server.id != MASTER_ID:
            raise NoRoute(
                f"broker {broker!r} has no master now, to note what is done with dead letters there"
            )
        having = await self._servers.of_topic_or_none(DLQ_MARKS_TOPIC) or ()
        if broker not in (each.name for each in having):
            await self._topics.create(
                DLQ_MARKS_TOPIC, TopicSettings(read_queues=1, write_queues=1), broker=broker
            )
        self._writable[broker] = server

    async def add(self, letter: DeadLetter, what: str, at_once: int) -> None:
        added = self._added.setdefault(letter.message.broker, [])
        added.append(letter.message.stored.physical_offset)
        if len(added) >= at_once:
            await self._write(letter.message.broker, what)

    async def write(self, what: str) -> None:
        """Write all that were added and are not written yet."""
        for broker in list(self._added):
            await self._write(broker, what)

    async def _write(self, broker: str, what: str) -> None:
        offsets = self._added.pop(broker, [])
        if offsets:
            body = json.dumps({"version": 1, "done": what, "offsets": offsets}).encode()
            queue = MessageQueue(DLQ_MARKS_TOPIC, broker, 0)
            await send_to(self._servers, self._writable[broker], queue, body)


def _offsets_in(body: bytes) -> Iterable[int]:
    """The places that a mark names; none if it is not one of ours."""
    try:
        offsets = json.loads(body)["offsets"]
        return [each for each in offsets if isinstance(each, int)]
    except (ValueError, KeyError, TypeError):
        return ()
