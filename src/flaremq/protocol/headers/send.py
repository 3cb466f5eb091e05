"""Headers of sending: a message, a reply, a message sent back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from flaremq.protocol.codes import RequestCode
from flaremq.protocol.fields import Codec, Header, Long, RpcHeader, TopicHeader, codec


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessageRequestHeader(TopicHeader):
    """SEND_MESSAGE; by letters also SEND_MESSAGE_V2, SEND_BATCH_MESSAGE and SEND_REPLY_MESSAGE_V2."""

    producer_group: str
    topic: str
    default_topic: str
    """The template for a topic that this send creates."""
    default_topic_queue_nums: int
    queue_id: int
    """Below 0: any."""
    sys_flag: int
    born_timestamp: Long
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    """Whether the body contains many messages. This decides, not the code."""
    max_reconsume_times: int | None = None
    """Counts for retry topics only."""


LETTERS: Final[Mapping[str, str]] = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
    "bname": "n",
}
"""Short names of the fields of a send: they save a third of a small frame."""

LETTERED: Final = frozenset(
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
)

_V1: Final = codec(SendMessageRequestHeader)
_V2: Final = Codec(SendMessageRequestHeader, LETTERS)


def decode_send(code: int, fields: Mapping[str, str]) -> SendMessageRequestHeader:
    """The header of a send, with long or short names depending on its code."""
    return (_V2 if code in LETTERED else _V1).decode(fields)


def encode_send(code: int, header: SendMessageRequestHeader) -> dict[str, str]:
    return (_V2 if code in LETTERED else _V1).encode(header)


REPEATED: Final = "repeated"
"""Ours: a field of the answer to a send that was stored before (PRODUCER_SEQ). Other clients ignore it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessageResponseHeader(Header):
    """Of every answer that says that the message is stored, even with a late flush or a missing slave."""

    msg_id: str
    """Where it is stored: 32 or 56 hex digits; for a batch several, separated by commas."""
    queue_id: int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyMessageRequestHeader(Header):
    """PUSH_REPLY_MESSAGE_TO_CLIENT: the broker passes a reply to the requesting client."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: Long
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool | None = None
    born_host: str
    store_host: str
    store_timestamp: Long


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSendMsgBackRequestHeader(RpcHeader):
    """CONSUMER_SEND_MSG_BACK: a message that could not be consumed, for a later retry."""

    offset: Long
    """Of its record in the commit log."""
    group: str
    delay_level: int
    """Below 0: to the dead-letter topic. 0: 3 + the number of tries so far."""
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: int | None = None
    failure_reason: str | None = None
    """Why it failed. RocketMQ's brokers ignore it, and do not say in their answer that they stored it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSendMsgBackResponseHeader(Header):
    """Only of answers to requests with a reason."""

    reason_stored: bool = False
