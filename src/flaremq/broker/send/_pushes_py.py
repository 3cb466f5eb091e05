"""What replies say, and the frames that push them to their requesters: the reference twin.

_pushes_c.pyx gives the same. Only ordinary replies: each other is None, and is served alone.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final

from flaremq.model import properties as keys
from flaremq.model import sysflag
from flaremq.model.columns import Bytes
from flaremq.protocol.bulk.columns import Frame, Kind, Request
from flaremq.protocol.codes import CURRENT_VERSION, RequestCode, SerializeType

NAMES: Final = (
    *(b"producerGroup", b"topic", b"defaultTopic", b"defaultTopicQueueNums", b"queueId", b"sysFlag"),
    *(b"bornTimestamp", b"flag", b"properties", b"reconsumeTimes", b"unitMode", b"maxReconsumeTimes"),
    *(b"batch", b"bname"),
)
LETTERS: Final = tuple(bytes([letter]) for letter in b"abcdefghijklmn")
"""The same fields, as the short requests call them."""
WIDTH: Final = 1 + Request.FIELD * len(NAMES)
TOPIC, QUEUE_NUMS, QUEUE_ID, SYS_FLAG, BORN, FLAG, PROPERTIES, TIMES = 1, 3, 4, 5, 6, 7, 8, 9
NEEDED: Final = 9
NUMBERS: Final = {QUEUE_NUMS: 9, QUEUE_ID: 9, SYS_FLAG: 9, BORN: 18, FLAG: 9}
"""Fields that are numbers, and how many digits each may have here: all that have so many fit."""
FALSE: Final = (10, 12)
"""Must be false, or not be there."""
MORE: Final = tuple(
    name.encode()
    for name in (
        *(keys.DELAY, keys.TRANSACTION_PREPARED, keys.MSG_REGION, keys.TRACE_ON, keys.CLUSTER),
        *sorted(keys.MARKS),
    )
)
"""Properties for which a reply needs more than to be kept."""
MORE_PREFIXES: Final = (b"TIMER_", b"INNER_", b"__")
PAIRS_MAX: Final = 32
SYS_FLAGS: Final = sysflag.COMPRESSED | sysflag.MULTI_TAGS | sysflag.COMPRESSION_MASK
_NAME_END, _END = rb"\u0001", rb"\u0002"  # As they stand in JSON.
_PUSH: Final = (
    b'{"code":%d,"extFields":{"producerGroup":"%%b","topic":"%%b","defaultTopic":"%%b",'
    b'"defaultTopicQueueNums":"%%b","queueId":"%%b","sysFlag":"%%b","bornTimestamp":"%%b","flag":"%%b",'
    rb'"properties":"%%bPUSH_REPLY_TIME\u0001%%d\u0002","reconsumeTimes":"%%b","unitMode":"false",'
    b'"bornHost":"%%b","storeHost":"%%b","storeTimestamp":"%%d"},"flag":0,"language":"JAVA","opaque":%%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":%d}'
) % (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, CURRENT_VERSION)


@dataclass(slots=True, eq=False)
class ReplyDraft:
    """A reply as it will be kept, and as it came."""

    frame: int
    topic: bytes
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    properties: bytes
    body: bytes
    client_id: bytes
    """Of its requester."""
    _texts: list[bytes]
    born_host: bytes = b""
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    def push(self, opaque: int, now_ms: int, born_host: bytes, store_host: bytes) -> bytes:
        """The frame for its requester: the fields as they came, with what this broker adds."""
        raw = self._texts[PROPERTIES]
        header = _PUSH % (
            *self._texts[:PROPERTIES],
            raw if raw.endswith(_END) else raw + _END,
            now_ms,
            self._texts[TIMES] or b"0",
            born_host,
            store_host,
            now_ms,
            opaque,
        )
        size = 4 + len(header) + len(self.body)
        return size.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + self.body


def read_replies(
    data: Bytes, frames: array[int], rows: array[int], tail: bytes
) -> list[tuple[int, ReplyDraft | None]]:
    """The frame of each row, and what it says. `tail` is added to the properties that are kept."""
    return [(rows[r], _read(data, frames, rows[r : r + WIDTH], tail)) for r in range(0, len(rows), WIDTH)]


def _read(data: Bytes, frames: array[int], row: array[int], tail: bytes) -> ReplyDraft | None:
    f = row[0] * Frame.WIDTH
    body_at, body_size = frames[f + Frame.BODY_AT], frames[f + Frame.BODY_SIZE]
    texts = _texts(data, row)
    if texts is None or not body_size or frames[f + Frame.SERIALIZE] != SerializeType.JSON:
        return None
    text = texts[PROPERTIES].replace(_NAME_END, b"\x01").replace(_END, b"\x02")
    kept = text.removesuffix(b"\x02") + b"\x02"
    known = _known(kept)
    if known is None:
        return None
    return ReplyDraft(
        frame=row[0],
        topic=texts[TOPIC],
        queue_id=int(texts[QUEUE_ID]),
        flag=int(texts[FLAG]),
        sys_flag=int(texts[SYS_FLAG]) & SYS_FLAGS,
        born_timestamp_ms=int(texts[BORN]),
        properties=kept + tail,
        body=bytes(data[body_at : body_at + body_size]),
        client_id=known.get(b"REPLY_TO_CLIENT", b""),
        _texts=texts,
    )


def _texts(data: Bytes, row: array[int]) -> list[bytes] | None:
    """The fields of a reply, empty where it has none; None if they are not ordinary."""
    found = []
    for number in range(len(NAMES)):
        at, size, kind = row[1 + number * Request.FIELD : 1 + (number + 1) * Request.FIELD]
        if (at < 0 and number < NEEDED) or kind & ~(Kind.ESCAPED if number == PROPERTIES else Kind.TEXT):
            return None
        found.append(bytes(data[at : at + size]) if at >= 0 else b"")
    for number, digits_max in NUMBERS.items():
        if not found[number].isdigit() or len(found[number]) > digits_max:
            return None
    if found[TIMES] not in (b"", b"0") or any(found[number] not in (b"", b"false") for number in FALSE):
        return None
    return found if found[TOPIC] else None


def _known(text: bytes) -> dict[bytes, bytes] | None:
    """Its properties; None if they are more than a reply needs, or are written in an unusual way."""
    pairs = text[:-1].split(b"\x02")
    if b"\\" in text or len(pairs) > PAIRS_MAX:
        return None
    known: dict[bytes, bytes] = {}
    for pair in pairs:
        name, _, value = pair.partition(b"\x01")
        if not name or not value or name in MORE or name.startswith(MORE_PREFIXES):
            return None
        known[name] = value
    return known if len(known) == len(pairs) and b"UNIQ_KEY" in known else None
