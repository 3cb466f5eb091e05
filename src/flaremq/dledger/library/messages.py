"""What members that speak the DLedger library's protocol (0.3.x) say to each other: JSON documents. Pure.

    request    code, and a document with group, localId (who asks), remoteId (who is asked), leaderId, term
    answer     a document whose `code` is the result; the frame around it always says 200

Java leaves out what is null, and reads a missing number as its default, so the same is done here. Enums are
names, bytes are base64. A document of another kind than expected, or a number that is none, is Malformed.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any, Final, TypeAlias

import orjson

from flaremq.base.errors import Malformed
from flaremq.dledger.types import EntryRun, Index, MemberId, Term
from flaremq.model import layout
from flaremq.model.columns import Bytes

_HEAD: Final = struct.Struct(layout.DLEDGER_HEADER_FORMAT)
_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_FLARE: Final = "flaremq"
_ID_MAX: Final = 255


class LibraryCode(IntEnum):
    """The code of a request."""

    METADATA = 50000
    VOTE = 51001
    HEART_BEAT = 51002
    PUSH = 51004
    LEADERSHIP_TRANSFER = 51005


class Result(IntEnum):
    """The `code` of an answer: those that members give each other."""

    SUCCESS = 200
    NETWORK_ERROR = 302
    UNKNOWN_GROUP = 400
    UNKNOWN_MEMBER = 401
    UNEXPECTED_MEMBER = 402
    EXPIRED_TERM = 403
    NOT_LEADER = 404
    NOT_FOLLOWER = 405
    INCONSISTENT_STATE = 406
    INCONSISTENT_TERM = 407
    INCONSISTENT_LEADER = 409
    UNEXPECTED_ARGUMENT = 411
    REPEATED_PUSH = 413
    TERM_NOT_READY = 416
    FALL_BEHIND_TOO_MUCH = 417
    TAKE_LEADERSHIP_FAILED = 418
    PUSH_REQUEST_IS_FULL = 421
    LEADER_TRANSFERRING = 506


VOTE_RESULTS: Final = (
    *("UNKNOWN", "ACCEPT", "REJECT_UNKNOWN_LEADER", "REJECT_UNEXPECTED_LEADER", "REJECT_EXPIRED_VOTE_TERM"),
    *("REJECT_ALREADY_VOTED", "REJECT_ALREADY_HAS_LEADER", "REJECT_TERM_NOT_READY"),
    *("REJECT_TERM_SMALL_THAN_LEDGER", "REJECT_EXPIRED_LEDGER_TERM", "REJECT_SMALL_LEDGER_END_INDEX"),
    "REJECT_TAKING_LEADERSHIP",
)
PUSH_TYPES: Final = ("APPEND", "COMMIT", "COMPARE", "TRUNCATE")


@dataclass(frozen=True, slots=True)
class LibraryEntry:
    """An entry as it lies in a log, head included."""

    index: Index
    term: Term
    position: int
    data: bytes

    @property
    def end(self) -> int:
        return self.position + len(self.data)


def entries_in(run: EntryRun) -> list[LibraryEntry]:
    """The entries of a run, one by one."""
    found, at, view = list[LibraryEntry](), 0, memoryview(run.data)
    while at < len(view):
        _, size, index, term, position, *_ = _HEAD.unpack_from(view, at)
        found.append(LibraryEntry(index, term, position, bytes(view[at : at + size])))
        at += size
    return found


def run_of(entries: Sequence[LibraryEntry]) -> EntryRun:
    """Entries that lie one behind the other, as a run."""
    terms = list[tuple[Term, int]]()
    for each in entries:
        if terms and terms[-1][0] == each.term:
            terms[-1] = each.term, terms[-1][1] + 1
        else:
            terms.append((each.term, 1))
    first = entries[0]
    data = first.data if len(entries) == 1 else b"".join(each.data for each in entries)
    return EntryRun(first.index, first.position, tuple(terms), data)


# Requests.


@dataclass(frozen=True, slots=True)
class VoteCall:
    """May I lead in this term?"""

    term: Term
    leader: MemberId
    """The candidate."""
    last_index: Index
    last_term: Term


@dataclass(frozen=True, slots=True)
class BeatCall:
    """I lead in this term."""

    term: Term
    leader: MemberId


@dataclass(frozen=True, slots=True)
class PushCall:
    """Compare this entry, truncate at it, append these, or know what is committed."""

    term: Term
    leader: MemberId
    type: str
    commit: Index
    entries: tuple[LibraryEntry, ...] = ()
    is_batch: bool = False

    @property
    def first(self) -> Index:
        return self.entries[0].index if self.entries else -1

    @property
    def last(self) -> Index:
        return self.entries[-1].index if self.entries else -1


@dataclass(frozen=True, slots=True)
class TransferCall:
    """Asked of the leader by an operator's tool: hand over. Asked by the leader: take over."""

    term: Term
    leader: MemberId
    transfer: MemberId
    """Who hands over."""
    transferee: MemberId
    take_over_index: Index = 0
    """What the new leader must have first."""


