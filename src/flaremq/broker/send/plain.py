"""Sends that are not ordinary, one by one; also the readable reference for what every send does.

Batches, retries, messages without an id and topics that do not exist yet take this lane. For a send that
both lanes can serve, the fast lane produces the same bytes. Everything up to the append happens at once, so
messages of one connection are stored in the order in which they arrived, whichever lane they take.
"""

from __future__ import annotations

import ipaddress
import os
import random
import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.errors import (
    DispatchBehind,
    FileNotReady,
    FlareError,
    InvalidParameter,
    MessageIllegal,
    NoPermission,
    NotMaster,
    PageCacheBusy,
    TopicNotFound,
)
from flaremq.base.live import Derived, Live
from flaremq.broker.role import Role
from flaremq.broker.send.deduplication import Deduplication, FirstSend
from flaremq.broker.send.rewrites import Arrival, Rewrite
from flaremq.broker.send.windows import WAITING
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tables.tables import Tables
from flaremq.model import names, properties, sysflag
from flaremq.model.batch import check_stays, split_batch
from flaremq.model.msgid import UniqueIds
from flaremq.model.properties import decode_properties, encode_properties, find_property
from flaremq.model.timers import WHEEL_TOPIC, Handle
from flaremq.model.topic import PERM_WRITE, TopicConfig, TopicFilterType
from flaremq.protocol.codes import RequestCode, ResponseCode, SerializeType
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.fields import encode
from flaremq.protocol.headers.send import (
    REPEATED,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    decode_send,
)
from flaremq.store.api import PutResult
from flaremq.store.drafts import NewMessage
from flaremq.store.store import MessageStore

_BATCH_TOPIC_MAX: Final = 127
_LIGHT_OFFSETS: Final = properties.INNER_MULTI_QUEUE_OFFSET.encode()
_COMPARED: Final = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2})


# Java's orders: that of its hash map for JSON, that of its class for the compact form.
_JSON_ORDER: Final = ("queueId", "transactionId", "msgId", "TRACE_ON", "MSG_REGION", "queueOffset")
_COMPACT_ORDER: Final = ("msgId", "queueId", "queueOffset", "transactionId", "TRACE_ON", "MSG_REGION")


@dataclass(slots=True, frozen=True)
class StoredSend:
    """A stored send: its answer, and up to where the log must be safe before the answer is sent."""

    answer: Command
    topic: str
    count: int
    size: int
    wait_for: int
    """0: the answer may be sent at once."""
    is_first: bool = False
    """Whether it created its topic."""
    is_repeated: bool = False
    """Whether it was stored already, by an earlier send."""


