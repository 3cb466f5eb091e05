"""Sends, many at once: the reference twin. _sends_c.pyx agrees with it on any rows.

`parse_sends` takes ordinary sends only: one message with a unique key, to a given queue, at once, or with one
wish: to be delayed, or to be prepared for a transaction. All others are left to the plain lane.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from typing import Final

from flaremq.model import layout
from flaremq.model.columns import Bytes
from flaremq.model.properties import MARKS, parse_sequence
from flaremq.protocol.bulk._burst_py import check_tables, fields_of, is_text, number_of
from flaremq.protocol.bulk.columns import Chunk, Frame, Kind, Plain, Send, SendKind, Target
from flaremq.protocol.codes import ONE_WAY, RESPONSE, RequestCode

# The fields of a send, in the order of their letters.
_GROUP, _TOPIC, _DEFAULT_TOPIC, _QUEUE_NUMS, _QUEUE_ID, _SYS_FLAG, _BORN, _FLAG = range(8)
_PROPERTIES, _RECONSUME, _UNIT_MODE, _MAX_RECONSUME, _BATCH, _BROKER_NAME = range(8, 14)

LETTERS: Final[Mapping[bytes, int]] = {bytes([ord("a") + number]): number for number in range(14)}
NAMES: Final[Mapping[bytes, int]] = {
    b"producerGroup": _GROUP,
    b"topic": _TOPIC,
    b"defaultTopic": _DEFAULT_TOPIC,
    b"defaultTopicQueueNums": _QUEUE_NUMS,
    b"queueId": _QUEUE_ID,
    b"sysFlag": _SYS_FLAG,
    b"bornTimestamp": _BORN,
    b"flag": _FLAG,
    b"properties": _PROPERTIES,
    b"reconsumeTimes": _RECONSUME,
    b"unitMode": _UNIT_MODE,
    b"maxReconsumeTimes": _MAX_RECONSUME,
    b"batch": _BATCH,
    b"bname": _BROKER_NAME,
}
_NAMES_BY_CODE: Final[Mapping[int, Mapping[bytes, int]]] = {
    RequestCode.SEND_MESSAGE: NAMES,
    RequestCode.SEND_MESSAGE_V2: LETTERS,
    RequestCode.SEND_BATCH_MESSAGE: LETTERS,
}
_ORDINARY_SYS_FLAG: Final = 0x703  # Compression and many tags; no batch, no hosts.
_TRANSACTION: Final = 0xC  # Bits that only a prepared message may have, and that are not stored.

PROPERTY_COUNT_MAX: Final = 32
PLAIN_PROPERTIES: Final = frozenset(
    {
        *(b"DELAY", b"TRAN_MSG", b"MSG_REGION", b"TRACE_ON", b"CLUSTER", b"__CRC32#"),
        *(name.encode() for name in MARKS),
    }
)
"""Properties that a broker acts on, removes or sets itself."""
PLAIN_PREFIXES: Final = (b"TIMER_", b"INNER_", b"__RMQ.TRANSIENT.")
_WISHES: Final[Mapping[bytes, tuple[int, int]]] = {
    b"DELAY": (SendKind.LEVEL, 1),
    b"TIMER_DELAY_SEC": (SendKind.AFTER, 1000),
    b"TIMER_DELAY_MS": (SendKind.AFTER, 1),
    b"TIMER_DELIVER_MS": (SendKind.MOMENT, 1),
    b"TRAN_MSG": (SendKind.PREPARED, 0),
}
"""Properties that ask for something that this lane can do: the kind, and a factor of its value."""
_TRANSACTION_ID: Final = b"__transactionId__"
"""The broker gives it to a message that is prepared."""

_NO_SEQUENCE: Final = (0, 0, -1)

_ESCAPE: Final = re.compile(rb'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt])|)')
_SHORT: Final = dict(zip(b'"\\/bfnrt', (b'"', b"\\", b"/", b"\b", b"\f", b"\n", b"\r", b"\t"), strict=True))
_SAFE: Final = re.compile(rb"[ !#-\[\]-~]+")  # ASCII that JSON does not escape.
_LEVEL: Final = re.compile(rb"[1-9][0-9]?")
_TIME: Final = re.compile(rb"[0-9]{1,15}")


def parse_sends(
    data: Bytes,
    chunks: array[int],
    frames: array[int],
    pairs: array[int],
    heads: bytearray,
    tail: bytes = b"",
) -> tuple[array[int], array[int], array[int]]:
    """Rows of Draft, of Send and of Target for all ordinary sends among the frames.

    Topics and properties are appended to `heads`; each properties string is terminated and followed by
    `tail`, which the broker adds to all of them. Bodies stay in `data`. A send that is not ordinary is marked
    in its frame (Plain.FIELDS) and has no row. Draft.QUEUE is left at -1: the caller knows the queues, and
    looks them up once per Target.
    """
    check_tables(len(data), len(chunks) // Chunk.WIDTH, frames, pairs)
    data = bytes(data)
    made = _Made(heads, tail)
    for row in range(len(frames) // Frame.WIDTH):
        f = row * Frame.WIDTH
        names = _NAMES_BY_CODE.get(frames[f + Frame.CODE])
        if names is None or frames[f + Frame.PLAIN] or frames[f + Frame.FLAG] & RESPONSE:
            continue
        found = fields_of(data, frames, pairs, f, names)
        if found is None or not frames[f + Frame.BODY_SIZE] or not made.add(data, chunks, frames, row, found):
            frames[f + Frame.PLAIN] = Plain.FIELDS
    return made.drafts, made.sends, made.targets


class _Made:
    """The tables as they grow."""

    def __init__(self, heads: bytearray, tail: bytes) -> None:
        self._heads = heads
        self._tail = tail
        self._target_rows: dict[tuple[bytes, int], int] = {}
        self.drafts: array[int] = array("q")
        self.sends: array[int] = array("q")
        self.targets: array[int] = array("q")

    def add(
        self,
        data: bytes,
        chunks: array[int],
        frames: array[int],
        row: int,
        found: dict[int, tuple[int, int, int]],
    ) -> bool:
        """Add one send, or nothing if it is not ordinary."""
        numbers, texts = _numbers(data, found), _texts(data, found)
        if numbers is None or texts is None or _PROPERTIES not in found:
            return False
        properties = _properties(data, found[_PROPERTIES], len(self._tail))
        if properties is None:
            return False
        raw, key_at, key_size, wait, kind, value, (producer_at, producer_size, sequence) = properties
        prepared = kind == SendKind.PREPARED
        if (kind and numbers[_RECONSUME]) or (numbers[_SYS_FLAG] & _TRANSACTION and not prepared):
            return False
        f, c = row * Frame.WIDTH, frames[row * Frame.WIDTH + Frame.CHUNK] * Chunk.WIDTH
        at, size = len(self._heads), len(raw) + len(self._tail)
        self._heads += raw + self._tail
        target = self._target(texts[1], numbers[_QUEUE_ID])
        topic_at = self.targets[target * Target.WIDTH + Target.TOPIC_AT]
        self.drafts.extend((topic_at, len(texts[1]), at, size))
        self.drafts.extend(frames[f + Frame.BODY_AT : f + Frame.BODY_SIZE + 1])
        self.drafts.extend(chunks[c + Chunk.BORN_HOST_AT : c + Chunk.BORN_HOST_SIZE + 1])
        sys_flag = numbers[_SYS_FLAG] & ~_TRANSACTION
        self.drafts.extend((numbers[_QUEUE_ID], -1, 1, 1, numbers[_FLAG], sys_flag))
        self.drafts.extend((numbers[_BORN], numbers[_RECONSUME], 0, 0, 0, 0))
        one_way = int(bool(frames[f + Frame.FLAG] & ONE_WAY))
        self.sends.extend((row, frames[f + Frame.CHUNK], target))
        self.sends.extend((frames[f + Frame.SERIALIZE], frames[f + Frame.OPAQUE], one_way))
        self.sends.extend((*found[_GROUP][:2], *found[_DEFAULT_TOPIC][:2], numbers[_QUEUE_NUMS]))
        self.sends.extend((at + key_at, key_size, wait, numbers[_QUEUE_ID], kind, value, 0, 0))
        is_compared = sequence >= 0 and not numbers[_RECONSUME]  # A message that is sent back is not new.
        self.sends.extend((at + producer_at, producer_size, sequence) if is_compared else _NO_SEQUENCE)
        return True

    def _target(self, topic: bytes, queue_id: int) -> int:
        """The row of its queue in `targets`, with this send counted."""
        target = self._target_rows.get((topic, queue_id))
        if target is None:
            target = self._target_rows[topic, queue_id] = len(self.targets) // Target.WIDTH
            self.targets.extend((len(self._heads), len(topic), queue_id, len(self.sends) // Send.WIDTH, 0))
            self._heads += topic
        self.targets[target * Target.WIDTH + Target.ROWS] += 1
        return target


def _numbers(data: bytes, found: dict[int, tuple[int, int, int]]) -> dict[int, int] | None:
    """All numbers of a send, or None if one is missing, invalid, or needs the plain lane."""
    numbers = {_RECONSUME: 0}
    for field in (_QUEUE_NUMS, _QUEUE_ID, _SYS_FLAG, _BORN, _FLAG, _RECONSUME, _MAX_RECONSUME):
        if field in found:
            number = number_of(data, found[field], 64 if field == _BORN else 32)
            if number is None:
                return None
            numbers[field] = number
        elif field not in (_RECONSUME, _MAX_RECONSUME):
            return None
    for field in (_UNIT_MODE, _BATCH):
        if field in found and data[found[field][0] :][: found[field][1]] != b"false":
            return None
    ordinary = numbers[_QUEUE_ID] >= 0 and not numbers[_SYS_FLAG] & ~(_ORDINARY_SYS_FLAG | _TRANSACTION)
    return numbers if ordinary else None


def _texts(data: bytes, found: dict[int, tuple[int, int, int]]) -> list[bytes] | None:
    """Group, topic and template topic, or None. Topics with a percent sign are retries and dead letters."""
    texts = []
    for field in (_GROUP, _TOPIC, _DEFAULT_TOPIC):
        if field not in found or not found[field][1] or not is_text(data, found[field]):
            return None
        at, size, _ = found[field]
        texts.append(data[at : at + size])
    return None if texts[1][:1] == b"%" else texts


def _properties(
    data: bytes, place: tuple[int, int, int], tail_size: int
) -> tuple[bytes, int, int, int, int, int, tuple[int, int, int]] | None:
    """The terminated string, the place of the unique key in it, whether to wait, the kind and its value, the
    place of the producer id and the sequence; None if it is not ordinary."""
    at, size, kind = place
    raw = data[at : at + size] if not kind & Kind.ESCAPED else _unescaped(data[at : at + size])
    if raw is None or kind & Kind.BARE:
        return None
    try:
        raw.decode()
    except UnicodeDecodeError:
        return None
    raw = raw if raw.endswith(b"\x02") else raw + b"\x02"
    if len(raw) + tail_size > layout.PROPERTIES_SIZE_MAX:
        return None
    known: dict[bytes, bytes] = {}
    at, key_at, numbered = 0, 0, _NO_SEQUENCE
    for pair in raw[:-1].split(b"\x02"):
        name, _, value = pair.partition(b"\x01")
        if not name or not value or name in known or len(known) == PROPERTY_COUNT_MAX:
            return None
        if name not in _WISHES and (name in PLAIN_PROPERTIES or name.startswith(PLAIN_PREFIXES)):
            return None
        if name == b"UNIQ_KEY":
            key_at = at + len(name) + 1
        elif name == b"PRODUCER_SEQ":
            found = parse_sequence(value)
            if found is None:
                return None
            numbered = at + len(name) + 1, len(found[0]), found[1]
        known[name] = value
        at += len(pair) + 1
    key, wait, wish = known.get(b"UNIQ_KEY", b""), known.get(b"WAIT", b"true"), _wish(known)
    if not _SAFE.fullmatch(key) or wait not in (b"true", b"false") or wish is None:
        return None
    return raw, key_at, len(key), int(wait == b"true"), *wish, numbered


def _wish(known: Mapping[bytes, bytes]) -> tuple[int, int] | None:
    """What its properties ask for: a kind and its value. None if that is more than this lane does."""
    wishes = [name for name in known if name in _WISHES]
    if not wishes:
        return SendKind.AT_ONCE, 0
    if len(wishes) > 1 or _TRANSACTION_ID in known:
        return None
    kind, factor = _WISHES[wishes[0]]
    value = known[wishes[0]]
    if kind == SendKind.PREPARED:
        group = known.get(b"PGROUP", b" ")
        return (kind, 0) if value == b"true" and _SAFE.fullmatch(group) and group[:1] != b" " else None
    number = _LEVEL if kind == SendKind.LEVEL else _TIME
    return (kind, int(value) * factor) if number.fullmatch(value) else None


def _unescaped(raw: bytes) -> bytes | None:
    """The text without JSON escapes; None if one is invalid, or is half of a character."""
    pieces, at = [], 0
    for escape in _ESCAPE.finditer(raw):
        pieces.append(raw[at : escape.start()])
        at = escape.end()
        if escape[2] is not None:
            pieces.append(_SHORT[escape[2][0]])
        elif escape[1] is not None and not 0xD800 <= int(escape[1], 16) < 0xE000:
            pieces.append(chr(int(escape[1], 16)).encode())
        else:
            return None
    return b"".join((*pieces, raw[at:]))
