"""Messages of a store folder, one after the other: by queue, or as they lie in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from flaremq.base.errors import Hint, InvalidParameter
from flaremq.model.columns import Fact
from flaremq.model.message import StoredMessage
from flaremq.model.record import decode, stored_message
from flaremq.store.offline.folder import OfflineStore

_FOREVER_MS = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFilter:
    """Which messages. All that is said must hold."""

    topic: str | None = None
    queue_id: int | None = None
    begin: int = 0
    """Queue offset of the first."""
    end: int | None = None
    """The first that is not wanted any more."""
    begin_ms: int = 0
    end_ms: int = _FOREVER_MS
    key: str | None = None

    def __post_init__(self) -> None:
        if self.topic is None and (self.queue_id is not None or self.begin or self.end is not None):
            raise InvalidParameter("a queue and its offsets belong to one topic").with_hint(Hint.NAME_TOPIC)
        if self.end is not None and self.end < self.begin:
            raise InvalidParameter(f"end offset {self.end} is less than the start offset {self.begin}")
        if self.end_ms < self.begin_ms:
            raise InvalidParameter("the end time is earlier than the start time")

    def has(self, message: StoredMessage) -> bool:
        return (
            (self.topic is None or message.topic == self.topic)
            and (self.queue_id is None or message.queue_id == self.queue_id)
            and message.queue_offset >= self.begin
            and (self.end is None or message.queue_offset < self.end)
            and self.begin_ms <= message.store_timestamp_ms <= self.end_ms
            and (self.key is None or self.key in (*message.keys, message.unique_key))
        )


def by_queue(
    folder: OfflineStore, wanted: ExportFilter, complain: Callable[[str], None]
) -> Iterator[StoredMessage]:
    """Messages of a topic, queue after queue, in the order in which a consumer would get them."""
    assert wanted.topic is not None
    numbers = [
        number
        for topic, number in folder.queues.names()
        if topic == wanted.topic and wanted.queue_id in (None, number)
    ]
    if not numbers:
        known = sorted({topic for topic, _ in folder.queues.names()})
        which = f"topic {wanted.topic!r}" + ("" if wanted.queue_id is None else f", queue {wanted.queue_id},")
        raise InvalidParameter(
            f"{which} has no queue in {folder.root}; topics with queues: {', '.join(known[:20]) or 'none'}"
        ).with_hint(Hint.READ_LOG)
    log_begin = next((file.offset for file in folder.scan.log_files()), 0)
    for number in numbers:
        queue = folder.queues.get(wanted.topic, number)
        if queue is None:
            continue
        begin = max(wanted.begin, queue.first_of(log_begin))
        end = queue.end if wanted.end is None else min(wanted.end, queue.end)
        last = begin - 1
        for record in folder.scan.queue_records(wanted.topic, number, begin):
            message = decode(record)
            if message.queue_offset >= end:
                last = end - 1
                break
            last = max(last, message.queue_offset)
            if wanted.has(message):
                yield message
        if last < end - 1:
            complain(f"queue {wanted.topic}-{number} could be read up to offset {last} only, not {end - 1}")


def by_log(folder: OfflineStore, wanted: ExportFilter, at: Callable[[int], None]) -> Iterator[StoredMessage]:
    """Messages in the order in which they came, whatever queues say; of a damaged file as far as it goes."""
    done = 0
    for file in folder.scan.log_files():
        for walked in folder.scan.file_records(file):
            for row in range(walked.count):
                stored_ms = walked.facts[row * Fact.WIDTH + Fact.STORE_TIMESTAMP]
                if not wanted.begin_ms <= stored_ms <= wanted.end_ms:
                    continue
                message = stored_message(walked.view, walked.facts, row)
                if wanted.has(message):
                    yield message
        done += file.size
        at(done)
