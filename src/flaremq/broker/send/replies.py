"""Replies, many at once: those of a turn are pushed to their requesters together, and kept in one append.

    reply > [push] > the requester's connection > its answer > [keep] > the answer to the replier

The ordinary case only, as in every lane: whatever else a reply may be is left to `handlers.reply`.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError
from flaremq.base.live import Live
from flaremq.broker.clientcalls import FORWARD_TIMEOUT_S
from flaremq.broker.send.plain import PlainSends
from flaremq.broker.send.pushes import LETTERS, NAMES, WIDTH, ReplyDraft, read_replies
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.tables import Tables
from flaremq.model.columns import Bytes
from flaremq.protocol.bulk.burst import command_of
from flaremq.protocol.bulk.columns import Frame, Plain
from flaremq.protocol.bulk.requests import parse_requests
from flaremq.protocol.codes import CURRENT_VERSION, ONE_WAY, RESPONSE, RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.frame import encode_frame
from flaremq.remoting.pending import Pending
from flaremq.remoting.turn import Batch, PlainRow, Source, leave_all
from flaremq.store.copyrows import CopyRows
from flaremq.store.drafts import NewMessage
from flaremq.store.store import MessageStore

CODES: Final = frozenset({RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2})
_TOLD: Final = (
    b'{"code":0,"extFields":{"msgId":"%%b","queueId":"%%d","queueOffset":"%%d"%%b},"flag":1,'
    b'"language":"JAVA","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
) % CURRENT_VERSION
_PUSHES_MAX: Final = 4096
_NO_AGE: Final = 1 << 40


class ReplyTaker(Protocol):
    """The connection of a client that waits for replies."""

    pending: Pending
    is_full: bool

    @property
    def is_open(self) -> bool: ...
    def send_bytes(self, data: Bytes) -> None: ...


@dataclass(slots=True, eq=False)
class _Reply:
    """A reply that is under way."""

    source: Source
    """Of the replier."""
    opaque: int
    wants_answer: bool
    draft: ReplyDraft
    """To be kept."""
    why_not: str | None = None
    """Why the requester did not get it."""


class _Pushes:
    """What one requester has not acknowledged yet."""

    def __init__(self, requester: ReplyTaker, done: Callable[[_Reply], None]) -> None:
        self.requester = requester
        self._done = done
        self.replies: dict[int, _Reply] = {}
        self.out: list[bytes] = []

    def acknowledged(self, opaque: int, code: int) -> None:
        reply = self.replies.pop(opaque, None)
        if reply is not None:
            if code != ResponseCode.SUCCESS:
                reply.why_not = ""
            self._done(reply)

    # The protocol of a taker of answers.

    def answered(self, opaque: int, response: Command) -> None:
        self.acknowledged(opaque, response.code)

    def stored(
        self, opaque: int, _queue_id: int, _queue_offset: int, _offset_id: str, _region: str | None
    ) -> None:
        self.acknowledged(opaque, ResponseCode.SUCCESS)

    def lost(self, opaque: int, error: Exception) -> None:
        reply = self.replies.pop(opaque, None)
        if reply is not None:
            reply.why_not = str(error)
            self._done(reply)


class _Turn:
    """What is the same for all replies of a turn, or for many."""

    def __init__(self, batch: Batch, now_ms: int, store_host: bytes) -> None:
        self.batch = batch
        self.now_ms = now_ms
        self.store_host = store_host
        self.is_open: dict[tuple[bytes, int], bool] = {}
        self.touched: dict[_Pushes, None] = {}
        self._addresses: dict[Source, bytes] = {}

    def address_of(self, source: Source) -> bytes:
        known = self._addresses.get(source)
        if known is None:
            host, port = cast(Any, source).address
            known = self._addresses[source] = f"{host}:{port}".encode()
        return known


class ReplyLane:
    def __init__(
        self,
        settings: Live[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        plain: PlainSends,
        stats: Stats,
        clock: Clock,
        *,
        address: Callable[[], str],
        stored: Callable[[], None],
    ) -> None:
        """`address` is the one that clients connect to; `stored` is called when there is more to dispatch."""
        self._live = settings
        self._store = store
        self._tables = tables
        self._plain = plain
        self._stats = stats
        self._clock = clock
        self._address = address
        self._told_stored = stored
        self._loop = asyncio.get_running_loop()
        self._rows: list[array[int]] = []
        self._pushes: dict[ReplyTaker, _Pushes] = {}
        self._deadlines: deque[tuple[float, _Pushes, int]] = deque()
        """Of all replies under way, and of some that have ended: these hold no body, and leave in time."""
        self._done: list[_Reply] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def codes(self) -> frozenset[int]:
        return CODES

    @property
    def age_max_ms(self) -> int:
        return _NO_AGE

    def parse(self, batch: Batch) -> int:
        if batch.gate is not None:  # It is shown each request.
            leave_all(batch, CODES)
        tables = batch.data, batch.chunks, batch.frames, batch.pairs
        self._rows = [
            parse_requests(*tables, (RequestCode.SEND_REPLY_MESSAGE,), NAMES),
            parse_requests(*tables, (RequestCode.SEND_REPLY_MESSAGE_V2,), LETTERS),
        ]
        acknowledged = self._acknowledged(batch) if self._pushes else 0
        return acknowledged + sum(len(rows) for rows in self._rows) // WIDTH

    def _acknowledged(self, batch: Batch) -> int:
        """Take the answers of requesters. How many."""
        frames, taken = batch.frames, 0
        for f in range(0, len(frames), Frame.WIDTH):
            if frames[f + Frame.FLAG] & RESPONSE and not frames[f + Frame.PLAIN]:
                source = cast(Any, batch.sources[frames[f + Frame.CHUNK]])
                pushes = self._pushes.get(source)
                opaque = frames[f + Frame.OPAQUE]
                if pushes is not None and source.pending.taken_by.get(opaque) is pushes:
                    del source.pending.taken_by[opaque]
                    frames[f + Frame.PLAIN] = Plain.TAKEN
                    pushes.acknowledged(opaque, frames[f + Frame.CODE])
                    taken += 1
        return taken

    def run(self, batch: Batch, plain: Sequence[PlainRow]) -> None:
        for each in plain:
            each.source.received(each.command)
        parsed, self._rows = self._rows, []
        tail = self._plain.tail if self._live.now.store_replies else b""
        turn = _Turn(batch, self._clock.now_ms(), self._address().encode())
        for rows in parsed:
            for frame, draft in read_replies(batch.data, batch.frames, rows, tail) if rows else ():
                if draft is None or not self._pushed(turn, draft):
                    source = batch.sources[batch.frames[frame * Frame.WIDTH + Frame.CHUNK]]
                    source.received(command_of(batch.data, batch.frames, frame))
        for pushes in turn.touched:
            out, pushes.out = pushes.out, []
            pushes.requester.send_bytes(b"".join(out))

    # One reply.

    def _pushed(self, turn: _Turn, draft: ReplyDraft) -> bool:
        """Make the frame for its requester. False if the reply is not an ordinary one."""
        place = draft.topic, draft.queue_id
        is_open = turn.is_open.get(place)
        if is_open is None:
            is_open = turn.is_open[place] = self._is_open(*place)
        pushes = self._to(draft.client_id) if is_open else None
        if pushes is None:
            return False
        frames, f = turn.batch.frames, draft.frame * Frame.WIDTH
        source = turn.batch.sources[frames[f + Frame.CHUNK]]
        draft.born_host = source.host
        opaque = pushes.requester.pending.next_opaque()
        pushes.out.append(draft.push(opaque, turn.now_ms, turn.address_of(source), turn.store_host))
        wants_answer = not frames[f + Frame.FLAG] & ONE_WAY
        self._begin(pushes, opaque, _Reply(source, frames[f + Frame.OPAQUE], wants_answer, draft))
        turn.touched[pushes] = None
        return True

    def _is_open(self, topic: bytes, queue_id: int) -> bool:
        """Whether a reply to this topic may be kept."""
        config = self._tables.topics.get(topic.decode())
        if config is None or topic.startswith(b"%") or not self._plain.is_open or config.is_batch_queue:
            return False
        return queue_id < max(config.write_queue_nums, config.read_queue_nums) and not config.is_compacted

    def _to(self, client_id: bytes) -> _Pushes | None:
        """The requester, if it takes more now."""
        requester = cast(ReplyTaker | None, self._tables.producers.by_client_id(client_id.decode()))
        if requester is None or not isinstance(getattr(requester, "pending", None), Pending):
            return None
        if not requester.is_open or requester.is_full:
            return None
        pushes = self._pushes.get(requester)
        if pushes is None:
            pushes = self._pushes[requester] = _Pushes(requester, self._finish)
        return pushes if len(pushes.replies) < _PUSHES_MAX else None

    def _begin(self, pushes: _Pushes, opaque: int, reply: _Reply) -> None:
        deadline_s = self._loop.time() + FORWARD_TIMEOUT_S
        pushes.replies[opaque] = reply
        pushes.requester.pending.taken_by[opaque] = pushes
        self._deadlines.append((deadline_s, pushes, opaque))
        reply.source.begun()
        if self._timer is None:
            self._timer = self._loop.call_at(deadline_s, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        self._forget_ended()
        while self._deadlines and self._deadlines[0][0] <= now_s:
            _, pushes, opaque = self._deadlines.popleft()
            pushes.requester.pending.forget(opaque)
            pushes.lost(opaque, TimeoutError(f"it did not answer within {FORWARD_TIMEOUT_S:g} s"))
            self._forget_ended()
        if self._deadlines:
            self._timer = self._loop.call_at(self._deadlines[0][0], self._expire)

    def _forget_ended(self) -> None:
        while self._deadlines and self._deadlines[0][2] not in self._deadlines[0][1].replies:
            self._deadlines.popleft()

    @property
    def under_way(self) -> int:
        """Replies that their requesters have not acknowledged yet."""
        return sum(len(pushes.replies) for pushes in self._pushes.values())

    # After the requester's answer.

    def _finish(self, reply: _Reply) -> None:
        if not self._done:
            self._loop.call_soon(self._keep_and_answer)
        self._done.append(reply)

    def _keep_and_answer(self) -> None:
        done, self._done = self._done, []
        try:
            self._answer_all(done)
        finally:  # Whatever happens, their connections may be closed.
            for reply in done:
                reply.source.ended()

    def _answer_all(self, done: Sequence[_Reply]) -> None:
        self._forget_ended()
        for requester in [each for each, pushes in self._pushes.items() if not pushes.replies]:
            del self._pushes[requester]
        places = self._keep(done) if self._live.now.store_replies else [None] * len(done)
        answers: dict[Source, list[bytes]] = {}
        for reply, place in zip(done, places, strict=True):
            if reply.wants_answer:
                answers.setdefault(reply.source, []).append(self._answer(reply, place))
        for source, frames in answers.items():
            source.send_bytes(b"".join(frames))

    def _keep(self, done: Sequence[_Reply]) -> list[tuple[int, int] | None]:
        """Where each is kept: physical offset and queue offset. None if it could not be: no harm is done."""
        rows, stored = CopyRows(self._store.offsets), 0
        for reply in done:
            rows.add_new(cast(NewMessage, reply.draft))  # It has what a new message has.
        with suppress(FlareError):  # Its requester has it. The store tells what is wrong with it.
            stored = self._store.put_many(rows.drafts())
        places: list[tuple[int, int] | None] = [None] * len(done)
        sizes: dict[bytes, list[int]] = {}
        for row in range(stored):
            physical, size, queue_offset = rows.place(row)
            places[row] = physical, queue_offset
            sizes.setdefault(done[row].draft.topic, []).append(size)
        for topic, of_topic in sizes.items():
            self._stats.put(topic.decode(), len(of_topic), sum(of_topic))
        self._told_stored()
        return places

    def _answer(self, reply: _Reply, place: tuple[int, int] | None) -> bytes:
        """As `handlers.reply` answers."""
        queue_id, fields = reply.draft.queue_id, self._plain.fields
        message_id = "0" if place is None else f"{self._plain.host}{place[0]:016X}"
        queue_offset = 0 if place is None else place[1]
        if reply.why_not is None:
            more = "".join(f',"{name}":"{value}"' for name, value in fields.items()).encode()
            header = _TOLD % (message_id.encode(), queue_id, queue_offset, more, reply.opaque)
            size = len(header)
            return (size + 4).to_bytes(4, "big") + size.to_bytes(4, "big") + header
        remark = f"push reply message to <{reply.draft.client_id.decode()}>fail. {reply.why_not}".rstrip()
        told = {"msgId": message_id, "queueId": str(queue_id), "queueOffset": str(queue_offset), **fields}
        request = Command(code=RequestCode.SEND_REPLY_MESSAGE, opaque=reply.opaque)
        return encode_frame(response_to(request, ResponseCode.SYSTEM_ERROR, remark, ext_fields=told))
