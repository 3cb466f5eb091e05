"""The ends of transactions, many at once: all that came in a turn are stored in one append.

The ordinary case only: a prepared message that is open, ended by its own group, committed at once. Each other
end is left to `requests`, which says what is wrong with it, or does more for it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final

from flaremq.base.errors import FlareError
from flaremq.broker.send.acks import Acks
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.topics import TopicConfigs
from flaremq.broker.transactions.ends import FIELDS, WIDTH, Ends
from flaremq.broker.transactions.transactions import Transactions
from flaremq.protocol.bulk.answers import encode_answers
from flaremq.protocol.bulk.burst import command_of
from flaremq.protocol.bulk.columns import Frame
from flaremq.protocol.bulk.requests import parse_requests
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.remoting.turn import Batch, PlainRow, leave_all
from flaremq.store.store import MessageStore

CODES: Final = frozenset({RequestCode.END_TRANSACTION})
_AHEAD_MAX: Final = 1024
_NO_AGE: Final = 1 << 40
_NOT_SAFE: Final = b"the transaction has ended, but the disk failed: its end may be lost"


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
        self._rows = parse_requests(*tables, tuple(CODES), FIELDS)
        return len(self._rows) // WIDTH

    def run(self, batch: Batch, plain: Sequence[PlainRow]) -> None:
        for each in plain:
            each.source.received(each.command)
        rows, self._rows = self._rows, array("q")
        if rows:
            self._end_all(batch, rows)

    def _end_all(self, batch: Batch, rows: array[int]) -> None:
        ends = Ends(self._store.offsets, self._transactions.op(0))
        known, ledger = self._topics.all(), self._transactions.ledger
        left = ends.take(
            batch.data, rows, self._store.log.window, ledger.is_alone, lambda topic: topic in known
        )
        stored = ends.done(self._put(ends))
        if stored:
            self._ended(batch, ends, stored)
        for frame in (*left, *ends.frames[stored:]):
            source = batch.sources[batch.frames[frame * Frame.WIDTH + Frame.CHUNK]]
            source.received(command_of(batch.data, batch.frames, frame))

    def _put(self, ends: Ends) -> int:
        """How many rows were stored: what could not be is tried again one by one, which tells the reason."""
        try:
            return self._store.put_many(ends.drafts()) if len(ends) else 0
        except FlareError:
            return 0

    def _ended(self, batch: Batch, ends: Ends, stored: int) -> None:
        ledger = self._transactions.ledger
        queue_offsets = ends.queue_offsets[:stored]
        ledger.end_many(queue_offsets, dict(zip(ends.keys, map(bool, ends.topics[:stored]), strict=False)))
        ledger.ops(ends.places(stored), queue_offsets)
        for topic, (messages, size) in ends.sizes(stored).items():
            self._stats.put(topic, messages, size)
        if ledger.ahead > _AHEAD_MAX:
            self._transactions.notice()
        self._told_stored()
        frames = ends.frames[:stored]
        if self._acks.needed:
            self._hold(batch, frames, ends.end(stored))
            return
        for chunk, answers in encode_answers(batch.frames, frames):
            batch.sources[chunk].send_bytes(answers)

    def _hold(self, batch: Batch, frames: Sequence[int], end: int) -> None:
        """Answer when the log is safe. An end that is late to be safe has happened all the same."""
        table, sources = batch.frames, batch.sources  # The bytes of the turn are not kept.
        waiting = [sources[chunk] for chunk, _ in encode_answers(table, frames)]
        for source in waiting:
            source.begun()

        def finish(code: int) -> None:
            failed = code == ResponseCode.SYSTEM_ERROR
            outcome = (code, _NOT_SAFE) if failed else (int(ResponseCode.SUCCESS), b"")
            for chunk, answers in encode_answers(table, frames, *outcome):
                sources[chunk].send_bytes(answers)
            for source in waiting:
                source.ended()

        self._acks.hold(end, finish)
