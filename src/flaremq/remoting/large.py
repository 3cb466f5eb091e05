"""Frames that are too large for the shared buffer of a port, each collected in a separate one."""

from __future__ import annotations

from typing import Final

from flaremq.base.units import KiB

LARGE: Final = 256 * KiB
"""An incomplete frame is collected separately if more than this has arrived, or is missing."""


class Large:
    """A frame that is too large for the shared buffer. Its buffer grows with the bytes that have arrived."""

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
