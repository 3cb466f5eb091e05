"""Sending back messages that could not be consumed: their broker redelivers them later."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from flaremq.base.errors import FlareError
from flaremq.client.consumer.member import GroupMember
from flaremq.client.consumer.outcome import DEAD
from flaremq.client.message import InnerMessage, ReceivedMessage
from flaremq.client.producer.packing import Parcel
from flaremq.client.producer.producer import Producer
from flaremq.model import properties as names
from flaremq.model.names import retry_topic
from flaremq.protocol.headers.send import ConsumerSendMsgBackRequestHeader

log = logging.getLogger(__name__)

INNER_GROUP: Final = "CLIENT_INNER_PRODUCER"
"""The producer group that consumers use to send; Java's name."""
_RETRIES: Final = 16
_FIRST_LEVEL: Final = 3  # 10 s.


class Returns:
    def __init__(self, member: GroupMember) -> None:
        self._member = member
        self._producer: Producer | None = None
        self._starting = asyncio.Lock()

    @property
    def retries_max(self) -> int:
        """How often a message is redelivered before it goes to the dead-letter queue."""
        attempts = self._member.settings.attempts_max
        return _RETRIES if attempts < 0 else attempts - 1

    async def give_back(self, message: ReceivedMessage, level: int) -> bool:
        """Send it back to its broker, or to another one if that fails. Returns whether either accepted it."""
        for way in (self._to_its_broker, self._as_a_new_one):
            try:
                await way(message, level)
                return True
            except FlareError as error:
                log.warning(
                    "group %s: message %s could not be sent back: %s",
                    self._member.group,
                    message.message_id,
                    error,
                )
        return False

    async def _to_its_broker(self, message: ReceivedMessage, level: int) -> None:
        if isinstance(message, InnerMessage):
            await self._as_a_new_one(message, level)  # Its record holds others, which may be consumed.
            return
        member, client = self._member, self._member.client
        address = client.routes.master(message.broker_name) or str(message.store_host)
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=member.group,
            delay_level=level,
            origin_msg_id=message.offset_id,
            origin_topic=message.queue.topic,
            max_reconsume_times=self.retries_max,
            bname=message.broker_name,
        )
        await client.api.send_back(address, header)

    async def _as_a_new_one(self, message: ReceivedMessage, level: int) -> None:
        times = message.reconsume_times
        properties = dict(message.properties)
        properties.pop(names.TRANSACTION_PREPARED, None)
        properties.setdefault(names.ORIGIN_MESSAGE_ID, message.message_id)
        properties[names.RETRY_TOPIC] = message.topic
        # Above the limit the broker puts it into the dead-letter queue.
        times = max(times, self.retries_max) if level == DEAD else times
        properties[names.RECONSUME_TIME] = str(times + 1)
        properties[names.MAX_RECONSUME_TIMES] = str(self.retries_max)
        properties[names.DELAY] = str(level if level > 0 else _FIRST_LEVEL + times)
        producer = await self._started()
        await producer.send_parcel(
            Parcel(retry_topic(self._member.group), message.body, properties, message.flag)
        )

    async def _started(self) -> Producer:
        async with self._starting:
            if self._producer is None:
                producer = Producer(INNER_GROUP, client=self._member.client)
                await producer.start()
                self._producer = producer
            return self._producer

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.stop()
