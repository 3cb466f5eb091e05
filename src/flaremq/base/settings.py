"""From text to settings: properties file, environment and flags into frozen dataclasses.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class FlushSettings:
        interval_ms: int = option("flushIntervalCommitLog", 500, minimum=1, unit="span_ms")
        kind: FlushDiskType = option("flushDiskType", FlushDiskType.ASYNC_FLUSH)

    (flush,) = load(Sources.of(file, os.environ, flags), FlushSettings)

A field knows its option; `load` is the only reader of text. Java ignores what it does not understand: a name,
a number followed by a blank, `yes` for a boolean. Here each of them is an error, and a name that RocketMQ
knows but that has no effect here is one line in the log.
"""

import dataclasses
import logging
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, overload

from flaremq.base.errors import ConfigError
from flaremq.base.options import ALIASES, all_names, check_protection, nearest
from flaremq.base.propertiesfile import parse_properties
from flaremq.base.sources import Given, Sources, environment_name, shown
from flaremq.base.units import parse_size, parse_span_ms

__all__ = [
    "Given",
    "Sources",
    "check",
    "computed",
    "dump",
    "environment_name",
    "java_names",
    "load",
    "option",
    "parse_properties",
]

log = logging.getLogger(__name__)

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")

_KEY: Final = "flaremq.option"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


class How(TypedDict, total=False):
    """Further properties of an option."""

    also: tuple[str, ...]
    """Other spellings that mean the same."""
    choices: tuple[object, ...]
    minimum: float
    maximum: float
    unit: Literal["size", "span_ms"]
    """Accept `64KiB` or `10s` as well as Java's plain number."""
    by_value: bool
    """An enum is written by the values of its members, not their names."""
    separator: str
    """Between the texts of a tuple; by default a comma."""


@dataclass(frozen=True, slots=True)
class _Spec:
    java_name: str
    how: How


def option(java_name: str, default: T, **how: Unpack[How]) -> T:
    """A field of a section, set by the option `java_name`."""
    made: T = dataclasses.field(default=default, metadata={_KEY: _Spec(java_name, how)})
    return made


def computed(java_name: str, default_factory: Callable[[], T], **how: Unpack[How]) -> T:
    """Like `option`, with a default that depends on this machine: its name, a home folder."""
    made: T = dataclasses.field(default_factory=default_factory, metadata={_KEY: _Spec(java_name, how)})
    return made


@overload
def load(sources: Sources, a: type[A], /, *, available: frozenset[str] = ...) -> tuple[A]: ...
@overload
def load(sources: Sources, a: type[A], b: type[B], /, *, available: frozenset[str] = ...) -> tuple[A, B]: ...
@overload
def load(
    sources: Sources, a: type[A], b: type[B], c: type[C], /, *, available: frozenset[str] = ...
) -> tuple[A, B, C]: ...
@overload
def load(sources: Sources, /, *sections: type[Any], available: frozenset[str] = ...) -> tuple[Any, ...]: ...
def load(
    sources: Sources, /, *sections: type[Any], available: frozenset[str] = frozenset()
) -> tuple[Any, ...]:
    """Build every section, or raise ConfigError: nothing is ever half understood.

    Load all sections of a process in one call, or the options of one are unknown to the other. `available`
    names the protections that this process has (`options.check_protection`) in addition to those of its
    sections (PROTECTS).
    """
    available = available.union(*(getattr(section, "PROTECTS", ()) for section in sections))
    specs = [spec for section in sections for _, spec in _fields(section)]
    ours = {spec.java_name for spec in specs}
    aliases = {**ALIASES, **{other: spec.java_name for spec in specs for other in spec.how.get("also", ())}}
    names = {*all_names(), *ours, *aliases}
    given = sources.merged(names, aliases)
    _check_known(given, names)
    check_protection({name: value for name, (value, _) in given.items()}, available)
    for name in sorted(given.keys() - ours):
        log.warning(
            "option %s (%s) is known to RocketMQ and accepted, but has no effect here",
            name,
            given[name].where,
        )
    return tuple(_build(section, given) for section in sections)


