"""The frame of a send: the reference twin. _frames_c.pyx writes the same bytes."""

from __future__ import annotations

import struct
from typing import Final

import orjson

_PREFIX: Final = struct.Struct(">iI")


def send_frame(
    template: tuple[bytes, bytes, bytes], properties: str, body: bytes, numbers: tuple[int, int, int, int]
) -> bytes:
    """A whole frame with a JSON header.

    `template` is the text before the sysFlag, between properties and opaque, and after the opaque; `numbers`
    are sysFlag, born timestamp, flag and opaque. Raises UnicodeEncodeError if the properties contain half a
    surrogate pair.
    """
    before, between, behind = template
    sys_flag, born_ms, flag, opaque = numbers
    properties.encode()
    header = b'%b%d","g":"%d","h":"%d","i":%b%b%d%b' % (
        before,
        sys_flag,
        born_ms,
        flag,
        orjson.dumps(properties),
        between,
        opaque,
        behind,
    )
    return b"".join((_PREFIX.pack(len(header) + len(body) + 4, len(header)), header, body))
