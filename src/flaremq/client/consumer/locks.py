"""Queue locks of orderly consumers: a broker gives each queue to one member at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from flaremq.base.errors import FlareError
from flaremq.client.consumer.member import GroupMember, Warnings
from flaremq.client.consumer.processqueue import ProcessQueue
from flaremq.model.message import MessageQueue

log = logging.getLogger(__name__)

RENEW_S: Final = 20.0
"""How often locks are renewed; they are valid for one and a half times as long."""


class LockClient:
    def __init__(self, member: GroupMember, warnings: Warnings) -> None:
        self._member = member
        self._warnings = warnings

    async def ask(self, queues: Iterable[MessageQueue]) -> frozenset[MessageQueue]:
        """Lock these queues. Returns those that are locked by us now."""
        found = await asyncio.gather(*(self._ask(name, each) for name, each in _by_broker(queues).items()))
        return frozenset().union(*(each for each in found if each is not None))

    async def renew(self, held: Mapping[MessageQueue, ProcessQueue]) -> list[ProcessQueue]:
        """Renew all locks. Returns the queues that are newly locked."""
        fresh: list[ProcessQueue] = []
        for name, queues in _by_broker(held).items():
            now_s, now_ms = self._member.client.clock.monotonic_s(), self._member.client.clock.now_ms()
            ours = await self._ask(name, queues)
            if ours is None:
                continue  # No answer: the locks are valid until they expire.
            for queue in queues:
                one = held.get(queue)
                if one is None or one.dropped:
                    continue
                if queue not in ours:
                    if one.locked:
                        log.warning("group %s lost the lock on %s", self._member.group, queue)
                    one.locked = False
                    continue
                if not one.is_locked(now_s):
                    fresh.append(one)
                one.lock(now_s, now_ms)
        return fresh

    async def _ask(self, broker_name: str, queues: list[MessageQueue]) -> frozenset[MessageQueue] | None:
        """Lock queues of one broker; None if it does not answer."""
        client, group = self._member.client, self._member.group
        address = client.routes.master(broker_name)
        if address is None:
            client.refresh_soon()
            return None
        try:
            return await client.api.lock(address, group, client.client_id, queues)
        except FlareError as error:
            self._warnings.note(broker_name, "a lock", error)
            return None

    async def give_up(self, queues: Iterable[MessageQueue]) -> None:
        """Unlock queues, one-way, so that other members need not wait until the locks expire."""
        client, group = self._member.client, self._member.group
        for name, each in _by_broker(queues).items():
            address = client.routes.master(name)
            if address is None or client.caller.open_connection(address) is None:
                continue
            try:
                await client.api.unlock(address, group, client.client_id, each)
            except FlareError as error:
                log.debug("group %s: locks at %s are left to expire: %s", group, name, error)


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found
