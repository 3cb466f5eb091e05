"""Outgoing messages: checked, given an id, perhaps compressed, and made into requests.

A Parcel is made from a Message, or by parts of the client that set properties users may not set, for example
to send a message back for redelivery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from flaremq.base.errors import BodyTooLarge, MessageIllegal, PropertiesTooLong, UsageError
from flaremq.client.message import Receipt, SendStatus
from flaremq.client.settings import ProducerSettings
from flaremq.model import properties as names
from flaremq.model import sysflag
from flaremq.model.batch import FIXED_SIZE, join_batch
from flaremq.model.compression import compress
from flaremq.model.layout import PROPERTIES_SIZE_MAX
from flaremq.model.message import Message, MessageQueue
from flaremq.model.msgid import UniqueIds
from flaremq.model.names import AUTO_CREATE_TOPIC, check_topic, is_retry
from flaremq.model.properties import decode_properties, encode_properties
from flaremq.protocol import fields
from flaremq.protocol.bulk.frames import send_frame
from flaremq.protocol.codes import CURRENT_VERSION, ONE_WAY, LanguageCode, RequestCode
from flaremq.protocol.command import Command
from flaremq.protocol.fastjson import quote
from flaremq.protocol.headers.send import (
    REPEATED,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    encode_send,
)

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Parcel:
    """What one request carries."""

    topic: str
    body: bytes
    properties: dict[str, str]
    flag: int = 0
    sys_flag: int = 0
    is_batch: bool = False
    is_reply: bool = False
    message_id: str = ""
    """UNIQ_KEY; for a batch all of them, separated by commas."""
    made_of: tuple[Message | PackedMessage, ...] = field(default=(), compare=False, repr=False)
    """The messages as hooks see them."""
    number: str = ""
    """PRODUCER_SEQ, for a batch that of its first message. Empty: it is not numbered."""

    @property
    def code(self) -> RequestCode:
        if self.is_reply:
            return RequestCode.SEND_REPLY_MESSAGE_V2
        return RequestCode.SEND_BATCH_MESSAGE if self.is_batch else RequestCode.SEND_MESSAGE_V2

    def __str__(self) -> str:
        """For errors: the ids of a batch would be too long."""
        if not self.is_batch:
            return f"message {self.message_id} to {self.topic!r}"
        count = self.message_id.count(",") + 1
        return f"a batch of {count} message{'' if count == 1 else 's'} to {self.topic!r}"


class PackedMessage(NamedTuple):
    """A message with encoded properties, made and checked in bulk."""

    topic: str
    body: bytes
    text: str
    """All properties as they are written into the header, including the id."""
    message_id: str
    to: MessageQueue | None = None
    """The queue it must go to; None: queues take turns."""
    alone: bool = False
    """It must not be in a batch, for example because it is delayed."""

    @property
    def flag(self) -> int:
        return 0

    @property
    def batched_size(self) -> int:
        """Bytes that it takes in a batch."""
        text = self.text
        return FIXED_SIZE + len(self.body) + len(text if text.isascii() else text.encode())


def as_message(source: Message | PackedMessage) -> Message:
    """The message that a packed one was made from, for hooks."""
    if isinstance(source, Message):
        return source
    found = decode_properties(source.text.encode())
    keys = found.get(names.KEYS)
    return Message(
        source.topic,
        source.body,
        tags=found.get(names.TAGS),
        keys=keys.split(names.KEY_SEPARATOR) if keys else (),
        properties={
            name: found[name]
            for name in found.keys() - names.RESERVED - {names.SHARDING_KEY, names.PRODUCER_SEQ}
        },
        delay_level=int(found.get(names.DELAY, 0)),
        delay_s=int(found[names.TIMER_DELAY_MS]) / 1000 if names.TIMER_DELAY_MS in found else None,
        deliver_at=int(found[names.TIMER_DELIVER_MS]) / 1000 if names.TIMER_DELIVER_MS in found else None,
        wait_store=found.get(names.WAIT) != "false",
        sharding_key=found.get(names.SHARDING_KEY),
    )


def shown(parcel: Parcel) -> tuple[list[Message], list[str]]:
    """What hooks see of a parcel: its messages, and the id of each."""
    return [as_message(each) for each in parcel.made_of], parcel.message_id.split(",")


class Packer:
    """Makes parcels of messages for one producer."""

    def __init__(
        self,
        settings: ProducerSettings,
        ids: UniqueIds,
        number: Callable[[Message | PackedMessage | None], str] = lambda _message: "",
    ) -> None:
        """`number` returns PRODUCER_SEQ for a message, empty if it is not numbered."""
        self._settings = settings
        self._ids = ids
        self.number = number
        self._checked: set[str] = set()  # Topics whose names are valid.

    def pack(
        self, message: Message | PackedMessage, message_id: str | None = None, number: str | None = None
    ) -> Parcel:
        """Raises MessageIllegal or InvalidName. `number`: the one that it was sent with before."""
        self.check(message)
        number = self.number(message) if number is None else number
        if isinstance(message, PackedMessage):
            properties, message_id = decode_properties(message.text.encode()), message.message_id
        else:
            properties = message.property_map()
        message_id = properties[names.UNIQ_KEY] = message_id or self._ids.next()
        if number:
            properties[names.PRODUCER_SEQ] = number
        body, sys_flag = self.squeezed(message.body)
        return Parcel(
            message.topic,
            body,
            properties,
            message.flag,
            sys_flag,
            message_id=message_id,
            made_of=(message,),
            number=number,
        )

    def pack_half(self, message: Message, group: str, more: Mapping[str, str]) -> Parcel:
        """A message that is prepared by a transaction of this producer group."""
        packed = self.pack(message)
        known = {**packed.properties, **more, names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: group}
        return replace(packed, properties=known, sys_flag=packed.sys_flag | sysflag.TRANSACTION_PREPARED)

    def pack_parcel(self, parcel: Parcel) -> Parcel:
        """Give an id to a parcel that the client made itself, and compress it."""
        message_id = parcel.properties.get(names.UNIQ_KEY) or self._ids.next()
        body, sys_flag = (parcel.body, parcel.sys_flag) if parcel.sys_flag else self.squeezed(parcel.body)
        properties = {**parcel.properties, names.UNIQ_KEY: message_id}
        number = "" if parcel.is_reply or is_retry(parcel.topic) else self.number(None)
        if number:
            properties[names.PRODUCER_SEQ] = number
        return replace(
            parcel, body=body, sys_flag=sys_flag, properties=properties, message_id=message_id, number=number
        )

    def pack_batch(self, messages: Sequence[Message]) -> Parcel:
        """Many messages of one topic in one request; they are stored together or not at all."""
        _check_batch(messages)
        ids = self._ids.take(len(messages))
        for message in messages:
            self.check(message)
        numbers = [self.number(message) for message in messages]
        body = join_batch(
            [message.body for message in messages],
            list(map(message_text, messages, ids, numbers)),
            [message.flag for message in messages],
        )
        if len(body) > self._settings.message_size_max:
            raise MessageIllegal(
                f"a batch of {len(messages)} messages has {len(body)} bytes, the limit is "
                f"{self._settings.message_size_max}: use split_batches to make smaller ones"
            )
        wait = "true" if messages[0].wait_store else "false"
        return Parcel(
            messages[0].topic,
            body,
            {names.WAIT: wait},
            is_batch=True,
            message_id=",".join(ids),
            made_of=tuple(messages),
            number=numbers[0],
        )

    def pack_ready(self, messages: Sequence[PackedMessage]) -> Parcel:
        """The same for packed messages, which the caller has checked to fit in one batch."""
        if len(messages) == 1:
            return self.pack(messages[0])
        self.check(messages[0])
        body = join_batch([each.body for each in messages], [each.text for each in messages])
        ids = ",".join([each.message_id for each in messages])
        return Parcel(
            messages[0].topic,
            body,
            {names.WAIT: "true"},
            is_batch=True,
            message_id=ids,
            made_of=tuple(messages),
        )

    def check(self, message: Message | PackedMessage) -> None:
        if message.topic not in self._checked:
            check_topic(message.topic)
            self._checked.add(message.topic)
        size, limit = len(message.body), self._settings.message_size_max
        if not size:
            raise MessageIllegal(
                f"the body of a message to {message.topic!r} is empty: brokers reject empty messages"
            )
        if size > limit:
            raise BodyTooLarge(size, limit)

    def squeezed(self, body: bytes) -> tuple[bytes, int]:
        """The body as it is sent, and the sysFlag that says so."""
        settings = self._settings
        if len(body) < settings.compress_over:
            return body, 0
        kind = settings.compression_type
        return compress(body, kind, settings.compress_level), sysflag.COMPRESSED | kind


def split_batches(messages: Sequence[Message], size_max: int = 1024 * 1024) -> list[list[Message]]:
    """Split messages into batches of at most `size_max` bytes, in order, for `send_batch`.

    Raises MessageIllegal if a message is too large for any batch.
    """
    batches: list[list[Message]] = []
    room = 0
    for message in messages:
        size = batched_size(message)
        if size > size_max:
            raise MessageIllegal(
                f"a message of {size} bytes does not fit in a batch of {size_max}: send it alone"
            )
        if size > room:
            batches.append([])
            room = size_max
        batches[-1].append(message)
        room -= size
    return batches


def batched_size(message: Message) -> int:
    """Bytes that a message takes in a batch, including its id."""
    properties = encode_properties({**message.property_map(), names.UNIQ_KEY: "0" * 32})
    return FIXED_SIZE + len(message.body) + len(properties)


def _check_batch(messages: Sequence[Message]) -> None:
    if not messages:
        raise UsageError("an empty batch: expected at least 1 message")
    first = messages[0]
    if is_retry(first.topic):
        raise MessageIllegal(f"topic {first.topic!r} does not accept batches: send its messages one by one")
    for message in messages:
        if message.topic != first.topic:
            raise MessageIllegal(
                f"a batch for {first.topic!r} has a message for {message.topic!r}: expected one topic"
            )
        if message.wait_store != first.wait_store:
            raise MessageIllegal("only some messages of a batch have wait_store: expected all or none")
        if message.waits:
            raise MessageIllegal(
                "a message in a batch has delay_s, deliver_at or delay_level: send delayed messages alone"
            )


@dataclass(frozen=True, slots=True)
class Sender:
    """What all requests of one producer have in common."""

    group: str
    topic_queues: int

    def request(
        self, parcel: Parcel, queue: MessageQueue, born_ms: int, *, is_oneway: bool = False
    ) -> Command:
        properties = dict(parcel.properties)
        times = most = None
        if is_retry(parcel.topic):  # The broker takes these from the header.
            times = properties.pop(names.RECONSUME_TIME, None)
            most = properties.pop(names.MAX_RECONSUME_TIMES, None)
        header = SendMessageRequestHeader(
            producer_group=self.group,
            topic=parcel.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=self.topic_queues,
            queue_id=queue.queue_id,
            sys_flag=parcel.sys_flag,
            born_timestamp=born_ms,
            flag=parcel.flag,
            properties=property_text(properties),
            reconsume_times=int(times) if times else 0,
            unit_mode=False,
            max_reconsume_times=int(most) if most else None,
            batch=parcel.is_batch,
            bname=queue.broker_name,
        )
        code = parcel.code
        flag = ONE_WAY if is_oneway else 0
        return Command(code=code, flag=flag, ext_fields=encode_send(code, header), body=parcel.body)


def property_text(properties: dict[str, str]) -> str:
    """Properties as they are written into the header."""
    return _checked("".join([f"{name}\x01{value}\x02" for name, value in properties.items()]))


def message_text(message: Message, message_id: str, number: str = "") -> str:
    """The same for a message with this id and number, without making a dictionary."""
    text = f"WAIT\x01{'true' if message.wait_store else 'false'}\x02UNIQ_KEY\x01{message_id}\x02"
    if number:
        text = f"{text}PRODUCER_SEQ\x01{number}\x02"
    if message.tags:
        text = f"TAGS\x01{message.tags}\x02{text}"
    if message.keys:
        text = f"KEYS\x01{' '.join(message.keys)}\x02{text}"
    if message.properties:
        text = "".join([f"{name}\x01{value}\x02" for name, value in message.properties.items()]) + text
    if message.delay_level or message.delay_s is not None or message.deliver_at is not None:
        asked = message.waits
        assert asked is not None
        text = f"{asked[0]}\x01{asked[1]}\x02{text}"
    if message.sharding_key:
        text = f"__SHARDINGKEY\x01{message.sharding_key}\x02{text}"
    return _checked(text)


def _checked(text: str) -> str:
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # Lone surrogates cannot be encoded.
    if len(text) * 4 > PROPERTIES_SIZE_MAX and len(text.encode()) > PROPERTIES_SIZE_MAX:
        raise PropertiesTooLong(len(text.encode()), PROPERTIES_SIZE_MAX)
    return text


def receipt_of(answer: Command, queue: MessageQueue, message_id: str) -> Receipt:
    """The receipt in the answer to a successful send."""
    found = fields.decode(SendMessageResponseHeader, answer.fields)
    landed = queue if found.queue_id == queue.queue_id else replace(queue, queue_id=found.queue_id)
    is_repeated = REPEATED in answer.fields
    return Receipt(
        (found.transaction_id or message_id) if is_repeated else message_id,
        landed,
        found.queue_offset,
        found.msg_id,
        SendStatus(answer.code),
        found.recall_handle,
        is_repeated,
        traced_region(answer.fields),
    )


def traced_region(answered: Mapping[str, str]) -> str | None:
    """The region in an answer; None if messages are not to be traced."""
    return answered.get(names.MSG_REGION) or None if answered.get(names.TRACE_ON) != "false" else None


_BEHIND: Final = f',"serializeTypeCurrentRPC":"JSON","version":{int(CURRENT_VERSION)}}}'.encode()


class FrameMaker:
    """Makes the frames of one producer, with exactly the content of Sender.request."""

    def __init__(self, sender: Sender, packer: Packer) -> None:
        self._sender = sender
        self._packer = packer
        self._templates: dict[MessageQueue, tuple[bytes, bytes, bytes]] = {}
        self._of_batches: dict[MessageQueue, tuple[bytes, bytes, bytes]] = {}

    def frame(
        self,
        message: Message | PackedMessage,
        queue: MessageQueue,
        message_id: str,
        born_ms: int,
        opaque: int,
        number: str = "",
    ) -> bytes:
        """Raises MessageIllegal or InvalidName for a message that no broker would accept."""
        self._packer.check(message)
        template = self._templates.get(queue) or self._template(queue)
        body, sys_flag = self._packer.squeezed(message.body)
        if isinstance(message, PackedMessage):
            text = f"{message.text}PRODUCER_SEQ\x01{number}\x02" if number else message.text
        else:
            text = message_text(message, message_id, number)
        return send_frame(template, text, body, (sys_flag, born_ms, message.flag, opaque))

    def parcel_frame(self, parcel: Parcel, queue: MessageQueue, born_ms: int, opaque: int) -> bytes:
        """The same for a parcel, except a retry, whose header has more fields."""
        if parcel.is_batch:
            template = self._of_batches.get(queue) or self._template(queue, is_batch=True)
        else:
            template = self._templates.get(queue) or self._template(queue)
        numbers = (parcel.sys_flag, born_ms, parcel.flag, opaque)
        return send_frame(template, property_text(parcel.properties), parcel.body, numbers)

    def _template(self, queue: MessageQueue, *, is_batch: bool = False) -> tuple[bytes, bytes, bytes]:
        sender = self._sender
        code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
        batch = "true" if is_batch else "false"
        before = (
            f'{{"code":{int(code)},"extFields":{{"a":{quote(sender.group)},'
            f'"b":{quote(queue.topic)},"c":"{AUTO_CREATE_TOPIC}","d":"{sender.topic_queues}",'
            f'"e":"{queue.queue_id}","f":"'
        )
        between = (
            f',"j":"0","k":"false","m":"{batch}","n":{quote(queue.broker_name)}}},"flag":0,'
            f'"language":"{LanguageCode.PYTHON.name}","opaque":'
        )
        made = before.encode(), between.encode(), _BEHIND
        (self._of_batches if is_batch else self._templates)[queue] = made
        return made
