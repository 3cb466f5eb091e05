"""Messages that a consumer could not process: sent to its retry topic or its dead-letter topic."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError, GroupNotFound, NoPermission, PropertiesTooLong
from flaremq.base.live import Live
from flaremq.base.logs import fields as logged
from flaremq.base.logs import logger
from flaremq.base.units import SECOND_MS
from flaremq.broker.send.acks import Acks
from flaremq.broker.send.rewrites import delayed
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.subscriptiongroups import SubscriptionGroups
from flaremq.broker.tables.topics import TopicConfigs
from flaremq.model import names, properties, timers
from flaremq.model.columns import Check
from flaremq.model.message import StoredMessage
from flaremq.model.properties import add_failure, encode_properties
from flaremq.model.record import decode
from flaremq.model.topic import PERM_WRITE, GroupConfig
from flaremq.protocol import fields
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    ConsumerSendMsgBackResponseHeader,
)
from flaremq.remoting.router import Handler, Peer
from flaremq.store.api import PutResult
from flaremq.store.drafts import NewMessage, copy_of
from flaremq.store.store import MessageStore

log = logger("broker.sendback")

_MAX_RECONSUME_FROM: Final = 121  # V3_4_9: clients from this version on send their maximum of retries.
_FIRST_LEVEL: Final = 3  # 10 s; each further retry waits a level longer.
_UNIT_SUB: Final = 0x2  # Bit of a topic's sys flag.


Later: TypeAlias = Callable[[NewMessage, dict[str, str]], NewMessage]
"""The message as it waits for the moment that its properties name. Raises if it cannot."""


class _Copy(NamedTuple):
    message: NewMessage
    known: dict[str, str]
    """Its properties."""
    is_dead: bool


class SendBackHandlers:
    def __init__(
        self,
        settings: Live[BrokerSettings],
        store: MessageStore,
        topics: TopicConfigs,
        subscriptions: SubscriptionGroups,
        stats: Stats,
        acks: Acks,
        *,
        later: Later,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._later = later
        self._clock = clock
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
        is_dead = header.delay_level < 0 or message.reconsume_times >= _times_max(request, header, group)
        stored, copy = self._put(self._copies(message, header, group, retry, is_dead=is_dead))
        self._count(header.group, copy, has_room=copy.is_dead == is_dead)
        # The consumer forgets the message once it has its answer, so the copy must be as safe as a send. A
        # copy that is late to be safe is stored all the same: an error would make the consumer store another.
        if await self._acks.safe(stored.end) == ResponseCode.SYSTEM_ERROR:
            raise FlareError("the message is stored, but it is not safe, and may be lost")
        if header.failure_reason is None:
            return response_to(request)
        said = ConsumerSendMsgBackResponseHeader(reason_stored=True)
        return response_to(request, ext_fields=fields.encode(said))

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

    # The copy.

    def _copies(
        self,
        message: StoredMessage,
        header: ConsumerSendMsgBackRequestHeader,
        group: GroupConfig,
        retry: str,
        *,
        is_dead: bool,
    ) -> Iterator[_Copy]:
        """What to store, the best first: the later ones are for a message whose properties leave no room.

        Such a message becomes a dead letter, as it could never be retried; a consumer that is refused would
        try to send it back forever.
        """
        known = dict(message.properties)
        known.setdefault(properties.RETRY_TOPIC, message.topic)
        known.setdefault(properties.ORIGIN_MESSAGE_ID, message.message_id)
        known[properties.WAIT] = "false"
        copy = replace(
            copy_of(message), reconsume_times=message.reconsume_times + 1, prepared_transaction_offset=0
        )
        if not is_dead:
            later = dict(known)
            queue_id = self._rng.randrange(group.retry_queue_nums)
            waiting = replace(copy, topic=retry.encode(), queue_id=queue_id)
            waiting = self._waiting(waiting, later, header.delay_level, group)
            yield self._with_reason(waiting, later, header, is_dead=False)
        topic = names.dlq_topic(header.group)
        self._topics.ensure(topic, 1)
        dead = replace(copy, topic=topic.encode(), queue_id=0)
        known[properties.DELAY] = "0"
        yield self._with_reason(dead, known, header, is_dead=True)
        yield _Copy(dead, known, True)  # With the very properties that the record has.

    def _with_reason(
        self,
        copy: NewMessage,
        known: dict[str, str],
        header: ConsumerSendMsgBackRequestHeader,
        *,
        is_dead: bool,
    ) -> _Copy:
        add_failure(known, header.failure_reason, self._clock.now_ms())
        return _Copy(replace(copy, properties=encode_properties(known)), known, is_dead)

    def _waiting(self, copy: NewMessage, known: dict[str, str], level: int, group: GroupConfig) -> NewMessage:
        """The copy as it waits: as the consumer says, or by the group's policy, or by the delay levels."""
        times, policy = copy.reconsume_times - 1, group.group_retry_policy.chosen
        if level or policy is None:
            known[properties.DELAY] = str(level or _FIRST_LEVEL + times)
            return self._by_level(copy, known)
        delay_ms = policy.delay_ms(times)
        for name in (*timers.ASKED, *timers.INTERNAL, properties.DELAY):
            known.pop(name, None)
        if delay_ms <= 0:
            return copy
        limit_ms = self._store.settings.timer_delay_max_s * SECOND_MS
        moment_ms = self._clock.now_ms() + (min(delay_ms, limit_ms) if limit_ms else delay_ms)
        known[properties.TIMER_DELIVER_MS] = str(moment_ms)
        try:
            return self._later(copy, known)
        except FlareError:  # Timers are switched off, or too many messages are due in the same second.
            known[properties.DELAY] = str(_level_for(delay_ms, self._store.settings.delay_levels_ms))
            return self._by_level(copy, known)

    def _by_level(self, copy: NewMessage, known: dict[str, str]) -> NewMessage:
        return delayed(copy, known, len(self._store.settings.delay_levels_ms))

    def _put(self, copies: Iterator[_Copy]) -> tuple[PutResult, _Copy]:
        for copy in copies:
            try:
                stored = self._store.put(copy.message, wait=False)
            except PropertiesTooLong as error:
                too_long = error
                continue
            self._store.show(wait=False)
            return stored, copy
        raise too_long

    def _count(self, group: str, copy: _Copy, *, has_room: bool) -> None:
        known = copy.known
        origin = known[properties.RETRY_TOPIC]
        self._stats.sent_back(group, origin)
        if copy.is_dead:
            self._stats.sent_to_dlq(group, origin)
            what = "has failed too often" if has_room else "has no room for the properties of a retry"
            log.warning(
                f"a message {what} and goes to the dead-letter topic",
                extra=logged(group=group, topic=origin, key=known.get(properties.UNIQ_KEY, ""),
                             times=copy.message.reconsume_times,
                             why=known.get(properties.FAILURE_REASON, "not known")),
            )  # fmt: skip


def _level_for(delay_ms: int, levels_ms: Sequence[int]) -> int:
    """The first delay level that is not shorter; the longest if all are."""
    found = (level for level, span_ms in enumerate(levels_ms, 1) if span_ms >= delay_ms)
    return next(found, len(levels_ms))


def _times_max(request: Command, header: ConsumerSendMsgBackRequestHeader, group: GroupConfig) -> int:
    if request.version >= _MAX_RECONSUME_FROM and header.max_reconsume_times is not None:
        return header.max_reconsume_times
    return group.retry_max_times
