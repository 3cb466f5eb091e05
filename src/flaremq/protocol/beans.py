"""Bodies: a frozen dataclass on our side, a JSON object on the wire.

Written as fastjson writes Java's beans: members in alphabetical order, None left out, enums by name. Reading
accepts more: enums by number (C++), numbers in quotes, raw or quoted keys of maps, a queue as a key, unknown
members, which are skipped. Anything else raises Malformed, with the place.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from flaremq.base.errors import Malformed
from flaremq.model.columns import Bytes
from flaremq.protocol import fastjson
from flaremq.protocol.fastjson import Dialect, ObjectKey
from flaremq.protocol.fields import camel

B = TypeVar("B")
_Read: TypeAlias = Callable[[object, str], Any]
_DIGITS_MAX: Final = 20
_PLANS: Final[dict[type, _Plan]] = {}


def encode(bean: object, dialect: Dialect = Dialect.FASTJSON) -> bytes:
    """The body that Java would write for it."""
    return fastjson.dumps(to_object(bean), dialect)


def decode(cls: type[B], body: Bytes | None) -> B:
    """The bean in a body. Raises Malformed."""
    return of_object(cls, fastjson.load_object(body))


def to_object(value: object) -> object:
    """Beans and their contents as JSON values."""
    if isinstance(value, Enum):
        return value.name
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return {wire: to_object(getattr(value, name)) for wire, name in _plan(type(value)).names}
    if isinstance(value, Mapping):
        return {_to_key(key): to_object(member) for key, member in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [to_object(each) for each in value]
    return value


def of_object(cls: type[B], data: object, where: str = "") -> B:
    """A bean from JSON values."""
    where = where or cls.__name__
    if not isinstance(data, Mapping):
        raise _wrong(where, data, "an object")
    of_dict: Callable[[object], B] | None = getattr(cls, "from_dict", None)
    if of_dict is not None:
        return of_dict(data)
    values: dict[str, Any] = {}
    for name, wire, read, required in _plan(cls).members:
        member = data.get(wire)
        if member is None:
            member = data.get(camel(name))  # A short name may also come in full.
        if member is not None:
            member = read(member, f"{where}.{wire}")
        if member is not None:
            values[name] = member
        elif required:
            raise Malformed(f"{where} lacks {wire!r}")
    return cls(**values)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is needed to read and write a class, looked up once."""

    names: tuple[tuple[str, str], ...]
    """Wire name and attribute, in the order in which they are written."""
    members: tuple[tuple[str, str, _Read, bool], ...]
    """Attribute, wire name, reader, and whether it is required."""


def _plan(cls: type) -> _Plan:
    found = _PLANS.get(cls)
    if found is None:
        names = _wire_names(cls)
        found = _PLANS[cls] = _Plan(names, _members(cls, names))
    return found


def _wire_names(cls: type) -> tuple[tuple[str, str], ...]:
    special: Mapping[str, str] = getattr(cls, "WIRE_NAMES", {})
    return tuple(sorted((special.get(each.name, camel(each.name)), each.name) for each in fields(cls)))


def _members(cls: type, names: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str, _Read, bool], ...]:
    hints = get_type_hints(cls)
    required = {
        each.name for each in fields(cls) if each.default is MISSING and each.default_factory is MISSING
    }
    return tuple(
        (name, wire, _reader(hints[name]), name in required and not _is_optional(hints[name]))
        for wire, name in names
    )


def _is_optional(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)


def _reader(hint: Any) -> _Read:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (each for each in args if each is not type(None))
        return _reader(inner)
    if origin is tuple:
        return _list_reader(_reader(args[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _map_reader(_key_reader(args[0]), _reader(args[1]))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum_reader(hint)
    plain = _PLAIN.get(hint)
    return plain or (lambda value, where: of_object(hint, value, where))


def _list_reader(read: _Read) -> _Read:
    def read_list(value: object, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise _wrong(where, value, "a list")
        found = (read(each, where) for each in value if each is not None)
        return tuple(each for each in found if each is not None)

    return read_list


def _map_reader(read_key: _Read, read: _Read) -> _Read:
    def read_map(value: object, where: str) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise _wrong(where, value, "an object")
        return {
            read_key(key, where): read(member, f"{where}.{key}")
            for key, member in value.items()
            if member is not None
        }

    return read_map


def _key_reader(hint: Any) -> _Read:
    if hint in _PLAIN:
        return _PLAIN[hint]

    def read_key(key: object, where: str) -> Any:
        """An object as a map key: itself, or its JSON as a string."""
        if isinstance(key, str):
            key = fastjson.loads(key)
        return of_object(hint, dict(key) if isinstance(key, ObjectKey) else key, f"a key of {where}")

    return read_key


def _enum_reader(cls: type[Enum]) -> _Read:
    members = list(cls)

    def read_enum(value: object, where: str) -> Enum | None:
        """By name or ordinal; an unknown one is None, as in Java."""
        if isinstance(value, str):
            return cls.__members__.get(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return members[value] if 0 <= value < len(members) else None
        raise _wrong(where, value, "a name")

    return read_enum


def _read_text(value: object, where: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return fastjson.dumps(value).decode()
    raise _wrong(where, value, "text")


def _read_integer(value: object, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and len(value) <= _DIGITS_MAX and value.removeprefix("-").isdecimal():
        return int(value)
    raise _wrong(where, value, "a whole number")


def _read_number(value: object, where: str) -> float:
    if isinstance(value, float):
        return value
    return float(_read_integer(value, where))


def _read_boolean(value: object, where: str) -> bool:
    if isinstance(value, bool):
        return value
    if value in (0, 1):
        return value == 1
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise _wrong(where, value, "true or false")


_PLAIN: Final[dict[Any, _Read]] = {
    str: _read_text,
    int: _read_integer,
    float: _read_number,
    bool: _read_boolean,
    object: lambda value, _: value,
}


def _to_key(key: object) -> object:
    form = to_object(key)
    return ObjectKey(form.items()) if isinstance(form, dict) else form


def _wrong(where: str, value: object, wanted: str) -> Malformed:
    return Malformed(f"{where} is {str(value)[:60]!r}, expected {wanted}")
