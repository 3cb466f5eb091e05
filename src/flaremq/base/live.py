"""A section of settings that an operator may change while its readers run.

    settings = Live(BrokerSettings())
    limit = settings.now.channel_expired_ms      # Read when it is needed, never kept.

New settings are not passed around: a reader of `now` gets the newest. A section is frozen, so one read of
`now` is consistent in itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
V = TypeVar("V")


class Live(Generic[T]):
    """Holds the newest version of a section."""

    __slots__ = ("now",)

    def __init__(self, now: T) -> None:
        self.now = now


class Derived(Generic[T, V]):
    """A value made from a section, and made again only when the section has changed."""

    __slots__ = ("_live", "_made_from", "_make", "_value")

    def __init__(self, live: Live[T], make: Callable[[T], V]) -> None:
        self._live = live
        self._make = make
        self._made_from = live.now
        self._value = make(live.now)

    @property
    def now(self) -> V:
        section = self._live.now
        if section is not self._made_from:
            self._value = self._make(section)
            self._made_from = section
        return self._value
