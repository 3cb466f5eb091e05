"""Bodies of pop and of assignment by the broker."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from flaremq.base.errors import Malformed
from flaremq.model.message import MessageQueue
from flaremq.protocol.bodies.group import MessageModel


class MessageRequestMode(Enum):
    PULL = "PULL"
    POP = "POP"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAssignmentRequestBody:
    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str | None = None
    message_model: MessageModel = MessageModel.CLUSTERING


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueueAssignment:
    message_queue: MessageQueue
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAssignmentResponseBody:
    message_queue_assignments: tuple[MessageQueueAssignment, ...] | None = None
    """None: keep the current ones. Empty: drop all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMessageRequestModeRequestBody:
    topic: str
    consumer_group: str
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRequestModeSerializeWrapper:
    message_request_mode_map: Mapping[str, Mapping[str, SetMessageRequestModeRequestBody]] = field(
        default_factory=dict
    )
    """By topic and group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAck:
    """Acknowledges many messages of one pop: those whose bit is set."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {
        "consumer_group": "c",
        "topic": "t",
        "retry": "r",
        "start_offset": "so",
        "queue_id": "q",
        "revive_queue_id": "rq",
        "pop_time": "pt",
        "invisible_time": "it",
        "bit_set": "b",
    }

    consumer_group: str
    topic: str
    retry: str = "0"
    start_offset: int = 0
    queue_id: int = 0
    revive_queue_id: int = 0
    pop_time: int = 0
    invisible_time: int = 0
    bit_set: str = ""
    """Bytes of a java.util.BitSet, in base64."""

    def offsets(self) -> tuple[int, ...]:
        """The acknowledged messages."""
        try:
            raw = base64.b64decode(self.bit_set, validate=True)
        except (binascii.Error, ValueError):
            raise Malformed(f"bits of a batch ack are {self.bit_set[:40]!r}, expected base64") from None
        return tuple(
            self.start_offset + 8 * place + bit
            for place, byte in enumerate(raw)
            if byte
            for bit in range(8)
            if byte >> bit & 1
        )


def bits_of(start_offset: int, offsets: Iterable[int]) -> str:
    """The bit set of a BatchAck."""
    bits = sum(1 << place for place in {offset - start_offset for offset in offsets})
    return base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAckMessageRequestBody:
    broker_name: str | None = None
    acks: tuple[BatchAck, ...] = ()
