"""The views that a query names, guessed from its words: Spark, which could parse it, has not started yet."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_NOT_NAMES: Final = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"", re.DOTALL
)
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_READ: Final = re.compile(
    r"\b(?:from|join)\s+\(?\s*`?([A-Za-z_][A-Za-z0-9_]*)\b`?+(?!\s*[.(])", re.IGNORECASE
)
_MADE: Final = re.compile(r"\b([A-Za-z_][A-Za-z0-9_]*)`?\s*(?:\([^()]*\)\s*)?as\s*\(", re.IGNORECASE)
_FIRST: Final = ("select", "with", "from", "values", "table")


@dataclass(frozen=True, slots=True)
class Named:
    """Names in a query, in lower case because SQL ignores case."""

    is_query: bool
    words: frozenset[str]
    """Everything that could be a name, including columns."""
    read: frozenset[str]
    """Certainly views: after FROM or JOIN, and not defined by the query itself."""


def named_views(sql: str) -> Named:
    bare = _NOT_NAMES.sub(" ", sql)
    first = _WORD.search(bare)
    words = frozenset(word.lower() for word in _WORD.findall(bare))
    made = {name.lower() for name in _MADE.findall(bare)}
    read = frozenset(name.lower() for name in _READ.findall(bare)) - made
    return Named(first is not None and first[0].lower() in _FIRST, words, read)
