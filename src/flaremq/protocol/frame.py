"""Frames: where one command ends and the next begins.

    0  length       4   bytes that follow: 4 + header + body
    4  serialize    1   how the header is written
    5  header size  3
    8  header, body

There is no magic, no version and no checksum: after one wrong length, nothing that follows can be trusted, so
the connection must be closed.
"""

from __future__ import annotations

import struct
from typing import Final

from flaremq.base.errors import Malformed, UsageError
from flaremq.model.columns import Bytes
from flaremq.protocol import binary_header, json_header
from flaremq.protocol.codes import FRAME_PREFIX_SIZE, FRAME_SIZE_MAX, HEADER_SIZE_MAX, SerializeType
from flaremq.protocol.command import Command

_PREFIX: Final = struct.Struct(">iI")
_LENGTH: Final = struct.Struct(">i")
_CLOSE: Final = "close the connection"


class FrameDecoder:
    """Takes the bytes of one connection as they arrive, and returns the complete commands.

    Bytes that are not a frame end it: commands before them are still returned, then `feed` raises Malformed,
    at once or at the next call, and from then on. The caller closes the connection.
    """

    def __init__(self, size_max: int = FRAME_SIZE_MAX) -> None:
        self._size_max = size_max
        self._rest = bytearray()
        self._needed = 0  # With fewer bytes in `_rest` there is no complete frame.
        self.broken: Malformed | None = None
        """Why nothing more can be read."""

    def feed(self, data: Bytes) -> list[Command]:
        if self.broken is None:
            if self._rest:
                self._rest += data
                if len(self._rest) < self._needed:
                    return []
                data = self._rest
            commands = self._commands(bytes(data))
            if commands or self.broken is None:
                return commands
        raise self.broken

    @property
    def pending(self) -> int:
        """Bytes of an incomplete frame."""
        return len(self._rest)

    def _commands(self, data: bytes) -> list[Command]:
        commands: list[Command] = []
        at, end = 0, None
        try:
            while (end := frame_end(data, at, self._size_max)) is not None and end <= len(data):
                commands.append(decode_frame(data[at:end]))
                at = end
        except Malformed as error:
            self.broken = error
        self._rest = bytearray(data[at:])
        self._needed = 0 if end is None or self._rest_is_short() else end - at
        return commands

    def _rest_is_short(self) -> bool:
        """Whether its prefix is incomplete, and so has not been checked yet."""
        return len(self._rest) < FRAME_PREFIX_SIZE


def frame_end(data: Bytes, at: int, size_max: int = FRAME_SIZE_MAX) -> int | None:
    """Where the frame that begins at data[at] ends, if enough of it is there to tell.

    Malformed as soon as it can be seen that this will never be a frame.
    """
    left = len(data) - at
    if left < _LENGTH.size:
        return None
    length: int = _LENGTH.unpack_from(data, at)[0]
    if not FRAME_PREFIX_SIZE <= length + 4 <= size_max:
        raise Malformed(
            f"a frame of {length + 4} bytes, expected {FRAME_PREFIX_SIZE} to {size_max}: {_CLOSE}", at
        )
    if left >= FRAME_PREFIX_SIZE:
        serialize, header_size = data[at + 4], int.from_bytes(data[at + 5 : at + 8], "big")
        if serialize > SerializeType.ROCKETMQ:
            raise Malformed(f"serialize type {serialize}, expected 0 or 1: {_CLOSE}", at + 4)
        if header_size > length - 4:
            raise Malformed(
                f"a header of {header_size} bytes in a frame that has {length - 4} left: {_CLOSE}", at + 5
            )
    return at + 4 + length


def decode_frame(frame: bytes) -> Command:
    """One whole frame including its prefix; raises Malformed for anything else."""
    if len(frame) < FRAME_PREFIX_SIZE or frame_end(frame, 0, len(frame)) != len(frame):
        raise Malformed(f"{len(frame)} bytes that are not one whole frame: {_CLOSE}")
    body_at = FRAME_PREFIX_SIZE + int.from_bytes(frame[5:8], "big")
    decode = json_header.decode if frame[4] == SerializeType.JSON else binary_header.decode
    return decode(frame[FRAME_PREFIX_SIZE:body_at], frame[body_at:] or None)


def encode_frame(command: Command, size_max: int = FRAME_SIZE_MAX) -> bytes:
    """The whole frame. Raises UsageError if it is too large: the peer would just close the connection."""
    body = b"" if command.body is None else command.body
    return b"".join((encode_head(command, len(body), size_max), body))


def encode_head(command: Command, body_size: int, size_max: int = FRAME_SIZE_MAX) -> bytes:
    """Prefix and header for a body that is written separately, perhaps in many parts."""
    encode = json_header.encode if command.serialize_type == SerializeType.JSON else binary_header.encode
    header = encode(command)
    size = FRAME_PREFIX_SIZE + len(header) + body_size
    if size > size_max or len(header) > HEADER_SIZE_MAX:
        raise UsageError(f"a frame of {size} bytes, the limit is {size_max}: send less at a time")
    return _PREFIX.pack(size - 4, command.serialize_type << 24 | len(header)) + header
