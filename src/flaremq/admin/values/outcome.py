"""What came of asking many servers: what they said, and which of them failed, and why.

A question goes to all of them at once. What a part of them says is worth having, so the failures of
the others are listed in `failed`; a change that not all of them made is an error, Incomplete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar, overload

from flaremq.base.errors import FlareError

T = TypeVar("T")

Failed = Mapping[str, FlareError]
"""By the name of a broker, or by the address of a NameServer."""


@dataclass(frozen=True, slots=True)
class Answers(Sequence[T], Generic[T]):
    """A sequence of what was found. `failed` names the servers that could not be asked."""

    items: tuple[T, ...]
    failed: Failed = field(default_factory=dict, hash=False)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        return self.items[at]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)


@dataclass(frozen=True, slots=True)
class Gathered(Generic[T]):
    """The answers of many servers, by the name of each."""

    found: Mapping[str, T]
    failed: Failed
