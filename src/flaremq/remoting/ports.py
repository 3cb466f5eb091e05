"""Free ports, and the additional ports of a broker.

A port that the system hands out (port 0) may be taken by any outgoing connection before a server listens on
it. So free ports are searched below that range. Of two processes that search at the same time, the second
does not find what the first has found: a process keeps its latest finds to itself.
"""

from __future__ import annotations

import errno
import os
import random
import socket
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from flaremq.base.errors import ConfigError, NotWritable

VIP: Final = -2
"""From a broker's port to the one that serves no pulls."""
HA: Final = 1
"""From a broker's port to the one its slaves connect to."""
BROKER: Final = (VIP, 0, HA)
"""All ports of a broker, as steps from the one that clients connect to."""
_RANGE: Final = range(20_000, 32_000)
_TRIES: Final = 200
_claims: Final[deque[ExitStack]] = deque(maxlen=32)
"""Sockets with the names of the ports that were found last."""


def free_port(host: str = "0.0.0.0", steps: Sequence[int] = (0,), rng: random.Random | None = None) -> int:
    """A port that is free on this address (by default on all), as are those at `steps` from it."""
    for port in (rng or random.Random()).sample(_RANGE, _TRIES):
        ports = [port + step for step in steps]
        if are_free(host, ports) and _claim(ports):
            return port
    raise NotWritable(
        f"{host} has no free port between {_RANGE.start} and {_RANGE.stop} ({_TRIES} were tried): "
        "set one yourself (listenPort)"
    )


def are_free(host: str, ports: Sequence[int]) -> bool:
    """Whether a server could listen on all of these at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with ExitStack() as sockets:
            for port in ports:
                probe = sockets.enter_context(socket.socket(family, socket.SOCK_STREAM))
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # As a server does.
                probe.bind((host, port))
                probe.listen(1)
    except (OSError, OverflowError):
        return False
    return True


def _claim(ports: Sequence[int]) -> bool:
    """Whether no other search has found one of these lately; others do not find them from now on."""
    if sys.platform != "linux":  # Names that end with their process are known to Linux only.
        return True
    with ExitStack() as claimed:
        for port in ports:
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                claim.bind(f"\0flaremq-port-{port}")
            except OSError as error:
                claim.close()
                if error.errno == errno.EADDRINUSE:
                    return False
                raise
            claimed.callback(os.close, claim.detach())  # A bare descriptor: it may live as long as we do.
        if len(_claims) == _claims.maxlen:
            _claims.popleft().close()
        _claims.append(claimed.pop_all())
    return True


def host_bytes(address: str, port: int) -> bytes:
    """An address as encoded in records and message ids. Raises ConfigError if it cannot be resolved."""
    try:
        infos = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(
            f"brokerIP1={address}: expected an address or a known host name: {error}"
        ) from error
    family, _, _, _, found = infos[0]
    return socket.inet_pton(family, str(found[0]).partition("%")[0]) + port.to_bytes(4, "big")
