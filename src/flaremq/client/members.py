"""The producers and consumers of a client, which come and go while the client stays."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from flaremq.base.errors import UsageError
from flaremq.client.message import Reply
from flaremq.model.message import MessageQueue
from flaremq.protocol.bodies.group import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    HeartbeatData,
    ProducerData,
)
from flaremq.protocol.bodies.running import ConsumerRunningInfo
from flaremq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from flaremq.remoting.router import Peer

_GIVEN_UP_MAX: Final = 1000


class ConsumerMember(Protocol):
    """A consumer, as its client sees it."""

    @property
    def group(self) -> str: ...

    def topics(self) -> Iterable[str]:
        """The topics whose routes it needs."""

    def heartbeat(self) -> ConsumerData:
        """Its part of a heartbeat."""

    def rebalance_soon(self) -> None:
        """Members or queues have changed: rebalance as soon as possible."""

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at these offsets, as an operator has requested."""

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        """The offset of each of its queues."""

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo: ...

    async def consume_directly(self, record: bytes, broker_name: str) -> ConsumeMessageDirectlyResult:
        """Consume this message now, whatever its offset, and report the outcome."""


class CheckerMember(Protocol):
    """A transactional producer, as its client sees it."""

    @property
    def group(self) -> str: ...

    async def check(self, peer: Peer, header: CheckTransactionStateRequestHeader, record: bytes) -> None:
        """A broker asks how a transaction has ended."""


class Members:
    """Many producers may share a group, so producer groups are counted; a consumer group has one member."""

    def __init__(self) -> None:
        self._producers: dict[str, int] = {}
        self.consumers: dict[str, ConsumerMember] = {}
        self.checkers: dict[str, CheckerMember] = {}
        self.requests: dict[str, asyncio.Future[Reply]] = {}
        """Requests that wait for a reply, by correlation id."""
        self._given_up: dict[str, str] = {}
        """The topics of the latest requests whose time is over, by correlation id: a reply may come late."""

    def add_producer(self, group: str) -> None:
        self._producers[group] = self._producers.get(group, 0) + 1

    def remove_producer(self, group: str) -> bool:
        """Remove one. Returns whether it was the last of its group."""
        left = self._producers.get(group, 0) - 1
        if left > 0:
            self._producers[group] = left
            return False
        return self._producers.pop(group, None) is not None

    def give_up(self, correlation_id: str, topic: str) -> None:
        """The time for the reply to a request is over."""
        self._given_up[correlation_id] = topic
        if len(self._given_up) > _GIVEN_UP_MAX:
            del self._given_up[next(iter(self._given_up))]

    def late_for(self, correlation_id: str) -> str | None:
        """The topic of the request to which a reply comes too late; None if there was no such request."""
        return self._given_up.pop(correlation_id, None)

    def add_checker(self, producer: CheckerMember) -> None:
        if producer.group in self.checkers:
            raise UsageError(
                f"this client already has a transactional producer of group {producer.group!r}: use that one"
            )
        self.checkers[producer.group] = producer

    def remove_checker(self, group: str) -> None:
        self.checkers.pop(group, None)

    def add_consumer(self, consumer: ConsumerMember) -> None:
        if consumer.group in self.consumers:
            raise UsageError(
                f"this client already has a consumer of group {consumer.group!r}, and brokers tell consumers "
                "apart by client: give the other one its own client"
            )
        self.consumers[consumer.group] = consumer

    def remove_consumer(self, group: str) -> None:
        self.consumers.pop(group, None)

    def topics(self) -> set[str]:
        return {topic for consumer in self.consumers.values() for topic in consumer.topics()}

    def heartbeat(self, client_id: str, *, to_master: bool) -> HeartbeatData | None:
        """The heartbeat for a broker; None if it is empty, because producers use masters only."""
        if not self.consumers and not (to_master and self._producers):
            return None
        return HeartbeatData(
            client_id=client_id,
            producer_data_set=tuple(ProducerData(group_name=group) for group in self._producers),
            consumer_data_set=tuple(consumer.heartbeat() for consumer in self.consumers.values()),
        )
