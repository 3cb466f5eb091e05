"""Pulling: a coroutine per queue that pulls more messages whenever there is room.

The broker holds a request while there is nothing new, so a quiet queue costs one request every `poll_s`. A
pull also carries the offset that may be stored, which saves most commits.

Each answer suggests which member of the broker to ask next: the master, or a slave while the consumer is far
behind. A member that cannot be reached, or a slave that refuses, is left out for a while if there is another:
when a master dies, reading goes on at its slave at once, and not only when the route has lost the master.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final, Protocol

from flaremq.base import errors
from flaremq.base.errors import Busy, FlareError, NoRoute, NotServed, ServiceStops, Unreachable
from flaremq.client.api import PullResult
from flaremq.client.consumer.member import GroupMember, Warnings
from flaremq.client.consumer.processqueue import ProcessQueue, QueueLimits
from flaremq.client.message import ReceivedMessage, received
from flaremq.protocol.bodies.group import SubscriptionData
from flaremq.protocol.bodies.route import MASTER_ID
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.headers import pull as headers

log = logging.getLogger(__name__)

_NOT_KNOWN: Final = (
    *(errors.SubscriptionMissing, errors.SubscriptionOld),
    *(errors.FilterDataMissing, errors.FilterDataOld),
)
"""A heartbeat repairs these."""
_BUSY_DELAY_S: Final = 0.02
_QUICK_S: Final = 0.005
_IDLE_DELAY_S: Final = 0.1
_AWAY_S: Final = 10.0
"""For how long a member that failed is left out. Trying it costs a pull up to the limit for connecting."""


@dataclass(frozen=True, slots=True)
class PullKind:
    """How the pulls of push and lite pull consumers differ."""

    code: RequestCode = RequestCode.PULL_MESSAGE
    flags: int = headers.SUSPEND
    sends_subscription: bool = False
    """Every pull carries the subscription, so it does not depend on an earlier heartbeat."""


PUSH: Final = PullKind()
LITE: Final = PullKind(
    RequestCode.LITE_PULL_MESSAGE, headers.SUSPEND | headers.SUBSCRIPTION | headers.LITE_PULL, True
)


class Keeper(Protocol):
    """The owner of the queue, as its puller sees it."""

    warnings: Warnings

    def arrived(self, held: ProcessQueue) -> None:
        """There is more to consume."""

    def moved(self, held: ProcessQueue, offset: int) -> None:
        """The broker has moved the offset: forget what was fetched and continue there."""

    def may_commit(self, held: ProcessQueue) -> bool: ...
    def pulled(self, topic: str, took_s: float, count: int) -> None: ...


class Puller:
    """Pulls one queue, until it is cancelled or the queue is dropped."""

    def __init__(
        self, member: GroupMember, held: ProcessQueue, keeper: Keeper, kind: PullKind = PUSH
    ) -> None:
        self._member = member
        self._client = member.client
        self._held = held
        self._keeper = keeper
        self._kind = kind
        settings = member.settings
        self._limits = QueueLimits(
            settings.queue_count_max,
            settings.queue_size_max,
            None if settings.orderly else settings.span_max,
        )
        self._broker_id = MASTER_ID
        self._address = ""
        """Of the last pull."""
        self._away: dict[str, float] = {}
        """Members that failed, each with the time until which it is left out."""
        self._code = kind.code
        self._stirred = asyncio.Event()
        held.on_room = self._stirred.set
        self.is_resting = False
        """Whether it waits for room, not for a broker."""

    def stir(self) -> None:
        """Check again whether a pull is possible."""
        self._stirred.set()

    async def run(self) -> None:
        held, settings, clock = self._held, self._member.settings, self._client.clock
        while not held.dropped:
            await self._room()
            held.pulled_s, held.pulled_ms = clock.monotonic_s(), clock.now_ms()
            try:
                await self._pull()
            except FlareError as error:
                await self._failed(error)
            else:
                if settings.pull_interval_s:
                    await self._client.sleep(settings.pull_interval_s)

    async def _room(self) -> None:
        """Wait until the queue has room for more."""
        held, said = self._held, False
        while True:
            self._stirred.clear()
            excess = held.excess(self._limits)
            if excess is None and not held.paused:
                return
            if excess is not None and not said:
                log.debug("group %s pauses pulling %s: %s", self._member.group, held.queue, excess)
                said = True
            self.is_resting = True
            try:
                await self._stirred.wait()
            finally:
                self.is_resting = False

    async def _pull(self) -> None:
        held, client, keeper = self._held, self._client, self._keeper
        queue = held.queue
        subscription = self._member.subscriptions.get(queue.topic)
        address = self._address = self._chosen(queue.broker_name)
        if subscription is None:
            raise errors.SubscriptionMissing(f"no longer subscribed to {queue.topic!r}")
        offset, began_s = held.next_offset, client.clock.monotonic_s()
        header = self._header(subscription, commits=address == client.routes.master(queue.broker_name))
        pulled = await client.api.pull(address, self._code, header, self._member.settings.pull_timeout_s)
        keeper.warnings.over(queue.broker_name)
        if held.dropped or held.next_offset != offset:
            return  # It was given up or moved during the pull.
        self._broker_id = pulled.suggested_broker_id
        if pulled.code == ResponseCode.PULL_OFFSET_MOVED:
            keeper.moved(held, pulled.next_offset)
            return
        took_s = client.clock.monotonic_s() - began_s
        messages = self._wanted(pulled, subscription, offset) if pulled.code == ResponseCode.SUCCESS else []
        held.put(messages, pulled.next_offset)
        keeper.pulled(queue.topic, took_s, len(messages))
        if messages:
            keeper.arrived(held)
        elif pulled.next_offset == offset and took_s < _QUICK_S:
            # A broker that does not hold pulls would be asked in a tight loop.
            await client.sleep(_IDLE_DELAY_S)

    def _chosen(self, broker_name: str) -> str:
        """The member that the last answer suggests, or another one if that one is left out."""
        routes, now_s = self._client.routes, self._client.clock.monotonic_s()
        found = routes.address(broker_name, self._broker_id)
        if found is None:
            raise NoRoute(f"broker {broker_name!r} is not known at the moment: check that it is running")
        if self._away.get(found, now_s) <= now_s:
            return found
        return next(iter(self._others(broker_name, now_s)), found)

    def _others(self, broker_name: str, now_s: float) -> list[str]:
        """The members that are not left out, the master first."""
        members = self._client.routes.members(broker_name)
        return [each for each in members if self._away.get(each, now_s) <= now_s]

    def _header(self, subscription: SubscriptionData, *, commits: bool) -> headers.PullMessageRequestHeader:
        held, member, kind = self._held, self._member, self._kind
        queue, settings = held.queue, member.settings
        flags, commit_offset = kind.flags, 0
        if commits and kind.code == RequestCode.PULL_MESSAGE and self._keeper.may_commit(held):
            flags, commit_offset = flags | headers.COMMIT_OFFSET, held.commit_offset
        return headers.PullMessageRequestHeader(
            consumer_group=member.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=held.next_offset,
            max_msg_nums=settings.pull_batch,
            sys_flag=flags,
            commit_offset=commit_offset,
            suspend_timeout_millis=round(settings.poll_s * 1000),
            subscription=subscription.sub_string if kind.sends_subscription else None,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            bname=queue.broker_name,
        )

    def _wanted(
        self, pulled: PullResult, subscription: SubscriptionData, offset: int
    ) -> list[ReceivedMessage]:
        """The matching messages: tags may share a hash, and a batch may begin before the offset."""
        messages = received(pulled.body, self._held.queue)
        if messages and messages[0].queue_offset < offset:
            messages = [each for each in messages if each.queue_offset >= offset]
        if subscription.tags_set:
            tags = frozenset(subscription.tags_set)
            messages = [each for each in messages if each.tags in tags]
        return messages

    async def _failed(self, error: FlareError) -> None:
        """Log the failure, once for all queues of a broker, and pause."""
        delay_s, at_slave = self._member.settings.error_delay_s, self._is_slave(self._address)
        if isinstance(error, NotServed) and self._code == RequestCode.LITE_PULL_MESSAGE:
            self._code = RequestCode.PULL_MESSAGE  # A broker before 4.7: it knows the older request.
            return
        if isinstance(error, Busy) and not at_slave:
            delay_s = min(delay_s, _BUSY_DELAY_S)
        elif isinstance(error, _NOT_KNOWN):
            log.debug("group %s: %s", self._member.group, error)
            self._client.beat_soon()
        else:
            name = self._held.queue.broker_name
            self._keeper.warnings.note(name, "a pull", error)
            self._broker_id = MASTER_ID
            self._client.refresh_soon()
            if isinstance(error, Unreachable | ServiceStops) or at_slave:
                now_s = self._client.clock.monotonic_s()
                self._away[self._address] = now_s + _AWAY_S
                if self._others(name, now_s):
                    delay_s = min(delay_s, _BUSY_DELAY_S)
        await self._client.sleep(delay_s)

    def _is_slave(self, address: str) -> bool:
        name = self._held.queue.broker_name
        return address in self._client.routes.members(name) and address != self._client.routes.master(name)
