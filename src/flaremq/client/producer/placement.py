"""The queue for each attempt to send a message, and the address of its broker."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, TypeAlias

from flaremq.base.errors import FlareError, NoNameServer, NoRoute, UsageError
from flaremq.client.client import Client
from flaremq.client.producer.balance import Balance, QueueSelector, by_hash, by_number, chosen_by
from flaremq.client.producer.packing import PackedMessage
from flaremq.client.routes import Route
from flaremq.model.message import Message, MessageQueue
from flaremq.protocol.bodies.route import MASTER_ID

_LOOK_S: Final = 0.1

SendTarget: TypeAlias = MessageQueue | QueueSelector | None
"""A queue, a selector, or None: queues take turns."""


def target_of(message: Message | PackedMessage, to: SendTarget) -> SendTarget:
    """The queue or selector that the program chose: by `to`, with a packed message, by a sharding key, or by
    the message's own number, so that it comes to the same broker if it is sent again."""
    if isinstance(message, PackedMessage):
        return message.to
    if to is None and message.sharding_key:
        return by_hash(message.sharding_key)
    return by_number if to is None and message.sequence is not None else to


class QueuePlacement:
    """Finds queues for the messages of one producer."""

    def __init__(self, client: Client, balance: Balance, topic_queues: int) -> None:
        self._client = client
        self._balance = balance
        self._topic_queues = topic_queues

    def known(self, message: Message | PackedMessage, to: SendTarget) -> tuple[MessageQueue, str] | None:
        """The queue and address, if known; None if a NameServer must be asked or the broker is away."""
        route = self._client.routes.known(message.topic)
        if route is None or not route.writable:
            return None
        queue = self._queue(route, to, None, message)
        address = self._client.routes.master(queue.broker_name)
        return None if address is None else (queue, address)

    async def find(
        self,
        topic: str,
        to: SendTarget,
        message: Message | PackedMessage | None,
        deadline_s: float,
        not_at: str | None = None,
    ) -> tuple[MessageQueue, str]:
        """The queue and address for an attempt, at a broker other than `not_at` if there is one.

        While a broker has members and none of them is its master, one may become it at any moment: that is
        waited for. Raises NoNameServer if a route that must be asked for does not arrive by the deadline, in
        the client's monotonic time.
        """
        while True:
            try:
                return await self._find(topic, to, message, deadline_s, not_at)
            except NoRoute:
                if not self._may_be_led(topic) or not await self._looked_again(topic, deadline_s):
                    raise

    async def moved(self, queue: MessageQueue, address: str, deadline_s: float) -> None:
        """The master of this queue is gone. If its broker has other members, and no other broker takes the
        topic, wait until NameServers name another one, or none: another attempt at once would fail too."""
        routes, name = self._client.routes, queue.broker_name
        while not self.has_other(queue.topic) and len(routes.members(name)) > 1:
            if routes.master(name) != address or not await self._looked_again(queue.topic, deadline_s):
                return

    def _may_be_led(self, topic: str) -> bool:
        """Whether a broker of the topic has members, and no master among them."""
        route = self._client.routes.known(topic)
        brokers = () if route is None else route.data.broker_datas
        return any(each.broker_addrs and MASTER_ID not in each.broker_addrs for each in brokers)

    async def _looked_again(self, topic: str, deadline_s: float) -> bool:
        """Look for news after a pause; False if there is no time for it. Each time at another NameServer:
        one may hear of the old master only, when a network is cut."""
        left_s = deadline_s - self._client.clock.monotonic_s()
        if left_s <= _LOOK_S:
            return False
        await self._client.sleep(_LOOK_S)
        self._client.namesrvs.doubt()
        with suppress(FlareError, TimeoutError):
            async with asyncio.timeout(left_s - _LOOK_S):
                await self._client.routes.refresh(topic)
        return True

    async def _find(
        self,
        topic: str,
        to: SendTarget,
        message: Message | PackedMessage | None,
        deadline_s: float,
        not_at: str | None,
    ) -> tuple[MessageQueue, str]:
        route = self._client.routes.known(topic)
        if route is None or not route.writable:
            route = await self._route(topic, deadline_s)
        queue = self._queue(route, to, not_at, message)
        address = self._client.routes.master(queue.broker_name)
        if address is None:
            self._client.refresh_soon()
            raise NoRoute(
                f"broker {queue.broker_name!r} of {queue} has no master at the moment: "
                "check that it is running"
            )
        return queue, address

    def has_other(self, topic: str) -> bool:
        """Whether more than one broker accepts messages of a topic."""
        route = self._client.routes.known(topic)
        return route is not None and len({queue.broker_name for queue in route.writable}) > 1

    async def _route(self, topic: str, deadline_s: float) -> Route:
        left_s = max(0.0, deadline_s - self._client.clock.monotonic_s())
        try:
            async with asyncio.timeout(left_s):
                return await self._client.routes.get_for_send(topic, self._topic_queues)
        except TimeoutError:
            raise NoNameServer(
                f"NameServer {self._client.namesrvs.chosen} did not answer within {left_s:.2g} s when asked "
                f"for the route of topic {topic!r}: check that it is running, or give the send more time"
            ) from None

    def _queue(
        self, route: Route, to: SendTarget, not_at: str | None, message: Message | PackedMessage | None
    ) -> MessageQueue:
        if to is None:
            return self._balance.choose(route.writable, not_at)
        if isinstance(to, MessageQueue):
            if to.topic != route.topic:
                raise UsageError(f"a message to {route.topic!r} cannot go to {to}, a queue of another topic")
            return to
        assert isinstance(message, Message)  # Packed messages come with a queue, never with a selector.
        return chosen_by(to, route.writable, message)
