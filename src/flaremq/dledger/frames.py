"""What members say to each other, as bytes. Pure.

    connection   "FMQR" > HELLO > [WELCOME, or REFUSAL and the end] > messages, one way only
    frame        [size:4][kind:1][...]     the size counts everything behind itself

Whoever connects speaks, and is answered on the connection that the other one makes. So a link that works
in one direction only is seen as what it is. No frame of RocketMQ's protocol begins with these four letters:
as a size they would be above a gigabyte.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeAlias

from flaremq.base.errors import Malformed
from flaremq.base.units import KiB, MiB
from flaremq.dledger.types import (
    EntriesAnswer,
    EntriesRequest,
    EntryRun,
    Message,
    Push,
    PushAnswer,
    RepairMessage,
    Restart,
    TakeOver,
    VoteAnswer,
    VoteRequest,
)
from flaremq.model.columns import Bytes

MAGIC: Final = b"FMQR"
VERSION: Final = 1
FRAME_MAX: Final = 32 * MiB
"""A push of 16 MiB, or of one entry of the largest size, and what stands before it."""
_FIRST_ROOM: Final = 256 * KiB
_TEXT_MAX: Final = 4 * KiB

_SIZE: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">IB")
_VERSION: Final = struct.Struct(">H")
_TEXT: Final = struct.Struct(">H")
_VOTE_REQUEST: Final = struct.Struct(">qqq??qq")
_VOTE_ANSWER: Final = struct.Struct(">q???")
_PUSH: Final = struct.Struct(">qqqqqqq?")
_RUN: Final = struct.Struct(">qqI")
_TERMS: Final = struct.Struct(">qI")
_PUSH_ANSWER: Final = struct.Struct(">qq?qq?q?")
_RESTART: Final = struct.Struct(">qqqqq")
_TAKE_OVER: Final = struct.Struct(">qq")
_ENTRIES_REQUEST: Final = struct.Struct(">qqqqq")
_ENTRIES_ANSWER: Final = struct.Struct(">qq?")


class FrameKind(IntEnum):
    """The byte behind the size."""

    HELLO = 1
    WELCOME = 2
    REFUSAL = 3
    VOTE_REQUEST = 4
    VOTE_ANSWER = 5
    PUSH = 6
    PUSH_ANSWER = 7
    RESTART = 8
    TAKE_OVER = 9
    ENTRIES_REQUEST = 10
    ENTRIES_ANSWER = 11


@dataclass(frozen=True, slots=True)
class Hello:
    """Who connects, and whom it takes the other one for."""

    group: str
    sender: str
    receiver: str
    peers: str
    """The members of the group as the sender's configuration has them."""
    changed: bool
    """Its log says otherwise: members have come or gone since."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The connection may be used."""


@dataclass(frozen=True, slots=True)
class Refusal:
    why: str


Said: TypeAlias = Hello | Welcome | Refusal | Message | RepairMessage


def encode(said: Said) -> list[Bytes]:
    """A frame as pieces; entries are not copied."""
    if isinstance(said, Push):
        return _push(said)
    if isinstance(said, EntriesAnswer):
        return _entries(said)
    kind, body = _plain(said)
    return [_HEAD.pack(1 + len(body), kind) + body]


