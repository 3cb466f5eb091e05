"""Frames that are too large for the common buffer of a port, each collected in one of its own."""

from __future__ import annotations

from typing import Final

from flaremq.base.units import KiB

LARGE: Final = 256 * KiB
"""A frame of which more than this is there, or still to come, is collected apart."""


class Large:
    """A frame that is too large for the common buffer. It takes no more memory than it has brought."""

    def __init__(self, size: int, begun: bytes) -> None:
        self.size = size
        self.filled = len(begun)
        self._buffer = memoryview(bytearray(min(size, max(2 * len(begun), LARGE))))
        self._buffer[: self.filled] = begun

    def room(self) -> memoryview:
        if self.filled == len(self._buffer):
            larger = memoryview(bytearray(min(self.size, 2 * len(self._buffer))))
            larger[: self.filled] = self._buffer
            self._buffer = larger
        return self._buffer[self.filled :]

    def whole(self) -> memoryview:
        return self._buffer[: self.size]
