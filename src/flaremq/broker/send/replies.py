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
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.tables import Tables
from flaremq.model import properties, sysflag
from flaremq.model.columns import Bytes
from flaremq.protocol.bulk.answers import encode_answer
from flaremq.protocol.bulk.burst import command_of
from flaremq.protocol.bulk.columns import Frame, Kind, Plain, Request
from flaremq.protocol.bulk.requests import parse_requests
from flaremq.protocol.codes import (
    CURRENT_VERSION,
    ONE_WAY,
    RESPONSE,
    RequestCode,
    ResponseCode,
    SerializeType,
)
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.frame import encode_frame
from flaremq.remoting.pending import Pending
from flaremq.remoting.turn import Batch, PlainRow, Source, leave_all
from flaremq.store.copyrows import CopyRows
from flaremq.store.drafts import NewMessage
from flaremq.store.store import MessageStore

CODES: Final = frozenset({RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2})
_NAMES: Final = (
    *(b"producerGroup", b"topic", b"defaultTopic", b"defaultTopicQueueNums", b"queueId", b"sysFlag"),
    *(b"bornTimestamp", b"flag", b"properties", b"reconsumeTimes", b"unitMode", b"maxReconsumeTimes"),
    *(b"batch", b"bname"),
)
_LETTERS: Final = tuple(bytes([letter]) for letter in b"abcdefghijklmn")
_TOPIC, _QUEUE_ID, _BORN, _FLAG, _PROPERTIES, _TIMES = 1, 4, 6, 7, 8, 9
_NEEDED: Final = 9
_NUMBERS: Final = {3: 9, _QUEUE_ID: 9, 5: 9, _BORN: 18, _FLAG: 9}
"""Fields that are numbers, and how many digits each may have here: all that have so many fit."""
_FALSE: Final = (10, 12)  # Must be false, or not be there.
_WIDTH: Final = 1 + Request.FIELD * len(_NAMES)
_MORE: Final = frozenset(
    name.encode()
    for name in (
        *(properties.DELAY, properties.TRANSACTION_PREPARED, properties.POP_CK, properties.MSG_REGION),
        *(properties.TRACE_ON, properties.CLUSTER),
    )
)
"""Properties for which a reply needs more than to be kept."""
_MORE_PREFIXES: Final = (b"TIMER_", b"INNER_", b"__")
_NAME_END, _END = rb"\u0001", rb"\u0002"  # As they stand in JSON.
_SYS_FLAG: Final = sysflag.COMPRESSED | sysflag.MULTI_TAGS | sysflag.COMPRESSION_MASK
_PUSH: Final = (
    b'{"code":%d,"extFields":{"producerGroup":"%%b","topic":"%%b","defaultTopic":"%%b",'
    b'"defaultTopicQueueNums":"%%b","queueId":"%%b","sysFlag":"%%b","bornTimestamp":"%%b","flag":"%%b",'
    rb'"properties":"%%bPUSH_REPLY_TIME\u0001%%d\u0002","reconsumeTimes":"%%b","unitMode":"false",'
    b'"bornHost":"%%b","storeHost":"%%b","storeTimestamp":"%%d"},"flag":0,"language":"JAVA","opaque":%%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":%%d}'
) % RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
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
    message: NewMessage
    """To be kept."""
    client_id: str
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
            parse_requests(*tables, (RequestCode.SEND_REPLY_MESSAGE,), _NAMES),
            parse_requests(*tables, (RequestCode.SEND_REPLY_MESSAGE_V2,), _LETTERS),
        ]
        acknowledged = self._acknowledged(batch) if self._pushes else 0
        return acknowledged + sum(len(rows) for rows in self._rows) // _WIDTH

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
        touched: set[_Pushes] = set()
        for rows in parsed:
            for r in range(0, len(rows), _WIDTH):
                pushes = self._pushed(batch, rows[r : r + _WIDTH])
                if pushes is not None:
                    touched.add(pushes)
                else:
                    source = batch.sources[batch.frames[rows[r] * Frame.WIDTH + Frame.CHUNK]]
                    source.received(command_of(batch.data, batch.frames, rows[r]))
        for pushes in touched:
            out, pushes.out = pushes.out, []
            pushes.requester.send_bytes(b"".join(out))

    # One reply.

    def _pushed(self, batch: Batch, row: array[int]) -> _Pushes | None:
        """Make the frame for its requester. None if the reply is not an ordinary one."""
        f, settings = row[0] * Frame.WIDTH, self._live.now
        frames = batch.frames
        body_at, body_size = frames[f + Frame.BODY_AT], frames[f + Frame.BODY_SIZE]
        texts = _texts(batch, row)
        if texts is None or not body_size or frames[f + Frame.SERIALIZE] != SerializeType.JSON:
            return None
        known = _known(texts[_PROPERTIES])
        if known is None or not self._is_open(texts[_TOPIC], int(texts[_QUEUE_ID])):
            return None
        client_id = known.get(b"REPLY_TO_CLIENT", b"").decode()
        pushes = self._to(client_id)
        if pushes is None:
            return None
        source = batch.sources[frames[f + Frame.CHUNK]]
        body = bytes(batch.data[body_at : body_at + body_size])
        tail = self._plain.tail if settings.store_replies else b""
        message = NewMessage(
            topic=texts[_TOPIC],
            body=body,
            queue_id=int(texts[_QUEUE_ID]),
            properties=b"".join(b"%b\x01%b\x02" % pair for pair in known.items()) + tail,
            flag=int(texts[_FLAG]),
            sys_flag=int(texts[5]) & _SYS_FLAG,
            born_timestamp_ms=int(texts[_BORN]),
            born_host=source.host,
            reconsume_times=int(texts[_TIMES] or b"0"),
        )
        wants_answer = not frames[f + Frame.FLAG] & ONE_WAY
        reply = _Reply(source, frames[f + Frame.OPAQUE], wants_answer, message, client_id)
        self._begin(pushes, reply, self._frame(texts, source, pushes, body))
        return pushes

    def _is_open(self, topic: bytes, queue_id: int) -> bool:
        """Whether a reply to this topic may be kept."""
        config = self._tables.topics.get(topic.decode())
        if config is None or topic.startswith(b"%") or not self._plain.is_open or config.is_batch_queue:
            return False
        return queue_id < max(config.write_queue_nums, config.read_queue_nums) and not config.is_compacted

    def _to(self, client_id: str) -> _Pushes | None:
        """The requester, if it takes more now."""
        requester = cast(ReplyTaker | None, self._tables.producers.by_client_id(client_id))
        if requester is None or not isinstance(getattr(requester, "pending", None), Pending):
            return None
        if not requester.is_open or requester.is_full:
            return None
        pushes = self._pushes.get(requester)
        if pushes is None:
            pushes = self._pushes[requester] = _Pushes(requester, self._finish)
        return pushes if len(pushes.replies) < _PUSHES_MAX else None

    def _frame(self, texts: list[bytes], source: Source, pushes: _Pushes, body: bytes) -> tuple[int, bytes]:
        """Its number, and the frame: the fields are as they came, with what this broker adds."""
        now_ms, opaque = self._clock.now_ms(), pushes.requester.pending.next_opaque()
        raw = texts[_PROPERTIES]
        host, port = cast(Any, source).address
        header = _PUSH % (
            *texts[:8],
            raw if raw.endswith(_END) else raw + _END,
            now_ms,
            texts[_TIMES] or b"0",
            f"{host}:{port}".encode(),
            self._address().encode(),
            now_ms,
            opaque,
            CURRENT_VERSION,
        )
        size = 4 + len(header) + len(body)
        return opaque, size.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body

    def _begin(self, pushes: _Pushes, reply: _Reply, framed: tuple[int, bytes]) -> None:
        opaque, frame = framed
        deadline_s = self._loop.time() + FORWARD_TIMEOUT_S
        pushes.replies[opaque] = reply
        pushes.requester.pending.taken_by[opaque] = pushes
        pushes.out.append(frame)
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
            rows.add_new(reply.message)
        with suppress(FlareError):  # Its requester has it. The store tells what is wrong with it.
            stored = self._store.put_many(rows.drafts())
        places: list[tuple[int, int] | None] = []
        for row, reply in enumerate(done):
            physical, size, queue_offset = rows.place(row)
            places.append((physical, queue_offset) if row < stored else None)
            if row < stored:
                self._stats.put(reply.message.topic.decode(), 1, size)
        self._told_stored()
        return places

    def _answer(self, reply: _Reply, place: tuple[int, int] | None) -> bytes:
        """As `handlers.reply` answers."""
        host = self._plain.host.encode()
        message_id = b"0" if place is None else b"%b%016X" % (host, place[0])
        fields = {
            b"msgId": message_id,
            b"queueId": b"%d" % reply.message.queue_id,
            b"queueOffset": b"%d" % (0 if place is None else place[1]),
            **{name.encode(): value.encode() for name, value in self._plain.fields.items()},
        }
        if reply.why_not is None:
            return encode_answer(SerializeType.JSON, reply.opaque, fields=fields)
        remark = f"push reply message to <{reply.client_id}>fail. {reply.why_not}".rstrip()
        told = {name.decode(): value.decode() for name, value in fields.items()}
        request = Command(code=RequestCode.SEND_REPLY_MESSAGE, opaque=reply.opaque)
        return encode_frame(response_to(request, ResponseCode.SYSTEM_ERROR, remark, ext_fields=told))


