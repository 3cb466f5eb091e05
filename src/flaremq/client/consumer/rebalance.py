"""Rebalancing: every member computes its own share of the queues, from the same lists in the same order."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from flaremq.base.errors import FlareError
from flaremq.client.consumer.assignment import Assignment
from flaremq.client.consumer.member import GroupMember
from flaremq.client.routes import Route
from flaremq.model.message import MessageQueue
from flaremq.model.names import is_retry

log = logging.getLogger(__name__)

_FIRST_DELAY_S: Final = 0.1
"""Delay after an unsuccessful round; it doubles each time, up to `rebalance_s`."""


class Rebalancer:
    def __init__(self, member: GroupMember, assignment: Assignment) -> None:
        self._member = member
        self._client = member.client
        self._assignment = assignment
        self._asked = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._unknown: set[str] = set()
        self._again_s = _FIRST_DELAY_S
        self.assigned: tuple[MessageQueue, ...] | None = None
        """Queues that the program has chosen; then none are shared with the group."""
        assignment.on_left = self.soon

    def soon(self) -> None:
        """Rebalance soon. Requests that arrive during a round share the next one."""
        self._asked.set()

    async def run(self, settled: bool) -> None:
        """Rebalance again and again, until cancelled. `settled` is the result of the first round."""
        usual_s = self._member.settings.rebalance_s
        while True:
            if settled:
                wait_s, self._again_s = usual_s, _FIRST_DELAY_S
            else:
                wait_s = min(self._again_s, usual_s)
                self._again_s = min(self._again_s * 2, usual_s)
            try:
                async with asyncio.timeout(wait_s):
                    await self._asked.wait()
            except TimeoutError:
                pass
            try:
                settled = await self.round()
            except Exception:
                settled = False
                log.exception("group %s: rebalancing failed and will be retried", self._member.group)

    async def round(self) -> bool:
        """Rebalance every topic once. Returns whether all queues are as they should be."""
        async with self._one_at_a_time:
            return await self._round()

    async def _round(self) -> bool:
        self._asked.clear()
        if self.assigned is not None:
            return await self._take(self.assigned)
        subscribed = list(self._member.subscriptions)
        await self._assignment.drop(
            [queue for queue in self._assignment.queues if queue.topic not in subscribed]
        )
        settled = True
        for topic in subscribed:
            try:
                settled &= await self._topic(topic)
            except FlareError as error:
                self._assignment.warnings.note(topic, "sharing out queues", error)
                settled = False
            else:
                self._assignment.warnings.over(topic)
        if not settled:
            log.debug("group %s: rebalancing is not complete yet", self._member.group)
        return settled

    async def _take(self, queues: tuple[MessageQueue, ...]) -> bool:
        """Hold exactly these queues, as far as their routes are known."""
        for topic in {queue.topic for queue in queues}:
            try:
                if self._client.routes.known(topic) is None:
                    await self._client.routes.refresh(topic)
            except FlareError as error:
                self._assignment.warnings.note(topic, "the route", error)
        return await self._assignment.change(queues)

    async def _topic(self, topic: str) -> bool:
        route = self._client.routes.known(topic) or await self._client.routes.refresh(topic)
        if route is None:
            if topic not in self._unknown:
                self._unknown.add(topic)
                level = logging.DEBUG if is_retry(topic) else logging.WARNING
                log.log(level, "topic %s is unknown to the NameServer: waiting for it", topic)
            return False
        self._unknown.discard(topic)
        mine = await self._share(route)
        return mine is not None and await self._assignment.change(mine, topic)

    async def _share(self, route: Route) -> list[MessageQueue] | None:
        """Our queues of a topic; None while the broker does not know us as a member."""
        if not self._member.is_clustering:
            return list(route.readable)
        me = self._client.client_id
        members = await self._members(route)
        if me not in members:
            await self._client.beat()
            return None
        return self._member.settings.strategy.allocate(me, route.readable, members)

    async def _members(self, route: Route) -> tuple[str, ...]:
        """The members of the group, from the first broker that answers."""
        brokers = [data.broker_name for data in route.data.broker_datas]
        self._client.rng.shuffle(brokers)
        failure: FlareError | None = None
        for name in brokers:
            address = self._client.routes.address(name)
            if address is None:
                continue
            try:
                return await self._client.api.members(address, self._member.group)
            except FlareError as error:
                failure = error
                if error.address is not None:  # It has answered: it does not know the group yet.
                    return ()
        if failure is not None:
            self._client.refresh_soon()
            raise failure
        return ()
