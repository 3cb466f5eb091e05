"""Consuming messages by polling, in an event loop.

    async with LitePullConsumer(group="audit", namesrv="127.0.0.1:9876") as consumer:
        consumer.subscribe("Orders")
        while batch := await consumer.poll(timeout_s=5):
            ...

The members of the group share the queues, unless the program chooses its own with `assign`. Messages are
fetched ahead, within the limits of the settings. A poll acknowledges the messages of the poll before it, so
that no unprocessed message is lost; `commit` acknowledges them at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, Self

from flaremq.base.errors import UsageError
from flaremq.client.client import Client, client_of
from flaremq.client.consumer.base import Consumer
from flaremq.client.consumer.member import GroupMember
from flaremq.client.consumer.outcome import Later
from flaremq.client.consumer.processqueue import ProcessQueue
from flaremq.client.consumer.pull import LITE
from flaremq.client.hooks import ConsumeHooks
from flaremq.client.message import ReceivedMessage
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ClientSettings, ConsumerSettings, Trace
from flaremq.client.trace import ConsumeTracer, trace_dispatcher
from flaremq.model.message import MessageQueue
from flaremq.model.names import check_group
from flaremq.protocol.bodies.group import ConsumeType

_WAIT_S: Final = 60.0  # Of one poll in an endless loop.


class Shelf:
    """Fetched messages that wait for a poll."""

    def __init__(self) -> None:
        self._ready: deque[ProcessQueue] = deque()
        self._filled = asyncio.Event()
        self._closed = False

    def arrived(self, held: ProcessQueue) -> None:
        if not held.is_listed and held.is_waiting:
            held.is_listed = True
            self._ready.append(held)
            self._filled.set()

    async def ended(self, queue: MessageQueue, limit_s: float) -> None:
        """There are no handlers to wait for."""

    def take_nowait(self, count_max: int) -> list[ReceivedMessage]:
        """Take messages from queues in turn; those of paused queues stay."""
        found: list[ReceivedMessage] = []
        for _ in range(len(self._ready)):
            held = self._ready.popleft()
            held.is_listed = False
            if held.dropped or held.paused:
                continue  # `resume` lists it again.
            run = held.take(count_max - len(found))
            if run is not None:
                if held.kept_offset is None:
                    held.kept_offset = run.first_offset
                found += run.messages
                held.done(run)
                self.arrived(held)
            if len(found) >= count_max:
                break
        return found

    def close(self) -> None:
        """Wake every waiter."""
        self._closed = True
        self._filled.set()

    async def take(self, count_max: int, timeout_s: float) -> list[ReceivedMessage]:
        try:
            async with asyncio.timeout(timeout_s):
                while not (found := self.take_nowait(count_max)) and not self._closed:
                    self._filled.clear()
                    await self._filled.wait()
                return found
        except TimeoutError:
            return self.take_nowait(count_max)


class LitePullConsumer(Consumer):
    """One member of a consumer group that polls for messages, in one task."""

    def __init__(
        self,
        group: str,
        namesrv: str | None = None,
        *,
        settings: ConsumerSettings | None = None,
        client: Client | ClientSettings | None = None,
        trace: bool | Trace = False,
    ) -> None:
        """Without a client it makes its own, for the NameServers at `namesrv`. `trace` records each message
        that a poll returns in the trace topic."""
        check_group(group)
        settings = settings or ConsumerSettings()
        if settings.orderly:
            raise UsageError(
                "a pull consumer always gets the messages of a queue in order: leave out orderly"
            )
        used, is_own = client_of(namesrv, client, broadcasting=settings.broadcasting)
        member = GroupMember(used, group, settings, ConsumeType.CONSUME_ACTIVELY)
        self._shelf = Shelf()
        traces = trace_dispatcher(trace, used, group, "CONSUME", Producer)
        self._hooks = (
            None if traces is None else ConsumeHooks([ConsumeTracer(traces, Later)], group, used.clock)
        )
        super().__init__(member, self._shelf, LITE, owns_client=is_own, traces=traces)

    # Topics and queues.

    def subscribe(self, topic: str, *, tags: str | None = None, sql: str | None = None) -> None:
        """Share the queues of a topic with the group: all messages, or those that match tags or SQL."""
        if self._rebalancer.assigned is not None:
            raise UsageError(
                f"the consumer of {self.group!r} has queues assigned: subscribe or assign, not both"
            )
        self._member.subscribe(topic, tags, sql)
        self._subscribed()

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic. All members should do so: no other member takes over these queues."""
        self._member.unsubscribe(topic)
        self._subscribed()

    async def assign(
        self, queues: Iterable[MessageQueue], *, tags: str | None = None, sql: str | None = None
    ) -> None:
        """Read exactly these queues, whatever other members read. A second call replaces them."""
        if self._rebalancer.assigned is None and self._member.subscriptions:
            raise UsageError(
                f"the consumer of {self.group!r} has subscriptions: subscribe or assign, not both"
            )
        self._rebalancer.assigned = wanted = tuple(queues)
        topics = {queue.topic for queue in wanted}
        for topic in [each for each in self._member.subscriptions if each not in topics]:
            self._member.unsubscribe(topic)
        for topic in topics:
            self._member.subscribe(topic, tags, sql)
        if self._started:
            await self._rebalancer.round()
            self._subscribed()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic that can be read."""
        return (await self.client.routes.get(topic)).readable

    # Messages.

    async def poll(self, timeout_s: float = 5.0, max_count: int = 32) -> list[ReceivedMessage]:
        """The next messages: at least one as soon as there is any; an empty list if none came in time.

        Messages of the last poll count as consumed from now on, unless `auto_commit` is off.
        """
        self._check_running()
        if max_count < 1:
            raise UsageError(f"max_count={max_count}: expected at least 1")
        if self.settings.auto_commit:
            self._acknowledge()
        found = await self._shelf.take(max_count, timeout_s)
        if self._hooks is not None and found:
            # As in Java, a message counts as consumed when it is handed out: no outcome is known here.
            self._hooks.end(self._hooks.begin(found), None)
        return found

    def __aiter__(self) -> Self:
        """Messages one by one; asking for the next acknowledges the last. Ends when the consumer stops."""
        return self

    async def __anext__(self) -> ReceivedMessage:
        while self._stopping is None:
            found = await self.poll(_WAIT_S, 1)
            if found:
                return found[0]
        raise StopAsyncIteration

    async def _finish(self) -> None:
        self._shelf.close()

    def _acknowledge(self) -> None:
        for held in self._assignment.queues.values():
            held.kept_offset = None

    # Offsets.

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store the group's offsets: after everything that polls have returned, or exactly these."""
        self._check_running()
        if offsets is not None:
            await self._assignment.offsets.store(offsets, sure=True)
            return
        self._acknowledge()
        await self._assignment.commit(sure=True)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's stored offset; None if there is none."""
        await self.client.routes.get(queue.topic)
        return await self._assignment.offsets.committed(queue)

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that a poll returns from this queue."""
        return self._held(queue).position

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at this offset, which must be within the queue."""
        self._held(queue)
        begin, end = await self.begin_offset(queue), await self.end_offset(queue)
        if not begin <= offset <= end:
            raise UsageError(f"offset {offset} of {queue}: expected {begin} to {end}")
        await self._assignment.move(queue, offset, sure=False)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        await self._assignment.move(self._held(queue).queue, await self.begin_offset(queue), sure=False)

    async def seek_to_end(self, queue: MessageQueue) -> None:
        await self._assignment.move(self._held(queue).queue, await self.end_offset(queue), sure=False)

    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Continue at the first message that was stored at this time or later."""
        self._held(queue)
        await self._assignment.move(queue, await self.offset_for_time(queue, timestamp_ms), sure=False)

    async def begin_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message in the queue."""
        return max(0, await self.client.api.min_offset(await self._address(queue), queue))

    async def end_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return await self.client.api.max_offset(await self._address(queue), queue)

    async def offset_for_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return await self.client.api.offset_by_time(await self._address(queue), queue, timestamp_ms)

    async def _address(self, queue: MessageQueue) -> str:
        await self.client.routes.get(queue.topic)
        return self._member.address(queue)

    # Rest.

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull and return nothing from these queues until `resume`."""
        self._assignment.pause(queues, True)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        queues = list(queues)
        self._assignment.pause(queues, False)
        for queue in queues:
            held = self._assignment.get(queue)
            if held is not None:
                self._shelf.arrived(held)

    def _held(self, queue: MessageQueue) -> ProcessQueue:
        held = self._assignment.get(queue)
        if held is None:
            raise UsageError(f"{queue} is not assigned to this consumer: see `assignment`")
        return held


PullConsumer = LitePullConsumer
