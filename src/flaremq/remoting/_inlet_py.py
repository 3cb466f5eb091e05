"""Reading of many sockets into one buffer: the reference twin. _inlet_c.pyx does the same in less time.

How it works, with an example: inlet.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flaremq.remoting.large import Large

_READ_MAX = 256 * 1024  # Per read, so that no connection has the turn to itself.
_ROOM_MIN = 64 * 1024  # With less than this free, the turn is served first.
_SPARE_SIZE = 64 * 1024


class Reads:
    """The shared buffer: what has been read since the last turn, and where each connection's bytes end."""

    def __init__(self, size: int, first: Callable[[], object], full: Callable[[], None]) -> None:
        """`first` is called on the first delivery after a turn, `full` when a turn must be served now."""
        self.size = size
        self.view = memoryview(bytearray(size))
        self.spare = memoryview(bytearray(_SPARE_SIZE))
        """For bytes that have no place in the turn. One is enough: it is emptied before the next read."""
        self.first = first
        self.full = full
        self.at = 0
        self.number = 1
        self.sources: list[Any] = []
        self.ends: list[int] = []
        self.larges: list[tuple[Any, Large]] = []
        self.waiting = False

    def take(self) -> tuple[list[Any], list[int]]:
        """The connections that have delivered, and where the bytes of each end; valid until `done`."""
        taken = self.sources, self.ends
        self.sources, self.ends = [], []
        self.number += 1
        return taken

    def take_larges(self) -> list[tuple[Any, Large]]:
        larges, self.larges = self.larges, []
        self.waiting = False
        return larges

    def done(self) -> None:
        """What was taken has been served: its space is free again."""
        self.at = 0

    def came(self) -> None:
        if not self.waiting:
            self.waiting = True
            self.first()


class Inlet:
    """One connection's way in. `shut` until its first bytes show what it speaks, and under TLS."""

    def __init__(self, reads: Reads, source: Any, shut: bool = False) -> None:
        self.reads = reads
        self.source = source
        self.shut = shut
        self.count = 0
        self.turn = 0
        self.rest = b""
        self.large: Large | None = None
        self.spared = False  # Whether `get_buffer` returned the spare buffer.

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Where to read the next bytes to. Never serves a turn."""
        self.spared = self.shut or not self._fits()
        return self.reads.spare if self.spared else self._room()

    def buffer_updated(self, nbytes: int) -> None:
        """`nbytes` were read to where `get_buffer` said."""
        self.count += 1
        if not self.spared:
            self.delivered(nbytes)
        elif self.shut:
            self.source.entered(bytes(self.reads.spare[:nbytes]))
        else:
            self.deliver(bytes(self.reads.spare[:nbytes]))

    def deliver(self, data: bytes) -> None:
        """Copy bytes from elsewhere to where they belong. Serves a turn if they do not fit."""
        at = 0
        while at < len(data):
            if not self._fits():
                self.reads.full()
            room = self._room()
            size = min(len(room), len(data) - at)
            room[:size] = data[at : at + size]
            at += size
            self.delivered(size)

    def _fits(self) -> bool:
        """Whether there is room, and right behind what this connection has delivered in this turn."""
        reads = self.reads
        if self.large is not None:
            return True
        if reads.size - reads.at < _ROOM_MIN + len(self.rest):
            return False
        return self.turn != reads.number or reads.sources[-1] is self.source

    def _room(self) -> memoryview:
        if self.large is not None:
            return self.large.room()
        reads, rest = self.reads, self.rest
        at = reads.at
        if rest:
            reads.view[at : at + len(rest)] = rest
            at += len(rest)
        return reads.view[at : at + _READ_MAX]

    def delivered(self, nbytes: int) -> None:
        reads, large = self.reads, self.large
        if large is not None:
            large.filled += nbytes
            if large.filled == large.size:
                self.large = None
                reads.larges.append((self.source, large))
                reads.came()
            return
        reads.at = at = reads.at + len(self.rest) + nbytes
        self.rest = b""
        if self.turn == reads.number:
            reads.ends[-1] = at
        else:
            self.turn = reads.number
            reads.sources.append(self.source)
            reads.ends.append(at)
        if not reads.waiting:
            reads.came()
