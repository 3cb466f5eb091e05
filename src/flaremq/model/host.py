"""An address as in records and message ids: 4 or 16 bytes, then the port in 4."""

from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

from flaremq.base.errors import Malformed, UsageError


class Host(NamedTuple):
    ip: str
    """Numeric, never a name: the address itself is stored."""
    port: int

    @property
    def is_v6(self) -> bool:
        return ":" in self.ip

    def encode(self) -> bytes:
        """8 or 20 bytes."""
        return _encoded(self.ip, self.port)

    @classmethod
    def decode(cls, raw: bytes) -> "Host":
        """Any 8 or 20 bytes are a host. Raises Malformed for another length."""
        return _decoded(raw)

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if self.is_v6 else f"{self.ip}:{self.port}"


# A broker sees few addresses many times, and `ipaddress` takes microseconds for each.
@lru_cache(maxsize=4096)
def _encoded(ip: str, port: int) -> bytes:
    try:
        return ip_address(ip).packed + port.to_bytes(4, "big", signed=True)
    except (ValueError, OverflowError):
        raise UsageError(f"{ip!r}, port {port}: expected a numeric IP address and a port") from None


@lru_cache(maxsize=4096)
def _decoded(raw: bytes) -> Host:
    if len(raw) not in (8, 20):
        raise Malformed(f"a host of {len(raw)} bytes: expected 8 (IPv4) or 20 (IPv6)")
    return Host(str(ip_address(raw[:-4])), int.from_bytes(raw[-4:], "big", signed=True))
