"""How far enough slaves have the log.

    report of a slave > [its newest position] > the n-th best of all slaves > replicated mark > answers

A slave counts once, however many connections it has: one that reconnects leaves its old connection behind for
a while. Slaves of FlareMQ say who they are; for others the address of their machine must do, so two slaves of
RocketMQ on one machine count as one.

The mark only grows. Every byte below it was on enough slaves at some moment, while its producer waited.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeAlias

from flaremq.base.watermark import Watermark

Identity: TypeAlias = int | str
"""A broker id, or the address of a machine."""


class Acknowledging(Protocol):
    """A connection of a slave."""

    acked: int
    """-1 until it has reported."""

    @property
    def host(self) -> str: ...
    @property
    def broker_id(self) -> int | None: ...


class SlaveAcks:
    """The replicated mark, and which slaves are near enough to move it in time."""

    def __init__(self, slaves: int, gap_max: int) -> None:
        """`slaves`: how many must have a byte; at least one."""
        self._slaves = slaves
        self._gap_max = gap_max
        self._connections: dict[Acknowledging, None] = {}
        self.replicated = Watermark()

    def joined(self, connection: Acknowledging) -> None:
        self._connections[connection] = None

    def left(self, connection: Acknowledging) -> None:
        self._connections.pop(connection, None)

    def moved(self) -> None:
        """A connection has reported, or said who it is."""
        best = sorted(self._positions().values(), reverse=True)
        if len(best) >= self._slaves:
            self.replicated.advance(best[self._slaves - 1])

    def near(self, end: int) -> int:
        """How many slaves lack so little of a log that ends here that they could acknowledge in time."""
        return sum(end - acked < self._gap_max for acked in self._positions().values())

    def _positions(self) -> dict[Identity, int]:
        """The position of each slave that has reported. Connections of a machine that do not say whose they
        are count only if no other of that machine does: they may be an old one of the same slave."""
        reporting = [each for each in self._connections if each.acked >= 0]
        known_hosts = {each.host for each in reporting if each.broker_id is not None}
        best: dict[Identity, int] = {}
        for name, acked in _named(reporting, known_hosts):
            best[name] = max(acked, best.get(name, -1))
        return best


def _named(connections: Iterable[Acknowledging], known_hosts: set[str]) -> Iterable[tuple[Identity, int]]:
    for each in connections:
        if each.broker_id is not None:
            yield each.broker_id, each.acked
        elif each.host not in known_hosts:
            yield each.host, each.acked
