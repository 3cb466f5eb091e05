"""Messages that a consumer could not process: sent to its retry topic or its dead-letter topic."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from flaremq.base.errors import FlareError, GroupNotFound, NoPermission
from flaremq.base.live import Live
from flaremq.base.logs import fields as logged
from flaremq.base.logs import logger
from flaremq.broker.send.acks import Acks
from flaremq.broker.send.rewrites import delayed
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.subscriptiongroups import SubscriptionGroups
from flaremq.broker.tables.topics import TopicConfigs
from flaremq.model import names, properties
from flaremq.model.columns import Check
from flaremq.model.message import StoredMessage
from flaremq.model.properties import encode_properties
from flaremq.model.record import decode
from flaremq.model.topic import PERM_WRITE, GroupConfig
from flaremq.protocol import fields
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from flaremq.remoting.router import Handler, Peer
from flaremq.store.api import PutResult
from flaremq.store.drafts import copy_of
from flaremq.store.store import MessageStore

log = logger("broker.sendback")

_MAX_RECONSUME_FROM: Final = 121  # V3_4_9: clients from this version on send their maximum of retries.
_FIRST_LEVEL: Final = 3  # 10 s; each further retry waits a level longer.
_UNIT_SUB: Final = 0x2  # Bit of a topic's sys flag.


class SendBackHandlers:
    def __init__(
        self,
        settings: Live[BrokerSettings],
        store: MessageStore,
        topics: TopicConfigs,
        subscriptions: SubscriptionGroups,
        stats: Stats,
        acks: Acks,
        rng: random.Random,
    ) -> None:
        self._live = settings
        self._rng = rng
        self._store = store
        self._topics = topics
        self._subscriptions = subscriptions
        self._stats = stats
        self._acks = acks

    def table(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    async def send_back(self, peer: Peer, request: Command) -> Command:  # noqa: ARG002
        header = fields.decode(ConsumerSendMsgBackRequestHeader, request.fields)
        group = self._subscriptions.get(header.group)
        if group is None:
            raise GroupNotFound(f"subscription group not exist, {header.group}: create it first")
        if not self._live.now.permission & PERM_WRITE:
            raise NoPermission(f"the broker[{self._live.now.ip1}] sending message is forbidden")
        if group.retry_queue_nums <= 0:
            return response_to(request)  # Such a group wants no retries.
        retry = self._retry_topic(group, unit=header.unit_mode)
        message = self._found(header.offset)
        known = dict(message.properties)
        known.setdefault(properties.RETRY_TOPIC, message.topic)
        known[properties.WAIT] = "false"
        known.setdefault(properties.ORIGIN_MESSAGE_ID, message.message_id)
        is_dead = header.delay_level < 0 or message.reconsume_times >= _times_max(request, header, group)
        topic, queue_id = retry, self._rng.randrange(group.retry_queue_nums)
        known[properties.DELAY] = str(header.delay_level or _FIRST_LEVEL + message.reconsume_times)
        if is_dead:
            topic, queue_id = names.dlq_topic(header.group), 0
            self._topics.ensure(topic, 1)
            known[properties.DELAY] = "0"
        stored = self._put(message, topic, queue_id, known)
        self._count(header.group, known, message, is_dead)
        # The consumer forgets the message once it has its answer, so the copy must be as safe as a send. A
        # copy that is late to be safe is stored all the same: an error would make the consumer store another.
        if await self._acks.safe(stored.end) == ResponseCode.SYSTEM_ERROR:
            raise FlareError("the message is stored, but the disk failed: it may be lost")
        return response_to(request)

    def _retry_topic(self, group: GroupConfig, *, unit: bool) -> str:
        config = self._topics.ensure(
            names.retry_topic(group.group_name), group.retry_queue_nums, sys_flag=_UNIT_SUB if unit else 0
        )
        if not config.writable:
            raise NoPermission(f"the topic[{config.topic_name}] sending message is forbidden")
        return config.topic_name

    def _found(self, offset: int) -> StoredMessage:
        record = self._store.record(offset)
        if record is None:
            raise FlareError(f"look message by offset failed, {offset}: there is no record in the log there")
        return decode(record, check=Check.NOTHING)

    def _put(self, message: StoredMessage, topic: str, queue_id: int, known: dict[str, str]) -> PutResult:
        copy = replace(
            copy_of(message),
            topic=topic.encode(),
            queue_id=queue_id,
            reconsume_times=message.reconsume_times + 1,
            prepared_transaction_offset=0,
        )
        copy = delayed(copy, known, len(self._store.settings.delay_levels_ms))
        stored = self._store.put(replace(copy, properties=encode_properties(known)), wait=False)
        self._store.show(wait=False)
        return stored

    def _count(self, group: str, known: dict[str, str], message: StoredMessage, is_dead: bool) -> None:
        origin = known[properties.RETRY_TOPIC]
        self._stats.sent_back(group, origin)
        if is_dead:
            self._stats.sent_to_dlq(group, origin)
            log.warning(
                "a message has failed too often and goes to the dead-letter topic",
                extra=logged(group=group, topic=origin, key=known.get(properties.UNIQ_KEY, ""),
                             times=message.reconsume_times),
            )  # fmt: skip


def _times_max(request: Command, header: ConsumerSendMsgBackRequestHeader, group: GroupConfig) -> int:
    if request.version >= _MAX_RECONSUME_FROM and header.max_reconsume_times is not None:
        return header.max_reconsume_times
    return group.retry_max_times
