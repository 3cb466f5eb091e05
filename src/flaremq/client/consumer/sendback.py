"""Sending back messages that could not be consumed: their broker redelivers them later.

There are two ways. A request that names the record (CONSUMER_SEND_MSG_BACK) keeps everything about a message,
such as when and where it was born, but only FlareMQ's brokers store the reason that it carries. A new message
to the group's retry topic carries the reason in its properties, to any broker. So a retry goes the first way;
a dead letter, whose reason people will look for, goes the second way unless its broker is known to store
reasons. If one way fails the other is tried: a message may then be stored twice, and is never lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from flaremq.base.errors import FlareError
from flaremq.client.consumer.member import GroupMember
from flaremq.client.consumer.outcome import DEAD, Verdict
from flaremq.client.message import InnerMessage, ReceivedMessage
from flaremq.client.producer.packing import Parcel
from flaremq.client.producer.producer import Producer
from flaremq.model import properties as names
from flaremq.model import timers
from flaremq.model.names import retry_topic
from flaremq.model.properties import add_failure
from flaremq.protocol.headers.send import ConsumerSendMsgBackRequestHeader

log = logging.getLogger(__name__)

INNER_GROUP: Final = "CLIENT_INNER_PRODUCER"
"""The producer group that consumers use to send; Java's name."""
_RETRIES: Final = 16
_FIRST_LEVEL: Final = 3  # 10 s.


class _Failed(NamedTuple):
    message: ReceivedMessage
    verdict: Verdict
    times: int
    """How many deliveries have failed, this one included."""
    is_dead: bool


class Returns:
    def __init__(self, member: GroupMember) -> None:
        self._member = member
        self._producer: Producer | None = None
        self._starting = asyncio.Lock()
        self._storing: set[str] = set()  # Addresses of brokers that store reasons.

    @property
    def retries_max(self) -> int:
        """How often a message is redelivered before it goes to the dead-letter queue."""
        attempts = self._member.settings.attempts_max
        return _RETRIES if attempts < 0 else attempts - 1

    async def give_back(self, message: ReceivedMessage, verdict: Verdict) -> bool:
        """Have it redelivered, or made a dead letter after the last attempt. Returns whether it is stored."""
        is_dead = verdict.level == DEAD or message.reconsume_times >= self.retries_max
        failed = _Failed(message, verdict, message.reconsume_times + 1, is_dead)
        if isinstance(message, InnerMessage):  # Its record holds others, which may be consumed.
            return await self._by(failed, (self._as_a_new_one,))
        if is_dead and self._address(message) not in self._storing:
            return await self._by(failed, (self._as_a_new_one, self._to_its_broker))
        return await self._by(failed, (self._to_its_broker, self._as_a_new_one))

    async def bury(self, message: ReceivedMessage, reason: str) -> bool:
        """Make a dead letter of a message that was retried here. Returns whether a broker has it.

        Its broker knows nothing of those attempts, so it is sent as a new message, which gives their number.
        """
        failed = _Failed(message, Verdict(DEAD, reason), message.reconsume_times, True)
        if isinstance(message, InnerMessage):
            return await self._by(failed, (self._as_a_new_one,))
        return await self._by(failed, (self._as_a_new_one, self._to_its_broker))

    async def _by(self, failed: _Failed, ways: tuple[_Way, ...]) -> bool:
        for way in ways:
            try:
                await way(failed)
                return True
            except FlareError as error:
                log.warning(
                    "group %s: message %s could not be sent back: %s",
                    self._member.group,
                    failed.message.message_id,
                    error,
                )
        return False

    def _address(self, message: ReceivedMessage) -> str:
        return self._member.client.routes.master(message.broker_name) or str(message.store_host)

    async def _to_its_broker(self, failed: _Failed) -> None:
        message, member = failed.message, self._member
        address = self._address(message)
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=member.group,
            delay_level=failed.verdict.level,
            origin_msg_id=message.offset_id,
            origin_topic=message.queue.topic,
            max_reconsume_times=self.retries_max,
            failure_reason=failed.verdict.reason or None,
            bname=message.broker_name,
        )
        if await member.client.api.send_back(address, header):
            self._storing.add(address)
        else:
            self._storing.discard(address)

    async def _as_a_new_one(self, failed: _Failed) -> None:
        message, times, most = failed.message, failed.times, self.retries_max
        properties = dict(message.properties)
        for name in (names.TRANSACTION_PREPARED, *timers.ASKED):
            properties.pop(name, None)
        properties.setdefault(names.ORIGIN_MESSAGE_ID, message.message_id)
        properties[names.RETRY_TOPIC] = message.topic
        properties[names.RECONSUME_TIME] = str(times)
        # Above the limit the broker puts it into the dead-letter queue.
        properties[names.MAX_RECONSUME_TIMES] = str(min(most, times - 1) if failed.is_dead else most)
        level = failed.verdict.level
        properties[names.DELAY] = str(level if level > 0 else _FIRST_LEVEL + times - 1)
        add_failure(properties, failed.verdict.reason, self._member.client.clock.now_ms())
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


_Way: TypeAlias = Callable[[_Failed], Awaitable[None]]
