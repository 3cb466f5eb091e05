"""Requests about timer messages: cancelling one, and how far the wheel is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError, IllegalOperation, MessageNotFound, NoPermission, TopicNotFound
from flaremq.base.live import Live
from flaremq.base.units import SECOND_MS
from flaremq.broker.delay.copies import is_number
from flaremq.broker.delay.timerdoor import markers
from flaremq.broker.delay.timers import Timers
from flaremq.broker.features import Feature, Requests
from flaremq.broker.offload import Offload
from flaremq.broker.send.acks import Acks
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tables.topics import TopicConfigs
from flaremq.model import properties, timers
from flaremq.model.columns import Check
from flaremq.model.message import StoredMessage
from flaremq.model.record import decode
from flaremq.model.timers import WHEEL_TOPIC, Handle
from flaremq.model.topic import PERM_WRITE
from flaremq.protocol import beans, fields
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers.broker import LOG_END
from flaremq.protocol.headers.pop import RecallMessageRequestHeader, RecallMessageResponseHeader
from flaremq.remoting.router import Peer
from flaremq.store.store import MessageStore

_FOUND_MAX: Final = 1024
_NO_END_MS: Final = (1 << 63) - 1


class TimerRequests(Feature):
    def __init__(
        self,
        settings: Live[BrokerSettings],
        store: MessageStore,
        wheel: Timers,
        topics: TopicConfigs,
        acks: Acks,
        offload: Offload,
        clock: Clock,
        host: bytes,
    ) -> None:
        self._live = settings
        self._store = store
        self._wheel = wheel
        self._topics = topics
        self._acks = acks
        self._offload = offload
        self._clock = clock
        self._host = host

    def handlers(self) -> Iterable[Requests]:
        yield (
            "adminBroker",
            {
                RequestCode.RECALL_MESSAGE: self.recall,
                RequestCode.GET_TIMER_CHECK_POINT: self.get_progress,
                RequestCode.GET_TIMER_METRICS: self.get_counts,
            },
        )

    async def recall(self, _peer: Peer, request: Command) -> Command:
        """Cancel a message that waits. All answers name the region: without it, no client traces a recall."""
        region = {properties.MSG_REGION: self._live.now.region}
        try:
            message_id = await self._recalled(request)
        except FlareError as error:
            return response_to(request, error.response_code, str(error), ext_fields=region)
        answer = fields.encode(RecallMessageResponseHeader(msg_id=message_id))
        return response_to(request, ext_fields={**region, **answer})

    async def _recalled(self, request: Command) -> str:
        """Returns the id of a message that will not be delivered."""
        header = fields.decode(RecallMessageRequestHeader, request.fields)
        handle = self._checked(header)
        seen = await self._seen(handle)
        now_ms, precision_ms = self._clock.now_ms(), self._store.settings.timer_precision_ms
        if self._wheel.is_due(timers.slot_ms(handle.moment_ms, precision_ms)):
            raise IllegalOperation(
                f"message {handle.unique_key} was due {(now_ms - handle.moment_ms) / SECOND_MS:.1f} s ago "
                "and can no longer be cancelled"
            )
        there = {each.properties.get(properties.TIMER_DEL_UNIQKEY): each for each in seen}
        end = 0
        for marks, each in markers(handle, precision_ms, header.producer_group or "", now_ms, self._host):
            marker = there.get(marks)
            if marker is None:
                end = max(end, self._store.put(each, wait=False).end)
            else:  # Recalled before, and perhaps not safe yet.
                end = max(end, marker.physical_offset + marker.size)
        self._store.show(wait=False)
        if await self._acks.safe(end) == ResponseCode.SYSTEM_ERROR:
            raise FlareError("the disk failed: the message may be delivered or not")
        return handle.unique_key

    def _checked(self, header: RecallMessageRequestHeader) -> Handle:
        settings = self._live.now
        if not settings.recall_enabled:
            raise NoPermission("recall is switched off here: set recallMessageEnable=true")
        self._check_enabled()
        if not settings.permission & PERM_WRITE and not settings.recall_when_read_only:
            raise NoPermission(f"the broker[{settings.ip1}] does not take messages now")
        if self._topics.get(header.topic) is None:
            raise TopicNotFound(f"topic[{header.topic}] not exist: there is nothing to cancel")
        handle = Handle.parse(header.recall_handle)
        if handle.topic != header.topic or handle.broker_name != settings.broker_name:
            raise IllegalOperation(
                f"the recall handle is for topic {handle.topic} on broker {handle.broker_name}, "
                f"not for {header.topic} on {settings.broker_name}"
            )
        return handle

    async def _seen(self, handle: Handle) -> list[StoredMessage]:
        """What was stored for the moment of a handle under its key: the message, copies of it and markers
        that cancel it. Raises if the message is not among it. Nothing if there is no index to tell."""
        if self._store.index is None:
            return []
        seen = await self._offload.run(lambda: self._found(handle))
        waiting = [each for each in seen if properties.TIMER_DEL_UNIQKEY not in each.properties]
        if not waiting:
            raise MessageNotFound(
                f"no message {handle.unique_key} has waited here for topic {handle.topic}: "
                "expected a handle that a send to this broker returned"
            )
        precision_ms = self._store.settings.timer_precision_ms
        slot = (handle.moment_ms - 1) // precision_ms
        if all(_slot_ms(each) // precision_ms != slot for each in waiting):
            raise IllegalOperation(
                f"message {handle.unique_key} waits for another moment than the recall handle says: "
                "expected the handle that its send returned"
            )
        return [each for each in seen if _slot_ms(each) // precision_ms == slot]

    def _found(self, handle: Handle) -> list[StoredMessage]:
        """Everything under the key of a handle, for its topic. One may be stored later than now: the clock
        was set back. Other messages may name the key among theirs."""
        self._store.show()
        key = handle.unique_key.encode()
        records = self._store.finder.by_key(WHEEL_TOPIC, key, _FOUND_MAX, 0, _NO_END_MS)
        found = [decode(record, check=Check.NOTHING) for record in records]
        return [
            each
            for each in found
            if each.unique_key == handle.unique_key
            and each.properties.get(properties.REAL_TOPIC) == handle.topic
        ]

    async def get_progress(self, _peer: Peer, request: Command) -> Command:
        """For other members: how far the wheel is."""
        self._check_enabled()
        progress = await self._wheel.told_progress()
        end = {LOG_END: str(self._store.log.end)}
        return response_to(request, ext_fields=end, body=progress.packed())

    async def get_counts(self, _peer: Peer, request: Command) -> Command:
        self._check_enabled()
        return response_to(request, body=beans.encode(self._wheel.counts.wrapper()))

    def _check_enabled(self) -> None:
        if not self._store.settings.timer_enabled:
            raise FlareError("timer messages are switched off here: set timerWheelEnable=true")


def _slot_ms(stored: StoredMessage) -> int:
    """The slot that a message or marker names; -1 if it names none."""
    text = stored.properties.get(properties.TIMER_OUT_MS, "")
    return int(text) if is_number(text) else -1
