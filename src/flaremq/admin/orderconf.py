"""What NameServers tell producers of an ordered topic: which broker has how many queues.

Producers keep to it while a broker is away, so messages of one kind stay in their queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from flaremq.base.errors import InvalidParameter

NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


def parse(conf: str) -> dict[str, int]:
    """`broker-a:4;broker-b:4`. InvalidParameter says what is wrong with it."""
    found: dict[str, int] = {}
    for part in conf.split(";"):
        if not part.strip():
            continue
        name, _, count = part.strip().rpartition(":")
        if not name or not count.isdecimal():
            raise InvalidParameter(
                f"order {conf!r}: {part!r}: expected BROKER:COUNT, for example broker-a:4;broker-b:4"
            )
        found[name] = int(count)
    if not found:
        raise InvalidParameter(
            f"order {conf!r} names no broker: expected BROKER:COUNT, for example broker-a:4;broker-b:4"
        )
    return found


def lenient(conf: str | None) -> dict[str, int]:
    """The readable part of one written by another tool."""
    pairs = (part.strip().rpartition(":") for part in (conf or "").split(";"))
    return {name: int(count) for name, _, count in pairs if name and count.isdecimal()}


def text(brokers: Mapping[str, int]) -> str:
    return ";".join(f"{name}:{count}" for name, count in sorted(brokers.items()))


def changed(conf: str | None, ordered: Mapping[str, int], gone: Iterable[str]) -> str:
    """The same with these brokers in it and those out of it; empty if none is left."""
    left = {**lenient(conf), **ordered}
    for name in gone:
        left.pop(name, None)
    return text(left)
