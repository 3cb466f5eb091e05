"""What an acting master delivers: sent to other brokers, because its own log belongs to the master.

    a message that is due > [escape] > the route of its topic > a writable queue of another broker, in turn

A message counts as delivered when another broker has answered that it is stored, and not before: one that
nobody takes is tried again, with growing pauses, for as long as this broker acts. Messages behind it wait, as
their progress is a single number, and whoever delivers next begins there. When the master is back, what it
finds delivered it does not deliver again; what was under way just then may come twice.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError, NoNameServer, TopicNotFound
from flaremq.base.lifecycle import Sleep
from flaremq.base.live import Live
from flaremq.base.logs import Seldom, fields, logger
from flaremq.broker.namesrvs import NameServers
from flaremq.broker.replicas.members import OneWayCalls
from flaremq.broker.settings import BrokerSettings
from flaremq.model import names, properties, sysflag
from flaremq.model.properties import decode_properties, decode_text, encode_properties
from flaremq.model.topic import PERM_WRITE
from flaremq.protocol import beans
from flaremq.protocol import fields as wire
from flaremq.protocol.bodies.route import MASTER_ID, TopicRouteData
from flaremq.protocol.codes import RequestCode, ResponseCode, response_name
from flaremq.protocol.command import Command
from flaremq.protocol.headers.namesrv import GetRouteInfoRequestHeader
from flaremq.protocol.headers.send import SendMessageRequestHeader, encode_send
from flaremq.store.drafts import NewMessage

log = logger("broker.escape")

_SEND_S: Final = 3.0
_ROUTE_S: Final = 3.0
_ROUTE_AGE_S: Final = 30.0
_MISSING_AGE_S: Final = 1.0
_PAUSES_S: Final = (0.1, 5.0)
"""The first and the longest pause before a message is tried again: each is twice the one before."""
_TOLD_EVERY_S: Final = 60.0
_STORED: Final = frozenset(
    {
        *(ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT),
        *(ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE),
    }
)
_HOSTS: Final = sysflag.BORN_HOST_V6 | sysflag.STORE_HOST_V6
_OWN: Final = (properties.CRC32, properties.PRODUCER_SEQ, properties.INNER_MULTI_QUEUE_OFFSET)
"""Properties that say something of the log of one broker, or of the numbers that a producer gave there."""


class Outlet(NamedTuple):
    """A queue of another broker."""

    address: str
    queue_id: int


class Escape:
    def __init__(
        self,
        settings: Live[BrokerSettings],
        namesrvs: NameServers,
        caller: OneWayCalls,
        *,
        acts: Callable[[], bool],
        clock: Clock,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`acts` tells whether this broker still delivers in the place of its master."""
        self._live = settings
        self._namesrvs = namesrvs
        self._caller = caller
        self._acts = acts
        self._clock = clock
        self._sleep = sleep
        self._outlets: dict[str, tuple[float, Sequence[Outlet]]] = {}
        """By topic, with the time when they were found."""
        self._missing: dict[str, tuple[float, FlareError]] = {}
        """Topics for which there were none, why, and when that was."""
        self._looking = asyncio.Lock()
        self._turns = itertools.count()
        self._trouble = Seldom(_TOLD_EVERY_S)

    async def deliver(self, messages: Sequence[NewMessage]) -> int:
        """How many of the first are stored elsewhere: all of them, unless this broker stops to act."""
        stored = await asyncio.gather(*(self._deliver(message) for message in messages))
        return sum(itertools.takewhile(bool, stored))

    async def _deliver(self, message: NewMessage) -> bool:
        pause_s, longest_s = _PAUSES_S
        while self._acts():
            try:
                await self._send(message)
            except FlareError as error:
                self._failed(message, error)
            else:
                return True
            await self._sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)
        return False

    def _failed(self, message: NewMessage, error: FlareError) -> None:
        if self._trouble.due() is not None:
            log.warning(
                "a message could not be sent to another broker, trying again; those behind it wait",
                extra=fields(topic=decode_text(message.topic), why=error),
            )

    # Sending.

    async def _send(self, message: NewMessage) -> None:
        topic = decode_text(message.topic)
        outlets = await self._found(topic)
        outlet = outlets[next(self._turns) % len(outlets)]
        request = self._request(message, topic, outlet.queue_id)
        try:
            answer = await self._caller.call(outlet.address, request, _SEND_S)
        except FlareError:
            self._outlets.pop(topic, None)
            raise
        if answer.code not in _STORED:
            self._outlets.pop(topic, None)
            raise FlareError(f"{outlet.address} refused it: {response_name(answer.code)}, {answer.remark}")

    def _request(self, message: NewMessage, topic: str, queue_id: int) -> Command:
        known = decode_properties(message.properties)
        for name in _OWN:
            known.pop(name, None)
        known[properties.WAIT] = "false"
        settings = self._live.now
        own_group = f"InnerProducerGroup_{settings.broker_name}_{settings.broker_id}"
        header = SendMessageRequestHeader(
            producer_group=known.get(properties.PRODUCER_GROUP) or own_group,
            topic=topic,
            default_topic=names.AUTO_CREATE_TOPIC,
            default_topic_queue_nums=8,
            queue_id=queue_id,
            sys_flag=message.sys_flag & ~_HOSTS,
            born_timestamp=message.born_timestamp_ms,
            flag=message.flag,
            properties=decode_text(encode_properties(known)),
            reconsume_times=message.reconsume_times,
            # Whether a retry is the last one was decided when it was sent back.
            max_reconsume_times=message.reconsume_times + 1 if names.is_retry(topic) else None,
            batch=False,
        )
        code = RequestCode.SEND_MESSAGE_V2
        return Command(code=code, ext_fields=encode_send(code, header), body=message.body)

    # Routes.

    async def _found(self, topic: str) -> Sequence[Outlet]:
        """Where a topic can be sent to. Raises if there is no other broker that has it."""
        async with self._looking:
            known, now_s = self._outlets.get(topic), self._clock.monotonic_s()
            if known is not None and now_s - known[0] < _ROUTE_AGE_S:
                return known[1]
            missing = self._missing.get(topic)
            if missing is not None and now_s - missing[0] < _MISSING_AGE_S:
                raise missing[1]
            try:
                outlets = await self._search(topic)
            except FlareError as error:  # Messages that wait for the same answer do not ask one by one.
                self._missing[topic] = self._clock.monotonic_s(), error
                raise
            self._outlets[topic] = now_s, outlets
            self._missing.pop(topic, None)
            return outlets

    async def _search(self, topic: str) -> Sequence[Outlet]:
        outlets = await self._look_up(topic)
        if not outlets and topic == names.UNDELIVERED_TOPIC:  # Each broker makes it when it is needed.
            outlets = await self._look_up(names.AUTO_CREATE_TOPIC)
        if not outlets:
            raise TopicNotFound(
                f"no other broker takes messages of topic {topic}: create it on one, or bring the master back"
            )
        return outlets

    async def _look_up(self, topic: str) -> list[Outlet]:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        request = Command(code=RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=wire.encode(header))
        error: FlareError = NoNameServer("there is no NameServer to ask for routes: set namesrvAddr")
        for namesrv in self._namesrvs.addresses:
            try:
                answer = await self._caller.call(namesrv, request, _ROUTE_S)
            except FlareError as failed:
                error = failed
                continue
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return []
            if answer.code == ResponseCode.SUCCESS:
                return self._outlets_of(beans.decode(TopicRouteData, answer.body))
            error = FlareError(
                f"{namesrv} did not tell the route: {response_name(answer.code)}, {answer.remark}"
            )
        raise error

    def _outlets_of(self, route: TopicRouteData) -> list[Outlet]:
        masters = {
            data.broker_name: data.broker_addrs[MASTER_ID]
            for data in route.broker_datas
            if MASTER_ID in data.broker_addrs and data.broker_name != self._live.now.broker_name
        }
        return [
            Outlet(masters[data.broker_name], queue_id)
            for data in route.queue_datas
            if data.perm & PERM_WRITE and data.broker_name in masters
            for queue_id in range(data.write_queue_nums)
        ]
