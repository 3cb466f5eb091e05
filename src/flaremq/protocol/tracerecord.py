"""Trace records: what happened to a message, as RocketMQ's clients write it to the trace topic.

    Pub ts region group topic id tags keys store_host body_size cost_ms type offset_id success
    SubBefore ts region group request_id id retry_times keys
    SubAfter request_id id cost_ms success keys code ts group
    EndTransaction ts region group topic id tags keys store_host type transaction_id state from_check
    Recall ts region group topic id success

Fields are UTF-8 text, separated by 0x01; a record ends with 0x02. A field that is missing is the text `null`
(TraceDataEncoder.java). Neither of the two bytes can be in a field, as neither can be in a property of a
message. Writing gives the bytes of RocketMQ 5.x; reading accepts those of all versions, and skips what it
cannot read, because a record that another client got wrong must not hide the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"
DEFAULT_REGION: Final = "DefaultRegion"
_NULL: Final = "null"
_TRUE: Final = "true"


class TracedType(IntEnum):
    """MessageType.java, by ordinal."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3
    ORDER = 4


class ReturnCode(IntEnum):
    """ConsumeReturnType.java, by ordinal: how a handler call ended."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4
    """The handler asked for another delivery."""


class PubRecord(NamedTuple):
    """A message was sent, or an attempt to send it failed."""

    timestamp_ms: int
    """When the attempt began."""
    region: str
    group: str
    topic: str
    message_id: str
    """For a batch, Java's clients write all ids, separated by commas."""
    tags: str | None
    keys: str | None
    """Separated by spaces."""
    store_host: str | None
    """Address of the broker."""
    body_size: int
    cost_ms: int
    type: int
    """A TracedType; a newer client may write a number that is none."""
    offset_id: str | None
    success: bool
    client_host: str | None = None
    """Written by some old clients only."""

    def text(self) -> str:
        t, r, g, topic, i, tags, keys, host, size, cost, kind, offset_id, success, client = self
        end = RECORD_END if client is None else f"\x01{client}\x02"
        return (
            f"Pub\x01{t}\x01{r}\x01{g}\x01{topic}\x01{i}\x01{tags or _NULL}\x01{keys or _NULL}"
            f"\x01{host or _NULL}\x01{size}\x01{cost}\x01{int(kind)}\x01{offset_id or _NULL}"
            f"\x01{_truth(success)}{end}"
        )


class SubBeforeRecord(NamedTuple):
    """A message was handed to a consumer."""

    timestamp_ms: int
    region: str
    group: str
    request_id: str
    """The same in the SubAfter of this delivery."""
    message_id: str
    retry_times: int
    keys: str | None

    def text(self) -> str:
        t, region, group, request_id, message_id, times, keys = self
        return (
            f"SubBefore\x01{t}\x01{region}\x01{group}\x01{request_id}\x01{message_id}\x01{times}"
            f"\x01{keys or _NULL}\x02"
        )


class SubAfterRecord(NamedTuple):
    """A consumer was done with a message, or failed."""

    request_id: str
    message_id: str
    cost_ms: int
    success: bool
    keys: str | None
    code: int = ReturnCode.SUCCESS
    """A ReturnCode; a newer client may write a number that is none."""
    timestamp_ms: int | None = None
    """Clients of the CLOUD access channel write neither this nor the group."""
    group: str | None = None

    def text(self) -> str:
        request_id, message_id, cost, success, keys, code, timestamp, group = self
        end = f"{timestamp}\x01{group}" if timestamp is not None else ""
        return (
            f"SubAfter\x01{request_id}\x01{message_id}\x01{cost}\x01{_truth(success)}"
            f"\x01{keys or _NULL}\x01{int(code)}\x01{end}\x02"
        )


