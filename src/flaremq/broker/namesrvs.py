"""Which NameServers the broker belongs to: what the operator named, or what a DNS name stands for today."""

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
"""The addresses that a host name stands for."""
OnChange: TypeAlias = Callable[[tuple[str, ...]], None]


def parse(text: str) -> tuple[str, ...]:
    """`host:port;host:port`, each once and in order; ConfigError for what is none."""
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
    """In the thread that asyncio has for it: a slow DNS server holds nobody up."""
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in infos]


class NameServers:
    """The list of today. Whoever cares is told when it changes."""

    def __init__(self, text: str, *, by_dns: bool = False, lookup: Lookup = look_up) -> None:
        """Without `by_dns` each name in `text` is a NameServer; with it each may stand for several."""
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
        """Name others; with DNS they count from the next `refresh` on. ConfigError changes nothing."""
        named = parse(self._with_ports(text))
        self.text = text
        if not self._by_dns:
            self._change(named)

    async def refresh(self) -> None:
        """Look again. A DNS that does not answer changes nothing: what was right is likely to be so still."""
        named = parse(self._with_ports(self.text))
        if not self._by_dns:
            return self._change(named)
        found: dict[str, None] = {}
        for address in named:
            host, _, port = address.rpartition(":")
            try:
                hosts = await self._lookup(host.strip("[]"), int(port))
            except OSError as error:
                log.warning("a NameServer's name cannot be looked up", extra=fields(name=host, error=error))
                return None
            found.update({f"[{each}]:{port}" if ":" in each else f"{each}:{port}": None for each in hosts})
        if found:
            self._change(tuple(found))
        return None

    def _with_ports(self, text: str) -> str:
        """A DNS name may come without a port, as in Java."""
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
