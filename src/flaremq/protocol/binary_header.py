"""Compact headers: fixed fields, then lengths and bytes.

    0  code      2 (signed: the codes of pop lose bits, see codes.COMPACT_CODES)
    2  language  1
    3  version   2
    5  opaque    4
    9  flag      4
    13 remark    4 of length, and its bytes; no bytes: no remark
       fields    4 of length, and for each: 2 of length, name, 4 of length, value; no bytes: no value

The lengths must add up to the size of the header: Java takes what follows for the body.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from flaremq.base.errors import Malformed, UsageError
from flaremq.model.properties import decode_text
from flaremq.protocol.codes import COMPACT_CODES, RESPONSE, LanguageCode, SerializeType
from flaremq.protocol.command import Command

FIXED_SIZE: Final = 21
"""A header without remark and fields."""

_FIXED: Final = struct.Struct(">hbhiii")
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_NAME_SIZE_MAX: Final = 0x7FFF
_LANGUAGES: Final = {int(code): code for code in LanguageCode}


def decode(header: bytes, body: bytes | memoryview | None = None) -> Command:
    """The command in a header. Raises Malformed if its lengths do not add up."""
    if len(header) < FIXED_SIZE:
        raise Malformed(
            f"a compact header of {len(header)} bytes, expected at least {FIXED_SIZE}", len(header)
        )
    code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(header)
    fields_at = FIXED_SIZE + remark_size
    if remark_size < 0 or fields_at > len(header):
        raise Malformed(f"a remark of {remark_size} bytes in a compact header of {len(header)}", 13)
    (fields_size,) = _INT.unpack_from(header, fields_at - 4)
    if fields_at + fields_size != len(header):
        raise Malformed(
            f"fields of {fields_size} bytes, with {len(header) - fields_at} left in a compact header",
            fields_at - 4,
        )
    return Command(
        code=code if flag & RESPONSE else COMPACT_CODES.get(code, code),
        opaque=opaque,
        flag=flag,
        ext_fields=dict(_pairs(header, fields_at)) if fields_size else None,
        body=body,
        remark=decode_text(header[FIXED_SIZE - 4 : fields_at - 4]) if remark_size else None,
        language=_LANGUAGES.get(language),
        version=version,
        serialize_type=SerializeType.ROCKETMQ,
    )


def encode(command: Command) -> bytes:
    """The same bytes as Java. Codes of more than 16 bits are truncated, as in Java."""
    remark = b"" if command.remark is None else command.remark.encode("utf-8", "replace")
    pieces = [
        _FIXED.pack(
            _low16(command.code),
            LanguageCode.OTHER if command.language is None else command.language,
            _low16(command.version),
            command.opaque,
            command.flag,
            len(remark),
        ),
        remark,
        b"",
    ]
    for name, value in command.fields.items():
        raw_name, raw_value = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        if len(raw_name) > _NAME_SIZE_MAX:
            raise UsageError(f"an ext field's name of {len(raw_name)} bytes, the limit is {_NAME_SIZE_MAX}")
        pieces += _SHORT.pack(len(raw_name)), raw_name, _INT.pack(len(raw_value)), raw_value
    pieces[2] = _INT.pack(sum(map(len, pieces[3:])))
    return b"".join(pieces)


def _pairs(header: bytes, at: int) -> Iterator[tuple[str, str]]:
    """Of equal names the last one counts: Java writes some twice."""
    while at < len(header):
        name, at = _piece(header, at, _SHORT)
        value, at = _piece(header, at, _INT)
        if value:
            yield decode_text(name), decode_text(value)


def _piece(header: bytes, at: int, length: struct.Struct) -> tuple[bytes, int]:
    begin = at + length.size
    if begin <= len(header):
        (size,) = length.unpack_from(header, at)
        if 0 <= size <= len(header) - begin:
            return header[begin : begin + size], begin + size
    raise Malformed(f"an ext field that goes beyond its header of {len(header)} bytes", at)


def _low16(number: int) -> int:
    return (number + 0x8000 & 0xFFFF) - 0x8000
