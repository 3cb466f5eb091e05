r"""The .properties format of Java, in full.

    # a comment       ! and another
    key=value         key : value        key value
    long = one, \
           two                           blanks before the continuation are dropped
    a\=b = \u4e2d\t                      escapes: \t \n \r \f \uXXXX; \x is x for any other x

Lines end with LF, CR or CRLF. The last one of equal keys wins. Any text at all gives a dict or
a ConfigError that names the line.
"""

import re
from collections.abc import Iterator
from typing import Final

from flaremq.base.errors import ConfigError

_BLANKS: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_HEX_4: Final = re.compile(r"[0-9a-fA-F]{4}")
_BACKSLASHES_AT_END: Final = re.compile(r"\\+\Z")
# A key ends at the first separator that no backslash protects.
_KEY: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*\\?", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None  # It matches the empty text too.
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        found[_unescaped(key[0], number)] = _unescaped(line[separator.end() :], number)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with content, continuations joined, each with the number it began at."""
    joined = ""
    started_at = 0
    for number, raw in enumerate(_LINE_END.split(text), start=1):
        line = raw.lstrip(_BLANKS)
        if not joined:
            if not line or line[0] in "#!":
                continue
            started_at = number
        joined += line
        slashes = _BACKSLASHES_AT_END.search(line)
        if slashes and len(slashes[0]) % 2:
            joined = joined[:-1]
            continue
        yield started_at, joined
        joined = ""
    if joined:
        yield started_at, joined


def _unescaped(text: str, number: int) -> str:
    if "\\" not in text:
        return _checked(text, number)
    parts = []
    at = 0
    while (slash := text.find("\\", at)) >= 0:
        parts.append(text[at:slash])
        letter = text[slash + 1 : slash + 2]
        if letter == "u":
            digits = text[slash + 2 : slash + 6]
            if not _HEX_4.fullmatch(digits):
                raise ConfigError(f"line {number}: \\u{digits} is not \\u and four hexadecimal digits")
            parts.append(chr(int(digits, 16)))
            at = slash + 6
        else:
            parts.append(_LETTERS.get(letter, letter))
            at = slash + 2
    parts.append(text[at:])
    return _checked("".join(parts), number)


def _checked(text: str, number: int) -> str:
    """Java's \\ud83d\\ude00 is one character. Half of one can be neither shown nor stored."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ConfigError(f"line {number}: {text!r} holds half a surrogate pair; write both halves") from None
