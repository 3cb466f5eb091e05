"""The first bytes of a connection: a PROXY header, a TLS greeting, or a plain frame.

One port serves clients with TLS, clients without, and both behind a load balancer that announces the real
client in a PROXY header (version 1 in text, version 2 in binary). Nothing in RocketMQ's protocol says which
of these comes, so the first bytes decide:

    00 ..                        a plain frame: high byte of its length, 0 for every allowed length
    16 ..                        TLS: the type of a handshake record
    "PROXY "                     a PROXY header, version 1, up to the end of the line
    0D 0A 0D 0A 00 0D 0A 51 ..   a PROXY header, version 2, with its size

A PROXY header may be followed by either of the others. For example

    PROXY TCP4 203.0.113.7 10.0.0.1 41234 10911\\r\\n  16 03 01 ..

is a client at 203.0.113.7:41234 that speaks TLS. Its address is what records keep as the born host.

A plain connection leaves the doorway after the first look, and its bytes go straight to their turn. Under
TLS every byte passes through it, in and out. Sans I/O: bytes in, bytes out, so that tests need no socket.
"""

from __future__ import annotations

import ipaddress
import ssl
from typing import Final

from flaremq.base.errors import Malformed
from flaremq.model.columns import Bytes
from flaremq.remoting.tls import TlsMode

_NOTE_V1: Final = b"PROXY "
_NOTE_V1_MAX: Final = 107  # The longest line that a proxy may send.
_NOTE_V2: Final = b"\r\n\r\n\0\r\nQUIT\n"
_NOTE_V2_HEAD: Final = 16
_NOTE_V2_MAX: Final = 4096
_ADDRESS_SIZES: Final = {1: 4, 2: 16}  # By address family.
_TLS_GREETING: Final = 0x16
_RECORD_MAX: Final = 1 << 16


class Doorway:
    """The handshake of one connection."""

    def __init__(self, mode: TlsMode = TlsMode.DISABLED, context: ssl.SSLContext | None = None) -> None:
        self._mode = mode
        self._context = context
        self._begun = b""
        self._session: _Session | None = None
        self.peer: tuple[str, int] | None = None
        """The client's address from a PROXY header, until it is taken."""
        self.is_open = False
        """The handshake is over: bytes may go straight to their turn."""

    @property
    def ended(self) -> bool:
        """The peer has ended the TLS session."""
        return self._session is not None and self._session.ended

    def feed(self, data: bytes) -> bytes:
        """The bytes of frames in `data`, decrypted. Raises Malformed: close the connection."""
        if self._session is not None:
            return self._session.feed(data)
        self._begun += data
        if not self._noted():
            return b""
        data, self._begun = self._begun, b""
        if not data:
            return b""
        if data[0] == _TLS_GREETING:
            if self._mode is TlsMode.DISABLED or self._context is None:
                raise Malformed("a TLS handshake, but tls.server.mode is disabled: connect without TLS")
            self._session = _Session(self._context)
            return self._session.feed(data)
        if self._mode is TlsMode.ENFORCING:
            raise Malformed("a connection without TLS, but tls.server.mode is enforcing: connect with TLS")
        self.is_open = True
        return data

    def seal(self, data: Bytes) -> bytes:
        """Bytes to write, encrypted under TLS."""
        return bytes(data) if self._session is None else self._session.seal(data)

    def outgoing(self) -> bytes:
        """Bytes that TLS itself has to send."""
        return b"" if self._session is None else self._session.outgoing()

    def _noted(self) -> bool:
        """Whether the PROXY header, if there is one, has been read."""
        begun = self._begun
        if begun[: len(_NOTE_V1)] == _NOTE_V1[: len(begun)] and begun[:1] == b"P":
            return self._noted_v1()
        if begun[: len(_NOTE_V2)] == _NOTE_V2[: len(begun)] and begun[:1] == b"\r":
            return self._noted_v2()
        return True

    def _noted_v1(self) -> bool:
        line, found, rest = self._begun.partition(b"\r\n")
        if not found:
            if len(self._begun) > _NOTE_V1_MAX:
                raise Malformed(f"a PROXY header of more than {_NOTE_V1_MAX} bytes without an end")
            return False
        words = line.decode("ascii", "replace").split(" ")
        if len(words) == 6 and words[1] in ("TCP4", "TCP6") and words[4].isdigit():
            self.peer = _address(words[2]), int(words[4]) & 0xFFFF
        elif words[1:2] != ["UNKNOWN"]:
            raise Malformed(f"a PROXY header that cannot be read: {line[:60]!r}")
        self._begun = rest
        return self._noted() if rest else True

    def _noted_v2(self) -> bool:
        begun = self._begun
        if len(begun) < _NOTE_V2_HEAD:
            return False
        size = int.from_bytes(begun[14:16], "big")
        if begun[12] >> 4 != 2 or size > _NOTE_V2_MAX:
            raise Malformed(f"a PROXY header of version {begun[12] >> 4} and {size} bytes")
        if len(begun) < _NOTE_V2_HEAD + size:
            return False
        address_size = _ADDRESS_SIZES.get(begun[13] >> 4, 0)
        if begun[12] & 0xF == 1 and address_size and size >= 2 * address_size + 4:
            at = _NOTE_V2_HEAD
            port_at = at + 2 * address_size
            source = ipaddress.ip_address(begun[at : at + address_size])
            self.peer = str(source), int.from_bytes(begun[port_at : port_at + 2], "big")
        self._begun = begun[_NOTE_V2_HEAD + size :]
        return True


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise Malformed(f"a PROXY header with {text[:45]!r} for an address") from error


class _Session:
    """The TLS session of one connection, in memory."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._greeted = False
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        self._in.write(data)
        try:
            if not self._greeted:
                self._tls.do_handshake()
                self._greeted = True
            return self._read()
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLError as error:
            raise Malformed(f"TLS: {error.reason or error}") from error

    def _read(self) -> bytes:
        parts = []
        try:
            while part := self._tls.read(_RECORD_MAX):
                parts.append(part)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return b"".join(parts)

    def seal(self, data: Bytes) -> bytes:
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        return self._out.read()

    def outgoing(self) -> bytes:
        return self._out.read()
