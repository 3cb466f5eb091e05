"""A broker and a NameServer behind one port that do as little as consumers need, and what a test tells them.

It notes when it was asked for what, so that a test can read the rhythm of a client from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from tests.client.consumer.tools import FIRST
from tests.client.leaps import LoopClock

from flaremq.client.client import Client
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.message import ReceivedMessage
from flaremq.client.settings import ConsumerSettings
from flaremq.model.message import MessageQueue
from flaremq.model.names import is_retry
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.group import (
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
)
from flaremq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, oneway, response_to
from flaremq.protocol.headers import pull as pulls
from flaremq.protocol.headers.group import NotifyConsumerIdsChangedRequestHeader
from flaremq.remoting.gate import Origin, Right
from flaremq.remoting.router import Family, Handler, Peer, Router
from flaremq.remoting.server import Server
from flaremq.remoting.settings import ServerSettings
from flaremq.testing.fakes.builders import a_message, records_of

BROKER: Final = "broker-a"
TOPIC: Final = "T"
QUEUE: Final = MessageQueue(TOPIC, BROKER, 0)
_PULLS: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


@dataclass
class Noted:
    """One request."""

    code: int
    at_s: float


@dataclass
class FakeBroker:
    """One topic with one queue."""

    lacks: frozenset[RequestCode] = frozenset()
    """Codes that it does not know."""
    bodies: list[bytes] = field(default_factory=list)
    """The messages of the queue."""
    noted: list[Noted] = field(default_factory=list)
    ignores_pulls: int = 0
    """So many of the next pulls get no answer, ever."""
    gives_locks: bool = True
    answers_locks: bool = True
    committed: int = -1
    members: dict[int, str] | None = None
    """By id, the members of the broker that routes name; itself as the master unless a test names others."""
    suggests: int = 0
    """The id of the member that the next pull should go to."""
    refuses_pulls: int = 0
    """The code that pulls are refused with."""

    def __post_init__(self) -> None:
        self._members: list[str] = []
        self._more = asyncio.Event()
        handlers: dict[int, Handler] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.HEART_BEAT: self._beat,
            RequestCode.UNREGISTER_CLIENT: self._done,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._list,
            RequestCode.QUERY_CONSUMER_OFFSET: self._offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._done,
            **dict.fromkeys(_PULLS, self._pull),
        }
        router = Router()
        served = {code: handler for code, handler in handlers.items() if code not in self.lacks}
        router.serve(Family("all", 1000), served)
        self._server = Server(ServerSettings(bind_address="127.0.0.1", drain_s=0), router, gate=self)

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    def put(self, *bodies: bytes) -> None:
        """Messages arrive."""
        self.bodies += bodies
        self._more.set()
        self._more = asyncio.Event()

    def tell_all(self) -> None:
        """That the group has changed, as brokers do when somebody comes or goes."""
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group="G")
        command = Command(code=RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext_fields=fields.encode(header))
        for connection in self._server.connections:
            connection.send(oneway(command))

    def times(self, code: RequestCode) -> list[float]:
        """When it was asked for this, in seconds of the loop."""
        return [each.at_s for each in self.noted if each.code == code]

    # As the gate of its own port it sees every request.

    def check(self, _source: Origin, request: Command) -> None:
        self.noted.append(Noted(request.code, asyncio.get_running_loop().time()))

    def admits(self, _source: Origin, _topic: bytes, _right: Right) -> bool:
        return False

    # Requests.

    async def _done(self, _peer: Peer, request: Command) -> Command:
        return response_to(request, ResponseCode.SUCCESS)

    async def _route(self, _peer: Peer, request: Command) -> Command:
        if is_retry(request.fields["topic"]):
            return response_to(request, ResponseCode.TOPIC_NOT_EXIST, "no retries here")
        members = {0: self.address} if self.members is None else self.members
        route = TopicRouteData(
            queue_datas=(QueueData(broker_name=BROKER, read_queue_nums=1, write_queue_nums=1, perm=6),),
            broker_datas=(BrokerData(cluster="c", broker_name=BROKER, broker_addrs=dict(members)),),
        )
        return _with(request, route)

    async def _beat(self, _peer: Peer, request: Command) -> Command:
        client_id = beans.decode(HeartbeatData, request.body).client_id
        if client_id not in self._members:
            self._members.append(client_id)
        return response_to(request, ResponseCode.SUCCESS)

    async def _list(self, _peer: Peer, request: Command) -> Command:
        return _with(request, GetConsumerListByGroupResponseBody(consumer_id_list=tuple(self._members)))

    async def _offset(self, _peer: Peer, request: Command) -> Command:
        if self.committed < 0:
            return response_to(request, ResponseCode.QUERY_NOT_FOUND, "none yet")
        header = pulls.OffsetResponseHeader(offset=self.committed)
        return replace(response_to(request, ResponseCode.SUCCESS), ext_fields=fields.encode(header))

    async def _commit(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(pulls.UpdateConsumerOffsetRequestHeader, request.fields)
        self.committed = header.commit_offset
        return response_to(request, ResponseCode.SUCCESS)

    async def _lock(self, _peer: Peer, request: Command) -> Command | None:
        if not self.answers_locks:
            return None
        wanted = beans.decode(LockBatchRequestBody, request.body).mq_set
        return _with(request, LockBatchResponseBody(lock_ok_mq_set=wanted if self.gives_locks else ()))

    async def _pull(self, _peer: Peer, request: Command) -> Command | None:
        header = fields.decode(pulls.PullMessageRequestHeader, request.fields)
        if self.ignores_pulls:
            self.ignores_pulls -= 1
            return None
        if self.refuses_pulls:
            return response_to(request, self.refuses_pulls, "refused")
        if header.queue_offset >= len(self.bodies):
            try:
                async with asyncio.timeout(header.suspend_timeout_millis / 1000):
                    await self._more.wait()
            except TimeoutError:
                return self._pulled(request, ResponseCode.PULL_NOT_FOUND, header.queue_offset)
        return self._pulled(request, ResponseCode.SUCCESS, len(self.bodies), header.queue_offset)

    def _pulled(
        self, request: Command, code: ResponseCode, next_offset: int, from_offset: int | None = None
    ) -> Command:
        header = pulls.PullMessageResponseHeader(
            suggest_which_broker_id=self.suggests,
            next_begin_offset=next_offset,
            min_offset=0,
            max_offset=len(self.bodies),
        )
        body = None if from_offset is None else self._records(from_offset)
        return replace(response_to(request, code), ext_fields=fields.encode(header), body=body)

    def _records(self, from_offset: int) -> bytes:
        """Of all messages from there: each record is as long as its size says."""
        data = bytes(records_of([a_message(body, topic=TOPIC.encode()) for body in self.bodies]))
        at = 0
        for _ in range(from_offset):
            at += int.from_bytes(data[at : at + 4], "big")
        return data[at:]


def _with(request: Command, bean: object) -> Command:
    return replace(response_to(request, ResponseCode.SUCCESS), body=beans.encode(bean))


@asynccontextmanager
async def consuming(
    broker: FakeBroker, handler: Callable[[ReceivedMessage], Any], **settings: Any
) -> AsyncIterator[PushConsumer]:
    """With RocketMQ's own times, unless a test says otherwise."""
    async with Client(broker.address, clock=LoopClock()) as client:
        wanted = ConsumerSettings(start_from=FIRST, **settings)
        consumer = PushConsumer("G", settings=wanted, client=client)
        consumer.subscribe(TOPIC, handler)
        async with consumer:
            yield consumer