class PlainSends:
    def __init__(
        self,
        settings: Live[BrokerSettings],
        store: MessageStore,
        store_host: bytes,
        tables: Tables,
        clock: Clock,
        *,
        rewrites: Sequence[Rewrite],
        once: Deduplication,
        role: Role,
        rng: random.Random | None = None,
        pid: int | None = None,
    ) -> None:
        """`rewrites` are applied in order; the first that raises keeps the message out of the log."""
        self._store = store
        self._tables = tables
        self._clock = clock
        self._rewrites = tuple(rewrites)
        self._once = once
        self._role = role
        self._rng = rng or random.Random()
        address = str(ipaddress.ip_address(store_host[:-4]))
        self._ids = UniqueIds(
            clock, ip=address, pid=os.getpid() if pid is None else pid, salt=self._rng.getrandbits(32)
        )
        self._host = store_host.hex().upper()
        self._live = settings
        self._tail = Derived(settings, _tail)
        self._fields = Derived(settings, _fields)

    @property
    def settings(self) -> BrokerSettings:
        return self._live.now

    @property
    def tail(self) -> bytes:
        """The properties that the broker adds to every single message."""
        return self._tail.now

    @property
    def fields(self) -> Mapping[str, str]:
        """The fields of every answer to a send, refusals included."""
        return self._fields.now

    @property
    def host(self) -> str:
        """The beginning of every message id."""
        return self._host

    @property
    def is_open(self) -> bool:
        """Whether sends are accepted now at all: by a master that is writable, and not before its time."""
        settings = self._live.now
        if self._role.is_slave:
            return False
        return settings.permission & PERM_WRITE > 0 and self._clock.now_ms() >= settings.accept_sends_from_ms

    def take(self, host: bytes, request: Command) -> StoredSend:
        """Store the message or batch of a request. Raises, before any byte is written, if it is refused."""
        if self._role.is_slave:
            raise self._role.refusal("takes no messages", ResponseCode.SYSTEM_BUSY)
        header = decode_send(request.code, request.fields)
        if request.body is None:
            raise MessageIllegal("the message has no body: expected at least one byte")
        is_first = self._tables.topics.get(header.topic) is None
        config = self.checked(header)
        take = self._take_batch if header.batch else self._take_one
        taken = take(host, request, header, config)
        return replace(taken, is_first=True) if is_first else taken

    def refusal(self, request: Command, error: FlareError) -> Command:
        """The answer to a refused send; with the prefixes that tools look for if the broker is busy."""
        remark = str(error)
        if isinstance(error, PageCacheBusy):
            remark = f"[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while: {error}"
        elif isinstance(error, NotMaster):
            remark = f"[REJECTREQUEST]{error}"
        elif isinstance(error, FileNotReady | DispatchBehind):
            remark = f"[REJECTREQUEST]system busy, start flow control for a while: {error}"
        return response_to(request, error.response_code, remark, ext_fields=self.fields)

    # Checks, in RocketMQ's order.

    def checked(self, header: SendMessageRequestHeader) -> TopicConfig:
        """The topic of a send that may be stored, made on the way if that is allowed."""
        settings, topic = self._live.now, header.topic
        starts_ms = settings.accept_sends_from_ms
        if self._clock.now_ms() < starts_ms:
            raise FlareError(f"broker unable to service, until {starts_ms} (startAcceptSendRequestTimeStamp)")
        topics = self._tables.topics
        if not settings.permission & PERM_WRITE:
            known = topics.get(topic)
            if known is not None and known.order:
                raise NoPermission(f"the broker[{settings.ip1}] sending message is forbidden")
        names.check_topic(topic)
        if topic in names.NO_SEND_TOPICS:
            raise NoPermission(f"sending to topic[{topic}] is forbidden: it is the broker's own")
        config = topics.get(topic) or self._created(header)
        queues = max(config.write_queue_nums, config.read_queue_nums)
        if header.queue_id >= queues:
            raise InvalidParameter(
                f"request queueId[{header.queue_id}] is illegal: topic {topic} has {queues} queues, from 0 on"
            )
        return config

    def _created(self, header: SendMessageRequestHeader) -> TopicConfig:
        topics, topic, unit = self._tables.topics, header.topic, bool(header.unit_mode)
        if names.is_retry(topic):
            return topics.ensure(topic, 1, sys_flag=2 if unit else 0)
        config = topics.create_for_send(
            topic, header.default_topic, header.default_topic_queue_nums, unit=unit
        )
        if config is None:
            raise TopicNotFound(
                f"topic[{topic}] not exist, apply first please: create it, or set autoCreateTopicEnable=true"
            )
        return config

    # Storing.

    def _take_one(
        self, host: bytes, request: Command, header: SendMessageRequestHeader, config: TopicConfig
    ) -> StoredSend:
        known = decode_properties((header.properties or "").encode("utf-8", "replace"))
        message = self._message(host, request, header, config)
        # A reply is not compared: the client that asked has one request for each.
        numbered = self._once.asked(header, known) if request.code in _COMPARED else None
        if numbered is not None:
            first = self._once.first(numbered, header.topic, message.body, message.sys_flag)
            if first is not None:
                return self._take_again(request, header, known, [first])
        arrival = Arrival(header, request.version, config)
        key = known.get(properties.UNIQ_KEY)
        if key is None:
            key = known[properties.UNIQ_KEY] = self._ids.next()
        for rewrite in self._rewrites:
            message = rewrite(message, known, arrival)
        message = replace(message, properties=self._stored_properties(known))
        result = self._store.put(message, wait=False)
        if numbered is not None:
            self._once.note(numbered, result.physical_offset, message.queue_id, result.queue_offset)
        answer = self._answer(request, SendMessageResponseHeader(
            msg_id=self._offset_id(result), queue_id=_asked_queue(message.topic, message.queue_id, known),
            queue_offset=result.queue_offset, transaction_id=key,
            recall_handle=self._recall_handle(message.topic, known, key),
        ))  # fmt: skip
        wait_for = result.end if known.get(properties.WAIT, "true") == "true" else 0
        return StoredSend(answer, message.topic.decode(), 1, result.size, wait_for)

    def _message(
        self, host: bytes, request: Command, header: SendMessageRequestHeader, config: TopicConfig
    ) -> NewMessage:
        """The message of a request, without its properties."""
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._rng.randrange(max(1, config.write_queue_nums))
        return NewMessage(
            topic=header.topic.encode(),
            body=bytes(request.body or b""),
            queue_id=queue_id,
            flag=header.flag,
            sys_flag=_sys_flag(header, config),
            born_timestamp_ms=header.born_timestamp,
            born_host=host,
            reconsume_times=header.reconsume_times or 0,
        )

    def _take_batch(
        self, host: bytes, request: Command, header: SendMessageRequestHeader, config: TopicConfig
    ) -> StoredSend:
        topic = header.topic
        if len(topic) > _BATCH_TOPIC_MAX:
            raise MessageIllegal(f"message topic length too long {len(topic)}, limit is {_BATCH_TOPIC_MAX}")
        if names.is_retry(topic):
            raise MessageIllegal(f"batch request does not support retry group {topic}")
        outer = decode_properties((header.properties or "").encode("utf-8", "replace"))
        for name in properties.MARKS & outer.keys():
            del outer[name]
        check_stays(encode_properties(outer))
        batch = self._message(host, request, header, config)
        _check_unmarked(batch.body)
        is_inner = config.is_batch_queue and properties.UNIQ_KEY in outer
        numbered = self._once.asked_of_batch(header, outer, batch.body, whole=is_inner)
        firsts = [self._once.first(each, topic, body, batch.sys_flag) for each, body in numbered]
        found = [first for first in firsts if first is not None]
        if found and len(found) == len(firsts):
            return self._take_again(request, header, outer, found)
        if found:
            raise MessageIllegal(
                f"{len(found)} of the {len(firsts)} messages of a batch are stored already: send the others "
                "without them, because a batch is stored as a whole or not at all"
            )
        if is_inner:
            if numbered:
                outer[properties.PRODUCER_SEQ] = numbered[0][0].text
            taken, stored = self._take_inner_batch(request, batch, outer)
            if numbered:
                self._once.note(numbered[0][0], stored.physical_offset, batch.queue_id, stored.queue_offset)
            return taken
        result = self._store.put_batch(batch, wait=False)
        for row, (each, _) in enumerate(numbered):
            self._once.note(each, result.physical_offsets[row], batch.queue_id, result.queue_offset + row)
        header_out = SendMessageResponseHeader(
            msg_id=self._offset_ids(result.physical_offsets),
            queue_id=batch.queue_id,
            queue_offset=result.queue_offset,
            transaction_id=outer.get(properties.UNIQ_KEY),
        )
        wait_for = result.end if outer.get(properties.WAIT, "true") == "true" else 0
        count = len(result.physical_offsets)
        return StoredSend(self._answer(request, header_out), topic, count, result.size, wait_for)

    def _take_again(
        self,
        request: Command,
        header: SendMessageRequestHeader,
        known: dict[str, str],
        firsts: Sequence[FirstSend],
    ) -> StoredSend:
        """Answer a repeated send as the first one was answered."""
        record = firsts[0].record
        stored = known if record is None else record.properties
        key, queue_id, handle = stored.get(properties.UNIQ_KEY), firsts[0].queue_id, None
        if record is not None and not header.batch:
            queue_id = _asked_queue(record.topic.encode(), record.queue_id, stored)
            handle = self._recall_handle(record.topic.encode(), stored, key or "")
        answer = self._answer(request, SendMessageResponseHeader(
            msg_id=self._offset_ids(array("q", [each.physical_offset for each in firsts])),
            queue_id=queue_id, queue_offset=firsts[0].queue_offset,
            transaction_id=known.get(properties.UNIQ_KEY) if header.batch else key,
            batch_uniq_id=key if stored.get(properties.INNER_NUM) else None,
            recall_handle=handle,
        ))  # fmt: skip
        answer = replace(answer, ext_fields={**answer.fields, REPEATED: "true"})
        wait_for = self._once.safe_end(firsts) if known.get(properties.WAIT, "true") == "true" else 0
        return StoredSend(answer, header.topic, len(firsts), 0, wait_for, is_repeated=True)

    def _take_inner_batch(
        self, request: Command, base: NewMessage, outer: dict[str, str]
    ) -> tuple[StoredSend, PutResult]:
        """A batch topic keeps many messages in one record, which consumers split."""
        parts = split_batch(base.body)
        if not parts:
            raise MessageIllegal("the batch is empty: expected at least one message")
        for part in parts:
            check_stays(part.raw_properties)
        outer[properties.INNER_NUM] = str(len(parts))
        message = replace(
            base,
            properties=self._stored_properties(outer),
            sys_flag=base.sys_flag | sysflag.INNER_BATCH | sysflag.NEED_UNWRAP,
        )
        result = self._store.put(message, wait=False)
        header = SendMessageResponseHeader(
            msg_id=self._offset_id(result),
            queue_id=base.queue_id,
            queue_offset=result.queue_offset,
            transaction_id=outer[properties.UNIQ_KEY],
            batch_uniq_id=outer[properties.UNIQ_KEY],
        )
        wait_for = result.end if outer.get(properties.WAIT, "true") == "true" else 0
        topic = base.topic.decode()
        return StoredSend(self._answer(request, header), topic, len(parts), result.size, wait_for), result

    # Parts of records and answers.

    def _stored_properties(self, known: dict[str, str]) -> bytes:
        """The properties that are stored, followed by those that the broker adds."""
        for name in (properties.POP_CK, properties.MSG_REGION, properties.TRACE_ON, properties.CLUSTER):
            known.pop(name, None)
        kept = {n: v for n, v in known.items() if not n.startswith(properties.TRANSIENT_PREFIX)}
        return encode_properties(kept) + self.tail

    def _recall_handle(self, stored_in: bytes, known: dict[str, str], key: str) -> str | None:
        """What cancels a timer message; its moment is inside its slot, not at the edge. None for others."""
        topic = known.get(properties.REAL_TOPIC, "")
        if stored_in != WHEEL_TOPIC or names.is_retry(topic):
            return None
        moment_ms = int(known[properties.TIMER_OUT_MS]) + 1
        return str(Handle(topic, self._live.now.broker_name, moment_ms, key))

    def _offset_id(self, result: PutResult) -> str:
        return f"{self._host}{result.physical_offset:016X}"

    def _offset_ids(self, offsets: array[int]) -> str:
        """Several ids, separated by commas."""
        digits = struct.pack(f">{len(offsets)}q", *offsets).hex(",", 8).upper()
        return self._host + digits.replace(",", f",{self._host}")

    def _answer(self, request: Command, header: SendMessageResponseHeader) -> Command:
        found = {**encode(header), **self.fields}
        order = _JSON_ORDER if request.serialize_type is SerializeType.JSON else _COMPACT_ORDER
        in_order = {name: found[name] for name in order if name in found}
        return response_to(request, ResponseCode.SUCCESS, ext_fields={**in_order, **found})


