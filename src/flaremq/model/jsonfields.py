"""Typed members of a JSON object that Java wrote or will read, with defaults.

As lenient as fastjson: a member that is missing or null is the default, numbers and booleans may be text,
unknown members are skipped. Anything else raises Malformed with the name of the member.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, TypeVar

from flaremq.base.errors import Malformed

E = TypeVar("E", bound=Enum)

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")


class Fields:
    """Reads the members of one object; `what` names it in errors."""

    def __init__(self, what: str, data: Mapping[str, object]) -> None:
        self._what = what
        self._data = data

    def text(self, name: str, default: str | None = None) -> str:
        """Required unless there is a default."""
        value = self._data.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self._wrong(name, "text")
        return value

    def integer(self, name: str, default: int) -> int:
        value = self._data.get(name)
        return default if value is None else self._integer(name, value)

    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        value = self._data.get(name)
        if value is None:
            return default
        if not isinstance(value, list | tuple):
            raise self._wrong(name, "a list of whole numbers")
        return tuple(self._integer(name, one) for one in value)

    def boolean(self, name: str, default: bool) -> bool:
        value = self._data.get(name)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise self._wrong(name, "true or false")

    def enum(self, name: str, default: E) -> E:
        value = self._data.get(name)
        if value is None:
            return default
        members = type(default).__members__
        if not isinstance(value, str) or value not in members:
            raise self._wrong(name, f"one of {', '.join(members)}")
        return members[value]

    def texts(self, name: str) -> dict[str, str]:
        """An object whose members are all text; empty if absent."""
        value = self._data.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping) or not all(
            isinstance(x, str) for pair in value.items() for x in pair
        ):
            raise self._wrong(name, "an object of texts")
        return dict(value)

    def inner(self, name: str) -> "Fields | None":
        value = self._data.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self._wrong(name, "an object")
        return Fields(f"{self._what}.{name}", value)

    def inners(self, name: str) -> "list[Fields] | None":
        value = self._data.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(one, Mapping) for one in value):
            raise self._wrong(name, "a list of objects")
        return [Fields(f"{self._what}.{name}", one) for one in value]

    def _integer(self, name: str, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            return int(value)
        raise self._wrong(name, "a whole number")

    def _wrong(self, name: str, wanted: str) -> Malformed:
        return Malformed(f"{name} of {self._what} is {self._data.get(name)!r}, expected {wanted}")
