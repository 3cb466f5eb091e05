"""The queue for each attempt to send a message, and the address of its broker."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from flaremq.base.errors import NoNameServer, NoRoute, UsageError
from flaremq.client.client import Client
from flaremq.client.producer.balance import Balance, QueueSelector, by_hash, by_number, chosen_by
from flaremq.client.producer.packing import PackedMessage
from flaremq.client.routes import Route
from flaremq.model.message import Message, MessageQueue

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

        Raises NoNameServer if a route that must be asked for does not arrive by the deadline, in the client's
        monotonic time.
        """
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
