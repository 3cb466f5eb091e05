"""Transactions: prepared messages that become visible, or never do.

    prepared > half topic > end: commit   > its own topic, and an op    }
                            end: rollback > an op                       } in one append
                            no end        > a copy and an op, a producer is asked, and again
                            asked too often, or too old when asked > parked, and an op

The op says that a prepared message has ended. It is appended together with the committed message, so that a
crash leaves both or, for lack of the op, a committed message that names its half: either way it is known to
have ended. Ending a transaction twice is the same as ending it once.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError, Malformed, PropertiesTooLong, TopicNotFound
from flaremq.base.lifecycle import Sleep
from flaremq.base.live import Live
from flaremq.base.logs import fields, logger
from flaremq.base.units import HOUR_MS, SECOND_MS
from flaremq.broker import clientcalls
from flaremq.broker.deliveries import Deliveries
from flaremq.broker.features import Feature, Figure
from flaremq.broker.offload import Offload
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.producers import ClientMember
from flaremq.broker.tables.tables import Tables
from flaremq.broker.tasks import Task
from flaremq.broker.transactions.halves import HALF_TOPIC, OP_TOPIC, PARKED_TOPIC
from flaremq.broker.transactions.ledger import Half, HalfLedger
from flaremq.model import layout, properties, sysflag
from flaremq.model.columns import Check, Fact, facts_table
from flaremq.model.message import StoredMessage
from flaremq.model.properties import encode_properties
from flaremq.model.record import decode, readdressed
from flaremq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from flaremq.store.api import PutResult
from flaremq.store.drafts import NewMessage, copy_of
from flaremq.store.queue.consumequeue import ConsumeQueue
from flaremq.store.store import MessageStore

log = logger("broker.transactions")

Later: TypeAlias = Callable[[NewMessage, dict[str, str]], NewMessage]
"""The message as it waits, if its properties ask for a delay."""

GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group under which the offsets of both queues are kept."""

_ENTRY: Final = struct.Struct(layout.ENTRY_FORMAT)
_OP_PROPERTIES: Final = encode_properties({properties.TAGS: "d", properties.WAIT: "true"})
_READ_AT_ONCE: Final = 256
_SAVE_S: Final = 1.0
_ROWS: Final = 4096
_SENT_AT_ONCE: Final = 64
_OF_COPIES: Final = properties.TRANSACTION_CHECK_TIMES, properties.TRANSACTION_PREPARED_QUEUE_OFFSET
_BEHIND_MAX: Final = 100_000
"""How many prepared messages one that is open may have behind it before it is written anew: they are all read
when the broker starts."""


