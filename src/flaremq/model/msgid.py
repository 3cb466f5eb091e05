"""The two message ids of RocketMQ. Both are upper-case hexadecimal of the same two lengths.

    offset id   store ip 4|16 · port 4 · physical offset 8                    where it is
    unique id   ip 4|16 · pid 2 · salt 4 · ms since month began 4 · counter 2  who sent it, when

32 characters with IPv4, 56 with IPv6. Only the context tells one kind from the other.
"""

import itertools
import struct
from datetime import datetime, tzinfo
from ipaddress import ip_address
from typing import Final, NamedTuple

from flaremq.base.clock import Clock
from flaremq.base.errors import Malformed, UsageError
from flaremq.model.host import Host

_LENGTHS: Final = (32, 56)
_U32: Final = 0xFFFF_FFFF
_BACK_STEP_MS_MAX: Final = 1_000_000  # MessageClientIDSetter.java: "may cause by NTP".


class OffsetId(NamedTuple):
    host: Host
    physical_offset: int


class UniqueId(NamedTuple):
    ip: str
    pid: int
    """Its low 16 bits."""
    salt: int
    """Java's class-loader hash: it distinguishes two clients in one process."""
    span_ms: int
    """Time since the start of the month, in the sender's local time."""
    counter: int

    def sent_ms(self, now_ms: int, tz: tzinfo | None = None) -> int:
        """When it was made, if less than a month before `now_ms` and in this time zone."""
        start_ms, _ = month_of(now_ms, tz)
        if start_ms + self.span_ms > now_ms:  # Java says >=, and is a month off within the same millisecond.
            start_ms, _ = month_of(start_ms - 1, tz)
        return start_ms + self.span_ms


def encode_offset_id(host: Host, physical_offset: int) -> str:
    return (host.encode() + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def decode_offset_id(text: str) -> OffsetId:
    raw = _bytes_of(text)
    return OffsetId(Host.decode(raw[:-8]), int.from_bytes(raw[-8:], "big", signed=True))


def decode_unique_id(text: str) -> UniqueId:
    raw = _bytes_of(text)
    return UniqueId(str(ip_address(raw[:-12])), *struct.unpack(">HIIH", raw[-12:]))


class UniqueIds:
    """Makes the unique ids of one client. Threads may share it."""

    def __init__(self, clock: Clock, *, ip: str, pid: int, salt: int, tz: tzinfo | None = None) -> None:
        try:
            address = ip_address(ip).packed
        except ValueError:
            raise UsageError(f"{ip!r} is not a numeric IP address: give the one that peers use") from None
        self._prefix = (address + struct.pack(">HI", pid & 0xFFFF, salt & _U32)).hex().upper()
        self._clock = clock
        self._tz = tz
        self._counter = itertools.count()
        self._month_ms = month_of(clock.now_ms(), tz)

    def next(self) -> str:
        return f"{self._begin()}{next(self._counter) & 0xFFFF:04X}"

    def take(self, count: int) -> list[str]:
        """`count` ids at once, all with the current time. At most 65,536, or two would be equal."""
        assert count <= 0x1_0000, count
        begin, counter = self._begin(), self._counter
        return [f"{begin}{next(counter) & 0xFFFF:04X}" for _ in range(count)]

    def _begin(self) -> str:
        """The id without the counter."""
        now_ms = self._clock.now_ms()
        month_ms = self._month_ms
        if now_ms >= month_ms[1]:
            month_ms = self._month_ms = month_of(now_ms, self._tz)
        span_ms = now_ms - month_ms[0]
        if -_BACK_STEP_MS_MAX < span_ms < 0:  # The clock was set back across the first of the month.
            span_ms = 0
        # A long month has more milliseconds than a signed int: the bits are kept, as in Java.
        return f"{self._prefix}{span_ms & _U32:08X}"


def month_of(now_ms: int, tz: tzinfo | None = None) -> tuple[int, int]:
    """The first millisecond of the month, and of the next one, in local time or that of `tz`."""
    first = datetime.fromtimestamp(now_ms / 1000, tz).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return round(first.timestamp() * 1000), round(following.timestamp() * 1000)


def _bytes_of(text: str) -> bytes:
    if len(text) not in _LENGTHS:
        raise Malformed(f"message id of {len(text)} characters: expected 32 (IPv4) or 56 (IPv6)")
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raise Malformed(f"message id {text!r} is not hexadecimal") from None
    if len(raw) * 2 != len(text):  # fromhex skips blanks.
        raise Malformed(f"message id {text!r} is not hexadecimal")
    return raw
