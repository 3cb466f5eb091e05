"""Queue locks: orderly consumers lock a queue before they pull from it.

A lock lives for a minute after its last renewal, and owners renew it three times in that time. A lock that
is not renewed may be taken by another member.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from flaremq.base.clock import Clock
from flaremq.model.message import MessageQueue

LIFE_S: Final = 60.0


@dataclass(slots=True)
class _Lock:
    owner: str
    renewed_s: float


class QueueLocks:
    """Locks by group and queue. Names of queues are taken literally."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock or renew queues, and return those that this client holds now."""
        now_s, locks = self._clock.monotonic_s(), self._groups.setdefault(group, {})
        taken: set[MessageQueue] = set()
        for queue in queues:
            held = locks.get(queue)
            if held is None or held.owner == client_id or now_s - held.renewed_s > LIFE_S:
                locks[queue] = _Lock(client_id, now_s)
                taken.add(queue)
        if not locks:
            del self._groups[group]
        return taken

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release the locks of this client; those of others stay."""
        locks = self._groups.get(group)
        if locks is None:
            return
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held.owner == client_id:
                del locks[queue]
        if not locks:
            del self._groups[group]

    def is_any_alive(self, group: str) -> bool:
        """Whether any member of this group holds a lock now, that is, consumes in order."""
        now_s = self._clock.monotonic_s()
        return any(now_s - held.renewed_s <= LIFE_S for held in self._groups.get(group, {}).values())

    def expire(self) -> None:
        """Drop locks that were not renewed: otherwise groups that are gone would stay for ever."""
        now_s = self._clock.monotonic_s()
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, held in locks.items() if now_s - held.renewed_s > LIFE_S]:
                del locks[queue]
            if not locks:
                del self._groups[group]