@dataclass(frozen=True, slots=True)
class MetadataCall:
    """Who belongs to the group, and who leads it?"""


LibraryCall: TypeAlias = VoteCall | BeatCall | PushCall | TransferCall | MetadataCall


# Answers.


@dataclass(frozen=True, slots=True)
class VoteReply:
    result: str
    term: Term


@dataclass(frozen=True, slots=True)
class BeatReply:
    code: int
    term: Term = -1


@dataclass(frozen=True, slots=True)
class PushReply:
    code: int
    term: Term
    index: Index = -1
    count: int = 0
    begin: Index = 0
    end: Index = 0


@dataclass(frozen=True, slots=True)
class TransferReply:
    code: int
    term: Term


@dataclass(frozen=True, slots=True)
class MetadataReply:
    code: int
    leader: MemberId
    peers: Mapping[MemberId, str]
    is_ours: bool
    """Whether it comes from a member of FlareMQ's. Java has no such word, and reads over it."""


LibraryReply: TypeAlias = VoteReply | BeatReply | PushReply | TransferReply | MetadataReply


@dataclass(frozen=True, slots=True)
class Addressed:
    """Who asks whom, in which group."""

    group: str
    sender: MemberId
    receiver: MemberId


_CODES: Final[Mapping[type[Any], LibraryCode]] = {
    VoteCall: LibraryCode.VOTE,
    BeatCall: LibraryCode.HEART_BEAT,
    PushCall: LibraryCode.PUSH,
    TransferCall: LibraryCode.LEADERSHIP_TRANSFER,
    MetadataCall: LibraryCode.METADATA,
}


def code_of(call: LibraryCall) -> LibraryCode:
    return _CODES[type(call)]


# Writing.


def encode_call(call: LibraryCall, between: Addressed) -> bytes:
    document: dict[str, object] = {
        "code": int(Result.SUCCESS),
        "group": between.group,
        "localId": between.sender,
        "remoteId": between.receiver,
    }
    match call:
        case VoteCall():
            document |= {"ledgerEndIndex": call.last_index, "ledgerEndTerm": call.last_term}
        case PushCall():
            document |= _push_document(call)
        case TransferCall():
            document |= {
                "transferId": call.transfer,
                "transfereeId": call.transferee,
                "takeLeadershipLedgerIndex": call.take_over_index,
            }
    if not isinstance(call, MetadataCall):
        document |= {"leaderId": call.leader, "term": call.term}
    return orjson.dumps(document)


def _push_document(call: PushCall) -> dict[str, object]:
    entries = [_entry_document(each) for each in call.entries]
    document: dict[str, object] = {"type": call.type, "commitIndex": call.commit}
    if call.is_batch:
        size = sum(len(each.data) for each in call.entries)
        return document | {"batch": True, "batchEntry": entries, "totalSize": size}
    return document | {"entry": entries[0]} if entries else document