def _plain(said: Said) -> tuple[int, bytes]:
    match said:
        case Hello():
            names = (said.group, said.sender, said.receiver, said.peers)
            return FrameKind.HELLO, _VERSION.pack(VERSION) + b"".join(map(_text, names)) + bytes(
                [said.changed]
            )
        case Welcome():
            return FrameKind.WELCOME, b""
        case Refusal(why):
            return FrameKind.REFUSAL, _text(why)
        case VoteRequest():
            end = said.last_index, said.last_term
            fields = said.term, *end, said.is_poll, said.is_transfer, said.round, said.group
            return FrameKind.VOTE_REQUEST, _VOTE_REQUEST.pack(*fields)
        case VoteAnswer():
            return FrameKind.VOTE_ANSWER, _VOTE_ANSWER.pack(*_vote(said))
        case PushAnswer():
            place = said.matched, said.matched_term
            answer = said.term, said.round, said.is_matching, *place, said.is_voter
            return FrameKind.PUSH_ANSWER, _PUSH_ANSWER.pack(*answer, said.doubt, said.is_damaged)
        case Restart():
            begin = said.first, said.position, said.previous_term
            return FrameKind.RESTART, _RESTART.pack(said.term, said.round, *begin)
        case TakeOver():
            return FrameKind.TAKE_OVER, _TAKE_OVER.pack(said.term, said.round)
        case EntriesRequest():
            asked = said.number, said.first, said.last, said.previous_term, said.next_term
            return FrameKind.ENTRIES_REQUEST, _ENTRIES_REQUEST.pack(*asked)
        case _:
            raise AssertionError(said)


def _vote(answer: VoteAnswer) -> tuple[int, bool, bool, bool]:
    return answer.term, answer.is_granted, answer.is_poll, answer.is_voter


def _push(push: Push) -> list[Bytes]:
    run = push.run
    head = _PUSH.pack(
        *(push.term, push.previous_index, push.previous_term, push.commit, push.round),
        *(push.group, push.vouched, run is not None),
    )
    if run is None:
        return [_HEAD.pack(1 + len(head), FrameKind.PUSH) + head]
    return _with_run(FrameKind.PUSH, head, run)


def _entries(answer: EntriesAnswer) -> list[Bytes]:
    head = _ENTRIES_ANSWER.pack(answer.number, answer.begins, answer.run is not None)
    if answer.run is not None:
        return _with_run(FrameKind.ENTRIES_ANSWER, head, answer.run)
    head += _text(answer.why)
    return [_HEAD.pack(1 + len(head), FrameKind.ENTRIES_ANSWER) + head]


def _with_run(kind: FrameKind, head: bytes, run: EntryRun) -> list[Bytes]:
    head += _RUN.pack(run.first, run.position, len(run.terms))
    head += b"".join(_TERMS.pack(term, count) for term, count in run.terms)
    return [_HEAD.pack(1 + len(head) + len(run.data), kind) + head, run.data]


def _text(text: str) -> bytes:
    encoded = text.encode()[:_TEXT_MAX]
    return _TEXT.pack(len(encoded)) + encoded


def decode(frame: memoryview) -> Said:
    """A frame without its size. Entries are a part of it, not a copy. Raises Malformed."""
    kind, body = frame[0], frame[1:]
    reader = _READERS.get(kind)
    if reader is None:
        raise Malformed(f"a member says something of kind {kind}: expected 1 to {max(FrameKind)}")
    try:
        return reader(body)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise Malformed(f"what a member says (kind {kind}, {len(body)} bytes) is broken: {error}") from error


def _whole(layout: struct.Struct, body: memoryview) -> tuple[Any, ...]:
    """All fields of a frame that has nothing else."""
    return layout.unpack(body)


def _read_hello(body: memoryview) -> Hello:
    (version,) = _VERSION.unpack_from(body)
    if version != VERSION:
        raise Malformed(
            f"a member speaks version {version} of the group's protocol, and this one {VERSION}: "
            "run the same version of FlareMQ in both"
        )
    group, at = _read_text(body, _VERSION.size)
    sender, at = _read_text(body, at)
    receiver, at = _read_text(body, at)
    peers, at = _read_text(body, at)
    return Hello(group, sender, receiver, peers, bool(body[at]))


def _read_text(body: memoryview, at: int) -> tuple[str, int]:
    (size,) = _TEXT.unpack_from(body, at)
    at += _TEXT.size
    if at + size > len(body):
        raise IndexError(f"a text of {size} bytes ends behind the frame")
    return str(body[at : at + size], "utf-8"), at + size


