"""One pull request: from which client, of which queue and offset, and whether it may wait."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from flaremq.protocol import fields
from flaremq.protocol.bulk.columns import Frame, Pull
from flaremq.protocol.codes import SerializeType
from flaremq.protocol.command import Command
from flaremq.protocol.headers.pull import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND, PullMessageRequestHeader
from flaremq.remoting.turn import Batch, Source

_SERIALIZE_TYPES: Final = tuple(SerializeType)
_FRAME_WIDTH, _FRAME_CODE = Frame.WIDTH, Frame.CODE
assert Pull.WIDTH == 20  # `of_row` names every column, in order.


Wish: TypeAlias = tuple[str, str, int, int, str | None, str | None, int]


class RequestSource(Enum):
    """Where a pull comes from: a client, or a proxy on behalf of one."""

    SDK = -1
    PROXY_FOR_ORDER = 0
    PROXY_FOR_BROADCAST = 1
    PROXY_FOR_STREAM = 2


@dataclass(slots=True, eq=False)
class PullRequest:
    source: Source
    code: int
    opaque: int
    serialize: SerializeType
    group: str
    topic: str
    queue_id: int
    offset: int
    count_max: int
    sys_flag: int
    commit_offset: int
    suspend_ms: int
    subscription: str | None
    sub_version: int
    expression_type: str | None
    one_way: bool = False
    request_source: RequestSource = RequestSource.SDK
    client_id: str = ""
    """The client that a proxy pulls for."""
    topic_bytes: bytes = b""
    scan_from: int = 0
    """Messages before it were checked and do not match."""
    began_s: float = 0.0
    """When its last read began: the time that it was parked does not count as latency."""

    @classmethod
    def of_row(cls, row: array[int], batch: Batch) -> PullRequest:
        """Make one from a row of Pull, column by column."""
        data = batch.data
        # fmt: off
        (frame, chunk, serialize, opaque, group_at, group_size, topic_at, topic_size, queue_id, offset,
         count_max, sys_flag, commit_offset, suspend_ms, text_at, text_size, sub_version,
         type_at, type_size, _) = row
        # fmt: on
        topic = bytes(data[topic_at : topic_at + topic_size])
        return cls(
            batch.sources[chunk],
            batch.frames[frame * _FRAME_WIDTH + _FRAME_CODE],
            opaque,
            _SERIALIZE_TYPES[serialize],
            bytes(data[group_at : group_at + group_size]).decode(),
            topic.decode(),
            queue_id,
            offset,
            count_max,
            sys_flag,
            commit_offset,
            suspend_ms,
            bytes(data[text_at : text_at + text_size]).decode() if text_size else None,
            sub_version,
            bytes(data[type_at : type_at + type_size]).decode() if type_size else None,
            topic_bytes=topic,
            scan_from=offset,
        )

    @property
    def wish(self) -> Wish:
        """What pulls of one kind have in common: the key of a permit."""
        return (
            self.group, self.topic, self.code, self.sys_flag & SUBSCRIPTION,
            self.subscription, self.expression_type, self.sub_version,
        )  # fmt: skip

    @property
    def is_open(self) -> bool:
        return self.source.is_open

    @property
    def owner(self) -> Source:
        return self.source

    @property
    def has_subscription(self) -> bool:
        return bool(self.sys_flag & SUBSCRIPTION)

    @property
    def commits(self) -> bool:
        return bool(self.sys_flag & COMMIT_OFFSET)

    @property
    def may_wait(self) -> bool:
        return bool(self.sys_flag & SUSPEND)


def asked_of(request: Command, source: Source) -> PullRequest:
    """Make one from a Command: a pull that is not ordinary."""
    header = fields.decode(PullMessageRequestHeader, request.fields)
    known = {each.value for each in RequestSource}
    by = header.request_source
    return PullRequest(
        source,
        request.code,
        request.opaque,
        request.serialize_type,
        header.consumer_group,
        header.topic,
        header.queue_id,
        header.queue_offset,
        header.max_msg_nums,
        header.sys_flag,
        header.commit_offset,
        header.suspend_timeout_millis,
        header.subscription,
        header.sub_version,
        header.expression_type,
        one_way=request.is_oneway,
        request_source=RequestSource(by) if by in known else RequestSource.SDK,
        client_id=header.proxy_froward_client_id or "",
        topic_bytes=header.topic.encode("utf-8", "replace"),
        scan_from=header.queue_offset,
    )
