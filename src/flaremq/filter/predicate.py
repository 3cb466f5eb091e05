"""A compiled expression: parsed once, evaluated for every message.

Of a message only the properties count, and of those only the ones in the expression.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from flaremq.filter.ast import SyntaxNode, property_names
from flaremq.filter.evaluate import Evaluation, Properties, evaluation
from flaremq.filter.parser import parse
from flaremq.model.properties import decode_properties, decode_text, find_property

_FINDS_MAX: Final = 3
"""Up to this many properties, finding each is cheaper than decoding all."""
_KEPT: Final = 100  # As many as Java keeps.


@dataclass(frozen=True, slots=True)
class Predicate:
    text: str
    tree: SyntaxNode
    names: frozenset[str]
    evaluate: Evaluation = field(repr=False, compare=False)
    """True, False, or None for unknown. Raises ValueError where RocketMQ's evaluation fails."""
    _wanted: tuple[tuple[str, bytes], ...] = field(repr=False, compare=False)

    def matches(self, properties: Properties) -> bool:
        """Whether the message matches: not if the result is unknown or a comparison fails."""
        try:
            return self.evaluate(properties) is True
        except ValueError:
            return False

    def matches_raw(self, properties: bytes) -> bool:
        """Like `matches`, for encoded properties as in a record."""
        return self.matches(self._read(properties))

    def _read(self, raw: bytes) -> Properties:
        if len(self._wanted) > _FINDS_MAX:
            return decode_properties(raw)
        found: dict[str, str] = {}
        for name, encoded in self._wanted:
            value = find_property(raw, encoded)
            if value is not None:
                found[name] = decode_text(value)
        return found


@lru_cache(maxsize=_KEPT)
def compile_predicate(text: str) -> Predicate:
    """Compile an SQL92 expression; raises InvalidExpression.

    The last ones are cached, since a consumer that sends its expression sends it with every pull.
    """
    tree = parse(text)
    names = property_names(tree)
    wanted = tuple((name, name.encode()) for name in sorted(names))
    return Predicate(text, tree, names, evaluation(tree), wanted)