def _asked_queue(stored_in: bytes, queue_id: int, known: dict[str, str]) -> int:
    """The queue that the answer names: for a delayed message, the one to which it will be delivered."""
    waits = stored_in in WAITING
    return int(known[properties.REAL_QUEUE_ID]) if waits else queue_id


def _check_unmarked(batch: bytes) -> None:
    """Refuse a batch that says where in light queues its messages lie: queues built from that are wrong."""
    if _LIGHT_OFFSETS in batch and any(
        find_property(part.raw_properties, _LIGHT_OFFSETS) is not None for part in split_batch(batch)
    ):
        raise MessageIllegal(
            f"a message of a batch has the property {properties.INNER_MULTI_QUEUE_OFFSET}, which only "
            "brokers set: send it without"
        )


def _sys_flag(header: SendMessageRequestHeader, config: TopicConfig) -> int:
    """The bits that a client may set."""
    flag = header.sys_flag & (sysflag.COMPRESSED | sysflag.MULTI_TAGS | sysflag.COMPRESSION_MASK)
    return flag | sysflag.MULTI_TAGS if config.topic_filter_type is TopicFilterType.MULTI_TAG else flag


def _fields(settings: BrokerSettings) -> Mapping[str, str]:
    return {
        properties.MSG_REGION: settings.region,
        properties.TRACE_ON: "true" if settings.trace_on else "false",
    }


def _tail(settings: BrokerSettings) -> bytes:
    return encode_properties(
        {
            properties.MSG_REGION: settings.region,
            properties.TRACE_ON: "true" if settings.trace_on else "false",
            properties.CLUSTER: settings.cluster_name,
        }
    )
