r"""The .properties format of Java, in full.

    # a comment       ! and another
    key=value         key : value        key value
    long = one, \
           two                           blanks before the continuation are dropped
    a\=b = \u4e2d\t                      escapes: \t \n \r \f \uXXXX; \x is x for any other x

Lines end with LF, CR or CRLF. The last one of equal keys wins. Any text results in a dict, or in a
ConfigError that names the line.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
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
_ESCAPED: Final = re.compile(r"[\\\t\n\r\f#!=: ]|[^\x20-\x7e]")
_ESCAPES: Final = {letter: f"\\{name}" for name, letter in _LETTERS.items()}


def parse_properties(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None  # It also matches the empty text.
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        found[_unescaped(key[0], number)] = _unescaped(line[separator.end() :], number)
    return found


def properties_line(name: str, value: str) -> str:
    """A line that Java can read: plain ASCII, everything else escaped."""
    return f"{_escaped(name)}={_escaped(value)}\n"


def with_values(text: str, changes: Mapping[str, str]) -> str:
    """The same file with these values: lines that set one are replaced in place, other names are appended.
    Comments and all other lines stay as they are."""
    left = dict(changes)
    lines = _LINE_END.split(text)
    kept: list[str] = []
    done = 0
    for first, last, key in _keys(text, lines):
        kept += lines[done : first - 1]
        done = last
        if key not in changes:
            kept += lines[first - 1 : last]
        elif key in left:  # A second line that sets it would win over the first.
            kept.append(properties_line(key, left.pop(key)).rstrip("\n"))
    kept += lines[done:]
    if left:
        kept = kept[:-1] if kept and not kept[-1] else kept
        if kept and _continues(kept[-1]):
            kept.append("")  # Otherwise our line would continue the last one.
        kept += [properties_line(key, value).rstrip("\n") for key, value in left.items()]
        kept.append("")
    return "\n".join(kept)


def _keys(text: str, lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """For every line with content: its first and last number, and its key."""
    for first, line in _logical_lines(text):
        last, key = first, _KEY.match(line)
        while last < len(lines) and _continues(lines[last - 1]):
            last += 1
        assert key is not None
        yield first, last, _unescaped(key[0], first)


def _continues(line: str) -> bool:
    slashes = _BACKSLASHES_AT_END.search(line)
    return slashes is not None and len(slashes[0]) % 2 == 1


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: _escape(found[0]), text)


def _escape(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if " " <= letter <= "~":
        return "\\" + letter
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


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
        if _continues(line):
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
                raise ConfigError(
                    f"line {number}: \\u{digits} is invalid: expected \\u and four hexadecimal digits"
                )
            parts.append(chr(int(digits, 16)))
            at = slash + 6
        else:
            parts.append(_LETTERS.get(letter, letter))
            at = slash + 2
    parts.append(text[at:])
    return _checked("".join(parts), number)


def _checked(text: str, number: int) -> str:
    """Java's \\ud83d\\ude00 is one character. One half alone can be neither shown nor stored."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ConfigError(f"line {number}: {text!r} holds half a surrogate pair; write both halves") from None
