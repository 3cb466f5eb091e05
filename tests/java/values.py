"""What goes to the Java store and what comes back, as plain values."""

import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, Self

Json = dict[str, Any]
BenchKind = Literal["append", "appendBatch", "dispatch", "recover"]
LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message to put. `properties` are the raw bytes of the property string; hosts are "ip:port"."""

    topic: str
    queue_id: int = 0
    body: bytes = b""
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: str = "127.0.0.1:5000"
    store_host: str = "127.0.0.1:10911"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    def to_json(self) -> Json:
        return {
            "topic": self.topic,
            "queueId": self.queue_id,
            "body": b64encode(self.body).decode(),
            "properties": b64encode(self.properties).decode(),
            "flag": self.flag,
            "sysFlag": self.sys_flag,
            "bornTimestamp": self.born_timestamp,
            "bornHost": self.born_host,
            "storeHost": self.store_host,
            "reconsumeTimes": self.reconsume_times,
            "preparedTransactionOffset": self.prepared_transaction_offset,
        }


@dataclass(frozen=True, slots=True)
class Element:
    """One message of a batch, as far as it differs from the others."""

    body: bytes
    properties: bytes = b""
    flag: int = 0


def batch_body(elements: list[Element]) -> bytes:
    """A batch as a producer sends it: size, magic 0, crc 0, flag, body, properties, for each element."""
    parts = []
    for element in elements:
        size = 22 + len(element.body) + len(element.properties)
        parts.append(struct.pack(">iiiii", size, 0, 0, element.flag, len(element.body)) + element.body)
        parts.append(struct.pack(">h", len(element.properties)) + element.properties)
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class PutResult:
    """How one put ended. All but the status is None if nothing was appended."""

    status: str
    physical_offset: int | None
    size: int | None
    queue_offset: int | None
    store_timestamp: int | None
    message_id: str | None
    count: int | None

    @classmethod
    def from_json(cls, json: Json) -> Self:
        return cls(
            json["status"],
            json.get("physicalOffset"),
            json.get("size"),
            json.get("queueOffset"),
            json.get("storeTimestamp"),
            json.get("messageId"),
            json.get("count"),
        )


@dataclass(frozen=True, slots=True)
class Opened:
    """What the store said of itself after load() and start(). The lowest offset of an empty log is -1."""

    last_exit_ok: bool
    min_physical_offset: int
    max_physical_offset: int
    load_ms: float


@dataclass(frozen=True, slots=True)
class GetResult:
    """The answer to a pull: records as they lie in the log."""

    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    records: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class KeyResult:
    """Records found by key, and how far the index had come."""

    records: tuple[bytes, ...]
    index_timestamp: int
    index_physical_offset: int

    @property
    def physical_offsets(self) -> list[int]:
        return [int.from_bytes(record[28:36], "big") for record in self.records]


@dataclass(frozen=True, slots=True)
class Scanned:
    """A message met while reading a queue from end to end.

    `position` is where in the queue it was found; the rest is what its record says. Of the body and its SHA-1
    the one that was asked for is there.
    """

    position: int
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp: int
    properties: bytes
    body: bytes | None
    sha1: str | None

    @classmethod
    def from_json(cls, json: Json) -> Self:
        body = json.get("body")
        return cls(
            json["position"],
            json["topic"],
            json["queueId"],
            json["queueOffset"],
            json["physicalOffset"],
            json["size"],
            json["storeTimestamp"],
            b64decode(json["properties"]),
            None if body is None else b64decode(body),
            json.get("sha1"),
        )


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets of a queue, `offset` up to `next_offset`, where a pull found nothing."""

    offset: int
    next_offset: int
    status: str


@dataclass(frozen=True, slots=True)
class ScannedQueue:
    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    messages: tuple[Scanned, ...]
    gaps: tuple[Gap, ...]

    @classmethod
    def from_json(cls, json: Json) -> Self:
        return cls(
            json["topic"],
            json["queueId"],
            json["minOffset"],
            json["maxOffset"],
            tuple(Scanned.from_json(message) for message in json["messages"]),
            tuple(Gap(gap["offset"], gap["nextOffset"], gap["status"]) for gap in json["gaps"]),
        )


@dataclass(frozen=True, slots=True)
class Decoded:
    """A message as RocketMQ's own decoder sees it."""

    topic: str
    queue_id: int
    size: int
    queue_offset: int
    physical_offset: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    message_id: str
    properties: Mapping[str, str]
    body: bytes

    @classmethod
    def from_json(cls, json: Json) -> Self:
        fields = {_snake(name): value for name, value in json.items()}
        fields["born_host"] = _plain_address(fields["born_host"])
        fields["store_host"] = _plain_address(fields["store_host"])
        fields["body"] = b64decode(fields["body"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class State:
    """The marks of an open store. 4.x keeps no confirm_offset outside of special modes and says -1."""

    min_physical_offset: int
    max_physical_offset: int
    flushed_to: int
    dispatched_to: int
    confirm_offset: int
    running_flags: int
    physic_timestamp: int
    logics_timestamp: int
    index_timestamp: int

    @classmethod
    def from_json(cls, json: Json) -> Self:
        return cls(**{_snake(name): value for name, value in json.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """What to measure. The folder must be empty or absent; what was built stays there for whoever asked."""

    what: BenchKind
    directory: Path
    messages: int
    body_size: int = 128
    batch: int = 64
    warmup: int | None = None
    """Messages of the discarded first run; as many as are measured if None, no such run if 0."""
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Figures of the timed run. `dispatched_s`, for appends, lasts until the last queue entry is written."""

    messages: int
    seconds: float
    rate: float
    bytes_written: int
    dispatched_s: float | None
    heap_used: int
    heap_max: int


def _snake(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)


def _plain_address(text: str) -> str:
    host, _, port = text.rpartition(":")
    address = ip_address(host)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
