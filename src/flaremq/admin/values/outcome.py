"""Results of asking many servers: their answers, and which of them failed, and why.

All servers are asked at once. Partial answers are useful, so failures are listed in `failed`; a change that
not all servers made is an error, Incomplete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar, overload

from flaremq.base.errors import FlareError

T = TypeVar("T")

Failed = Mapping[str, FlareError]
"""Errors by broker name or NameServer address."""


@dataclass(frozen=True, slots=True)
class Answers(Sequence[T], Generic[T]):
    """A sequence of results. `failed` names the servers that did not answer."""

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
    """The answers of many servers, by name."""

    found: Mapping[str, T]
    failed: Failed