class EndTransactionRecord(NamedTuple):
    """A producer said how a transaction ended, or that it does not know."""

    timestamp_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    type: int
    transaction_id: str | None
    state: str
    """COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""
    from_check: bool
    """The broker had asked."""

    def text(self) -> str:
        t, region, group, topic, i, tags, keys, host, kind, transaction_id, state, from_check = self
        return (
            f"EndTransaction\x01{t}\x01{region}\x01{group}\x01{topic}\x01{i}\x01{tags or _NULL}"
            f"\x01{keys or _NULL}\x01{host or _NULL}\x01{int(kind)}\x01{transaction_id or _NULL}\x01{state}"
            f"\x01{_truth(from_check)}\x02"
        )


class RecallRecord(NamedTuple):
    """A message that waited for its moment was cancelled, or could not be."""

    timestamp_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    success: bool

    @property
    def keys(self) -> str | None:
        """It has none; the others have."""
        return None

    def text(self) -> str:
        t, region, group, topic, message_id, success = self
        return f"Recall\x01{t}\x01{region}\x01{group}\x01{topic}\x01{message_id}\x01{_truth(success)}\x02"


TraceRecord: TypeAlias = PubRecord | SubBeforeRecord | SubAfterRecord | EndTransactionRecord | RecallRecord


def message_ids(record: TraceRecord) -> list[str]:
    """The ids that a record is about: several if Java sent a batch."""
    return record.message_id.split(",")


def read_records(body: bytes) -> list[TraceRecord]:
    """All records of a trace message that can be read."""
    found: list[TraceRecord] = []
    for line in body.decode("utf-8", "replace").split(RECORD_END):
        kind, *fields = line.split(FIELD_END)
        read = _READERS.get(kind)
        if read is None:
            continue
        try:
            found.append(read(fields))
        except (IndexError, ValueError):
            continue
    return found


def _read_pub(f: Sequence[str]) -> PubRecord:
    # With 12 fields there is no offset id, with 14 the client's host comes last.
    has_offset = len(f) > 12
    return PubRecord(
        int(f[0]),
        *(f[1], f[2], f[3], f[4]),
        *(_given(f[5]), _given(f[6]), _given(f[7])),
        *(int(f[8]), int(f[9]), int(f[10])),
        _given(f[11]) if has_offset else None,
        f[12 if has_offset else 11] == _TRUE,
        _given(f[13]) if len(f) > 13 else None,
    )


def _read_sub_before(f: Sequence[str]) -> SubBeforeRecord:
    return SubBeforeRecord(int(f[0]), f[1], f[2], f[3], f[4], int(f[5]), _given(f[6]) if len(f) > 6 else None)


def _read_sub_after(f: Sequence[str]) -> SubAfterRecord:
    has_time = len(f) > 7
    return SubAfterRecord(
        *(f[0], f[1], int(f[2]), f[3] == _TRUE, _given(f[4])),
        int(f[5]) if len(f) > 5 else ReturnCode.SUCCESS,
        int(f[6]) if has_time else None,
        f[7] if has_time else None,
    )


def _read_end(f: Sequence[str]) -> EndTransactionRecord:
    return EndTransactionRecord(
        int(f[0]),
        *(f[1], f[2], f[3], f[4]),
        *(_given(f[5]), _given(f[6]), _given(f[7])),
        int(f[8]),
        _given(f[9]),
        f[10],
        f[11] == _TRUE,
    )


def _read_recall(f: Sequence[str]) -> RecallRecord:
    return RecallRecord(int(f[0]), f[1], f[2], f[3], f[4], f[5] == _TRUE)


_READERS: Final[Mapping[str, Callable[[Sequence[str]], TraceRecord]]] = {
    "Pub": _read_pub,
    "SubBefore": _read_sub_before,
    "SubAfter": _read_sub_after,
    "EndTransaction": _read_end,
    "Recall": _read_recall,
}


def _given(text: str) -> str | None:
    return None if text in (_NULL, "") else text


def _truth(value: bool) -> str:
    return _TRUE if value else "false"
