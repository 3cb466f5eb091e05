"""Message trace: producers and consumers record what happens to messages, in a topic of its own.

    hook > record > queue > [all that gathered] > messages of the trace topic > the inner producer

The problem
-----------
A record must never delay or fail the send that it is about, and there is at least one for each message. So a
hook only appends a line of text to a queue; a background task sends them, many in one message. The queue is
bounded: what does not fit is dropped, counted and logged.

How it works
------------
As soon as ten records wait, or five seconds after the last ones were sent, the task takes all that wait,
packs the records of each data topic into messages, and waits for their receipts. More records gather
meanwhile, so under load a message holds hundreds. After a failure the task pauses, for the broker's sake.

The limits of a message are Java's: 128,000 bytes, and keys that fit into the properties. Its keys are the ids
and keys of all messages that it has records of; `mqadmin queryMsgTraceById` looks them up in the index.
The inner producer shares the client, and is not traced itself. As in RocketMQ, messages are traced only if
the broker says its region and does not switch trace off (`traceOn`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, Protocol, TypeAlias

from flaremq.base.errors import FlareError, ManyFailed, MessageIllegal, UsageError
from flaremq.base.lifecycle import Owned, repeat
from flaremq.base.logs import Seldom
from flaremq.client.client import Client
from flaremq.client.hooks import ConsumeContext, EndContext, RecallContext, SendContext
from flaremq.client.message import Decision, Recall, Receipt, SendStatus
from flaremq.client.settings import ProducerSettings, Trace
from flaremq.model import properties as names
from flaremq.model.message import Message
from flaremq.model.names import GROUP_LENGTH_MAX
from flaremq.protocol.tracerecord import (
    DEFAULT_REGION,
    EndTransactionRecord,
    PubRecord,
    RecallRecord,
    ReturnCode,
    SubAfterRecord,
    SubBeforeRecord,
    TracedType,
    TraceRecord,
)

log = logging.getLogger(__name__)

BODY_SIZE_MAX: Final = 128_000
"""Of a trace message, as in Java."""
KEYS_SIZE_MAX: Final = 32_000
"""All properties together have 32,767 bytes, and the broker adds some of its own."""
SEND_TIMEOUT_S: Final = 5.0
_INNER: Final = ProducerSettings(timeout_s=SEND_TIMEOUT_S, compress_level=1)
_GATHER_S: Final = 0.01
_PAUSE_S: Final = 1.0
_LOGGED_EVERY_S: Final = 60.0
_STATES: Final = {
    Decision.COMMIT: "COMMIT_MESSAGE",
    Decision.ROLLBACK: "ROLLBACK_MESSAGE",
    Decision.UNKNOWN: "UNKNOW",
}
_INNER_PREFIX: Final = "_INNER_TRACE_PRODUCER"
_numbers = itertools.count(1)


def inner_group(group: str, kind: str) -> str:
    """The producer group that sends the records of a group. `kind` is Java's: PRODUCE or CONSUME."""
    end = f"-{kind}-{next(_numbers)}"
    return f"{_INNER_PREFIX}-{group}"[: GROUP_LENGTH_MAX - len(end)] + end


WaitingRecord: TypeAlias = tuple[str, TraceRecord]
"""A record, and the topic of the message that it is about."""