def _texts(batch: Batch, row: array[int]) -> list[bytes] | None:
    """The fields of a reply, empty where it has none; None if they are not ordinary."""
    found = []
    for number in range(len(_NAMES)):
        at, size, kind = row[1 + number * Request.FIELD : 1 + (number + 1) * Request.FIELD]
        if (at < 0 and number < _NEEDED) or kind & ~(Kind.ESCAPED if number == _PROPERTIES else Kind.TEXT):
            return None
        found.append(bytes(batch.data[at : at + size]) if at >= 0 else b"")
    for number, digits_max in _NUMBERS.items():
        if not found[number].isdigit() or len(found[number]) > digits_max:
            return None
    if found[_TIMES] not in (b"", b"0") or any(found[number] not in (b"", b"false") for number in _FALSE):
        return None
    return found if found[_TOPIC] else None


def _known(raw: bytes) -> dict[bytes, bytes] | None:
    """Its properties; None if they are more than a reply needs, or are written in an unusual way."""
    text = raw.replace(_NAME_END, b"\x01").replace(_END, b"\x02")
    if b"\\" in text:
        return None
    known: dict[bytes, bytes] = {}
    pairs = text.removesuffix(b"\x02").split(b"\x02")
    for pair in pairs:
        name, _, value = pair.partition(b"\x01")
        if not name or not value or name in _MORE or name.startswith(_MORE_PREFIXES):
            return None
        known[name] = value
    return known if len(known) == len(pairs) and b"UNIQ_KEY" in known else None
