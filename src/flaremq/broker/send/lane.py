"""Sends: all ordinary ones of a turn in a few calls, the others one by one, in their order.

    frames > [parse: columns] > topics checked once each > [append] > dispatch > answers

A topic is checked once per turn, not once per message. A send that is not ordinary, or that must be
refused, is left to the plain lane, which gives the reason.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from time import perf_counter
from typing import Any, Final

from flaremq.base.errors import Busy, FlareError, MessageIllegal
from flaremq.base.live import Derived
from flaremq.broker.overload import Overload, late_remark
from flaremq.broker.send.acks import Acks
from flaremq.broker.send.bulkrewrites import BulkRewrites
from flaremq.broker.send.deduplication import Deduplication
from flaremq.broker.send.plain import PlainSends, StoredSend
from flaremq.broker.send.rows import NONE, SendRows, TopicState
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.topics import TopicConfigs
from flaremq.model.columns import Draft, Drafts
from flaremq.model.names import NO_SEND_TOPICS
from flaremq.model.topic import TopicConfig, TopicFilterType
from flaremq.protocol.bulk.answers import SendAnswers
from flaremq.protocol.bulk.burst import command_of
from flaremq.protocol.bulk.columns import Frame, Plain, Send, Target
from flaremq.protocol.bulk.sends import parse_sends
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.protocol.frame import encode_frame
from flaremq.protocol.headers.send import LETTERED
from flaremq.remoting.gate import Gate, Right
from flaremq.remoting.turn import Batch, PlainRow, Source, leave_all
from flaremq.store.store import MessageStore

CODES: Final = frozenset(
    {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
)
_LATER_S: Final = 0.002
# Globals are faster than class attributes, and these are read in every turn.
_SEND, _TARGET, _DRAFT, _QUEUE = Send.WIDTH, Target.WIDTH, Draft.WIDTH, Draft.QUEUE
_KIND = Send.KIND
assert tuple(range(_TARGET)) == (
    Target.TOPIC_AT,
    Target.TOPIC_SIZE,
    Target.QUEUE_ID,
    Target.FIRST,
    Target.ROWS,
)


class SendLane:
    """All sends of a broker, on whichever port they arrive."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigs,
        plain: PlainSends,
        answers: Derived[BrokerSettings, SendAnswers],
        *,
        acks: Acks,
        once: Deduplication,
        stats: Stats,
        overload: Overload,
        rewrites: BulkRewrites,
        age_max_ms: int,
        awaited: Callable[[], int],
        told: Callable[[], asyncio.Future[Any] | None],
        now_s: Callable[[], float] = perf_counter,
    ) -> None:
        """`age_max_ms`: a send that waited longer to be read is refused. `awaited` returns how many pulls
        wait for messages. `told` returns a future that is done when the NameServers know a topic that was
        just created, or None if there is nothing to wait for."""
        self._store = store
        self._topics = topics
        self._plain = plain
        self._answers = answers
        self._acks = acks
        self._once = once
        self._now_s = now_s
        self._stats = stats
        self._overload = overload
        self._rewrites = rewrites
        self._age_max_ms = age_max_ms
        self._known: dict[bytes, TopicState] = {}
        self._made_under: object = None  # The settings that the caches were made with.
        self._tail = plain.tail
        self._encoder = answers.now
        self._parsed = NONE
        self._loop = asyncio.get_running_loop()
        self._dispatching = False
        self._later: asyncio.TimerHandle | None = None
        self._awaited = awaited
        self._told = told
        self._counted: list[TopicState] = []
        topics.listeners.append(lambda _changed: self._known.clear())

    @property
    def codes(self) -> frozenset[int]:
        return CODES

    @property
    def age_max_ms(self) -> int:
        return self._age_max_ms

    # Parsing.

    def parse(self, batch: Batch) -> int:
        if batch.waited_ms is not None:
            waited = batch.waited_ms
            leave_all(batch, CODES, lambda chunk: waited[chunk] > self._age_max_ms)
        parsed = self._parse(batch)
        while parsed is None:  # Some were left to the plain lane: parse again, without them.
            parsed = self._parse(batch)
        self._parsed = parsed
        return parsed.count

    def _parse(self, batch: Batch) -> SendRows | None:
        if self._made_under is not self._plain.settings:
            self._settings_changed()
        drafts, sends, targets = parse_sends(
            batch.data, batch.chunks, batch.frames, batch.pairs, batch.heads, self._tail
        )
        waits = self._acks.needed
        topics: list[TopicState] = []
        numbers: list[int] = []
        refused: set[int] = set()
        heads = batch.heads
        for t in range(0, len(targets), _TARGET):
            at, size, queue_id, _, rows = targets[t : t + _TARGET]
            topic = bytes(heads[at : at + size])
            known = self._known.get(topic) or self._learn(topic)
            topics.append(known)
            if queue_id < known.queues and (not waits or self._overload.admits(topic, rows)):
                numbers.append(known.numbers[queue_id])
            else:
                numbers.append(-1)
                refused.add(t // _TARGET)
        if refused:
            for s in range(0, len(sends), Send.WIDTH):
                if sends[s + Send.TARGET] in refused:
                    batch.frames[sends[s + Send.FRAME] * Frame.WIDTH + Frame.PLAIN] = Plain.FIELDS
            return None
        if batch.gate is not None and not _all_admitted(batch, batch.gate, sends, topics):
            return None
        count = len(sends) // _SEND
        if count == 1:
            drafts[_QUEUE] = numbers[0]
        elif len(numbers) == 1:
            drafts[_QUEUE::_DRAFT] = array("q", numbers) * count
        elif numbers:
            places = sends[Send.TARGET :: Send.WIDTH]
            drafts[_QUEUE::_DRAFT] = array("q", map(numbers.__getitem__, places))
        if any(sends[_KIND::_SEND]) and not self._rewrites.apply(batch, drafts, sends, topics, self._tail):
            return None
        return SendRows(count, drafts, sends, topics)

    def _settings_changed(self) -> None:
        """Drop what was derived from the old settings. Checked once per turn, so that nothing else has to."""
        self._made_under = self._plain.settings
        self._known.clear()
        self._tail, self._encoder = self._plain.tail, self._answers.now

    def _learn(self, topic: bytes) -> TopicState:
        """The state of a topic; without queues if its sends must take the plain lane."""
        name = topic.decode()
        config = self._topics.get(name)
        count = 0
        if config is not None and _is_ordinary(config) and name not in NO_SEND_TOPICS and self._plain.is_open:
            count = max(config.write_queue_nums, config.read_queue_nums)
        numbers = [self._store.offsets.number(topic, queue_id) for queue_id in range(count)]
        known = TopicState(name, topic, numbers, len(numbers))
        if numbers:
            self._known[topic] = known
        return known

    # Storing.

    def run(self, batch: Batch, plain: Sequence[PlainRow]) -> None:
        parsed, self._parsed = self._parsed, NONE
        done = 0
        if plain:
            frames = parsed.sends[Send.FRAME :: Send.WIDTH]
            for each in plain:
                before = bisect_left(frames, each.row)
                if before > done:
                    self._store_new(batch, parsed.part(done, before))
                    done = before
                self._take(batch, each)
        if parsed.count > done:
            self._store_new(batch, parsed.part(done, parsed.count))
        elif not plain:
            return
        self.dispatch_soon()

    def dispatch_soon(self) -> None:
        """Dispatch right after the answers if a pull waits for messages, else a little later: many at once
        cost hardly more than one, and a reader that comes in between sees all of them anyway."""
        if self._awaited() and not (self._acks.needed and not self._store.dispatcher.behind):
            if not self._dispatching:
                self._loop.call_soon(self.dispatch)
            self._dispatching = True
        elif self._later is None:
            self._later = self._loop.call_later(_LATER_S, self.dispatch)

    def dispatch(self) -> None:
        """Make stored messages visible to consumers, and count them."""
        self._dispatching = False
        if self._later is not None:
            self._later.cancel()
            self._later = None
        for known in self._counted:
            self._stats.put(known.name, known.count, known.size)
            known.count, known.size = 0, 0
        self._counted.clear()
        self._store.show(wait=False)  # A queue that needs a new file gets it in a thread of the store.

    def _store_new(self, batch: Batch, rows: SendRows) -> None:
        """Store the rows, except messages that a producer sends again: the plain lane has their answer."""
        if not self._once.is_on:
            self._append(batch, rows)
            return
        first = 0
        while first < rows.count:
            end = self._once.sift(batch.heads, rows.sends, first)
            if end > first:
                self._append(batch, rows.part(first, end))
                first = end
                continue
            frame, chunk = rows.sends[first * _SEND + Send.FRAME], rows.sends[first * _SEND + Send.CHUNK]
            request = command_of(batch.data, batch.frames, frame)
            self._take(batch, PlainRow(frame, chunk, batch.sources[chunk], request))
            first += 1

    def _append(self, batch: Batch, rows: SendRows) -> None:
        began_s = self._now_s()
        try:
            stored = self._store.put_many(Drafts(rows.drafts, batch.heads, batch.data))
        except MessageIllegal as error:
            if rows.count == 1:
                self._refuse(batch, rows, error, began_s)
                return
            for row in range(rows.count):  # One is illegal: append them one by one, so that the others pass.
                self._append(batch, rows.part(row, row + 1))
            return
        except FlareError as error:
            self._refuse(batch, rows, error, began_s)
            return
        if stored < rows.count:
            self._stored(batch, rows.part(0, stored), began_s)
            self._append(batch, rows.part(stored, rows.count))  # Refuses them, with the reason.
        else:
            self._stored(batch, rows, began_s)

    def _stored(self, batch: Batch, rows: SendRows, began_s: float) -> None:
        if self._once.is_on:
            self._once.note_many(batch.heads, rows.sends, rows.drafts)
        by_topic = rows.by_topic()
        for known, count, size in by_topic:
            if not known.count:
                self._counted.append(known)
            known.count += count
            known.size += size
        if not self._acks.needed:
            sources = batch.sources
            for chunk, frames in self._encoder.encode(rows.drafts, rows.sends, batch.heads):
                sources[chunk].send_bytes(frames)
            took_ms = (self._now_s() - began_s) * 1000
            for known, count, _ in by_topic:
                self._stats.put_took(known.name, took_ms, count)
            return
        first = 0
        for waits, group in groupby(rows.sends[Send.WAIT :: Send.WIDTH]):
            last = first + sum(1 for _ in group)
            self._answer_later(batch, rows.part(first, last), waits, began_s)
            first = last

    def _answer_later(self, batch: Batch, rows: SendRows, waits: int, began_s: float) -> None:
        """Answer when the log is safe up to the last of them (SYNC_FLUSH)."""
        answers, heads, sources = self._encoder, batch.heads, batch.sources
        held = [sources[chunk] for chunk in set(rows.sends[Send.CHUNK :: Send.WIDTH])]
        by_topic = [(known, count) for known, count, _ in rows.by_topic()]

        def finish(code: int) -> None:
            for chunk, frames in answers.encode(rows.drafts, rows.sends, heads, code):
                sources[chunk].send_bytes(frames)
            for known, count in by_topic:
                self._overload.release(known.topic, count)
                self._answered(known.name, count, began_s, code)
            for source in held:
                source.ended()

        for known, count in by_topic:
            self._overload.hold(known.topic, count)
        for source in held:
            source.begun()
        if waits:
            self._acks.hold(rows.end, finish)
        else:
            finish(ResponseCode.SUCCESS)

    def _answered(self, topic: str, count: int, began_s: float, code: int) -> None:
        """Record how long answered sends took, and count those that failed."""
        self._stats.put_took(topic, (self._now_s() - began_s) * 1000, count)
        if code != ResponseCode.SUCCESS:
            self._stats.put_failed(count)

    def _refuse(self, batch: Batch, rows: SendRows, error: FlareError, began_s: float) -> None:
        for s in range(0, len(rows.sends), Send.WIDTH):
            request = command_of(batch.data, batch.frames, rows.sends[s + Send.FRAME])
            if request.wants_answer:
                source = batch.sources[rows.sends[s + Send.CHUNK]]
                source.send_bytes(encode_frame(self._plain.refusal(request, error)))
        for known, count, _ in rows.by_topic():
            self._answered(known.name, count, began_s, error.response_code)

    # The plain lane.

    def _take(self, batch: Batch, plain: PlainRow) -> None:
        request, began_s = plain.command, self._now_s()
        try:
            self._check_age(batch, plain.chunk)
            self._check_room(request)
            taken = self._plain.take(plain.source.host, request)
        except FlareError as error:
            if request.wants_answer:
                plain.source.send_bytes(encode_frame(self._plain.refusal(request, error)))
            # Its topic may be any text, so this is not counted by topic.
            self._stats.put_times.add((self._now_s() - began_s) * 1000, 1)
            self._stats.put_failed(1)
            return
        if taken.is_repeated:
            self._stats.put_repeated(taken.count)
        else:
            self._stats.put(taken.topic, taken.count, taken.size)
        # As in RocketMQ: once a producer has the answer to its first message, it finds the topic's route.
        told = self._told() if taken.is_first and request.wants_answer else None
        if told is not None or (self._acks.needed and taken.wait_for):
            self._take_later(plain.source, request, taken, told, began_s)
            return
        if request.wants_answer:
            plain.source.send_bytes(encode_frame(taken.answer))
        self._answered(taken.topic, taken.count, began_s, ResponseCode.SUCCESS)

    def _take_later(
        self,
        source: Source,
        request: Command,
        taken: StoredSend,
        told: asyncio.Future[Any] | None,
        began_s: float,
    ) -> None:
        topic = taken.topic.encode()

        def finish(code: int) -> None:
            self._overload.release(topic, taken.count)
            if request.wants_answer:
                source.send_bytes(encode_frame(replace(taken.answer, code=code)))
            self._answered(taken.topic, taken.count, began_s, code)
            source.ended()

        def safe(code: int) -> None:
            if told is None or told.done():
                finish(code)
            else:
                told.add_done_callback(lambda _told: finish(code))

        self._overload.hold(topic, taken.count)
        source.begun()
        if self._acks.needed and taken.wait_for:
            self._acks.hold(taken.wait_for, safe)
        else:
            safe(ResponseCode.SUCCESS)

    def _check_room(self, request: Command) -> None:
        topic = _topic_of(request).encode("utf-8", "replace")
        if self._acks.needed and not self._overload.admits(topic, 1):
            raise Busy(self._overload.remark(topic))

    def _check_age(self, batch: Batch, chunk: int) -> None:
        if batch.waited_ms is not None and batch.waited_ms[chunk] > self._age_max_ms:
            raise Busy(late_remark(batch.waited_ms[chunk], self._overload.held))


def _all_admitted(batch: Batch, gate: Gate, sends: array[int], topics: Sequence[TopicState]) -> bool:
    """Leave the sends that the gate does not admit to the plain lane; False if there were any."""
    asked: dict[tuple[int, int], bool] = {}
    for s in range(0, len(sends), _SEND):
        pair = chunk, target = sends[s + Send.CHUNK], sends[s + Send.TARGET]
        if pair not in asked:
            asked[pair] = gate.admits(batch.sources[chunk], topics[target].topic, Right.SEND)
        if not asked[pair]:
            batch.frames[sends[s + Send.FRAME] * Frame.WIDTH + Frame.PLAIN] = Plain.FIELDS
    return all(asked.values())


def _topic_of(request: Command) -> str:
    return request.fields.get("b" if request.code in LETTERED else "topic", "")


def _is_ordinary(config: TopicConfig) -> bool:
    """Whether the fast lane may store its messages."""
    single = config.topic_filter_type is TopicFilterType.SINGLE_TAG
    return single and not config.is_batch_queue and not config.is_compacted
