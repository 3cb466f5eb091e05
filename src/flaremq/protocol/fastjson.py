"""Bodies in the dialect of fastjson 1.2, which is not quite JSON.

Map keys that are not strings are written as they are, `{0:"a"}` and `{{"topic":"T"}:5}`, and an object that
was written before is referred to by its path, `{"$ref":"$.a.b"}`. Names may be bare and quotes single; no
client writes that, but Java reads it. Plain JSON, the ordinary case, is read by orjson; what orjson refuses
is read here, and Malformed if that fails too.

Two dialects are written: Java's own, byte for byte, and standard JSON, which a NameServer sends to newer
clients: keys in quotes, an object as a key in a string, ASCII only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Final

import orjson

from flaremq.base.errors import Malformed
from flaremq.model.columns import Bytes
from flaremq.model.properties import decode_text
from flaremq.protocol.fastjson_reader import ObjectKey, read

__all__ = ["Dialect", "ObjectKey", "dumps", "java_double", "loads", "quote"]

_SAFE_INTEGER: Final = 1 << 53  # Beyond it a browser loses digits.
_SHORT: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_SPECIAL: Final = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029]')
_SPECIAL_STANDARD: Final = re.compile('["\\\\\x00-\x1f\x7f-\U0010ffff]|(?<=<)/')


class Dialect(Enum):
    FASTJSON = "fastjson"
    STANDARD = "standard"


def loads(data: Bytes | str) -> object:
    """The value of a text. Raises Malformed.

    An object that is a key becomes an ObjectKey. References are resolved; one that leads nowhere, or to an
    object that contains it, becomes None.
    """
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else bytes(data)
    if b"$ref" not in raw:
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            pass  # Not plain JSON; perhaps fastjson's.
    return read(decode_text(raw))


def load_object(data: Bytes | str | None) -> Mapping[str, object]:
    """Like `loads`, but only for an object."""
    if data is None or not len(data):
        raise Malformed("no body, expected a JSON object")
    found = loads(data)
    if not isinstance(found, dict):
        raise Malformed(f"a JSON body that is {type(found).__name__}, expected an object")
    return found


def dumps(value: object, dialect: Dialect = Dialect.FASTJSON) -> bytes:
    """As Java would write it. Members that are None are left out; order is the given one."""
    pieces: list[str] = []
    _write(value, pieces, dialect is Dialect.STANDARD)
    return "".join(pieces).encode("utf-8", "replace")


def quote(text: str, standard: bool = False) -> str:
    """A string in its quotes, escaped where fastjson escapes."""
    special = _SPECIAL_STANDARD if standard else _SPECIAL
    if special.search(text):
        text = special.sub(_escape, text)
    return f'"{text}"'


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    if char == "/":
        return "\\/"
    if char in _SHORT:
        return _SHORT[char]
    code = ord(char)
    if code <= 0xFFFF:
        return f"\\u{code:04X}"
    code -= 0x10000
    return f"\\u{0xD800 | code >> 10:04X}\\u{0xDC00 | code & 0x3FF:04X}"


def java_double(value: float) -> str:
    """Double.toString: always a point, and an exponent below 10^-3 and from 10^7 on."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{exponent + len(text) - 1}"


def _write(value: object, out: list[str], standard: bool) -> None:
    if isinstance(value, str):
        out.append(quote(value, standard))
    elif value is None:
        out.append("null")
    elif isinstance(value, bool):
        out.append("true" if value else "false")
    elif isinstance(value, Enum):
        out.append(quote(value.name, standard))
    elif isinstance(value, int):
        out.append(f'"{value}"' if standard and abs(value) > _SAFE_INTEGER else str(value))
    elif isinstance(value, float):
        text = java_double(value)
        out.append("null" if text[-1] in "yN" else text)
    elif isinstance(value, Mapping):
        _write_object(value, out, standard)
    elif isinstance(value, list | tuple | set | frozenset):
        _write_array(value, out, standard)
    else:
        raise TypeError(f"{type(value).__name__} has no form in JSON")


def _write_array(
    value: list[object] | tuple[object, ...] | set[object] | frozenset[object],
    out: list[str],
    standard: bool,
) -> None:
    separator = "["
    for each in value:
        out.append(separator)
        _write(each, out, standard)
        separator = ","
    out.append("[]" if separator == "[" else "]")


def _write_object(value: Mapping[object, object], out: list[str], standard: bool) -> None:
    separator = "{"
    for key, member in value.items():
        if member is None:
            continue
        out.append(separator)
        _write_key(key, out, standard)
        out.append(":")
        _write(member, out, standard)
        separator = ","
    out.append("{}" if separator == "{" else "}")


def _write_key(key: object, out: list[str], standard: bool) -> None:
    if isinstance(key, str):
        out.append(quote(key, standard))
        return
    form: object = dict(key) if isinstance(key, ObjectKey) else key
    if not standard:
        _write(form, out, standard)
        return
    inner: list[str] = []
    _write(form, inner, standard)
    out.append(quote("".join(inner), standard))
