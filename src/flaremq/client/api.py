"""One `async def` per request that clients make. An unsuccessful answer raises its error.

Nothing is chosen or retried here: the callers decide which server to ask, and how often.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from flaremq.base.errors import FlareError, NotServed, TopicNotFound
from flaremq.client.errors import error_for
from flaremq.client.message import Recall
from flaremq.client.namesrvs import NameServerPool
from flaremq.model.message import MessageQueue
from flaremq.model.properties import MSG_REGION
from flaremq.model.timers import Handle
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.cluster import ClusterInfo
from flaremq.protocol.bodies.group import (
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
)
from flaremq.protocol.bodies.route import TopicRouteData
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.protocol.headers import group as groups
from flaremq.protocol.headers import namesrv, send
from flaremq.protocol.headers import pull as pulls
from flaremq.protocol.headers.pop import RecallMessageRequestHeader
from flaremq.remoting.caller import Caller

H = TypeVar("H", bound=fields.Header)
B = TypeVar("B")

PULLED = frozenset(
    {
        *(ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND),
        *(ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED),
    }
)


@dataclass(frozen=True, slots=True)
class PullResult:
    """The result of a pull."""

    code: int
    """SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY or PULL_OFFSET_MOVED."""
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    body: bytes | memoryview
    """Records, back to back."""


_RECALLS: Final[Mapping[int, Recall]] = {
    ResponseCode.SUCCESS: Recall.CANCELLED,
    ResponseCode.ILLEGAL_OPERATION: Recall.TOO_LATE,
    ResponseCode.QUERY_NOT_FOUND: Recall.UNKNOWN,
}


class Api:
    """Calls to addresses; those of a NameServer go to the one in use."""

    def __init__(self, caller: Caller, namesrvs: NameServerPool, timeout_s: float) -> None:
        self.caller = caller
        self.namesrvs = namesrvs
        self.timeout_s = timeout_s

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: fields.Header | None = None,
        body: bytes | None = None,
        timeout_s: float | None = None,
    ) -> Command:
        """Ask a broker or a given NameServer. Returns its answer, or raises the error that it stands for."""
        request = _request(code, header, body)
        answer = await self.caller.call(address, request, self.timeout_s if timeout_s is None else timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(address, code, answer)
        return answer

    async def ask_namesrv(
        self, code: RequestCode, header: fields.Header | None = None, body: bytes | None = None
    ) -> Command:
        """The same for the NameServer in use, or for the next one if that fails."""
        address, answer = await self.namesrvs.call(_request(code, header, body), self.timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(address, code, answer)
        return answer

    async def tell(
        self, address: str, code: RequestCode, header: fields.Header | None, body: bytes | None = None
    ) -> None:
        """Send a one-way request: there is no answer."""
        await self.caller.send_oneway(address, _request(code, header, body), self.timeout_s)

    # Routes.

    async def route(self, topic: str) -> TopicRouteData | None:
        """The route of a topic; None if the NameServer does not know the topic."""
        header = namesrv.GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        try:
            answer = await self.ask_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        except TopicNotFound:
            return None
        return body_of(TopicRouteData, answer)

    async def cluster(self) -> ClusterInfo:
        return body_of(ClusterInfo, await self.ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO))

    # Heartbeats, members and locks.

    async def heartbeat(self, address: str, data: HeartbeatData) -> int:
        """Send a heartbeat. Returns the broker's version."""
        return (await self.ask(address, RequestCode.HEART_BEAT, None, beans.encode(data))).version

    async def unregister(self, address: str, header: groups.UnregisterClientRequestHeader) -> None:
        await self.ask(address, RequestCode.UNREGISTER_CLIENT, header)

    async def check_client(self, address: str, body: CheckClientRequestBody) -> None:
        """Have a broker check an expression. Raises InvalidExpression, or whatever else it refuses.

        Returns if the broker is too old for this request, or cannot be reached: the first pull will tell.
        """
        try:
            await self.ask(address, RequestCode.CHECK_CLIENT_CONFIG, None, beans.encode(body))
        except NotServed:
            pass
        except FlareError as error:
            if error.address is not None:
                raise

    async def members(self, address: str, group: str) -> tuple[str, ...]:
        """Client ids of a group's consumers, as this broker knows them."""
        header = groups.GetConsumerListByGroupRequestHeader(consumer_group=group)
        answer = await self.ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        return body_of(GetConsumerListByGroupResponseBody, answer).consumer_id_list

    async def lock(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> frozenset[MessageQueue]:
        """Lock these queues. Returns those that are locked by us now."""
        body = LockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=tuple(queues))
        answer = await self.ask(address, RequestCode.LOCK_BATCH_MQ, None, beans.encode(body))
        return frozenset(body_of(LockBatchResponseBody, answer).lock_ok_mq_set)

    async def unlock(self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        body = LockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=tuple(queues))
        await self.tell(address, RequestCode.UNLOCK_BATCH_MQ, None, beans.encode(body))

    # Messages.

    async def pull(
        self, address: str, code: RequestCode, header: pulls.PullMessageRequestHeader, timeout_s: float
    ) -> PullResult:
        """Pull messages. An answer without messages is a result too, not an error."""
        answer = await self.caller.call(address, _request(code, header, None), timeout_s)
        if answer.code not in PULLED:
            raise error_for(address, code, answer)
        found = fields.decode(pulls.PullMessageResponseHeader, answer.fields)
        return PullResult(
            answer.code,
            found.next_begin_offset,
            found.min_offset,
            found.max_offset,
            found.suggest_which_broker_id,
            b"" if answer.body is None else answer.body,
        )

    async def send_back(self, address: str, header: send.ConsumerSendMsgBackRequestHeader) -> bool:
        """Send a message back: to the retry topic of its group, or to its dead-letter queue.

        Returns whether the broker has stored the reason too. RocketMQ's brokers do not.
        """
        answer = await self.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, header)
        return fields.decode(send.ConsumerSendMsgBackResponseHeader, answer.fields).reason_stored

    # Offsets.

    async def recall(
        self, address: str, handle: str, group: str, timeout_s: float
    ) -> tuple[Recall, str | None]:
        """Cancel a message that waits for its moment. Returns the outcome, and the broker's region if it is
        told. Raises InvalidParameter for a handle that is none."""
        topic, code = Handle.parse(handle).topic, RequestCode.RECALL_MESSAGE
        header = RecallMessageRequestHeader(producer_group=group, topic=topic, recall_handle=handle)
        answer = await self.caller.call(address, _request(code, header, None), timeout_s)
        recall = _RECALLS.get(answer.code)
        if recall is None:
            raise error_for(address, code, answer)
        return recall, answer.fields.get(MSG_REGION)

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        header = pulls.GetMaxOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        return await self._offset(address, RequestCode.GET_MAX_OFFSET, header)

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        header = pulls.GetMinOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        return await self._offset(address, RequestCode.GET_MIN_OFFSET, header)

    async def offset_by_time(
        self,
        address: str,
        queue: MessageQueue,
        timestamp_ms: int,
        boundary: pulls.BoundaryType = pulls.BoundaryType.LOWER,
    ) -> int:
        """The offset of the first message stored at this time or later."""
        header = pulls.SearchOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            boundary_type=boundary,
            bname=queue.broker_name,
        )
        return await self._offset(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def committed(
        self, address: str, group: str, queue: MessageQueue, *, zero_if_missing: bool | None = None
    ) -> int | None:
        """The offset of a group; None if the broker has none.

        `zero_if_missing` False tells the broker not to send a new group to the beginning of a young queue.
        """
        header = pulls.QueryConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=zero_if_missing,
            bname=queue.broker_name,
        )
        code = RequestCode.QUERY_CONSUMER_OFFSET
        answer = await self.caller.call(address, _request(code, header, None), self.timeout_s)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(address, code, answer)
        return fields.decode(pulls.OffsetResponseHeader, answer.fields).offset

    async def commit(
        self, address: str, group: str, queue: MessageQueue, offset: int, *, oneway: bool = True
    ) -> None:
        header = pulls.UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            bname=queue.broker_name,
        )
        if oneway:
            await self.tell(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        else:
            await self.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def _offset(self, address: str, code: RequestCode, header: fields.Header) -> int:
        answer = await self.ask(address, code, header)
        return fields.decode(pulls.OffsetResponseHeader, answer.fields).offset


def body_of(cls: type[B], answer: Command) -> B:
    """The decoded body of an answer."""
    return beans.decode(cls, answer.body)


def header_of(cls: type[H], answer: Command) -> H:
    return fields.decode(cls, answer.fields)


def _request(code: RequestCode, header: fields.Header | None, body: bytes | None) -> Command:
    return Command(code=code, ext_fields=fields.encode(header) if header is not None else None, body=body)