def dump(section: Any) -> list[tuple[str, str]]:
    """Java name and text of every option, in order of declaration: what `load` would read back."""
    return [
        (spec.java_name, _text(getattr(section, field.name), spec.how)) for field, spec in _fields(section)
    ]


def check(section: Any) -> None:
    """Check limits and choices of a section; call it in `__post_init__`."""
    for field, spec in _fields(section):
        complaint = _complaint(getattr(section, field.name), spec.how)
        if complaint:
            value = _text(getattr(section, field.name), spec.how)
            raise ConfigError(f"{spec.java_name}={shown(spec.java_name, value)}: {complaint}")


def _fields(section: Any) -> list[tuple["dataclasses.Field[Any]", _Spec]]:
    return [(field, field.metadata[_KEY]) for field in dataclasses.fields(section) if _KEY in field.metadata]


def _check_known(given: Mapping[str, Given], names: set[str]) -> None:
    for name, (value, where) in given.items():
        if name not in names:
            close = nearest(name, names)
            hint = f"did you mean {close}?" if close else "no option has a name like that; remove it"
            raise ConfigError(f"unknown option {name!r} = {shown(name, value)} ({where}): {hint}")


def java_names(section: type[Any]) -> dict[str, str]:
    """The option that sets each field of a section."""
    return {field.name: spec.java_name for field, spec in _fields(section)}


def _build(section: type[T], given: Mapping[str, Given]) -> T:
    kinds = typing.get_type_hints(section)
    values = {}
    for field, spec in _fields(section):
        if spec.java_name in given:
            values[field.name] = _read(given[spec.java_name], kinds[field.name], spec)
    return section(**values)


def _read(given: Given, kind: Any, spec: _Spec) -> object:
    try:
        value = _convert(given.value.strip(), kind, spec.how)
        complaint = _complaint(value, spec.how)
    except ValueError as error:
        complaint = str(error)
    if complaint:
        written = shown(spec.java_name, given.value)
        raise ConfigError(f"{spec.java_name}={written} ({given.where}): {complaint}")
    return value


def _convert(text: str, kind: Any, how: How) -> object:
    """Raises ValueError with what was expected."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        if not text:
            return None
        (kind,) = (one for one in typing.get_args(kind) if one is not type(None))
    if typing.get_origin(kind) is tuple:
        separator = how.get("separator", ",")
        return tuple(part.strip() for part in text.split(separator) if part.strip())
    if isinstance(kind, type) and issubclass(kind, Enum):
        words = {_word(member, how): member for member in kind}
        if text not in words:
            raise ValueError(f"expected one of {', '.join(words)}, spelled exactly like this")
        return words[text]
    if kind is int:
        return _integer(text, how.get("unit"))
    plain = _PLAIN.get(kind)
    if plain is None:
        raise TypeError(f"settings of type {kind} cannot be read from text")
    return plain(text)


def _integer(text: str, unit: str | None) -> int:
    if _INTEGER.fullmatch(text):
        return int(text)
    if unit is None:
        raise ValueError("expected a whole number")
    try:
        return parse_size(text) if unit == "size" else parse_span_ms(text)
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"


def _decimal(text: str) -> float:
    if not _DECIMAL.fullmatch(text) or not math.isfinite(float(text)):
        raise ValueError("expected a decimal number")
    return float(text)


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError("expected the path of a file or folder")
    return Path(text)


_PLAIN: Final[Mapping[Any, Callable[[str], object]]] = {
    bool: _boolean,
    float: _decimal,
    str: str,
    Path: _path,
}


def _complaint(value: object, how: How) -> str | None:
    choices = how.get("choices")
    if choices is not None and value not in choices:
        return f"expected one of {', '.join(_text(choice, how) for choice in choices)}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = how.get("minimum", -math.inf), how.get("maximum", math.inf)
        if not low <= value <= high:
            return f"expected a number from {_limit(low)} to {_limit(high)}"
    return None


def _word(member: Enum, how: How) -> str:
    return str(member.value) if how.get("by_value") else member.name


def _limit(number: float) -> str:
    return "any" if math.isinf(number) else str(number)


def _text(value: object, how: How) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return _word(value, how)
    if isinstance(value, tuple):
        return how.get("separator", ",").join(str(part) for part in value)
    return str(value)
