"""What a store looks like from outside: how far its parts are behind, how full its disks are, how old it is.

Only reads, for those who show or watch a store. What looks at files or disks says so: not in an event loop.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from flaremq.model.layout import FIXED_SIZE
from flaremq.store.find import stored_at
from flaremq.store.store import MessageStore


@dataclass(frozen=True, slots=True)
class Disks:
    """How full the disks are. A ratio is -1 where it cannot be known."""

    log_ratios: dict[Path, float]
    queue_ratio: float
    total: int
    free: int
    """Bytes of the disk that the root folder lies on."""

    @property
    def log_ratio(self) -> float:
        """Of the emptiest: a log over several disks is written where there is room."""
        return min(self.log_ratios.values())


def disks(store: MessageStore) -> Disks:
    """Asks the operating system."""
    settings = store.settings
    ratios = {folder: store.disk.used_ratio(folder) for folder in settings.commitlog_folders}
    try:
        stat = os.statvfs(settings.root)
        total, free = stat.f_blocks * stat.f_frsize, stat.f_bfree * stat.f_frsize
    except OSError:
        total = free = 0
    return Disks(ratios, store.disk.used_ratio(settings.consumequeue_folder), total, free)


def flush_behind(store: MessageStore) -> int:
    """Bytes that readers can see but a power failure would take."""
    return max(0, store.log.readable_end - store.flushed.value)


def commit_behind(store: MessageStore) -> int:
    """Bytes that still lie in buffers of the pool."""
    return max(0, store.log.end - store.log.readable_end)


def free_buffers(store: MessageStore) -> int | None:
    """Of the pool; None without one."""
    pool = store.log.pool
    return pool.available if pool is not None else None


def earliest_ms(store: MessageStore) -> int:
    """Store time of the oldest message; -1 without any. Reads a file."""
    return store.log.store_time(store.log.begin, FIXED_SIZE)


def queue_earliest_ms(store: MessageStore, topic: bytes, queue_id: int) -> int:
    """The same of one queue. Reads two files."""
    return stored_ms(store, topic, queue_id, store.min_offset(topic, queue_id))


def stored_ms(store: MessageStore, topic: bytes, queue_id: int, queue_offset: int) -> int:
    """Store time of a message of a queue, or of the oldest if it is gone; -1 without any. Reads two files."""
    queue = store.queues.get(topic, queue_id)
    if queue is None or queue_offset >= queue.max_offset:
        return -1
    at = max(queue_offset, queue.min_offset)
    return stored_at(store.log, queue, at)


def bytes_behind(store: MessageStore, topic: bytes, queue_id: int, queue_offset: int) -> int:
    """How far the log has grown since the message at this queue offset; 0 at the end. Reads a file.

    A message that is gone counts from the oldest byte that is left.
    """
    queue, end = store.queues.get(topic, queue_id), store.log.readable_end
    if queue is None or queue_offset >= queue.max_offset:
        return 0
    at = max(queue_offset, queue.min_offset)
    found = queue.locate(at)
    return end - max(found.physical_offset, store.log.begin) if found is not None else 0


def index_newest(store: MessageStore) -> tuple[int, int]:
    """Store time and place of the newest message that can be found by key. Reads a file."""
    return store.index.newest if store.index is not None else (0, 0)
