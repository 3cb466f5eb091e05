"""What brokers know of queues: which exist, their first and last offsets, the offset of a time or a group.

Many queues are asked for at once. A broker that does not answer is asked again; after brokerTimeout it is an
error.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from flaremq.base.backoff import Backoff, retry
from flaremq.base.errors import FlareError, NoRoute, PeerError, TopicNotFound
from flaremq.client.api import PullResult, body_of
from flaremq.client.client import Client
from flaremq.client.message import received
from flaremq.model.message import MessageQueue
from flaremq.model.names import AUTO_CREATE_TOPIC, is_dlq, is_retry, is_system
from flaremq.model.queuekey import key_of
from flaremq.protocol.bodies.cluster import TopicList
from flaremq.protocol.bodies.group import SQL92, CheckClientRequestBody, SubscriptionData
from flaremq.protocol.bodies.stats import TopicStatsTable
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers.pull import SUBSCRIPTION, SUSPEND
from flaremq.protocol.headers.topic import GetTopicStatsInfoRequestHeader
from flaremq.spark.read.offsets import OffsetSpan
from flaremq.spark.read.options import NO_FILTER, Selection
from flaremq.spark.read.partitions import QueueRange
from flaremq.spark.read.pullranges import TOOLS_GROUP, pull_header

log = logging.getLogger(__name__)

T = TypeVar("T")

_AT_ONCE: Final = 64
_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 1.0
_SPECIAL: Final = re.compile(r"^\^?(%|rmq_sys_|RMQ_SYS_|SCHEDULE_TOPIC|TBW102)")
"""How a pattern begins that is meant to match system, retry or dead-letter topics."""


@dataclass(frozen=True, slots=True)
class QueueSpans:
    """Offsets of queues, and the brokers that did not answer."""

    spans: dict[str, OffsetSpan] = field(default_factory=dict)
    """By queue."""
    away: dict[str, FlareError] = field(default_factory=dict)
    """By broker."""


class OffsetReader:
    """Asks brokers for offsets. Lives in its client's event loop."""

    def __init__(self, client: Client, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._away_since_s: dict[str, float] = {}

    # Which queues exist.

    async def queues(
        self, selection: Selection, timeout_s: float, *, strict: bool
    ) -> tuple[MessageQueue, ...]:
        """The readable queues of a selection. With `strict`, raises TopicNotFound if one named is missing."""
        named = {each.topic for each in selection.queues}.union(selection.topics)
        if selection.pattern is not None:
            named |= await self.until_there(partial(self._matching, selection.pattern), timeout_s)
        found: list[MessageQueue] = []
        for topic in sorted(named):
            route = await self.until_there(partial(self._client.routes.refresh, topic), timeout_s)
            if route is not None:
                found += route.readable
            elif strict and selection.pattern is None:
                raise TopicNotFound(
                    f"topic {topic!r} is unknown to the NameServer {self._client.namesrvs.chosen}: "
                    "check its spelling and that its brokers are running, or create it first"
                )
        if not selection.queues:
            return tuple(found)
        missing = [key_of(each) for each in selection.queues if each not in found]
        if missing and strict:
            raise TopicNotFound(
                f"queues {', '.join(missing[:5])} do not exist: {', '.join(sorted(named))} has "
                f"{', '.join(key_of(each) for each in found[:8])}{' ...' if len(found) > 8 else ''}"
            )
        return tuple(each for each in found if each in selection.queues)

    async def _matching(self, pattern: str) -> set[str]:
        api = self._client.api
        answer = await api.ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        cluster = await api.cluster()
        own = {*cluster.cluster_addr_table, *cluster.broker_addr_table, AUTO_CREATE_TOPIC}
        own |= {f"{name}_REPLY_TOPIC" for name in cluster.cluster_addr_table}
        special = _SPECIAL.match(pattern) is not None
        return {
            topic
            for topic in body_of(TopicList, answer).topic_list
            if re.fullmatch(pattern, topic)
            and (special or not (is_system(topic) or is_retry(topic) or is_dlq(topic) or topic in own))
        }

    async def check_sql(self, queues: Iterable[MessageQueue], sql: str, group: str) -> None:
        """Raise if a broker rejects the expression: in a pull, some would ignore an invalid one."""
        for broker, topic in {each.broker_name: each.topic for each in queues}.items():
            asked = SubscriptionData.of(topic, sql, SQL92)
            body = CheckClientRequestBody(
                client_id=self._client.client_id, group=group, subscription_data=asked
            )
            address = self._client.routes.address(broker)
            if address is not None:  # Else the broker is down now, and its pulls will report an error.
                await self._client.api.check_client(address, body)

    # First and last offsets.

    async def spans(self, queues: Iterable[MessageQueue]) -> QueueSpans:
        """Offsets of the queues whose brokers answer now. Raises if a broker has been away for too long."""
        wanted: dict[tuple[str, str], list[MessageQueue]] = {}
        for queue in queues:
            wanted.setdefault((queue.topic, queue.broker_name), []).append(queue)
        found = QueueSpans()
        await asyncio.gather(*(self._ask(found, *each) for each in wanted.items()))
        self._check_away(found.away)
        return found

    async def all_spans(self, queues: Iterable[MessageQueue]) -> dict[str, OffsetSpan]:
        """Offsets of all queues, waiting for brokers that are away."""
        queues = tuple(queues)

        async def ask() -> dict[str, OffsetSpan]:
            found = await self.spans(queues)
            if found.away:
                raise next(iter(found.away.values()))
            return found.spans

        return await self.until_there(ask)

    async def _ask(self, found: QueueSpans, where: tuple[str, str], queues: list[MessageQueue]) -> None:
        topic, broker = where
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        try:
            async with self._slots:
                address = self._address(broker)
                answer = await self._client.api.ask(address, RequestCode.GET_TOPIC_STATS_INFO, header)
        except TopicNotFound:
            return  # Deleted a moment ago: its queues are gone, but the broker is not away.
        except FlareError as error:
            if not error.retriable:
                raise
            found.away[broker] = error
            return
        table = body_of(TopicStatsTable, answer).offset_table
        by_number = {each.queue_id: offsets for each, offsets in table.items()}
        for queue in queues:
            offsets = by_number.get(queue.queue_id)
            if offsets is not None:
                found.spans[key_of(queue)] = OffsetSpan(
                    max(0, offsets.min_offset), max(0, offsets.max_offset)
                )

    def _address(self, broker: str) -> str:
        address = self._client.routes.address(broker)
        if address is None:
            raise NoRoute(f"broker {broker!r} is unknown to the NameServer now: check that it is running")
        return address

    def _check_away(self, away: Mapping[str, FlareError]) -> None:
        now_s = asyncio.get_running_loop().time()
        for broker in [each for each in self._away_since_s if each not in away]:
            log.warning("broker %s answers again, or is no longer needed", broker)
            del self._away_since_s[broker]
        for broker, error in away.items():
            if broker not in self._away_since_s:
                log.warning("broker %s does not answer, its queues wait: %s", broker, error)
                self._away_since_s[broker] = now_s
                self._client.refresh_soon()
            elif now_s - self._away_since_s[broker] > self._timeout_s:
                raise self._too_long(error, f"no answer from broker {broker!r}")

    def _too_long(self, error: FlareError, what: str) -> PeerError:
        late = PeerError(
            f"{what} for {self._timeout_s:g} s (brokerTimeout): {error.fact}. Check that it is running and "
            "can be reached from here, or raise brokerTimeout"
        )
        late.retriable = True
        return late.with_hint(error.hint)

    # Offsets of a time or a group.

    async def at_time(self, queues: Iterable[MessageQueue], time_ms: int) -> dict[str, int]:
        async def ask(queue: MessageQueue) -> int:
            address = self._address(queue.broker_name)
            near = await self._client.api.offset_by_time(address, queue, time_ms)
            return await first_at(self._client, queue, time_ms, near)

        return await self._each(queues, ask)

    async def committed(self, queues: Iterable[MessageQueue], group: str) -> dict[str, int | None]:
        async def ask(queue: MessageQueue) -> int | None:
            address = self._address(queue.broker_name)
            return await self._client.api.committed(address, group, queue, zero_if_missing=False)

        return await self._each(queues, ask)

    async def _each(
        self, queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[T]]
    ) -> dict[str, T]:
        async def one(queue: MessageQueue) -> tuple[str, T]:
            async with self._slots:
                return key_of(queue), await self.until_there(lambda: ask(queue))

        return dict(await asyncio.gather(*map(one, queues)))

    async def until_there(self, ask: Callable[[], Awaitable[T]], timeout_s: float | None = None) -> T:
        """Ask until there is an answer. Raises the last error if it is final, or at the timeout."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        now_s = asyncio.get_running_loop().time
        backoff = Backoff(_PAUSE_S, _PAUSE_MAX_S, timeout_s=timeout_s, now_s=now_s)
        try:
            return await retry(ask, backoff, may_pass=lambda error: error.retriable, sleep=asyncio.sleep)
        except FlareError as error:
            if error.retriable and timeout_s:
                raise self._too_long(error, "no answer") from None
            raise


_ANSWER_S: Final = 5.0
"""How long to wait for an answer, in addition to the time for which the broker may hold the pull."""
_BACK: Final = 16
_LOOKS_MAX: Final = 256


async def peek(client: Client, queue: MessageQueue, offset: int) -> PullResult:
    """The messages of one pull at an offset: up to 32."""
    return await _pull(client, queue, offset, 32, 0.0)


async def await_more(client: Client, queue: MessageQueue, offset: int, hold_s: float) -> bool:
    """Whether there is a message at an offset. The broker may hold the pull for `hold_s` until there is."""
    pulled = await _pull(client, queue, offset, 1, hold_s)
    return pulled.max_offset > offset or len(pulled.body) > 0


async def _pull(client: Client, queue: MessageQueue, offset: int, count: int, hold_s: float) -> PullResult:
    address = client.routes.address(queue.broker_name)
    if address is None:
        raise NoRoute(
            f"broker {queue.broker_name!r} is unknown to the NameServer now: check that it is running"
        )
    of = QueueRange(queue.topic, queue.broker_name, queue.queue_id, offset, offset + 1)
    header = replace(
        pull_header(of, TOOLS_GROUP, NO_FILTER),
        max_msg_nums=count,
        sys_flag=SUBSCRIPTION | SUSPEND if hold_s else SUBSCRIPTION,
        suspend_timeout_millis=round(hold_s * 1000),
    )
    return await client.api.pull(address, RequestCode.PULL_MESSAGE, header, hold_s + _ANSWER_S)


async def first_at(client: Client, queue: MessageQueue, time_ms: int, near: int) -> int:
    """The offset of the first message stored at `time_ms` or later. `near` is the broker's answer.

    Brokers before version 5 return the message that is nearest in time, or any of several with the same
    time. A read that began or ended there would leave out messages.
    """
    at = max(0, near - _BACK)
    for _ in range(_LOOKS_MAX):
        pulled = await peek(client, queue, at)
        messages = received(pulled.body, queue)
        if not messages:
            if pulled.min_offset <= at:
                return near  # There is no message to look at.
            at = pulled.min_offset
            continue
        later = next((each.queue_offset for each in messages if each.store_timestamp_ms >= time_ms), None)
        if later is None:
            at = pulled.next_offset
            if at >= pulled.max_offset:
                return at
        elif later > messages[0].queue_offset or at <= pulled.min_offset:
            return later
        else:
            at = max(pulled.min_offset, at - _BACK)
    return near