def _entry_document(entry: LibraryEntry) -> dict[str, object]:
    magic, size, index, term, position, channel, chain_crc, crc, _ = _HEAD.unpack_from(entry.data)
    return {
        "body": base64.b64encode(memoryview(entry.data)[_HEAD.size :]).decode(),
        "bodyCrc": crc,
        "chainCrc": chain_crc,
        "channel": channel,
        "index": index,
        "magic": magic,
        "pos": position,
        "size": size,
        "term": term,
    }


def encode_reply(reply: LibraryReply, between: Addressed) -> bytes:
    """`between` as in the request."""
    document: dict[str, object] = {"group": between.group, "code": int(Result.SUCCESS)}
    match reply:
        case VoteReply():
            ids = {"localId": between.sender, "remoteId": between.receiver, "leaderId": between.sender}
            document |= {**ids, "term": reply.term, "voteResult": reply.result}
        case PushReply():
            document |= {"code": reply.code, "term": reply.term, "count": reply.count}
            document |= {"beginIndex": reply.begin, "endIndex": reply.end}
            if reply.index >= 0:
                document["index"] = reply.index
        case MetadataReply():
            document |= {"code": reply.code, "peers": dict(reply.peers), "term": -1}
            if reply.is_ours:
                document[_FLARE] = True
            if reply.leader:
                document["leaderId"] = reply.leader
        case BeatReply() | TransferReply():
            document |= {"code": reply.code, "term": reply.term}
    return orjson.dumps(document)


def encode_refusal(code: Result, between: Addressed) -> bytes:
    """An answer to any request: it is not ours to serve."""
    return orjson.dumps({"group": between.group, "code": int(code), "term": -1})


# Reading.


class _Document:
    """A JSON object whose members are asked for by their kind."""

    def __init__(self, body: Bytes | None) -> None:
        try:
            found = orjson.loads(body or b"")
        except orjson.JSONDecodeError as error:
            raise Malformed(f"what a member says is no JSON: {error}") from error
        self._members = self._checked(found)

    @classmethod
    def of(cls, found: object) -> _Document:
        made = cls.__new__(cls)
        made._members = cls._checked(found)
        return made

    @staticmethod
    def _checked(found: object) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise Malformed(f"what a member says is a {type(found).__name__}: expected a JSON object")
        return found

    def has(self, name: str) -> bool:
        return self._members.get(name) is not None

    def number(self, name: str, default: int, largest: int = _LONG_MAX) -> int:
        found = self._members.get(name)
        if found is None:
            return default
        if not isinstance(found, int) or isinstance(found, bool) or not -largest - 1 <= found <= largest:
            raise Malformed(f"{name}={found!r:.60} of a member: expected a whole number up to {largest}")
        return found

    def text(self, name: str) -> str:
        found = self._members.get(name)
        if found is None:
            return ""
        if not isinstance(found, str) or len(found) > _ID_MAX:
            raise Malformed(f"{name}={found!r:.60} of a member: expected up to {_ID_MAX} characters")
        return found

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        found = self.text(name) or default
        if found not in choices:
            raise Malformed(f"{name}={found} of a member: expected one of {', '.join(choices)}")
        return found

    def bytes(self, name: str) -> bytes:
        found = self._members.get(name)
        if not isinstance(found, str):
            raise Malformed(f"{name} of an entry is missing: expected base64")
        try:
            return base64.b64decode(found, validate=True)
        except (binascii.Error, ValueError) as error:
            raise Malformed(f"{name} of an entry is not base64: {error}") from error

    def documents(self, name: str) -> list[_Document]:
        found = self._members.get(name) or []
        if not isinstance(found, list):
            raise Malformed(f"{name} of a member is a {type(found).__name__}: expected a list")
        return [_Document.of(each) for each in found]

    def document(self, name: str) -> _Document:
        return _Document.of(self._members.get(name))

    def texts(self, name: str) -> dict[str, str]:
        found = self._checked(self._members.get(name) or {})
        return {str(key): str(value) for key, value in found.items()}


