"""A minimal client of the wire protocol: one call for each request that tests need, answers as values."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from flaremq.base.errors import FlareError
from flaremq.model.message import MessageQueue, StoredMessage
from flaremq.model.record import decode_many
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.group import (
    ConsumeFromWhere,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    SubscriptionData,
)
from flaremq.protocol.bodies.route import TopicRouteData
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.protocol.headers import group as groups
from flaremq.protocol.headers import namesrv, pull, send, topic
from flaremq.remoting.caller import Caller
from flaremq.remoting.router import Family, Handler, Router

DEFAULT_TOPIC: Final = "TBW102"
TIMEOUT_S: Final = 30.0
"""Long, because a busy machine is not a failure. Tests of speed pass their own limit."""

H = TypeVar("H", bound=fields.Header)


class RefusedByServer(FlareError):
    """The server refused; `code` says why."""

    def __init__(self, answer: Command) -> None:
        super().__init__(f"{answer.code}: {answer.remark}")
        self.code = answer.code


class EndsEarly(AssertionError):
    """A queue was read to an offset below its end: it was cut meanwhile, or cannot be read."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Where a message is stored, as the broker answered."""

    queue_id: int
    queue_offset: int
    message_id: str


@dataclass(frozen=True, slots=True)
class Pulled:
    code: int
    next_offset: int
    messages: Sequence[StoredMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """One pull."""

    topic: str
    queue_id: int
    offset: int
    group: str = "GID_wire"
    count_max: int = 32
    suspend_ms: int = 0
    """Above 0: how long the broker may hold it while there is nothing new."""


class WireClient:
    """One client. Requests from servers go to `handlers`, if given."""

    def __init__(self, client_id: str = "127.0.0.1@wire", handlers: dict[int, Handler] | None = None) -> None:
        self.client_id = client_id
        router = Router()
        if handlers:
            router.serve(Family("asked", 1000), handlers)
        self.caller = Caller(router=router if handlers else None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.caller.aclose()

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: fields.Header | None = None,
        body: bytes | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Command:
        """The answer of a successful request. Raises RefusedByServer otherwise."""
        given = fields.encode(header) if header is not None else None
        answer = await self.caller.call(address, Command(code=code, ext_fields=given, body=body), timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedByServer(answer)
        return answer

    async def _header(self, cls: type[H], address: str, code: RequestCode, header: fields.Header) -> H:
        return fields.decode(cls, (await self.ask(address, code, header)).fields)

    # Messages.

    async def send(
        self, address: str, to: str, queue_id: int, body: bytes, timeout_s: float = TIMEOUT_S
    ) -> Sent:
        answer = await self.caller.call(address, send_request(to, queue_id, body), timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedByServer(answer)
        found = fields.decode(send.SendMessageResponseHeader, answer.fields)
        return Sent(found.queue_id, found.queue_offset, found.msg_id)

    async def pull(self, address: str, want: Want, timeout_s: float = TIMEOUT_S) -> Pulled:
        """The result of a pull that has offsets. Raises RefusedByServer otherwise."""
        answer = await self.caller.call(address, pull_request(want), timeout_s)
        if "nextBeginOffset" not in answer.fields:
            raise RefusedByServer(answer)
        found = fields.decode(pull.PullMessageResponseHeader, answer.fields)
        messages = list(decode_many(answer.body)) if answer.body is not None else []
        return Pulled(answer.code, found.next_begin_offset, messages)

    async def read_all(self, address: str, of: str, queue_id: int) -> list[StoredMessage]:
        """All messages that a queue holds now, in order."""
        offset, end = await self.bounds(address, of, queue_id)
        found: list[StoredMessage] = []
        while offset < end:
            pulled = await self.pull(address, Want(topic=of, queue_id=queue_id, offset=offset))
            found += pulled.messages
            if pulled.next_offset <= offset:
                raise EndsEarly(f"{of}:{queue_id} at {offset} of {end}: {pulled}")
            offset = pulled.next_offset
        return found

    # Offsets.

    async def bounds(self, address: str, of: str, queue_id: int) -> tuple[int, int]:
        """The first offset of a queue, and the one that its next message will have."""
        least = pull.GetMinOffsetRequestHeader(topic=of, queue_id=queue_id)
        most = pull.GetMaxOffsetRequestHeader(topic=of, queue_id=queue_id)
        first = await self._header(pull.OffsetResponseHeader, address, RequestCode.GET_MIN_OFFSET, least)
        end = await self._header(pull.OffsetResponseHeader, address, RequestCode.GET_MAX_OFFSET, most)
        return first.offset, end.offset

    async def commit(self, address: str, group: str, of: str, queue_id: int, offset: int) -> None:
        header = pull.UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=of, queue_id=queue_id, commit_offset=offset
        )
        await self.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def committed(self, address: str, group: str, of: str, queue_id: int) -> int | None:
        header = pull.QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=of, queue_id=queue_id, set_zero_if_not_found=False
        )
        code = RequestCode.QUERY_CONSUMER_OFFSET
        try:
            return (await self._header(pull.OffsetResponseHeader, address, code, header)).offset
        except RefusedByServer as refused:
            if refused.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    # Groups.

    async def heartbeat(self, address: str, group: str, *topics: str) -> None:
        consumer = ConsumerData(
            group_name=group,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            subscription_data_set=tuple(SubscriptionData.of(each, sub_version=1) for each in topics),
        )
        body = beans.encode(HeartbeatData(client_id=self.client_id, consumer_data_set=(consumer,)))
        await self.ask(address, RequestCode.HEART_BEAT, None, body)

    async def unregister(self, address: str, group: str) -> None:
        header = groups.UnregisterClientRequestHeader(client_id=self.client_id, consumer_group=group)
        await self.ask(address, RequestCode.UNREGISTER_CLIENT, header)

    async def members(self, address: str, group: str) -> tuple[str, ...]:
        header = groups.GetConsumerListByGroupRequestHeader(consumer_group=group)
        answer = await self.ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        assert answer.body is not None
        return beans.decode(GetConsumerListByGroupResponseBody, answer.body).consumer_id_list

    async def lock(self, address: str, group: str, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock these queues. Returns those that this client has now."""
        answer = await self.ask(address, RequestCode.LOCK_BATCH_MQ, None, self._locks(group, queues))
        assert answer.body is not None
        return set(beans.decode(LockBatchResponseBody, answer.body).lock_ok_mq_set)

    async def unlock(self, address: str, group: str, queues: Iterable[MessageQueue]) -> None:
        await self.ask(address, RequestCode.UNLOCK_BATCH_MQ, None, self._locks(group, queues))

    def _locks(self, group: str, queues: Iterable[MessageQueue]) -> bytes:
        return beans.encode(
            LockBatchRequestBody(consumer_group=group, client_id=self.client_id, mq_set=tuple(queues))
        )

    # Topics and routes.

    async def create_topic(self, address: str, name: str, queues: int, perm: int = 6) -> None:
        header = topic.CreateTopicRequestHeader(
            topic=name,
            default_topic=DEFAULT_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
        )
        await self.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def route(self, address: str, name: str, timeout_s: float = TIMEOUT_S) -> TopicRouteData | None:
        header = namesrv.GetRouteInfoRequestHeader(topic=name)
        try:
            answer = await self.ask(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, None, timeout_s)
        except RefusedByServer as refused:
            if refused.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        assert answer.body is not None
        return beans.decode(TopicRouteData, answer.body)


def send_request(to: str, queue_id: int, body: bytes, *, opaque: int = 0, properties: str = "") -> Command:
    """A send as a Java client makes it."""
    header = send.SendMessageRequestHeader(
        producer_group="PID_wire",
        topic=to,
        default_topic=DEFAULT_TOPIC,
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties=properties or None,
        reconsume_times=0,
        unit_mode=False,
        batch=False,
    )
    code = RequestCode.SEND_MESSAGE_V2
    return Command(code=code, opaque=opaque, ext_fields=send.encode_send(code, header), body=body)


def pull_request(want: Want, *, opaque: int = 0) -> Command:
    header = pull.PullMessageRequestHeader(
        consumer_group=want.group,
        topic=want.topic,
        queue_id=want.queue_id,
        queue_offset=want.offset,
        max_msg_nums=want.count_max,
        sys_flag=pull.SUBSCRIPTION | (pull.SUSPEND if want.suspend_ms else 0),
        commit_offset=0,
        suspend_timeout_millis=want.suspend_ms,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    return Command(code=RequestCode.PULL_MESSAGE, opaque=opaque, ext_fields=fields.encode(header))
