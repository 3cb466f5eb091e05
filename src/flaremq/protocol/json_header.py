"""Headers in JSON: what Java, Go, C++ and Node send by default.

Java writes the members in alphabetical order and leaves out null. Other clients have another order, a line
feed after the brace, numbers and booleans among the ext fields: Java reads with fastjson, which accepts all
of that, so we do too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson

from flaremq.base.errors import Malformed
from flaremq.model.properties import decode_text
from flaremq.protocol import fastjson
from flaremq.protocol.codes import LanguageCode, SerializeType
from flaremq.protocol.command import Command
from flaremq.protocol.fastjson_reader import read

_INT32: Final = range(-(1 << 31), 1 << 31)
_LANGUAGES: Final = LanguageCode.__members__


def decode(header: bytes, body: bytes | memoryview | None = None) -> Command:
    """The command in a header. Raises Malformed if it is not a JSON object, or a number is invalid."""
    found = _object_of(header)
    remark = found.get("remark")
    return Command(
        code=_integer(found, "code"),
        opaque=_integer(found, "opaque"),
        flag=_integer(found, "flag"),
        ext_fields=_ext_fields(header, found.get("extFields")),
        body=body,
        remark=None if remark is None else _text(remark),
        language=_language(found.get("language", "JAVA")),
        version=_integer(found, "version"),
        serialize_type=SerializeType.JSON,
    )


def encode(command: Command) -> bytes:
    """The same bytes as Java, except that the ext fields keep their given order."""
    pieces = ['{"code":', str(int(command.code))]
    if command.ext_fields is not None:
        fields = [
            f"{fastjson.quote(name)}:{fastjson.quote(value)}" for name, value in command.ext_fields.items()
        ]
        pieces += ',"extFields":{', ",".join(fields), "}"
    pieces += ',"flag":', str(command.flag)
    if command.language is not None:
        pieces += ',"language":"', command.language.name, '"'
    pieces += ',"opaque":', str(command.opaque)
    if command.remark is not None:
        pieces += ',"remark":', fastjson.quote(command.remark)
    pieces += ',"serializeTypeCurrentRPC":"JSON","version":', str(int(command.version)), "}"
    return "".join(pieces).encode("utf-8", "replace")


def _object_of(header: bytes) -> Mapping[object, object]:
    try:
        found = orjson.loads(header)
    except orjson.JSONDecodeError:
        found = read(decode_text(header), exact_numbers=True)
    if not isinstance(found, dict):
        raise Malformed(f"a header that is {type(found).__name__}, expected a JSON object")
    return found


def _ext_fields(header: bytes, found: object) -> dict[str, str] | None:
    if found is None:
        return None
    if not isinstance(found, dict):
        raise Malformed(f"extFields of a header are {type(found).__name__}, expected an object")
    for value in found.values():
        if not isinstance(value, str):
            break
    else:
        if all(type(name) is str for name in found):
            return found
    if any(isinstance(value, float | dict | list) for value in found.values()):
        # Numbers must stay as written, and objects no deeper than our own reader allows.
        found = _read_again(header)
    return {_text(name): _text(value) for name, value in found.items() if value is not None}


def _read_again(header: bytes) -> dict[object, object]:
    again = read(decode_text(header), exact_numbers=True)
    assert isinstance(again, dict)  # orjson read it as one too.
    fields = again["extFields"]
    assert isinstance(fields, dict)
    return fields


def _text(value: object) -> str:
    """A value that is not a string, converted to a string as fastjson does."""
    if isinstance(value, str):
        return value
    return fastjson.dumps(dict(value) if isinstance(value, fastjson.ObjectKey) else value).decode()


def _integer(found: Mapping[object, object], name: str) -> int:
    value = found.get(name, 0)
    if type(value) is int and value in _INT32:
        return value
    if value is None:
        return 0
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and value.isascii():
        number = int(value[:20])
        if number in _INT32:
            return number
    raise Malformed(f"{name} of a header is {str(value)[:40]!r}, expected a 32-bit number")


def _language(value: object) -> LanguageCode | None:
    if isinstance(value, str):
        return _LANGUAGES.get(value)
    if isinstance(value, int) and 0 <= value < len(_LANGUAGES):
        return LanguageCode(value)
    return None