def _entry(said: _Document) -> LibraryEntry:
    body = said.bytes("body")
    index, term, position = said.number("index", 0), said.number("term", 0), said.number("pos", 0)
    size, magic = said.number("size", 0, _INT_MAX), said.number("magic", 0, _INT_MAX)
    if size != _HEAD.size + len(body) or magic != layout.DLEDGER_MAGIC or min(index, term, position) < 0:
        raise Malformed(
            f"entry {index} of a member has size {size}, magic {magic}, term {term} and position {position}: "
            f"expected size {_HEAD.size + len(body)}, magic {layout.DLEDGER_MAGIC} and nothing below 0"
        )
    rest = (said.number(name, 0, _INT_MAX) for name in ("channel", "chainCrc", "bodyCrc"))
    head = _HEAD.pack(magic, size, index, term, position, *rest, len(body))
    return LibraryEntry(index, term, position, head + body)


def _push(said: _Document, term: Term, leader: MemberId) -> PushCall:
    kind = said.choice("type", PUSH_TYPES, "APPEND")
    batch = said.documents("batchEntry")
    entries = tuple(map(_entry, batch))
    if not batch and said.has("entry"):
        entries = (_entry(said.document("entry")),)
    for before, after in pairwise(entries):
        if after.index != before.index + 1:
            raise Malformed(f"entry {after.index} follows {before.index} in a push: expected no gaps")
    if not entries and kind != "COMMIT":
        raise Malformed(f"a push of type {kind} without an entry: expected one")
    return PushCall(term, leader, kind, said.number("commitIndex", -1), entries, bool(batch))


def decode_call(code: int, body: Bytes | None) -> tuple[LibraryCall, Addressed]:
    """What is asked, and by whom. Raises Malformed."""
    said = _Document(body)
    between = Addressed(said.text("group"), said.text("localId"), said.text("remoteId"))
    term, leader = said.number("term", -1), said.text("leaderId")
    match code:
        case LibraryCode.VOTE:
            end = said.number("ledgerEndIndex", -1), said.number("ledgerEndTerm", -1)
            return VoteCall(term, leader, *end), between
        case LibraryCode.HEART_BEAT:
            return BeatCall(term, leader), between
        case LibraryCode.PUSH:
            return _push(said, term, leader), between
        case LibraryCode.LEADERSHIP_TRANSFER:
            who = said.text("transferId"), said.text("transfereeId")
            return TransferCall(term, leader, *who, said.number("takeLeadershipLedgerIndex", 0)), between
        case LibraryCode.METADATA:
            return MetadataCall(), between
        case _:
            known = ", ".join(str(int(each)) for each in LibraryCode)
            raise Malformed(f"a member asks with code {code}: expected one of {known}")


def decode_reply(call: LibraryCall, body: Bytes | None) -> LibraryReply:
    """The answer to this. Raises Malformed."""
    return _REPLIES[type(call)](_Document(body))


def _code(said: _Document) -> int:
    return said.number("code", Result.SUCCESS, _INT_MAX)


_REPLIES: Final[Mapping[type[Any], Callable[[_Document], LibraryReply]]] = {
    VoteCall: lambda said: VoteReply(
        said.choice("voteResult", VOTE_RESULTS, "UNKNOWN"), said.number("term", -1)
    ),
    BeatCall: lambda said: BeatReply(_code(said), said.number("term", -1)),
    PushCall: lambda said: PushReply(
        *(_code(said), said.number("term", -1), said.number("index", -1)),
        *(said.number("count", 0, _INT_MAX), said.number("beginIndex", 0), said.number("endIndex", 0)),
    ),
    TransferCall: lambda said: TransferReply(_code(said), said.number("term", -1)),
    MetadataCall: lambda said: MetadataReply(
        *(_code(said), said.text("leaderId"), said.texts("peers"), said.has(_FLARE))
    ),
}
