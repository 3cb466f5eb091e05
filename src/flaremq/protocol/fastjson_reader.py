"""Reads what fastjson reads: JSON, with any value as a key, bare names, single quotes, references."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from flaremq.base.errors import Malformed

DEPTH_MAX: Final = 100
"""Nesting of arrays and objects. No body of the protocol has more than a dozen levels."""

_BLANK: Final = re.compile(r"(?:[ \t\r\n\f\x08]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_DOUBLE: Final = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_SINGLE: Final = re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL)
_NUMBER: Final = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,4})?(?![0-9A-Za-z_.$])")
_WORD: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SHORT: Final = {
    **dict(zip("bfnrtv0", "\b\f\n\r\t\v\0", strict=True)),
    **{char: char for char in "\"'\\/"},
}
_LITERALS: Final[dict[str, object]] = {"true": True, "false": False, "null": None}
_REFERENCE: Final = "$ref"
_STEP: Final = re.compile(r"\.((?:\\.|[^.\[\\])+)|\[([0-9]{1,9})\]", re.DOTALL)


class ObjectKey(tuple[tuple[object, object], ...]):
    """An object used as a map key: its members as pairs. `dict(key)` makes it an object again."""

    __slots__ = ()


def read(text: str, *, exact_numbers: bool = False) -> object:
    """The one value of a text. With `exact_numbers`, a number with a point or an exponent stays text."""
    reader = _Reader(text, exact_numbers)
    found = reader.value(0)
    reader.end()
    return _Resolver(found).resolve(found, ()) if reader.has_references else found


class _Reader:
    def __init__(self, text: str, exact_numbers: bool) -> None:
        self._text = text
        self._at = 0
        self._exact = exact_numbers
        self.has_references = False

    def value(self, depth: int) -> object:
        char = self._next()
        if char == "{":
            return self._object(depth + 1)
        if char == "[":
            return self._array(depth + 1)
        if char in ('"', "'"):
            return self._string(char)
        number = _NUMBER.match(self._text, self._at)
        if number:
            self._at = number.end()
            if number[1] is None and number[2] is None:
                return int(number[0])
            return number[0] if self._exact else float(number[0])
        word = _WORD.match(self._text, self._at)
        if word and word[0] in _LITERALS:
            self._at = word.end()
            return _LITERALS[word[0]]
        return self._fail("a value")

    def end(self) -> None:
        if self._next():
            self._fail("the end")

    def _next(self) -> str:
        """The next character that is not blank; empty at the end."""
        blank = _BLANK.match(self._text, self._at)
        assert blank is not None  # It also matches the empty text.
        self._at = blank.end()
        return self._text[self._at : self._at + 1]

    def _take(self, char: str) -> bool:
        found = self._next() == char
        self._at += found
        return found

    def _object(self, depth: int) -> dict[object, object]:
        self._open(depth)
        found: dict[object, object] = {}
        if self._take("}"):
            return found
        while True:
            key = self._key(depth)
            if not self._take(":"):
                self._fail("a colon")
            found[key] = self.value(depth)
            self.has_references |= key == _REFERENCE
            if self._take("}"):
                return found
            if not self._take(","):
                self._fail("a comma or the end of an object")

    def _array(self, depth: int) -> list[object]:
        self._open(depth)
        found: list[object] = []
        if self._take("]"):
            return found
        while True:
            found.append(self.value(depth))
            if self._take("]"):
                return found
            if not self._take(","):
                self._fail("a comma or the end of an array")

    def _open(self, depth: int) -> None:
        if depth > DEPTH_MAX:
            self._fail(f"no more than {DEPTH_MAX} objects in each other")
        self._at += 1

    def _key(self, depth: int) -> object:
        self._next()
        word = _WORD.match(self._text, self._at)
        if word:
            self._at = word.end()
            return word[0]
        return _frozen(self.value(depth))

    def _string(self, mark: str) -> str:
        found = (_DOUBLE if mark == '"' else _SINGLE).match(self._text, self._at)
        if not found:
            self._fail("the end of a string")
        text = found[1]
        if "\\" in text:
            text = _ESCAPE.sub(self._unescape, text)
            if _SURROGATE.search(text):  # Pairs become one character; a lone half is replaced.
                text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        self._at = found.end()
        return text

    def _unescape(self, found: re.Match[str]) -> str:
        what = found[1]
        if len(what) > 1:
            return chr(int(what[1:], 16))
        if what not in _SHORT:
            self._fail("an escape that means something")
        return _SHORT[what]

    def _fail(self, wanted: str) -> NoReturn:
        seen = self._text[self._at : self._at + 20]
        raise Malformed(f"JSON at character {self._at}: {seen!r}, expected {wanted}", self._at)


def _frozen(value: object) -> object:
    if isinstance(value, dict):
        return ObjectKey((name, _frozen(member)) for name, member in value.items())
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return value


class _Resolver:
    """Replaces references by the objects that they refer to.

    Java writes a reference when it meets the same object again. One to an enclosing object would make a
    cycle, which nothing in the protocol does.
    """

    def __init__(self, root: object) -> None:
        self._root = root

    def resolve(self, value: object, around: tuple[object, ...]) -> object:
        if isinstance(value, dict):
            path = value.get(_REFERENCE)
            if len(value) == 1 and isinstance(path, str):
                return self._follow(path, around)
            members, inner = list(value.items()), (*around, value)
            for name, member in members:
                value[name] = self.resolve(member, inner)
        elif isinstance(value, list):
            inner = (*around, value)
            value[:] = [self.resolve(each, inner) for each in value]
        return value

    def _follow(self, path: str, around: tuple[object, ...]) -> object:
        found, at = self._root, 1
        if not path.startswith("$"):
            return None  # "@" and "..": the object itself, or an enclosing one.
        while at < len(path):
            step = _STEP.match(path, at)
            if not step:
                return None
            at = step.end()
            found = _member(found, step)
        if any(found is each for each in around):
            return None
        return None if isinstance(found, dict) and _REFERENCE in found else found


def _member(value: object, step: re.Match[str]) -> object:
    if step[2] is not None:
        place = int(step[2])
        return value[place] if isinstance(value, list) and place < len(value) else None
    name = re.sub(r"\\(.)", r"\1", step[1])
    if not isinstance(value, dict):
        return None
    if name in value:
        return value[name]
    return value.get(int(name)) if re.fullmatch(r"-?[0-9]{1,19}", name) else None
