"""What scenarios of the plain simulator share: parts of a running broker, and waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from flaremq.model.message import MessageQueue
from flaremq.servers.together import Broker
from flaremq.testing.sim.world import Machine, Simulation


F = TypeVar("F")


def part_of(broker: Broker, kind: type[F]) -> F:
    """The one feature of this class."""
    made = broker.composition
    assert made is not None
    (found,) = (each for each in (*made.inner, *made.outer) if isinstance(each, kind))
    return found


def committed(broker: Broker, group: str, topic: str) -> dict[int, int]:
    """By queue."""
    return dict(broker.tables.offsets.all().get((topic, group), {}))


async def until(sim: Simulation, condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    limit_s += sim.loop.now_s
    while not condition():
        assert sim.loop.now_s < limit_s, "it does not come true"
        await sim.passes(0.05)


def log_bytes(sim: Simulation, machine: Machine) -> bytes:
    """All that the log of a running broker holds."""
    log, found = sim.running[machine.name].store.log, bytearray()
    at = log.begin
    while at < log.readable_end:
        size = min(log.readable_end - at, log.file_size - at % log.file_size)
        found += log.slice(at, size) or b""
        at += size
    return bytes(found)


def queue_of(name: str, queue_id: int = 0, topic: str = "Orders") -> MessageQueue:
    return MessageQueue(topic, name, queue_id)
