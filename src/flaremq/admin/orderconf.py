"""The order configuration of a topic, which NameServers send to producers: the queues on each broker.

Producers keep to it while a broker is away, so the messages of a key stay in their queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from flaremq.base.errors import InvalidParameter

NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


def parse(conf: str) -> dict[str, int]:
    """Parse `broker-a:4;broker-b:4`. Raises InvalidParameter."""
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
    """The valid part of a configuration that another tool wrote."""
    pairs = (part.strip().rpartition(":") for part in (conf or "").split(";"))
    return {name: int(count) for name, _, count in pairs if name and count.isdecimal()}


def text(brokers: Mapping[str, int]) -> str:
    return ";".join(f"{name}:{count}" for name, count in sorted(brokers.items()))


def changed(conf: str | None, ordered: Mapping[str, int], gone: Iterable[str]) -> str:
    """Add these brokers and remove those; empty if none is left."""
    left = {**lenient(conf), **ordered}
    for name in gone:
        left.pop(name, None)
    return text(left)
