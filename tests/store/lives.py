"""A store through several lives, on a disk whose power may be cut and in a process that may be killed.

The threads of the store are stopped, and what they do is done by hand: so a seed tells all that happens.
Only the next log file is made by its own thread, and waited for before anything bad happens.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.store.proofs import Promises, Queue, a_proof

from flaremq.base.errors import FlushFailed
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import put_together, small_settings
from flaremq.testing.fakes.disk import PowerLossDisk

QUEUES: Final[tuple[Queue, ...]] = ((b"A", 0), (b"A", 1), (b"B", 0))


def end_of(store: MessageStore) -> None:
    """The end of a killed process: nothing more is flushed, no clean stop is noted."""
    gone = FlushFailed("this process is no more")
    store.flags.failed(gone)
    store.flushed.fail(gone)
    store.close()


class Lives:
    """The folder, its disk, the store of the moment, and what that one may not lose any more.

    On the disk of an odd seed only the sync of a folder makes a name safe.
    """

    def __init__(self, folder: Path, seed: int, **options: Any) -> None:
        self.random = Random(seed)
        self.promises = Promises()
        self.clock = ManualClock()
        self._folder = folder
        # Without a CRC of its own a record that is torn within its properties would pass for whole.
        self._options = {"append_crc": True, "force_record_crc": True, "index_entries": 40, **options}
        self._waiting: list[tuple[Queue, int, str, int]] = []  # Appended, and not yet flushed.
        self._named = self._births = 0
        self._strict_names = seed % 2 == 1
        self.disk = PowerLossDisk(strict_names=self._strict_names)
        self.store = self._born()

    @property
    def root(self) -> Path:
        return self._folder / f"power{self._births}"

    def _born(self) -> MessageStore:
        store = MessageStore(small_settings(self.root, **self._options), clock=self.clock, disk=self.disk)
        store.open()
        for worker in (
            store.workers.log_flusher._flusher,
            store.workers.log_flusher._committer,
            store.workers.queue_flusher._worker,
            store.workers.dispatch,
            store.workers.cleaner,
        ):
            worker.stop()
        return store

    def live(self, events: int) -> None:
        """So many things happen, each as likely as it is named here."""
        happenings: list[Callable[[], None]] = [
            *[self.put] * 8, *[self.put_batch] * 2, self.flush, self.dispatch, self.time_passes,
            self.flush_queues, self.flush_queues, self.kill, self.lose_power, self.stop,
        ]  # fmt: skip
        for _ in range(events):
            self.random.choice(happenings)()

    def put(self) -> None:
        for _ in range(self.random.choice([1, 3, 10])):
            queue, name = self._next()
            result = self.store.put(a_proof(queue, name, self._size()), wait=False)
            self._waiting.append((queue, result.queue_offset, name, result.end))

    def put_batch(self) -> None:
        queue, _ = self._next()
        names = [self._next()[1] for _ in range(self.random.choice([2, 60]))]
        results = put_together(self.store, [a_proof(queue, name, 20) for name in names], wait=False)
        for name, result in zip(names, results, strict=True):
            self._waiting.append((queue, result.queue_offset, name, result.end))

    def _next(self) -> tuple[Queue, str]:
        self._named += 1
        return self.random.choice(QUEUES), f"m{self._named}"

    def _size(self) -> int:
        return self.random.choice([0, 100, 1000, 9000])

    def flush(self) -> None:
        """What a producer under SYNC_FLUSH waits for."""
        self.store.log.commit(0)
        self.store.workers.log_flusher.flush(self.random.choice([0, 0, 4]))
        self._promise()

    def _promise(self) -> None:
        flushed = self.store.flushed.value
        for queue, offset, name, end in self._waiting:
            if end <= flushed:
                self.promises.add(queue, offset, name)
        self._waiting = [waiting for waiting in self._waiting if waiting[3] > flushed]

    def dispatch(self) -> None:
        self.store.dispatch()

    def flush_queues(self) -> None:
        self.store.workers.queue_flusher.flush(self.random.choice([0, 1]))

    def time_passes(self) -> None:
        self.clock.advance_ms(self.random.choice([1, 1000, 10_000]))

    def _settle(self) -> None:
        ahead = self.store.log.preallocator
        with ahead._changed:
            assert ahead._changed.wait_for(lambda: not ahead._wanted and ahead._making < 0, 30)

    def kill(self) -> None:
        """The process dies, the machine does not: everything written is there, safe or not."""
        self._settle()
        end_of(self.store)
        self._again()

    def lose_power(self, *, worst: bool = False) -> None:
        """At the worst nothing survives that nobody synced, else the dice decide."""
        self._settle()
        self.disk.lose_power(None if worst else self.random.getrandbits(32))
        old = self.root
        self._births += 1
        if old.exists():
            old.rename(self.root)  # What the old store still does, it does to nobody.
        end_of(self.store)
        shutil.rmtree(old, ignore_errors=True)
        self.disk = PowerLossDisk(strict_names=self._strict_names)
        self._again()

    def stop(self) -> None:
        self.store.close()
        for queue, offset, name, _ in self._waiting:
            self.promises.add(queue, offset, name)
        self._again()

    def _again(self) -> None:
        self._waiting = []
        self.store = self._born()
        self.promises.check(self.store)

    def end(self) -> None:
        end_of(self.store)
