"""The ends of transactions, many at once: all that came in a turn are stored in one append.

The ordinary case only: a prepared message that is open, ended by its own group, committed at once. Each other
end is left to `requests`, which says what is wrong with it, or does more for it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from flaremq.base.errors import FlareError
from flaremq.broker.send.acks import Acks
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.topics import TopicConfigs
from flaremq.broker.transactions.halves import HALF_TOPIC
from flaremq.broker.transactions.transactions import Transactions
from flaremq.model import sysflag
from flaremq.model.columns import Bytes
from flaremq.protocol.bulk.answers import encode_answer
from flaremq.protocol.bulk.burst import command_of
from flaremq.protocol.bulk.columns import Frame, Kind, Request
from flaremq.protocol.bulk.requests import parse_requests
from flaremq.protocol.codes import ONE_WAY, RequestCode, ResponseCode
from flaremq.remoting.turn import Batch, PlainRow, Source, leave_all
from flaremq.store.copyrows import CopyRows, Glance, glance
from flaremq.store.drafts import NewMessage
from flaremq.store.store import MessageStore

CODES: Final = frozenset({RequestCode.END_TRANSACTION})
_NAMES: Final = (
    *(b"producerGroup", b"tranStateTableOffset", b"commitLogOffset", b"commitOrRollback"),
    *(b"fromTransactionCheck", b"msgId", b"transactionId", b"topic", b"bname"),
)
_READ: Final = 4  # The first of them are read.
_WIDTH: Final = 1 + Request.FIELD * len(_NAMES)
_COMMIT, _ROLLBACK = b"%d" % sysflag.TRANSACTION_COMMIT, b"%d" % sysflag.TRANSACTION_ROLLBACK
_MORE: Final = (b"DELAY\x01", b"TIMER_", b"INNER_", b"__CRC32#")
"""Parts of names of properties for which a committed message needs more than a copy."""
_DIGITS_MAX: Final = 18  # Of an offset.
_AHEAD_MAX: Final = 1024
_NO_AGE: Final = 1 << 40
_NOT_SAFE: Final = b"the transaction has ended, but the disk failed: its end may be lost"


class _End(NamedTuple):
    """An end that is about to be stored."""

    frame: int
    queue_offset: int
    key: str
    topic: str
    """Of a committed message; empty if it is rolled back."""
    row: int
    """Of its op."""


class EndLane:
    def __init__(
        self,
        transactions: Transactions,
        store: MessageStore,
        topics: TopicConfigs,
        stats: Stats,
        acks: Acks,
        *,
        stored: Callable[[], None],
    ) -> None:
        """`stored` is called when there is something new to dispatch."""
        self._transactions = transactions
        self._store = store
        self._topics = topics
        self._stats = stats
        self._acks = acks
        self._told_stored = stored
        self._rows: array[int] = array("q")

    @property
    def codes(self) -> frozenset[int]:
        return CODES

    @property
    def age_max_ms(self) -> int:
        return _NO_AGE

    def parse(self, batch: Batch) -> int:
        if batch.gate is not None:  # Each request of its own is shown to it.
            leave_all(batch, CODES)
        tables = batch.data, batch.chunks, batch.frames, batch.pairs
        self._rows = parse_requests(*tables, tuple(CODES), _NAMES)
        return len(self._rows) // _WIDTH

    def run(self, batch: Batch, plain: Sequence[PlainRow]) -> None:
        for each in plain:
            each.source.received(each.command)
        rows, self._rows = self._rows, array("q")
        if rows:
            self._end_all(batch, rows)

    def _end_all(self, batch: Batch, rows: array[int]) -> None:
        copies, ends, left = CopyRows(self._store.offsets), list[_End](), list[int]()
        taken, op, places = set[int](), self._transactions.op(0), rows.tolist()
        for r in range(0, len(rows), _WIDTH):
            end = self._taken(batch.data, places, r, copies, taken, op)
            if end is not None:
                ends.append(end)
                taken.add(end.queue_offset)
            else:
                left.append(rows[r])
        stored = self._put(copies)
        done = [end for end in ends if end.row < stored]
        if done:
            self._ended(batch, done, copies)
        for frame in (*left, *(end.frame for end in ends if end.row >= stored)):
            source = batch.sources[batch.frames[frame * Frame.WIDTH + Frame.CHUNK]]
            source.received(command_of(batch.data, batch.frames, frame))

    def _put(self, copies: CopyRows) -> int:
        """How many rows were stored: what could not be is tried again one by one, which tells the reason."""
        try:
            return self._store.put_many(copies.drafts()) if len(copies) else 0
        except FlareError:
            return 0

    # One end.

    def _taken(
        self, data: Bytes, rows: list[int], r: int, copies: CopyRows, taken: set[int], op: NewMessage
    ) -> _End | None:
        """Add the rows of an end to `copies`. None, and nothing added, if it is not an ordinary one."""
        texts = []
        for field in range(r + 1, r + 1 + Request.FIELD * _READ, Request.FIELD):
            at, size, kind = rows[field : field + Request.FIELD]
            if at < 0 or kind != Kind.TEXT:
                return None
            texts.append(bytes(data[at : at + size]))
        group, queue_offset, offset, decision = texts
        if decision not in (_COMMIT, _ROLLBACK) or not (queue_offset.isdigit() and offset.isdigit()):
            return None
        if len(queue_offset) > _DIGITS_MAX or len(offset) > _DIGITS_MAX:
            return None
        seen = self._half(int(offset), int(queue_offset), group)
        if seen is None or seen.queue_offset in taken:
            return None
        ledger, key = (
            self._transactions.ledger,
            (seen.property(b"UNIQ_KEY") or b"").decode("utf-8", "replace"),
        )
        if not ledger.is_open(seen.queue_offset, key) or len(ledger.all_of(seen.queue_offset, key)) > 1:
            return None
        topic = b""
        if decision == _COMMIT:
            found = self._commit(seen, copies)
            if found is None:
                return None
            topic = found
        copies.add_new(op, b"%d" % seen.queue_offset)
        return _End(rows[r], seen.queue_offset, key, topic.decode(), len(copies) - 1)

    def _half(self, offset: int, queue_offset: int, group: bytes) -> Glance | None:
        """The prepared message, if it is the one that the request means."""
        record = self._store.record(offset)
        seen = None if record is None else glance(record)
        if seen is None or seen.topic != HALF_TOPIC or seen.queue_offset != queue_offset:
            return None
        return seen if seen.property(b"PGROUP") == group else None

    def _commit(self, seen: Glance, copies: CopyRows) -> bytes | None:
        """Add the committed message. Its topic, or None if there is more to do than that."""
        topic, queue_id = seen.property(b"REAL_TOPIC"), seen.property(b"REAL_QID")
        if topic is None or queue_id is None or not queue_id.isdigit():
            return None
        known = seen.properties
        for part in _MORE:
            if part in known:
                return None
        if self._topics.get(topic.decode("utf-8", "replace")) is None:  # Perhaps damaged.
            return None
        copies.add(
            seen,
            topic,
            int(queue_id),
            known,
            sys_flag=seen.sys_flag & ~sysflag.TRANSACTION_MASK | sysflag.TRANSACTION_COMMIT,
            prepared_offset=seen.physical_offset,
            together=2,
        )
        return topic

    # After the append.

    def _ended(self, batch: Batch, done: Sequence[_End], copies: CopyRows) -> None:
        ledger, end, sizes = self._transactions.ledger, 0, dict[str, list[int]]()
        for each in done:
            ledger.end([each.queue_offset], each.key, committed=bool(each.topic))
            offset, size, op_offset = copies.place(each.row)
            ledger.op(op_offset, each.queue_offset)
            end = offset + size
            if each.topic:
                sizes.setdefault(each.topic, []).append(end - copies.place(each.row - 1)[0])
        for topic, stored in sizes.items():
            self._stats.put(topic, len(stored), sum(stored))
        if ledger.ahead > _AHEAD_MAX:
            self._transactions.notice()
        answers = self._answers(batch, done)
        self._told_stored()
        if self._acks.needed:
            self._hold(answers, end)
            return
        for source, wanted in answers.items():
            source.send_bytes(b"".join(encode_answer(*each) for each in wanted))

    def _answers(self, batch: Batch, done: Sequence[_End]) -> dict[Source, list[tuple[int, int]]]:
        """For each connection, the answers that it gets: how they are serialized, and their numbers."""
        frames, found = batch.frames, dict[Source, list[tuple[int, int]]]()
        for each in done:
            f = each.frame * Frame.WIDTH
            if not frames[f + Frame.FLAG] & ONE_WAY:
                source = batch.sources[frames[f + Frame.CHUNK]]
                found.setdefault(source, []).append((frames[f + Frame.SERIALIZE], frames[f + Frame.OPAQUE]))
        return found

    def _hold(self, answers: dict[Source, list[tuple[int, int]]], end: int) -> None:
        """Answer when the log is safe. An end that is late to be safe has happened all the same."""
        for source in answers:
            source.begun()

        def finish(code: int) -> None:
            failed = code == ResponseCode.SYSTEM_ERROR
            outcome = (code, _NOT_SAFE) if failed else (int(ResponseCode.SUCCESS), b"")
            for source, wanted in answers.items():
                source.send_bytes(b"".join(encode_answer(*each, *outcome) for each in wanted))
                source.ended()

        self._acks.hold(end, finish)
