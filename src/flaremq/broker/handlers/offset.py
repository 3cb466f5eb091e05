"""Requests of consumers about offsets and queue locks."""

from __future__ import annotations

from flaremq.base.errors import GroupNotFound, InvalidParameter, TopicNotFound
from flaremq.broker.tables.offsets import Offsets
from flaremq.broker.tables.queuelocks import QueueLocks
from flaremq.broker.tables.subscriptiongroups import SubscriptionGroups
from flaremq.broker.tables.topics import TopicConfigs
from flaremq.model.topic import check_group
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.group import LockBatchRequestBody, LockBatchResponseBody
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers import pull as headers
from flaremq.protocol.headers.broker import LOG_END
from flaremq.remoting.router import Handler, Peer
from flaremq.store.store import MessageStore


class OffsetHandlers:
    def __init__(
        self,
        topics: TopicConfigs,
        subscriptions: SubscriptionGroups,
        offsets: Offsets,
        locks: QueueLocks,
        store: MessageStore,
    ) -> None:
        self._topics = topics
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._locks = locks
        self._store = store

    def table(self) -> dict[int, Handler]:
        code = RequestCode
        return {
            code.QUERY_CONSUMER_OFFSET: self.query_offset,
            code.UPDATE_CONSUMER_OFFSET: self.update_offset,
            code.GET_ALL_CONSUMER_OFFSET: self.get_all_offsets,
            code.LOCK_BATCH_MQ: self.lock,
            code.UNLOCK_BATCH_MQ: self.unlock,
        }

    async def query_offset(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.QueryConsumerOffsetRequestHeader, request.fields)
        offset = self._offsets.get(header.consumer_group, header.topic, header.queue_id)
        if offset < 0 and header.set_zero_if_not_found is not False:
            offset = self._first_offset(header.topic, header.queue_id)
        if offset < 0:
            remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
            return response_to(request, ResponseCode.QUERY_NOT_FOUND, remark)
        return response_to(request, ext_fields=fields.encode(headers.OffsetResponseHeader(offset=offset)))

    def _first_offset(self, topic: str, queue_id: int) -> int:
        """Where a group without an offset starts, if the broker decides; else -1.

        A young queue is read from its first message, even by a group that consumes from the last offset. An
        empty queue is the youngest of all: on "not found", the client would ask for its end next, and a
        message stored between the two would never be delivered. RocketMQ 4.9 answers 0 here as well; 5.x
        has the gap.
        """
        name = topic.encode("utf-8", "replace")
        if self._store.min_offset(name, queue_id) > 0:
            return -1
        is_empty = self._store.max_offset(name, queue_id) == 0
        return 0 if is_empty or self._store.reader.is_near(name, queue_id, 0) else -1

    async def update_offset(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.UpdateConsumerOffsetRequestHeader, request.fields)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if not self._subscriptions.contains(group):
            raise GroupNotFound(f"Group {group} not exist!")
        config = self._topics.get(topic)
        if config is None:
            raise TopicNotFound(f"Topic {topic} not exist!")
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if not 0 <= queue_id < queues:
            raise InvalidParameter(f"queueId is {queue_id}, but topic {topic} has {queues} queues")
        if header.commit_offset < 0:
            raise InvalidParameter(f"commitOffset is {header.commit_offset}, expected 0 or more")
        if self._offsets.has_reset(group, topic, queue_id):
            return response_to(request, remark="Offset has been previously reset")
        self._offsets.commit(group, topic, queue_id, header.commit_offset)
        return response_to(request)

    async def get_all_offsets(self, _peer: Peer, request: Command) -> Command:
        """For slaves."""
        body = await self._offsets.body()
        return response_to(request, ext_fields={LOG_END: str(self._store.log.end)}, body=body)

    async def lock(self, _peer: Peer, request: Command) -> Command:
        said = beans.decode(LockBatchRequestBody, request.body)
        check_group(said.consumer_group)
        taken = self._locks.lock(said.consumer_group, said.client_id, said.mq_set)
        answer = LockBatchResponseBody(lock_ok_mq_set=tuple(sorted(taken)))
        return response_to(request, body=beans.encode(answer))

    async def unlock(self, _peer: Peer, request: Command) -> Command:
        said = beans.decode(LockBatchRequestBody, request.body)
        self._locks.unlock(said.consumer_group, said.client_id, said.mq_set)
        return response_to(request)
