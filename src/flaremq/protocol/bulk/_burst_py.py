"""Many frames at once, bytes to columns: the reference twin. _burst_c.pyx agrees with it on any bytes.

`split` reads headers in the ordinary form only: known members once each, strings, whole numbers,
no null, no object but the ext fields. Any other form is not wrong: json_header reads it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from typing import Final

from flaremq.model.columns import Bytes
from flaremq.protocol.bulk.columns import PAIRS_MAX, Broken, Chunk, Frame, Kind, Pair, Plain
from flaremq.protocol.codes import (
    COMPACT_CODES,
    FRAME_PREFIX_SIZE,
    FRAME_SIZE_MAX,
    RESPONSE,
    LanguageCode,
    SerializeType,
)

_BLANK = rb"[ \t\r\n]*"
_STRING = rb'"((?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*)"'
_BARE = rb"(?:0|-?[1-9][0-9]{0,18}|true|false)"
_BEGIN: Final = re.compile(_BLANK + rb"\{" + _BLANK)
_OPEN: Final = re.compile(rb"\{" + _BLANK)
_CLOSE: Final = re.compile(rb"\}" + _BLANK)
_COMMA: Final = re.compile(rb"," + _BLANK)
_NAME: Final = re.compile(_STRING + _BLANK + rb":" + _BLANK)
_NUMBER: Final = re.compile(rb"(0|-?[1-9][0-9]{0,9})" + _BLANK)
_TEXT: Final = re.compile(_STRING + _BLANK)
_VALUE: Final = re.compile(rb"(?:" + _STRING + rb"|(" + _BARE + rb"))" + _BLANK)

_INTEGERS: Final = {
    b"code": Frame.CODE,
    b"flag": Frame.FLAG,
    b"opaque": Frame.OPAQUE,
    b"version": Frame.VERSION,
}
_TEXTS: Final = (b"remark", b"serializeTypeCurrentRPC")
_LANGUAGES: Final = {code.name.encode(): int(code) for code in LanguageCode}
_INT32: Final = range(-(1 << 31), 1 << 31)
_COMPACT_FIXED: Final = 21
_A_NUMBER: Final = re.compile(rb"-?[0-9]{1,18}")


def split(data: Bytes, chunks: array[int], size_max: int = FRAME_SIZE_MAX) -> tuple[array[int], array[int]]:
    """Rows of Frame and of Pair for every complete frame, in order; fills in the rest of `chunks`.

    A chunk with bytes that are not a frame does not affect the others. Raises ValueError if the ends of the
    chunks do not grow, or exceed the data.
    """
    data = bytes(data)
    frames: array[int] = array("q")
    pairs: array[int] = array("q")
    at = 0
    for chunk in range(len(chunks) // Chunk.WIDTH):
        c = chunk * Chunk.WIDTH
        end = chunks[c + Chunk.END]
        if not at <= end <= len(data):
            raise ValueError(f"chunk {chunk} ends at {end}, between {at} and {len(data)} is allowed")
        needed, broken = 0, Broken.NOTHING
        while end - at >= 4:
            size = int.from_bytes(data[at : at + 4], "big", signed=True) + 4
            broken = _fault(data, at, end, size, size_max)
            if broken or size > end - at:
                needed = 0 if broken else size
                break
            frames.extend(_frame(data, chunk, at, at + size, pairs))
            at += size
        chunks[c + Chunk.REST], chunks[c + Chunk.NEEDED], chunks[c + Chunk.BROKEN] = at, needed, broken
        at = end
    return frames, pairs


def _fault(data: bytes, at: int, end: int, size: int, size_max: int) -> int:
    """What is wrong with a frame, as far as its bytes are there: one of Broken."""
    if not FRAME_PREFIX_SIZE <= size <= size_max:
        return Broken.LENGTH
    if end - at >= FRAME_PREFIX_SIZE:
        if data[at + 4] > SerializeType.ROCKETMQ:
            return Broken.SERIALIZE_TYPE
        if int.from_bytes(data[at + 5 : at + 8], "big") > size - FRAME_PREFIX_SIZE:
            return Broken.HEADER_SIZE
    return Broken.NOTHING


def _frame(data: bytes, chunk: int, at: int, end: int, pairs: array[int]) -> list[int]:
    row = [0] * Frame.WIDTH
    body_at = at + FRAME_PREFIX_SIZE + int.from_bytes(data[at + 5 : at + 8], "big")
    row[Frame.CHUNK], row[Frame.AT], row[Frame.END] = chunk, at, end
    row[Frame.SERIALIZE] = data[at + 4]
    row[Frame.BODY_AT], row[Frame.BODY_SIZE] = body_at, end - body_at
    noted = len(pairs)
    row[Frame.FIRST_PAIR] = noted // Pair.WIDTH
    read = _read_json if data[at + 4] == SerializeType.JSON else _read_compact
    if read(data, at + FRAME_PREFIX_SIZE, body_at, row, pairs):
        row[Frame.PAIRS] = (len(pairs) - noted) // Pair.WIDTH
    else:
        del pairs[noted:]
        row[Frame.CODE : Frame.PAIRS + 1] = [0] * (Frame.PAIRS + 1 - Frame.CODE)
        row[Frame.PLAIN] = Plain.HEADER
    return row


def _read_json(data: bytes, at: int, end: int, row: list[int], pairs: array[int]) -> bool:
    """Read an ordinary header into the row; False if it is not ordinary."""
    seen = set()
    found = _BEGIN.match(data, at, end)
    while found:
        name = _NAME.match(data, found.end(), end)
        if not name or name[1] in seen:
            return False
        seen.add(name[1])
        next_at = _read_member(data, name[1], name.end(), end, row, pairs)
        if next_at < 0:
            return False
        found = _COMMA.match(data, next_at, end)
        if not found:
            close = _CLOSE.match(data, next_at, end)
            return close is not None and close.end() == end and b"code" in seen
    return False


def _read_member(data: bytes, name: bytes, at: int, end: int, row: list[int], pairs: array[int]) -> int:
    """Read one member of the header; return the place after it, or -1 if it is not ordinary."""
    if name in _INTEGERS:
        number = _NUMBER.match(data, at, end)
        if not number or int(number[1]) not in _INT32:
            return -1
        row[_INTEGERS[name]] = int(number[1])
        return number.end()
    if name == b"extFields":
        return _read_ext_fields(data, at, end, pairs)
    text = _TEXT.match(data, at, end)
    if not text:
        return -1
    if name == b"language" and text[1] in _LANGUAGES:
        row[Frame.LANGUAGE] = _LANGUAGES[text[1]]
    elif name not in _TEXTS:
        return -1
    return text.end()


def _read_ext_fields(data: bytes, at: int, end: int, pairs: array[int]) -> int:
    found = _OPEN.match(data, at, end)
    if not found:
        return -1
    close = _CLOSE.match(data, found.end(), end)
    if close:
        return close.end()
    full = len(pairs) + PAIRS_MAX * Pair.WIDTH
    while found:
        name = _NAME.match(data, found.end(), end)
        value = _VALUE.match(data, name.end(), end) if name else None
        if not name or not value or b"\\" in name[1] or len(pairs) == full:
            return -1
        group = 1 if value[1] is not None else 2
        text = value[group]
        kind = Kind.TEXT if group == 1 else Kind.BARE
        kind |= Kind.ESCAPED * (b"\\" in text) | Kind.WIDE * (not text.isascii())
        pairs.extend((name.start(1), len(name[1]), value.start(group), len(text), kind))
        at = value.end()
        found = _COMMA.match(data, at, end)
    close = _CLOSE.match(data, at, end)
    return close.end() if close else -1


def _read_compact(data: bytes, at: int, end: int, row: list[int], pairs: array[int]) -> bool:
    if end - at < _COMPACT_FIXED:
        return False
    code, language = _int(data, at, 2), _int(data, at + 2, 1)
    row[Frame.LANGUAGE] = language if 0 <= language < len(_LANGUAGES) else -1
    row[Frame.VERSION], row[Frame.OPAQUE] = _int(data, at + 3, 2), _int(data, at + 5, 4)
    row[Frame.FLAG] = flag = _int(data, at + 9, 4)
    row[Frame.CODE] = code if flag & RESPONSE else COMPACT_CODES.get(code, code)
    remark_size = _int(data, at + 13, 4)
    if not 0 <= remark_size <= end - at - _COMPACT_FIXED:
        return False
    at += _COMPACT_FIXED + remark_size
    if _int(data, at - 4, 4) != end - at:
        return False
    full = len(pairs) + PAIRS_MAX * Pair.WIDTH
    while at < end:
        name_at = at + 2
        name_size = _int(data, at, 2) if name_at <= end else -1
        value_at = name_at + name_size + 4
        if name_size < 0 or value_at > end:
            return False
        value_size = _int(data, value_at - 4, 4)
        at = value_at + value_size
        if value_size < 0 or at > end:
            return False
        if value_size:
            if len(pairs) == full:
                return False
            kind = Kind.TEXT if data[value_at:at].isascii() else Kind.WIDE
            pairs.extend((name_at, name_size, value_at, value_size, kind))
    return True


def _int(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big", signed=True)


def check_tables(size: int, chunks: int, frames: array[int], pairs: array[int]) -> None:
    """Raises ValueError for rows that point outside their buffers: a bug of the caller."""
    for row in range(len(frames) // Frame.WIDTH):
        f = row * Frame.WIDTH
        first, count = frames[f + Frame.FIRST_PAIR], frames[f + Frame.PAIRS]
        at, body_at = frames[f + Frame.AT], frames[f + Frame.BODY_AT]
        if (
            not 0 <= frames[f + Frame.CHUNK] < chunks
            or not 0 <= first <= first + count <= len(pairs) // Pair.WIDTH
            or not 0 <= at <= body_at <= body_at + frames[f + Frame.BODY_SIZE] <= size
        ):
            raise ValueError(f"frame {row} speaks of what is not there")


def fields_of(
    data: bytes, frames: array[int], pairs: array[int], f: int, names: Mapping[bytes, int]
) -> dict[int, tuple[int, int, int]] | None:
    """Place, size and kind of each field that a parser knows, by its number.

    None if the fields are not ordinary: one comes twice, or an unknown one has a value. Raises ValueError if
    they are not in their header one after the other, as they are after a split.
    """
    found: dict[int, tuple[int, int, int]] = {}
    first, at, end = frames[f + Frame.FIRST_PAIR], frames[f + Frame.AT], frames[f + Frame.BODY_AT]
    for row in range(first, first + frames[f + Frame.PAIRS]):
        name_at, name_size, value_at, value_size, kind = pairs[row * Pair.WIDTH : (row + 1) * Pair.WIDTH]
        if not at <= name_at <= name_at + name_size <= value_at <= value_at + value_size <= end:
            raise ValueError(f"frame {f // Frame.WIDTH} speaks of what is not there")
        at = value_at + value_size
        number = names.get(data[name_at : name_at + name_size])
        if number is None:
            if value_size:
                return None
        elif number in found:
            return None
        else:
            found[number] = (value_at, value_size, kind)
    return found


def number_of(data: bytes, place: tuple[int, int, int], bits: int) -> int | None:
    """The number in a field, quoted or bare; None if there is none of this size."""
    at, size, _ = place
    text = data[at : at + size]
    if not _A_NUMBER.fullmatch(text):
        return None
    number = int(text)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def is_text(data: bytes, place: tuple[int, int, int]) -> bool:
    """Whether a value can be used as it is in the buffer."""
    at, size, kind = place
    if kind == Kind.WIDE:
        try:
            data[at : at + size].decode()
        except UnicodeDecodeError:
            return False
        return True
    return kind == Kind.TEXT