class TraceSender(Protocol):
    """The inner producer, as a dispatcher needs it."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def send_many(
        self, messages: Iterable[Message], *, timeout_s: float | None = None
    ) -> list[Receipt]: ...


class TraceDispatcher:
    """Sends the records of one producer or consumer. `append` may be called by any thread."""

    def __init__(self, trace: Trace, client: Client, group: str, sender: TraceSender) -> None:
        self.trace = trace
        self.client = client
        self.dropped = 0
        """Records that were not sent: the queue was full, or brokers did not take them."""
        self.group = group
        self._sender = sender
        self._waiting: deque[WaitingRecord] = deque()  # Text is made of them when they are sent.
        self._due = asyncio.Event()
        self._is_due = self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sending = asyncio.Lock()
        self._tasks = Owned()
        self._seldom = Seldom(_LOGGED_EVERY_S, now_s=client.clock.monotonic_s)

    async def start(self) -> None:
        await self._sender.start()
        self._loop = asyncio.get_running_loop()
        self._tasks.spawn(
            "send-traces",
            repeat("sending trace records", self._flush_due, self.trace.interval_s, sleep=self._until_due),
        )

    async def stop(self) -> None:
        """Send what waits, within the time for it."""
        if self._loop is None:
            return
        self._loop = None
        try:
            async with asyncio.timeout(self.trace.wait_at_stop_s):
                async with self._sending:  # Else what is under way would be sent twice.
                    await self._tasks.aclose(timeout_s=SEND_TIMEOUT_S)
                while self._waiting:
                    await self.flush()
        except TimeoutError:
            await self._tasks.aclose(timeout_s=SEND_TIMEOUT_S)
            self._drop(
                len(self._waiting), f"They were not sent within {self.trace.wait_at_stop_s:g} s of the stop"
            )
            self._waiting.clear()
        self._is_closed = True
        await self._sender.stop()

    def append(self, topic: str, record: TraceRecord) -> None:
        """Queue a record about a message of this topic. Never waits, never raises."""
        if self._is_closed:
            self.dropped += 1
            return
        waiting = self._waiting
        if len(waiting) >= self.trace.queue_max:
            self._drop(1, f"The limit of {self.trace.queue_max:,} waiting records is reached")
            return
        waiting.append((topic, record))
        if len(waiting) >= self.trace.batch and not self._is_due:
            self._is_due, loop = True, self._loop
            if loop is not None:
                with suppress(RuntimeError):  # The loop is closed, as at the end of a program.
                    loop.call_soon_threadsafe(self._due.set)

    def is_traced(self, topic: str) -> bool:
        """Whether messages of a topic are traced: those of the trace topic are not."""
        return not topic.startswith(self.trace.topic)

    async def _until_due(self, limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await self._due.wait()
        except TimeoutError:
            pass
        self._due.clear()

    async def _flush_due(self) -> None:
        await self.client.sleep(_GATHER_S)
        if not await self.flush():
            await self.client.sleep(_PAUSE_S)
        if len(self._waiting) >= self.trace.batch:
            self._due.set()

    async def flush(self) -> bool:
        """Send all records that wait now. Returns whether brokers have taken them."""
        async with self._sending:
            self._is_due = False
            taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
            return not taken or await self._send(taken)

    async def _send(self, taken: Sequence[WaitingRecord]) -> bool:
        packed = pack_records(self.trace.topic, taken)
        try:
            await self._sender.send_many([message for message, _ in packed], timeout_s=SEND_TIMEOUT_S)
        except ManyFailed as error:
            failed = [
                count
                for (_, count), result in zip(packed, error.results, strict=True)
                if not isinstance(result, Receipt)
            ]
            self._drop(sum(failed), str(error))
            return False
        except FlareError as error:
            self._drop(len(taken), str(error))
            return False
        except asyncio.CancelledError:  # A stop: it sends them, or says that they are lost.
            self._waiting.extendleft(reversed(taken))
            raise
        return True

    def _drop(self, count: int, why: str) -> None:
        if not count:
            return
        self.dropped += count
        if self._seldom.due() is not None:
            log.warning(
                "group %s: trace records dropped so far: %d. %s. If topic %s does not exist, create it, or "
                "set traceTopicEnable=true at the brokers",
                *(self.group, self.dropped, why, self.trace.topic),
            )


class MakeSender(Protocol):
    """Makes the inner producer: Producer itself."""

    def __call__(self, group: str, /, *, client: Client, settings: ProducerSettings) -> TraceSender: ...


def trace_dispatcher(
    trace: bool | Trace, client: Client, group: str, kind: str, make: MakeSender
) -> TraceDispatcher | None:
    """Sends trace records of a group with a producer of its own; None if nothing is traced."""
    if trace is False:
        return None
    if trace is not True and not isinstance(trace, Trace):
        raise UsageError(f"trace={trace!r}: expected True, False or Trace(topic=...)")
    settings = trace if isinstance(trace, Trace) else Trace()
    inner = make(inner_group(group, kind), client=client, settings=_INNER)
    return TraceDispatcher(settings, client, group, inner)


def pack_records(topic: str, records: Iterable[WaitingRecord]) -> list[tuple[Message, int]]:
    """Trace messages, and how many records each holds. One message has records of one data topic."""
    by_topic: dict[str, list[TraceRecord]] = {}
    for data_topic, record in records:
        by_topic.setdefault(data_topic, []).append(record)
    return [packed for same in by_topic.values() for packed in _pack_topic(topic, same)]


def _pack_topic(topic: str, records: Sequence[TraceRecord]) -> Iterable[tuple[Message, int]]:
    texts: list[str] = []
    words: dict[str, None] = {}
    size = keys_size = 0
    for record in records:
        text, own = record.text(), _words(record)
        more, more_keys = _size(text), _size(own) + 1  # Words that are there already count again: no harm.
        if texts and (size + more > BODY_SIZE_MAX or keys_size + more_keys > KEYS_SIZE_MAX):
            yield _packed(topic, texts, words), len(texts)
            texts, words, size, keys_size = [], {}, 0, 0
        texts.append(text)
        words.update(dict.fromkeys(own.split()))
        size, keys_size = size + more, keys_size + more_keys
    if texts:
        yield _packed(topic, texts, words), len(texts)


def _words(record: TraceRecord) -> str:
    """Its id and its keys. Keys that are too long to be looked up all together are left out."""
    keys, message_id = record.keys, record.message_id
    if not keys or (len(keys) + len(message_id)) * 4 > KEYS_SIZE_MAX - 2 < _size(keys) + len(message_id):
        return message_id
    return f"{message_id} {keys}"


def _packed(topic: str, texts: Sequence[str], words: Iterable[str]) -> Message:
    body = "".join(texts).encode("utf-8", "replace")
    try:
        return Message(topic, body, keys=tuple(words))
    except MessageIllegal:  # Another client's keys may be what ours would refuse.
        return Message(topic, body, keys=[word for word in words if word.isalnum()])


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


class SendTracer:
    """The hook that makes the records of one producer."""

    def __init__(self, dispatcher: TraceDispatcher) -> None:
        self._dispatcher = dispatcher
        self._group = dispatcher.group
        self._not_traced = dispatcher.trace.topic
        self._now_ms = dispatcher.client.clock.now_ms
        self._region: str | None = None  # In the last answer: a failed attempt is traced if trace is on.

    def before_send(self, send: SendContext) -> None:
        """Nothing is known yet."""

    def after_send(self, send: SendContext) -> None:
        receipt = send.receipt
        if not send.messages or (receipt is None and send.is_oneway):
            return
        offset_ids = _offset_ids(receipt, len(send.messages))
        for message, message_id, offset_id in zip(send.messages, send.message_ids, offset_ids, strict=True):
            self._note(message, message_id, offset_id, send.address, send.took_s, receipt, send.is_half)

    def outcome(
        self,
        message: Message,
        message_id: str,
        address: str | None,
        took_s: float,
        outcome: Receipt | BaseException,
    ) -> None:
        """The same for a message of `send_many`."""
        receipt = outcome if isinstance(outcome, Receipt) else None
        self._note(
            message, message_id, receipt and receipt.offset_id, address, took_s, receipt, is_half=False
        )

    def _note(
        self,
        message: Message,
        message_id: str,
        offset_id: str | None,
        address: str | None,
        took_s: float,
        receipt: Receipt | None,
        is_half: bool,
    ) -> None:
        if receipt is not None:
            self._region = receipt.region
        region, topic, keys = self._region, message.topic, message.keys
        if region is None or topic.startswith(self._not_traced):
            return
        cost_ms = int(took_s * 1000)
        record = PubRecord(
            self._now_ms() - cost_ms,
            region,
            self._group,
            topic,
            message_id,
            message.tags,
            " ".join(keys) if keys else None,
            address,
            len(message.body),
            cost_ms,
            _type(message, is_half),
            offset_id,
            receipt is not None and receipt.status is SendStatus.OK,
        )
        self._dispatcher.append(topic, record)

    def after_end(self, end: EndContext) -> None:
        if end.region is None or not self._dispatcher.is_traced(end.topic):
            return
        record = EndTransactionRecord(
            *(self._now_ms(), end.region, end.group, end.topic, end.message_id, end.tags),
            " ".join(end.keys) or None,
            *(end.address, TracedType.COMMIT, end.message_id, _STATES[end.decision], end.from_check),
        )
        self._dispatcher.append(end.topic, record)

    def after_recall(self, recall: RecallContext) -> None:
        if not self._dispatcher.is_traced(recall.topic):
            return
        record = RecallRecord(
            self._now_ms(),
            recall.region or self._region or DEFAULT_REGION,
            recall.group,
            recall.topic,
            recall.message_id,
            recall.outcome is Recall.CANCELLED,
        )
        self._dispatcher.append(recall.topic, record)


def _type(message: Message, is_half: bool) -> TracedType:
    if message.waits is not None:
        return TracedType.DELAY
    return TracedType.HALF if is_half else TracedType.NORMAL


def _offset_ids(receipt: Receipt | None, count: int) -> Sequence[str | None]:
    """One for each message of a batch; a broker that stores a batch as one record has one for all."""
    if receipt is None:
        return [None] * count
    if count == 1:
        return (receipt.offset_id,)
    found = receipt.offset_id.split(",")
    return found if len(found) == count else [receipt.offset_id] * count


class ConsumeTracer:
    """The hook that makes the records of one consumer. Threads may call it."""

    def __init__(
        self, dispatcher: TraceDispatcher, later: type[BaseException], timeout_s: float = math.inf
    ) -> None:
        """`later` is what a handler raises to ask for another delivery; from `timeout_s` on, it took too
        long."""
        self._dispatcher = dispatcher
        self._now_ms = dispatcher.client.clock.now_ms
        self._next_id = dispatcher.client.message_ids.next
        self._later = later
        self._timeout_s = timeout_s
        self._begun: dict[ConsumeContext, list[tuple[str, SubBeforeRecord]]] = {}

    def before_consume(self, consume: ConsumeContext) -> None:
        begun: list[tuple[str, SubBeforeRecord]] = []
        now_ms, request_id = self._now_ms(), self._next_id()
        for message in consume.messages:
            known = message.properties
            region, topic = known.get(names.MSG_REGION), message.topic
            if not region or known.get(names.TRACE_ON) == "false" or not self._dispatcher.is_traced(topic):
                continue
            record = SubBeforeRecord(
                *(now_ms, region, consume.group, request_id),
                known.get(names.UNIQ_KEY) or message.offset_id,
                message.reconsume_times,
                known.get(names.KEYS),
            )
            begun.append((topic, record))
            self._dispatcher.append(topic, record)
        if begun:
            self._begun[consume] = begun

    def after_consume(self, consume: ConsumeContext) -> None:
        begun = self._begun.pop(consume, None)
        if begun is None:
            return
        now_ms, code = self._now_ms(), self._code(consume)
        cost_ms = int(consume.took_s * 1000) // len(consume.messages)
        for topic, before in begun:
            record = SubAfterRecord(
                *(before.request_id, before.message_id, cost_ms, consume.error is None, before.keys),
                *(code, now_ms, consume.group),
            )
            self._dispatcher.append(topic, record)

    def _code(self, consume: ConsumeContext) -> ReturnCode:
        """Which of several applies is decided as in Java (ConsumeMessageConcurrentlyService)."""
        if consume.error is not None and not isinstance(consume.error, self._later):
            return ReturnCode.EXCEPTION
        if consume.took_s >= self._timeout_s:
            return ReturnCode.TIME_OUT
        return ReturnCode.SUCCESS if consume.error is None else ReturnCode.FAILED