class Transactions(Feature):
    step = "transactions"

    def __init__(
        self,
        settings: Live[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        stats: Stats,
        offload: Offload,
        clock: Clock,
        *,
        later: Later,
        host: bytes,
        deliveries: Deliveries,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._serves, self._elsewhere = deliveries
        self._is_slave = store.follows
        self._is_loaded = False
        """Whether the ledger holds what is open. In a slave, only while that acts: else all of this is left
        to the master, whose offsets of both queues `metasync` keeps here."""
        self._live = settings
        self._store = store
        self._tables = tables
        self._stats = stats
        self._offload = offload
        self._clock = clock
        self._later = later
        self._host = host
        self._sleep = sleep
        self.ledger = HalfLedger()
        self._turns = itertools.count()
        self._steps: deque[tuple[int, int, int]] = deque()
        """Progress that may not be on the disk yet: the end of the log then, and both offsets."""

    # Life.

    async def start(self) -> None:
        if not self._is_slave:
            await self._offload.run(self._load)
        self._store.retention.needed.append(self.needed_from)

    def _load(self) -> None:
        """Find out what is open: prepared messages that no op names, and that no committed message names."""
        half, op = (
            self._within(topic, self._tables.offsets.get(GROUP, topic.decode(), 0))
            for topic in (HALF_TOPIC, OP_TOPIC)
        )
        queue = self._queue(HALF_TOPIC)
        self.ledger = HalfLedger(half, op, half if queue is None else queue.max_offset)
        for queue_offset, stored in self._read(OP_TOPIC, op):
            named = _named(stored)
            self.ledger.end(named)
            self.ledger.op(queue_offset, max(named, default=-1))
        self.notice()
        self.ledger.started()
        if len(self.ledger):
            self._find_committed()
            log.info("transactions are open", extra=fields(count=len(self.ledger)))
        self._is_loaded = True

    def _within(self, topic: bytes, offset: int) -> int:
        queue = self._queue(topic)
        return 0 if queue is None else max(queue.min_offset, min(offset, queue.max_offset))

    def _find_committed(self) -> None:
        """A crash between a commit and its op: the committed message names the offset of its half."""
        log_, facts = self._store.log, facts_table(_ROWS)
        open_ = {half.physical_offset: half for half in self.ledger}
        at, end = min(open_) - log_.head, log_.confirmed
        while at < end:
            stretch = log_.walk(at, end, facts, Check.NOTHING)
            if stretch is None or stretch.next <= at:
                break
            for half in _committed(stretch.view, facts, stretch.count, open_):
                self.ledger.end(self.ledger.all_of(half.queue_offset, half.key), half.key, committed=True)
            at = stretch.next

    def metrics(self) -> Iterable[Figure]:
        if not self._is_loaded:
            return
        text, oldest = "Prepared messages whose transaction has not ended", next(iter(self.ledger), None)
        yield Figure("rocketmq_half_messages", text, False, (), [((), len(self.ledger))])
        text = "Seconds since the oldest of them was prepared"
        age_ms = 0 if oldest is None else max(0, self._clock.now_ms() - oldest.since_ms)
        yield Figure("rocketmq_half_oldest_seconds", text, False, (), [((), age_ms / SECOND_MS)])

    async def stop(self) -> None:
        if not self._is_slave:
            await self._offload.run(self._flush)
        self.save()

    def _flush(self) -> None:
        self._store.log.commit(0)
        self._store.workers.log_flusher.flush(0)

    def tasks(self) -> Iterable[Task]:
        period_s = self._live.now.transaction_check_ms / 1000
        yield Task("check-transactions", period_s, period_s, self.check)
        yield Task("save-transactions", _SAVE_S, _SAVE_S, self.save)

    def save(self) -> None:
        """Let the offsets of both queues follow, as far as everything is on the disk."""
        if not self._is_loaded:
            return
        self.notice()
        progress = self.ledger.half_offset, self.ledger.op_offset
        if not self._steps or self._steps[-1][1:] != progress:
            self._steps.append((self._store.log.end, *progress))
        flushed = self._store.flushed.value
        while len(self._steps) > 1 and self._steps[1][0] <= flushed:
            self._steps.popleft()
        if self._steps[0][0] <= flushed:
            _, half, op = self._steps[0]
            for topic, offset in ((HALF_TOPIC, half), (OP_TOPIC, op)):
                if max(0, self._tables.offsets.get(GROUP, topic.decode(), 0)) < offset:
                    self._tables.offsets.commit(GROUP, topic.decode(), 0, offset)

    def needed_from(self) -> int | None:
        """Where in the log the first open prepared message lies. Retention leaves it there."""
        if not self._is_loaded:
            return self._told_open()
        first = next(iter(self.ledger), None)
        return None if first is None else first.physical_offset

    def _told_open(self) -> int | None:
        """The same in a slave that does not act: it knows no more than how far its master is done."""
        queue = self._queue(HALF_TOPIC)
        begin = self._within(HALF_TOPIC, self._tables.offsets.get(GROUP, HALF_TOPIC.decode(), 0))
        entries = queue.entries(begin, 1) if queue is not None else b""
        return _ENTRY.unpack_from(entries)[0] if entries else None

    # Reading.

    def _queue(self, topic: bytes) -> ConsumeQueue | None:
        queue = self._store.queues.get(topic, 0)
        return None if queue is None or queue.is_batch else queue

    def _read(self, topic: bytes, begin: int) -> Iterable[tuple[int, StoredMessage | None]]:
        """The messages of queue 0 with their queue offsets; None for one that cannot be read."""
        queue, at = self._queue(topic), begin
        while queue is not None and (entries := queue.entries(at, _READ_AT_ONCE)):
            for physical_offset, size, _code in _ENTRY.iter_unpack(entries):
                skip = topic == HALF_TOPIC and self.ledger.is_known_ended(at)
                yield at, None if skip else self._stored(physical_offset, size)
                at += 1

    def _stored(self, physical_offset: int, size: int | None = None) -> StoredMessage | None:
        record = self._store.record(physical_offset) if physical_offset >= 0 else None
        if record is None or size not in (None, len(record)):
            return None
        try:
            return decode(record, check=Check.NOTHING)
        except Malformed:
            return None

    def notice(self) -> None:
        """Take prepared messages into the ledger that were stored since the last time."""
        for queue_offset, stored in self._read(HALF_TOPIC, self.ledger.noticed):
            half = None
            if stored is not None:
                half = self._half(stored)
            elif not self.ledger.is_known_ended(queue_offset):
                log.error("a prepared message is damaged", extra=fields(queue_offset=queue_offset))
            self.ledger.notice(queue_offset, half)

    def _half(self, stored: StoredMessage) -> Half:
        known = stored.properties
        immunity = _number(known.get(properties.CHECK_IMMUNITY_TIME_IN_SECONDS))
        is_copy = any(name in known for name in _OF_COPIES)
        return Half(
            queue_offset=stored.queue_offset,
            physical_offset=stored.physical_offset,
            size=stored.size,
            key=stored.unique_key or "",
            group=known.get(properties.PRODUCER_GROUP, ""),
            stored_ms=stored.store_timestamp_ms,
            since_ms=stored.born_timestamp_ms if is_copy else stored.store_timestamp_ms,
            immunity_ms=self._live.now.transaction_timeout_ms if immunity is None else immunity * SECOND_MS,
            checks=_number(known.get(properties.TRANSACTION_CHECK_TIMES)) or 0,
        )

    # Ending.

    def prepared(self, physical_offset: int) -> StoredMessage | None:
        """The prepared message at an offset of the log; None if none lies there."""
        stored = self._stored(physical_offset)
        return stored if stored is not None and stored.topic.encode() == HALF_TOPIC else None

    def commit(self, half: StoredMessage) -> PutResult:
        """Deliver a prepared message to its own topic."""
        known = dict(half.properties)
        topic = known.get(properties.REAL_TOPIC, "")
        queue_id = _number(known.get(properties.REAL_QUEUE_ID)) or 0
        if self._tables.awaited(topic, queue_id) is None:
            raise TopicNotFound(f"topic[{topic}] not exist: create it, or the message will be parked")
        open_ = self.ledger.newest(half.unique_key or "")  # After a crash, it is looked for among those.
        message = replace(
            copy_of(half),
            topic=topic.encode(),
            queue_id=queue_id,
            sys_flag=half.sys_flag & ~sysflag.TRANSACTION_MASK | sysflag.TRANSACTION_COMMIT,
            prepared_transaction_offset=half.physical_offset if open_ is None else open_.physical_offset,
        )
        later = self._later(message, known)
        if later is not message:
            known.pop(properties.TRANSACTION_PREPARED, None)
            message = replace(later, properties=encode_properties(known))
        return self._end(half, message, committed_to=topic)

    def roll_back(self, half: StoredMessage) -> PutResult:
        return self._end(half, None)

    def _end(self, half: StoredMessage, message: NewMessage | None, *, committed_to: str = "") -> PutResult:
        """Store what becomes of a prepared message, and the op, in one append."""
        key = half.unique_key or ""
        ended = self.ledger.all_of(half.queue_offset, key)
        put = [*(() if message is None else (message,)), *(self.op(each) for each in ended)]
        results = self._store.put_group(put)
        if committed_to:
            self._stats.put(committed_to, 1, results[0].size)
        self.ledger.end(ended, key, committed=bool(committed_to))
        for queue_offset, result in zip(ended, results[-len(ended) :], strict=True):
            self.ledger.op(result.queue_offset, queue_offset)
        self._store.show(wait=False)
        return replace(results[0], size=results[-1].end - results[0].physical_offset)

    def op(self, queue_offset: int) -> NewMessage:
        """The message that says that a prepared one has ended."""
        # Every version reads a bare number; only some read several with commas.
        return NewMessage(
            topic=OP_TOPIC,
            body=str(queue_offset).encode(),
            properties=_OP_PROPERTIES,
            born_timestamp_ms=self._clock.now_ms(),
            born_host=self._host,
        )

    # Checking.

    async def check(self) -> None:
        """Ask producers about transactions that should have ended, and park those asked about too often."""
        if not self._serves():
            self._is_loaded = self._is_loaded and not self._is_slave  # A slave reads it all again.
            return
        if self._is_slave:
            await self._send_open()
            return
        self.notice()
        self._leave_done()
        for number, half in enumerate(self.ledger):
            if half.queue_offset in self.ledger:
                try:
                    self._check(half)
                except FlareError as error:  # This one comes again; the others do not wait for it.
                    log.warning(
                        "a transaction could not be checked",
                        extra=fields(key=half.key, group=half.group, why=error),
                    )
            if number % _READ_AT_ONCE == _READ_AT_ONCE - 1:
                await self._sleep(0)
        self.notice()

    def _leave_done(self) -> None:
        """While we were away, another member may have sent the first ones to other brokers."""
        done = self._tables.offsets.get(GROUP, HALF_TOPIC.decode(), 0)
        if self.ledger.half_offset < done:
            self.ledger.end([half.queue_offset for half in self.ledger if half.queue_offset < done])

    async def _send_open(self) -> None:
        if not self._is_loaded:
            self._steps.clear()
            await self._offload.run(self._load)
        while self._serves() and len(self.ledger):
            halves = list(itertools.islice(self.ledger, _SENT_AT_ONCE))
            there = []
            for half in halves:
                stored = self._stored(half.physical_offset, half.size)
                if stored is None:
                    log.error("a prepared message is no longer in the log", extra=fields(key=half.key))
                else:
                    there.append((half, _prepared_again(stored)))
            sent = await self._elsewhere([message for _, message in there])
            end = there[sent][0].queue_offset if sent < len(there) else None
            self.ledger.end([half.queue_offset for half in halves if end is None or half.queue_offset < end])
            if end is not None:
                return

    def _check(self, half: Half) -> None:
        now_ms = self._clock.now_ms()
        # Below zero: the clock was set back, or a former leader had one that was ahead. The true age is not
        # known, and it may take hours until this clock is there as well.
        immune = 0 <= now_ms - half.since_ms < half.immunity_ms
        holds_up = self.ledger.noticed - half.queue_offset > max(_BEHIND_MAX, 10 * len(self.ledger))
        if immune and not holds_up:
            return
        stored = self._stored(half.physical_offset, half.size)
        if stored is None:
            log.error("a prepared message is no longer in the log", extra=fields(key=half.key))
            self.ledger.end([half.queue_offset])
            return
        # Nothing is parked before somebody was asked, however old it is.
        is_old = now_ms - half.stored_ms > self._store.settings.file_reserved_hours * HOUR_MS
        members = () if immune else self._tables.producers.members(half.group)
        if not immune and (
            half.checks >= self._live.now.transaction_checks_max or (half.checks > 0 and is_old)
        ):
            self._park(stored, half.checks)
        elif members:
            self._ask(self._renewed(half, stored, half.checks + 1), members[next(self._turns) % len(members)])
        elif is_old or holds_up:
            self._renewed(half, stored, half.checks)

    def _renewed(self, half: Half, stored: StoredMessage, checks: int) -> Half:
        """Write an open one anew, with how often it was asked about, as RocketMQ does: a restart counts on,
        and neither the log nor the queues before it are needed any longer."""
        known = {**stored.properties, properties.TRANSACTION_CHECK_TIMES: str(checks)}
        # RocketMQ would take the copy for ended: the op of the first one is there.
        known.pop(properties.TRANSACTION_PREPARED_QUEUE_OFFSET, None)
        copy = replace(copy_of(stored), topic=HALF_TOPIC, queue_id=0, properties=encode_properties(known))
        ended = self.ledger.all_of(half.queue_offset, half.key)
        try:
            first, *ops = self._store.put_group([copy, *(self.op(each) for each in ended)])
        except PropertiesTooLong:
            half.checks = checks
            return half
        place = first.queue_offset, first.physical_offset, first.size
        renewed = Half(
            *place, half.key, half.group, self._clock.now_ms(), half.since_ms, half.immunity_ms, checks
        )
        self.ledger.renew(ended, renewed)
        for queue_offset, op in zip(ended, ops, strict=True):
            self.ledger.op(op.queue_offset, queue_offset)
        self._store.show(wait=False)
        return renewed

    def _ask(self, half: Half, member: ClientMember) -> None:
        """Any producer of the group will do."""
        record = self._store.record(half.physical_offset)
        stored = self._stored(half.physical_offset, half.size)
        if record is None or stored is None:
            return
        header = CheckTransactionStateRequestHeader(
            topic=HALF_TOPIC.decode(),
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            msg_id=half.key,
            transaction_id=half.key,
            offset_msg_id=stored.message_id,
            bname=self._live.now.broker_name,
        )
        topic = stored.properties.get(properties.REAL_TOPIC, "")
        queue_id = _number(stored.properties.get(properties.REAL_QUEUE_ID)) or 0
        told = readdressed(bytes(record), topic.encode(), queue_id)
        clientcalls.check_transaction(member.peer, header, told)

    def _park(self, stored: StoredMessage, checks: int) -> None:
        self._tables.topics.ensure(PARKED_TOPIC.decode(), 1)
        parked = replace(copy_of(stored), topic=PARKED_TOPIC, queue_id=0)
        known = {**stored.properties, properties.TRANSACTION_CHECK_TIMES: str(checks)}
        try:
            self._end(stored, replace(parked, properties=encode_properties(known)))
        except PropertiesTooLong:
            self._end(stored, parked)
        log.warning(
            "nobody could say how a transaction ended: its message is parked in topic %s",
            PARKED_TOPIC.decode(),
            extra=fields(key=stored.unique_key, group=stored.properties.get(properties.PRODUCER_GROUP, "")),
        )

    def resume(self, physical_offset: int) -> PutResult | None:
        """Ask again about a parked message, from the first time on; None if no such message lies there."""
        stored = self._stored(physical_offset)
        if stored is None or stored.topic.encode() not in (PARKED_TOPIC, HALF_TOPIC):
            return None
        known = stored.properties
        if (
            properties.TRANSACTION_CHECK_TIMES in known
        ):  # Else it counts as 0, and there may be no room for it.
            known = {**known, properties.TRANSACTION_CHECK_TIMES: "0"}
        put = replace(copy_of(stored), topic=HALF_TOPIC, queue_id=0, properties=encode_properties(known))
        result = self._store.put(put, wait=False)
        self.ledger.reopened(stored.unique_key or "")
        self._store.show(wait=False)
        return result


def _prepared_again(half: StoredMessage) -> NewMessage:
    """As it came from its producer."""
    known = dict(half.properties)
    topic = known.pop(properties.REAL_TOPIC, "")
    known.pop(properties.REAL_QUEUE_ID, None)
    for name in _OF_COPIES:
        known.pop(name, None)
    known[properties.TRANSACTION_PREPARED] = "true"
    sys_flag = sysflag.with_transaction_type(half.sys_flag, sysflag.TRANSACTION_PREPARED)
    return replace(
        copy_of(half), topic=topic.encode(), sys_flag=sys_flag, properties=encode_properties(known)
    )


def _named(op: StoredMessage | None) -> list[int]:
    """The queue offsets that an op names: one, or several with commas."""
    text = "" if op is None else op.body.decode("ascii", "replace")
    return [int(each) for each in text.split(",") if each.isascii() and each.isdigit()]


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _committed(view: memoryview, facts: array[int], count: int, open_: dict[int, Half]) -> Sequence[Half]:
    """The open prepared messages that committed records among these name."""
    found = []
    for row in range(0, count * Fact.WIDTH, Fact.WIDTH):
        if sysflag.transaction_type(facts[row + Fact.SYS_FLAG]) == sysflag.TRANSACTION_COMMIT:
            prepared = struct.unpack_from(">q", view, facts[row + Fact.BODY_AT] - 12)[0]
            if prepared in open_:
                found.append(open_[prepared])
    return found
