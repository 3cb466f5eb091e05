"""The pool of write buffers: appends go to locked memory first, and to the file when committed.

It spares appends the page faults of a mapped file. In exchange a record is seen, and can be
flushed, only after the commit.
"""

from __future__ import annotations

import logging
import mmap

from flaremq.base.errors import FileNotReady
from flaremq.store.files.disk import lock_memory

log = logging.getLogger(__name__)


class BufferPool:
    """So many buffers, each as long as a log file, made once and given round."""

    def __init__(self, count: int, size: int) -> None:
        self.count = count
        self.size = size
        self._free: list[mmap.mmap] = []
        for _ in range(count):
            buffer = mmap.mmap(-1, size)
            if not lock_memory(buffer):
                log.warning("a pool buffer of %d bytes cannot be locked in memory: raise ulimit -l", size)
            self._free.append(buffer)

    @property
    def available(self) -> int:
        return len(self._free)

    def borrow(self) -> mmap.mmap:
        try:
            return self._free.pop()
        except IndexError:
            raise FileNotReady(
                f"all {self.count} buffers of the transient pool are waiting to be committed: the disk "
                "is slower than the senders; send less, or raise transientStorePoolSize"
            ) from None

    def give_back(self, buffer: mmap.mmap) -> None:
        assert len(self._free) < self.count
        self._free.append(buffer)