def _read_push(body: memoryview) -> Push:
    *numbers, group, vouched, has_run = _PUSH.unpack_from(body)
    term, previous_index, previous_term, commit, number = numbers
    run = _read_run(body[_PUSH.size :]) if has_run else None
    return Push(term, previous_index, previous_term, commit, number, run, group, vouched)


def _read_run(body: memoryview) -> EntryRun:
    first, position, count = _RUN.unpack_from(body)
    at = _RUN.size + count * _TERMS.size
    if not count or at > len(body):
        raise IndexError(f"a run of {count} terms does not fit")
    terms = tuple(_TERMS.iter_unpack(body[_RUN.size : at]))
    return EntryRun(first, position, terms, body[at:])


def _read_entries(body: memoryview) -> EntriesAnswer:
    number, begins, has_run = _ENTRIES_ANSWER.unpack_from(body)
    if has_run:
        return EntriesAnswer(number, _read_run(body[_ENTRIES_ANSWER.size :]), begins)
    return EntriesAnswer(number, None, begins, _read_text(body, _ENTRIES_ANSWER.size)[0])


_READERS: Final[Mapping[int, Callable[[memoryview], Said]]] = {
    FrameKind.HELLO: _read_hello,
    FrameKind.WELCOME: lambda _: Welcome(),
    FrameKind.REFUSAL: lambda body: Refusal(_read_text(body, 0)[0]),
    FrameKind.VOTE_REQUEST: lambda body: VoteRequest(*_whole(_VOTE_REQUEST, body)),
    FrameKind.VOTE_ANSWER: lambda body: VoteAnswer(*_whole(_VOTE_ANSWER, body)),
    FrameKind.PUSH: _read_push,
    FrameKind.PUSH_ANSWER: lambda body: PushAnswer(*_whole(_PUSH_ANSWER, body)),
    FrameKind.RESTART: lambda body: Restart(*_whole(_RESTART, body)),
    FrameKind.TAKE_OVER: lambda body: TakeOver(*_whole(_TAKE_OVER, body)),
    FrameKind.ENTRIES_REQUEST: lambda body: EntriesRequest(*_whole(_ENTRIES_REQUEST, body)),
    FrameKind.ENTRIES_ANSWER: _read_entries,
}


class FrameBuffer:
    """The bytes of a connection, taken apart where they were read to."""

    __slots__ = ("_begin", "_buffer", "_end")

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(_FIRST_ROOM))
        self._begin = self._end = 0

    def room(self) -> memoryview:
        """Where to read to; never empty. What was taken from the buffer before is written over."""
        if self._begin:
            rest = self._end - self._begin
            self._buffer[:rest] = self._buffer[self._begin : self._end]
            self._begin, self._end = 0, rest
        if self._end == len(self._buffer):
            self._grow(2 * len(self._buffer))
        return self._buffer[self._end :]

    def filled(self, size: int) -> None:
        self._end += size

    def take(self, size: int) -> memoryview | None:
        """Bytes that are no frame; None if they have not all arrived yet."""
        if self._end - self._begin < size:
            return None
        self._begin += size
        return self._buffer[self._begin - size : self._begin]

    def frame(self) -> memoryview | None:
        """The next whole frame without its size; None if it has not arrived yet. Raises Malformed for one
        that cannot be. Valid until `room` is asked for."""
        if self._end - self._begin < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, self._begin)
        if not 0 < size <= FRAME_MAX:
            raise Malformed(f"a frame of {size} bytes: expected 1 to {FRAME_MAX}; what sends it is no member")
        if self._end - self._begin - _SIZE.size < size:
            if _SIZE.size + size > len(self._buffer):
                self._grow(_SIZE.size + size)
            return None
        self._begin += _SIZE.size
        return self.take(size)

    def _grow(self, size: int) -> None:
        larger = memoryview(bytearray(size))
        rest = self._end - self._begin
        larger[:rest] = self._buffer[self._begin : self._end]
        self._buffer, self._begin, self._end = larger, 0, rest
