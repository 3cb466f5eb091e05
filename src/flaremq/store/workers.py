"""The threads of a store: what each does again and again, and the order in which they start and stop.

    flush the log | commit the pool | dispatch | flush queues and checkpoint | clean

Each survives its failures (`lifecycle.Worker`); meanwhile the store is degraded, and `flags` knows why.
Only a sync of the log that fails ends writing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from flaremq.base.clock import Clock
from flaremq.base.lifecycle import Worker, WorkerFactory
from flaremq.store.commitlog import CommitLog
from flaremq.store.dispatch import Dispatcher
from flaremq.store.files.checkpoint import Checkpoint
from flaremq.store.files.disk import Disk
from flaremq.store.flags import Flags, Reporter
from flaremq.store.flush import LogFlusher, QueueFlusher
from flaremq.store.index.index import Index
from flaremq.store.queue.queues import Queues
from flaremq.store.retention import Kept, Retention
from flaremq.store.settings import FlushDisk, StoreSettings

log = logging.getLogger(__name__)

_IDLE_S, _BUSY_S, _OWNED_S = 0.1, 0.001, 1.0  # How long dispatch rests: no work, work, work of its owner.


@dataclass(frozen=True, slots=True)
class Works:
    """What the threads work on."""

    log: CommitLog
    queues: Queues
    index: Index | None
    dispatcher: Dispatcher
    checkpoint: Checkpoint
    flags: Flags
    tasks: deque[Callable[[], None]]
    """For the thread that flushes queues."""


class Workers:
    """Started once, stopped once."""

    def __init__(
        self,
        settings: StoreSettings,
        clock: Clock,
        disk: Disk,
        works: Works,
        *,
        owner_dispatches: bool,
        workers: WorkerFactory = Worker,
    ) -> None:
        self._settings = settings
        self._works = works
        self._owner_dispatches = owner_dispatches
        flags = works.flags
        self.log_flusher = LogFlusher(works.log, works.checkpoint, flags, clock, workers)
        self.queue_flusher = QueueFlusher(
            works.queues,
            works.dispatcher,
            works.checkpoint,
            works.tasks,
            clock,
            Reporter(flags, "flushing queues"),
            workers,
        )
        self.dispatch = workers("flaremq-dispatch", self._dispatch_step, Reporter(flags, "dispatch"))
        self._clean_s = settings.clean_interval_ms / 1000
        self.cleaner = workers(
            "flaremq-clean",
            self._clean_step,
            Reporter(flags, "deleting old files"),
            first_s=self._clean_s,
        )
        kept = Kept(works.log.deletable, works.queues.trimmed, works.index, self._log_bytes)
        self.retention = Retention(
            settings,
            clock,
            disk,
            flags,
            kept,
            pause_ms=lambda ms: self.cleaner.pause(ms / 1000),
            stopping=lambda: self.cleaner.stopping,
        )
        if (settings.flush_disk is FlushDisk.SYNC_FLUSH or works.log.is_shared) and not owner_dispatches:
            works.log.watch(self.dispatch.wake)

    def start(self, on_step: Callable[[str], None]) -> None:
        self.queue_flusher.start()
        on_step("consume queue flush")
        self.log_flusher.start()
        on_step("commit log flush")
        self.dispatch.start()
        on_step("dispatch")
        on_step("abort file")  # It is there since recovery began.
        self.cleaner.start()
        on_step("cleaning")

    def stop(self) -> list[Exception]:
        """Commit and sync the log first, whatever else does not stop; what stood against all that."""
        for part in (self.cleaner, self.dispatch, self.queue_flusher, self.log_flusher):
            part.ask_to_stop()
        failed: list[Exception] = []
        for stop in (self.log_flusher.stop, self.dispatch.stop, self.queue_flusher.stop, self.cleaner.stop):
            try:
                stop()
            except Exception as error:
                log.exception("the store does not stop as it should")
                failed.append(error)
        return failed

    def complete(self) -> bool:
        """After the stop: bring queues and index to the end of the log, and to the disk; False if that
        cannot be."""
        works = self._works
        if self.dispatch.alive or not self._is_synced():
            return False
        try:
            works.dispatcher.catch_up()
            self.queue_flusher.flush(0)
            if works.index is not None:
                works.index.flush()
        except Exception:
            log.exception("the next start has to complete the queues")
            return False
        return self.queue_flusher.failure is None and works.dispatcher.behind == 0

    def _is_synced(self) -> bool:
        """Whether every byte that was appended is on the disk."""
        return self._works.flags.failure is None and self._works.log.unflushed <= 0

    def _log_bytes(self) -> int:
        return len(self._works.log.files.files) * self._works.log.file_size

    def _dispatch_step(self, _worker: Worker) -> float:
        done = self._works.dispatcher.catch_up()
        if self._owner_dispatches:
            return _OWNED_S  # This thread makes files, and looks after what was left.
        return _BUSY_S if self._works.dispatcher.behind or done else _IDLE_S

    def _clean_step(self, _worker: Worker) -> float:
        self.retention.run_once()
        return self._clean_s
