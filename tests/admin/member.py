"""A consumer that answers what brokers ask, as its test wishes, and consumes nothing by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from flaremq.model.message import MessageQueue
from flaremq.model.record import decode
from flaremq.protocol import beans
from flaremq.protocol.bodies.group import (
    CMResult,
    ConsumeMessageDirectlyResult,
    GetConsumerStatusBody,
    ResetOffsetBody,
)
from flaremq.protocol.bodies.running import ConsumerRunningInfo, ProcessQueueInfo
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command, response_to
from flaremq.remoting.router import Peer
from flaremq.testing.fakes.wireclient import WireClient


class Member(WireClient):
    def __init__(self, client_id: str = "127.0.0.1@member") -> None:
        self.queues: dict[MessageQueue, int] = {}
        """Those that it says it has, and how far it says it is."""
        self.consumed: list[bytes] = []
        """Bodies that it was told to consume."""
        self._resets: asyncio.Queue[MessageQueue] = asyncio.Queue()
        super().__init__(
            client_id,
            {
                RequestCode.GET_CONSUMER_RUNNING_INFO: self._running,
                RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume,
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._ids_changed,
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset,
            },
        )

    async def join(self, addresses: Iterable[str], group: str, *topics: str) -> None:
        for address in addresses:
            await self.heartbeat(address, group, *topics)

    async def told(self, count: int) -> list[MessageQueue]:
        """The queues that it was told to go elsewhere in, as soon as there are so many."""
        async with asyncio.timeout(60):
            return [await self._resets.get() for _ in range(count)]

    async def _reset(self, _peer: Peer, request: Command) -> None:
        for queue in beans.decode(ResetOffsetBody, request.body).offset_table:
            self._resets.put_nowait(queue)

    async def _running(self, _peer: Peer, request: Command) -> Command:
        stacks = "a stack" if request.fields.get("jstackEnable") == "true" else None
        table = {queue: ProcessQueueInfo(commit_offset=offset) for queue, offset in self.queues.items()}
        info = ConsumerRunningInfo(properties={"who": self.client_id}, mq_table=table, jstack=stacks)
        return response_to(request, body=beans.encode(info))

    async def _consume(self, _peer: Peer, request: Command) -> Command:
        self.consumed.append(decode(bytes(request.body or b"")).body)
        result = ConsumeMessageDirectlyResult(
            consume_result=CMResult.CR_LATER, remark="not now", spent_time_mills=3
        )
        return response_to(request, body=beans.encode(result))

    async def _status(self, _peer: Peer, request: Command) -> Command:
        topic = request.fields["topic"]
        table = {queue: offset for queue, offset in self.queues.items() if queue.topic == topic}
        return response_to(request, body=beans.encode(GetConsumerStatusBody(message_queue_table=table)))

    async def _ids_changed(self, _peer: Peer, _request: Command) -> None:
        return None
