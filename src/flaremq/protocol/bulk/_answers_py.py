"""Answers of a broker, many a call: the reference twin. _answers_c.pyx gives the same bytes.

Fields are in the order of Java's HashMap in JSON, and in the order of its class in a compact header, so an
answer is the same as Java's byte for byte.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Final

from flaremq.model import layout
from flaremq.model.columns import Bytes, Draft
from flaremq.protocol.bulk.columns import Frame, PullAnswer, Send
from flaremq.protocol.codes import CURRENT_VERSION, FRAME_PREFIX_SIZE, ONE_WAY, RESPONSE, SerializeType

REMARK_SIZE_MAX: Final = 255

_SAFE: Final = re.compile(rb"[ !#-\[\]-~]*")  # ASCII that JSON does not escape.
_SEND_ORDER: Final = (b"queueId", b"transactionId", b"msgId", b"TRACE_ON", b"MSG_REGION", b"queueOffset")
_PULL_FIELDS: Final = {
    b"suggestWhichBrokerId": PullAnswer.SUGGEST_WHICH_BROKER_ID,
    b"nextBeginOffset": PullAnswer.NEXT_BEGIN_OFFSET,
    b"minOffset": PullAnswer.MIN_OFFSET,
    b"maxOffset": PullAnswer.MAX_OFFSET,
    b"topicSysFlag": PullAnswer.TOPIC_SYS_FLAG,
    b"groupSysFlag": PullAnswer.GROUP_SYS_FLAG,
}
_PULL_ORDER: Final = (
    *(b"suggestWhichBrokerId", b"groupSysFlag", b"nextBeginOffset"),
    *(b"maxOffset", b"minOffset", b"topicSysFlag"),
)


_YES: Final = (
    b'{"code":0,"extFields":{},"flag":1,"language":"JAVA","opaque":',
    b',"serializeTypeCurrentRPC":"JSON","version":%d}' % CURRENT_VERSION,
)
"""Both sides of the number in an answer that says nothing but yes."""


class SendAnswers:
    """Writes the answers of one broker to sends that are stored, as Java's broker does."""

    def __init__(self, store_host: bytes, region: bytes = b"DefaultRegion", trace_on: bool = True) -> None:
        if len(store_host) not in (layout.HOST_SIZE_V4, layout.HOST_SIZE_V6):
            raise ValueError(f"store host of {len(store_host)} bytes: expected 8 or 20")
        if not region or not _SAFE.fullmatch(region):
            raise ValueError(f"region {region!r}: expected ASCII that needs no escape")
        self._host = store_host.hex().upper().encode()
        self._region = region
        self._trace_on = b"true" if trace_on else b"false"

    def encode(
        self, drafts: array[int], sends: array[int], heads: Bytes, code: int = 0
    ) -> list[tuple[int, bytes]]:
        """The answers to sends, the frames of each chunk joined; none to one-way requests.

        `drafts` are the rows after the append, with the place of each message. Rows of one chunk are
        adjacent, so a connection is written to once.
        """
        count = len(sends) // Send.WIDTH
        if len(drafts) // Draft.WIDTH < count:
            raise ValueError(f"{len(drafts) // Draft.WIDTH} drafts for {count} sends")
        answers: list[tuple[int, bytes]] = []
        first = 0
        while first < count:
            chunk, last = sends[first * Send.WIDTH + Send.CHUNK], first + 1
            while last < count and sends[last * Send.WIDTH + Send.CHUNK] == chunk:
                last += 1
            frames = self._frames(drafts, sends, range(first, last), heads, code)
            if frames:
                answers.append((chunk, frames))
            first = last
        return answers

    def _frames(self, drafts: array[int], sends: array[int], rows: range, heads: Bytes, code: int) -> bytes:
        frames = []
        for row in rows:
            s, d = row * Send.WIDTH, row * Draft.WIDTH
            key = _text(heads, row, *sends[s + Send.UNIQUE_KEY_AT : s + Send.UNIQUE_KEY_SIZE + 1])
            handle = _text(heads, row, *sends[s + Send.HANDLE_AT : s + Send.HANDLE_SIZE + 1])
            if sends[s + Send.ONE_WAY]:
                continue
            fields = {
                b"msgId": self._host + b"%016X" % (drafts[d + Draft.PHYSICAL_OFFSET] & (1 << 64) - 1),
                b"queueId": b"%d" % sends[s + Send.QUEUE_ID],
                b"queueOffset": b"%d" % drafts[d + Draft.QUEUE_OFFSET],
                b"transactionId": key,
                b"TRACE_ON": self._trace_on,
                b"MSG_REGION": self._region,
            }
            if sends[s + Send.SERIALIZE] == SerializeType.JSON:
                in_order = {name: fields[name] for name in _SEND_ORDER} | {b"recallHandle": handle}
                frames.append(_json(code, sends[s + Send.OPAQUE], b"", in_order))
            else:
                fields[b"recallHandle"] = handle
                frames.append(_compact(code, sends[s + Send.OPAQUE], b"", fields))
        return b"".join(frames)


