"""Who a client is: its address as servers see it, its id, and the ids of its messages."""

from __future__ import annotations

import itertools
import os
import socket
import time
from typing import Final

from flaremq.base.clock import Clock
from flaremq.model.msgid import UniqueIds

DEFAULT_INSTANCE: Final = "DEFAULT"
"""Java's name of a client that is given none, where it must be the same after a restart."""
_counter = itertools.count()


def own_ip(towards: str) -> str:
    """The address of ours that is used to talk to a server; nothing is sent to find out."""
    host, _, port = towards.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
        family, kind, _, _, address = found[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0]).partition("%")[0]
    except (OSError, ValueError):
        return "127.0.0.1"  # No network, or no such name yet: the id need only be our own.


def client_id(ip: str, instance_name: str = "", unit_name: str = "") -> str:
    """`ip@instance`, as members of a group are told apart. Without a name: process, time and a number."""
    name = instance_name or f"{os.getpid()}#{time.monotonic_ns()}{next(_counter):02d}"
    return f"{ip}@{name}@{unit_name}" if unit_name else f"{ip}@{name}"


def unique_ids(ip: str, clock: Clock) -> UniqueIds:
    """Of one client: the salt tells it from others of this process."""
    salt = int.from_bytes(os.urandom(4), "big")
    return UniqueIds(clock, ip=ip, pid=os.getpid(), salt=salt)
