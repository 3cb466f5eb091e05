"""The NameServers that the broker registers with: those configured, or those a DNS name resolves to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias

from flaremq.base.errors import ConfigError
from flaremq.base.logs import fields, logger

log = logger("broker.namesrvs")

DEFAULT_PORT: Final = 9876

Lookup: TypeAlias = Callable[[str, int], Awaitable[Iterable[str]]]
"""The addresses that a host name resolves to."""
OnChange: TypeAlias = Callable[[tuple[str, ...]], None]


def parse(text: str) -> tuple[str, ...]:
    """The addresses in `host:port;host:port`, in order and without duplicates. Raises ConfigError."""
    found: dict[str, None] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        host, _, port = part.rpartition(":")
        if not host.strip("[]") or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(
                f"namesrvAddr={text!r}: {part!r} is not an address; expected host:port;host:port"
            )
        found[part] = None
    return tuple(found)


async def look_up(host: str, port: int) -> Iterable[str]:
    """Resolve a host name in asyncio's thread pool: a slow DNS server does not block the event loop."""
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in infos]


class NameServers:
    """The current list of NameServers. Listeners are called when it changes."""

    def __init__(self, text: str, *, by_dns: bool = False, lookup: Lookup = look_up) -> None:
        """Without `by_dns`, each name in `text` is one NameServer; with it, each may resolve to several."""
        self._by_dns = by_dns
        self._lookup = lookup
        self._addresses: tuple[str, ...] = ()
        self.listeners: list[OnChange] = []
        self.text = ""
        self.set(text)

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._addresses

    def set(self, text: str) -> None:
        """Set the list; with DNS it takes effect at the next `refresh`. ConfigError changes nothing."""
        named = parse(self._with_ports(text))
        self.text = text
        if not self._by_dns:
            self._change(named)

    async def refresh(self) -> None:
        """Resolve the names again. If DNS does not answer, the list stays: it is most likely still right."""
        named = parse(self._with_ports(self.text))
        if not self._by_dns:
            return self._change(named)
        found: dict[str, None] = {}
        for address in named:
            host, _, port = address.rpartition(":")
            try:
                hosts = await self._lookup(host.strip("[]"), int(port))
            except OSError as error:
                log.warning("cannot resolve the name of a NameServer", extra=fields(name=host, error=error))
                return None
            found.update({f"[{each}]:{port}" if ":" in each else f"{each}:{port}": None for each in hosts})
        if found:
            self._change(tuple(found))
        return None

    def _with_ports(self, text: str) -> str:
        """Add the default port to DNS names without one, as Java does."""
        if not self._by_dns:
            return text
        parts = (part.strip() for part in text.split(";"))
        return ";".join(part if ":" in part else f"{part}:{DEFAULT_PORT}" for part in parts if part)

    def _change(self, addresses: tuple[str, ...]) -> None:
        if addresses == self._addresses:
            return
        self._addresses = addresses
        log.info("the NameServers are", extra=fields(addresses=";".join(addresses)))
        for listener in self.listeners:
            listener(addresses)
