"""Whether and where this broker delivers what has waited: asked by those who deliver, each time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias

from flaremq.store.drafts import NewMessage

Elsewhere: TypeAlias = Callable[[Sequence[NewMessage]], Awaitable[int]]
"""Sends messages to other brokers, in no order. How many of the first are stored there: all, unless this
broker stops to act for its master."""


class Deliveries(NamedTuple):
    """A master delivers to its own log. A slave that acts for its master delivers elsewhere."""

    serves: Callable[[], bool]
    """Whether this broker delivers now."""
    elsewhere: Elsewhere
