"""Custom headers: a frozen dataclass on our side, ext fields (all text) on the wire.

A field has Java's name, which is the attribute's in camel case unless WIRE_NAMES has another; None is not
written. Reading follows Java: a number has digits and perhaps a sign, only `true` in any case is true, an
unknown field is skipped. Where Java would log a missing field and fail later, PeerError names it at once; the
response code is the same.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from flaremq.base.errors import PeerError
from flaremq.protocol.fastjson import java_double

H = TypeVar("H", bound="Header")
_Parse: TypeAlias = Callable[[str], Any]

Long: TypeAlias = Annotated[int, 64]
"""A whole number of 64 bits. A plain int has 32, as in Java."""

_CODECS: Final[dict[type, Any]] = {}  # Made once per class: type hints are slow to evaluate.
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_DOUBLE: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Base of all custom headers."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcHeader(Header):
    """Fields that any request of newer Java clients may have in addition to its own."""

    bname: str | None = None
    """The name of the target broker."""
    ns: str | None = None
    nsd: bool | None = None
    oway: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicHeader(RpcHeader):
    lo: bool | None = None
    """Whether the topic is a static (logical) one."""


def camel(name: str) -> str:
    """`queue_id` in Java's style: `queueId`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def decode(cls: type[H], given: Mapping[str, str]) -> H:
    """The header in these ext fields. Raises PeerError if a field is missing or invalid."""
    return codec(cls).decode(given)


def encode(header: Header) -> dict[str, str]:
    """The ext fields of a header, in the order in which it declares them."""
    return codec(type(header)).encode(header)


def codec(cls: type[H]) -> Codec[H]:
    found: Codec[H] | None = _CODECS.get(cls)
    if found is None:
        found = _CODECS[cls] = Codec(cls)
    return found


class Codec(Generic[H]):
    """Reads and writes one kind of header. `names` overrides Java's names, as in V2 sends."""

    def __init__(self, cls: type[H], names: Mapping[str, str] | None = None) -> None:
        hints = get_type_hints(cls, include_extras=True)
        self._cls = cls
        self._plan: list[tuple[str, str, _Parse, str, bool]] = []
        for each in fields(cls):
            wire = cls.WIRE_NAMES.get(each.name, camel(each.name))
            wire = wire if names is None else names.get(wire, wire)
            parse, wanted = _parser(hints[each.name])
            self._plan.append((each.name, wire, parse, wanted, each.default is MISSING))

    def decode(self, given: Mapping[str, str]) -> H:
        values: dict[str, Any] = {}
        for name, wire, parse, wanted, required in self._plan:
            text = given.get(wire)
            if text is None or (not text and parse is not str):
                if required:
                    raise PeerError(f"{self._cls.__name__}: field {wire!r} is missing, expected {wanted}")
                continue
            try:
                values[name] = text if parse is str else parse(text)
            except ValueError:
                raise PeerError(
                    f"{self._cls.__name__}: field {wire!r} is {text[:60]!r}, expected {wanted}"
                ) from None
        return self._cls(**values)

    def encode(self, header: H) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, wire, _, _, _ in self._plan:
            value = getattr(header, name)
            if value is not None:
                found[wire] = _text(value)
        return found


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return value.name
    return java_double(value) if isinstance(value, float) else str(value)


def _parser(hint: Any) -> tuple[_Parse, str]:
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (each for each in get_args(hint) if each is not type(None))
    if get_origin(hint) is Annotated:
        return _long, "a whole number of 64 bits"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint.of_text, f"one of {', '.join(hint.__members__)}"  # type: ignore[attr-defined]
    return _PARSERS[hint]


def _integer(text: str, bits: int) -> int:
    if _INTEGER.fullmatch(text):
        number = int(text)
        if -(1 << bits - 1) <= number < 1 << bits - 1:
            return number
    raise ValueError(text)


def _int(text: str) -> int:
    if len(text) < 10 and text.isascii() and text.isdecimal():  # The ordinary case, without a pattern.
        return int(text)
    return _integer(text, 32)


def _long(text: str) -> int:
    if len(text) < 19 and text.isascii() and text.isdecimal():
        return int(text)
    return _integer(text, 64)


def _boolean(text: str) -> bool:
    return text.lower() == "true"


def _double(text: str) -> float:
    if _DOUBLE.fullmatch(text):
        return float(text)
    raise ValueError(text)


_PARSERS: Final[dict[type, tuple[_Parse, str]]] = {
    str: (str, "text"),
    int: (_int, "a whole number of 32 bits"),
    bool: (_boolean, "true or false"),
    float: (_double, "a number"),
}
