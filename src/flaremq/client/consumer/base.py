"""The base of all consumers: joining and leaving a group, and answering brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Self

from flaremq.base.errors import NotServed, UsageError
from flaremq.base.lifecycle import Owned
from flaremq.client.client import Client
from flaremq.client.consumer.assignment import Assignment, Consumption
from flaremq.client.consumer.member import GroupMember
from flaremq.client.consumer.offsets import LocalFileOffsetStore, RemoteBrokerOffsetStore
from flaremq.client.consumer.pull import PullKind
from flaremq.client.consumer.rebalance import Rebalancer
from flaremq.client.consumer.runninginfo import running_info
from flaremq.client.settings import ConsumerSettings
from flaremq.client.trace import TraceDispatcher
from flaremq.model.message import MessageQueue
from flaremq.protocol.bodies.group import CheckClientRequestBody, ConsumeMessageDirectlyResult, ConsumerData
from flaremq.protocol.bodies.running import ConsumerRunningInfo

log = logging.getLogger(__name__)


class Consumer:
    """One member of a consumer group, from `start` to `stop`; `async with` does both."""

    def __init__(
        self,
        member: GroupMember,
        consumption: Consumption,
        kind: PullKind,
        *,
        owns_client: bool,
        traces: TraceDispatcher | None = None,
    ) -> None:
        self._member = member
        self._owns_client = owns_client
        self._traces = traces
        offsets = RemoteBrokerOffsetStore(member) if member.is_clustering else LocalFileOffsetStore(member)
        self._assignment = Assignment(member, offsets, consumption, kind)
        self._rebalancer = Rebalancer(member, self._assignment)
        self._tasks = Owned()
        self._started = False
        self._stopping: asyncio.Task[None] | None = None

    @property
    def group(self) -> str:
        return self._member.group

    @property
    def client(self) -> Client:
        return self._member.client

    @property
    def settings(self) -> ConsumerSettings:
        return self._member.settings

    # Life.

    async def start(self) -> None:
        """Join the group. Returns once the first queues are assigned, if servers can be reached."""
        self._check_not_stopped()
        if self._started:
            return
        self._prepare()
        self._started = True
        self._member.started_ms = self.client.clock.now_ms()
        try:
            await self.client.start()
            await self.client.add_consumer(self)
        except BaseException:
            self._started = False  # Nothing has begun that could be stopped.
            if self.client.members.consumers.get(self.group) is self:
                self.client.members.remove_consumer(self.group)
            if self._owns_client:
                await self.client.stop()
            raise
        try:
            await self._check_expressions()
            self._check_not_stopped()  # It may have been stopped during the requests.
            if self._traces is not None:
                await self._traces.start()
            self._begin()
            self._assignment.start()
            settled = await self._rebalancer.round()
            self._check_not_stopped()
            self._tasks.spawn("rebalance", self._rebalancer.run(settled))
        except BaseException:
            await self.stop()
            raise

    def _check_not_stopped(self) -> None:
        if self._stopping is not None:
            raise UsageError(f"this consumer of {self.group!r} was stopped: create a new one")

    def _prepare(self) -> None:
        """Called before any request. May raise UsageError."""

    def _begin(self) -> None:
        """Messages may arrive from now on."""

    async def _finish(self) -> None:
        """No more messages arrive: finish those in progress."""

    async def _check_expressions(self) -> None:
        """Have brokers check SQL expressions now instead of at every pull."""
        for topic, subscription in self._member.subscriptions.items():
            route = self.client.routes.known(topic)
            if not subscription.is_sql or route is None:
                continue
            body = CheckClientRequestBody(
                client_id=self.client.client_id, group=self.group, subscription_data=subscription
            )
            for broker in route.data.broker_datas:
                address = self.client.routes.address(broker.broker_name)
                if address is not None:
                    await self.client.api.check_client(address, body)

    async def stop(self) -> None:
        """Pull no more, finish what is in progress, store offsets and leave the group. Idempotent."""
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop(), name="stop-consumer")
        await asyncio.shield(self._stopping)  # The consumer leaves in order even if the caller stops waiting.

    async def _stop(self) -> None:
        try:
            if self._started:
                await self._leave()
        finally:
            if self._owns_client:
                await self.client.stop()

    async def _leave(self) -> None:
        try:
            await self._tasks.aclose(timeout_s=5)
            self._assignment.rest()
            await self._finish()
        finally:
            await self._assignment.close()
            if self._traces is not None:
                await self._traces.stop()
            await self.client.remove_consumer(self.group)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _check_running(self) -> None:
        if not self._started or self._stopping is not None:
            raise UsageError(
                f"the consumer of {self.group!r} is not running: use `async with`, or call start() first"
            )

    # State.

    @property
    def subscriptions(self) -> Mapping[str, str]:
        """Subscribed topics and their expressions."""
        return {topic: each.sub_string for topic, each in self._member.subscriptions.items()}

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues assigned to this consumer now."""
        return frozenset(self._assignment.queues)

    def _subscribed(self) -> None:
        """Subscriptions have changed."""
        if self._started:
            self.client.beat_soon()
            self.client.refresh_soon()
            self._rebalancer.soon()

    # Called by the client.

    def topics(self) -> Iterable[str]:
        return list(self._member.subscriptions)

    def heartbeat(self) -> ConsumerData:
        return self._member.heartbeat()

    def rebalance_soon(self) -> None:
        self._rebalancer.soon()

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            if queue.topic == topic and self._assignment.get(queue) is not None:
                log.warning("group %s: an operator reset %s to offset %d", self.group, queue, offset)
                await self._assignment.move(queue, offset, sure=True)

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return {queue: at for queue, at in self._assignment.positions().items() if queue.topic == topic}

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        return running_info(self._member, self._assignment, stacks=stacks)

    async def consume_directly(self, record: bytes, broker_name: str) -> ConsumeMessageDirectlyResult:
        raise NotServed(
            f"group {self.group!r} pulls its messages: a record of {len(record)} bytes from {broker_name!r} "
            "cannot be pushed to it; use a push consumer"
        )