def encode_answer(
    serialize: int,
    opaque: int,
    code: int = 0,
    remark: bytes = b"",
    fields: Mapping[bytes, bytes] = MappingProxyType({}),
) -> bytes:
    """Any answer without a body. All texts are ASCII that needs no escape. It has no compiled twin."""
    if serialize == SerializeType.JSON and not (code or remark or fields):
        header = b"%b%d%b" % (_YES[0], opaque, _YES[1])  # By far the most.
        return b"%b%b%b" % ((len(header) + 4).to_bytes(4, "big"), len(header).to_bytes(4, "big"), header)
    encoded = _json if serialize == SerializeType.JSON else _compact
    return encoded(code, opaque, remark, fields)


def encode_answers(
    frames: array[int], rows: Sequence[int], code: int = 0, remark: bytes = b""
) -> list[tuple[int, bytes]]:
    """The same answer to many requests, adjacent rows of a chunk joined; none to one-way requests."""
    answers: list[tuple[int, bytes]] = []
    for chunk, group in groupby(rows, lambda row: frames[row * Frame.WIDTH + Frame.CHUNK]):
        places = (row * Frame.WIDTH for row in group)
        found = b"".join(
            encode_answer(frames[f + Frame.SERIALIZE], frames[f + Frame.OPAQUE], code, remark)
            for f in places
            if not frames[f + Frame.FLAG] & ONE_WAY
        )
        if found:
            answers.append((chunk, found))
    return answers


def _text(heads: Bytes, row: int, at: int, size: int) -> bytes:
    if not 0 <= at <= at + size <= len(heads):
        raise ValueError(f"row {row}: bytes {at}+{size} of a buffer of {len(heads)}")
    return bytes(heads[at : at + size])


def encode_pull_header(answer: array[int], remark: bytes = b"FOUND") -> bytes:
    """Prefix and header of the answer to a pull; BODY_SIZE bytes of records follow."""
    if len(answer) != PullAnswer.WIDTH:
        raise ValueError(f"an answer of {len(answer)} columns, expected {PullAnswer.WIDTH}")
    if len(remark) > REMARK_SIZE_MAX or not _SAFE.fullmatch(remark):
        raise ValueError(f"remark {remark!r}: expected a little ASCII that needs no escape")
    fields = {name: b"%d" % answer[column] for name, column in _PULL_FIELDS.items()}
    code, opaque, body_size = (
        answer[column] for column in (PullAnswer.CODE, PullAnswer.OPAQUE, PullAnswer.BODY_SIZE)
    )
    if answer[PullAnswer.SERIALIZE] == SerializeType.JSON:
        return _json(code, opaque, remark, {name: fields[name] for name in _PULL_ORDER}, body_size)
    return _compact(code, opaque, remark, fields, body_size)


def _json(code: int, opaque: int, remark: bytes, fields: Mapping[bytes, bytes], body_size: int = 0) -> bytes:
    members = b",".join(b'"%b":"%b"' % (name, value) for name, value in fields.items() if value)
    header = (
        b'{"code":%d,"extFields":{%b},"flag":1,"language":"JAVA","opaque":%d%b,'
        b'"serializeTypeCurrentRPC":"JSON","version":%d}'
    ) % (code, members, opaque, b',"remark":"%b"' % remark if remark else b"", CURRENT_VERSION)
    return _framed(SerializeType.JSON, header, body_size)


def _compact(
    code: int, opaque: int, remark: bytes, fields: Mapping[bytes, bytes], body_size: int = 0
) -> bytes:
    members = b"".join(
        b"".join((len(name).to_bytes(2, "big"), name, len(value).to_bytes(4, "big"), value))
        for name, value in fields.items()
        if value
    )
    header = b"".join(
        (
            (code & 0xFFFF).to_bytes(2, "big"),
            b"\0" + CURRENT_VERSION.to_bytes(2, "big"),
            (opaque & 0xFFFF_FFFF).to_bytes(4, "big"),
            RESPONSE.to_bytes(4, "big"),
            len(remark).to_bytes(4, "big"),
            remark,
            len(members).to_bytes(4, "big"),
            members,
        )
    )
    return _framed(SerializeType.ROCKETMQ, header, body_size)


def _framed(serialize: int, header: bytes, body_size: int) -> bytes:
    size = FRAME_PREFIX_SIZE - 4 + len(header) + body_size
    return size.to_bytes(4, "big") + (serialize << 24 | len(header)).to_bytes(4, "big") + header
