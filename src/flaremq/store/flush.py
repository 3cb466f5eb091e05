"""Flushing: the threads that make written bytes durable and say so.

    append > [commit] > [flush] > flushed mark > answer

The problem
-----------
An append only copies bytes into a mapped file. They are safe when fdatasync returns, which takes a
millisecond on a good disk and seconds on a bad one. Calling it per message would mean a thousand messages
a second. Not waiting for it means that a power cut takes acknowledged messages. And a sync that fails is
final: the kernel may have dropped the pages, and the next, successful sync would only hide that.

How it works
------------
One thread syncs, in rounds. Each round covers everything that was appended before it began, and moves one
mark (`Watermark`). Under SYNC_FLUSH answers wait for the mark, so however many producers wait, each round
serves all of them: group commit. Under ASYNC_FLUSH no put waits, and rounds come every 500 ms, or as soon
as some pages are dirty and the last round was over 100 ms ago: a sync of few pages may cost as much as one of
many, as some file systems write megabytes for each.

With the transient pool, appends go to locked memory first; a committer copies them to the file, and the
flusher syncs what was committed. Queues and the checkpoint have a thread of their own. The checkpoint
moves only after a thorough pass over all queues, to what had been dispatched when that pass began.

An example
----------
Under SYNC_FLUSH, three sends arrive while a sync is running:

    flusher   sync up to 1000 ............ | sync up to 1300 ............ |
    sends        +100 +100 +100 (waiting)    all three covered              mark 1300: three answers

What fails
----------
If a sync fails, the mark fails with it: everyone who waits gets the error, and the store takes no more
messages until it is started again. Whatever else fails (no descriptor, no room for what the pool holds, a
bug) has moved no mark, so it is simply done again.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError, FlushFailed
from flaremq.base.lifecycle import Listener, Worker, WorkerFactory
from flaremq.model import layout
from flaremq.store.commitlog import CommitLog
from flaremq.store.dispatch import Dispatcher
from flaremq.store.files.checkpoint import SLACK_MS, Checkpoint
from flaremq.store.flags import Flags, Reporter
from flaremq.store.queue.queues import Queues
from flaremq.store.settings import StoreSettings

log = logging.getLogger(__name__)

_REST_S: Final = 0.1
"""How long puts that wait for nothing leave the flusher alone after a sync."""


class LogFlusher:
    """Moves the log's flushed mark: by group commit, or in the background."""

    def __init__(
        self,
        commit_log: CommitLog,
        checkpoint: Checkpoint,
        flags: Flags,
        clock: Clock,
        workers: WorkerFactory = Worker,
    ) -> None:
        self._log = commit_log
        self._settings: StoreSettings = commit_log.settings
        self._checkpoint = checkpoint
        self._flags = flags
        self._clock = clock
        self._sync = commit_log.flushes_at_once
        untimed = self._settings.flush_wake_on_put and not self._settings.flush_timed
        self._wakes_flusher = self._sync or untimed
        self._wakes_committer = self._settings.pool_used and self._settings.commit_wake_on_put
        self._least_bytes = self._settings.flush_least_pages * layout.PAGE
        self._syncing = threading.Lock()
        self._rests_until_s = 0.0
        self._last_thorough_s = clock.monotonic_s()
        self._last_commit_s = clock.monotonic_s()
        self._flusher = workers(
            "flaremq-flush",
            self._flush_step,
            Reporter(flags, "flushing the log"),
            first_s=0.0 if self._sync else self._settings.flush_interval_ms / 1000,
        )
        self._committer = workers(
            "flaremq-commit", self._commit_step, Reporter(flags, "committing the transient pool")
        )

    def start(self) -> None:
        self._flusher.start()
        if self._log.pool is not None:
            self._committer.start()

    def put(self) -> None:
        """Something was appended. Cheap when the threads know already."""
        if self._wakes_committer:
            self._committer.wake()
        if self._wakes_flusher and (self._sync or self._is_due()):
            self._flusher.wake()

    def _is_due(self) -> bool:
        """Whether a put that waits for nothing should wake the flusher.

        Waking a thread for less than it would flush costs the one who wakes it more than the look. And a sync
        for every few pages would take a quarter of all sends (docs/performance.md).
        """
        if self._log.unflushed < self._least_bytes:
            return False
        return self._clock.monotonic_s() >= self._rests_until_s

    def ask_to_stop(self) -> None:
        self._committer.ask_to_stop()
        self._flusher.ask_to_stop()

    def stop(self) -> None:
        """Commit and sync what is left, also if a thread does not end. Raises what stood against that."""
        for worker in (self._committer, self._flusher):
            try:
                worker.stop()
            except FlareError as error:
                log.error("what is left is synced all the same: %s", error)
        if self._flags.failure is None:
            self._log.commit(0)
            self.flush(0)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is synced meanwhile: what is given up must not be taken for synced."""
        with self._syncing:
            yield

    def flush(self, least_pages: int) -> None:
        """One pass; a thorough one (0 pages) also tells the checkpoint how far the log is safe."""
        with self._syncing:  # Of two at a time, the system may tell only one that it has failed.
            if self._flags.failure is not None:
                return  # There is no second time.
            store_ms = self._log.last_store_ms  # Before the sync: what comes meanwhile is not covered.
            try:
                self._log.flush(least_pages)
            except FlushFailed as error:
                self.failed(error)
                raise
        if least_pages == 0 and store_ms:
            self._checkpoint.log_time_ms = store_ms

    def _flush_step(self, worker: Worker) -> float | None:
        if self._flags.failure is not None:
            worker.ask_to_stop()  # There is no second time.
            return None
        try:
            return self._flush_due()
        except FlushFailed:
            worker.ask_to_stop()
            raise

    def _flush_due(self) -> float | None:
        if self._sync:
            if self._log.pool is not None:
                self._log.commit(0)
            if self._log.flushed.value >= self._log.readable_end:
                return self._settings.flush_interval_ms / 1000
            self.flush(0)
            return None
        self.flush(self._pages_due())
        self._rests_until_s = self._clock.monotonic_s() + _REST_S
        return self._settings.flush_interval_ms / 1000

    def _pages_due(self) -> int:
        now_s = self._clock.monotonic_s()
        if now_s - self._last_thorough_s >= self._settings.flush_thorough_interval_ms / 1000:
            self._last_thorough_s = now_s
            return 0
        return self._settings.flush_least_pages

    def _commit_step(self, _worker: Worker) -> float:
        now_s, pages = self._clock.monotonic_s(), self._settings.commit_least_pages
        if now_s - self._last_commit_s >= self._settings.commit_thorough_interval_ms / 1000:
            pages = 0
        if self._log.commit(pages):
            self._last_commit_s = now_s
            self._flusher.wake()
        return self._settings.commit_interval_ms / 1000

    def failed(self, failure: FlushFailed) -> None:
        """A sync said no, here or elsewhere: nothing is acknowledged from now on."""
        log.critical("the store takes no more messages until it is started again: %s", failure)
        self._flags.failed(failure)
        self._log.flushed.fail(failure)


class QueueFlusher:
    """Makes queues durable every second or so, and the checkpoint with them.

    The checkpoint's queue time is the store time up to which *every* queue is safe, so it moves
    only after a thorough pass, to what had been dispatched when that pass began. Its thread also
    does the work in `tasks`: work on files that no caller should wait for.
    """

    def __init__(
        self,
        queues: Queues,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        tasks: deque[Callable[[], None]],
        clock: Clock,
        listener: Listener | None = None,
        workers: WorkerFactory = Worker,
    ) -> None:
        self._queues = queues
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._tasks = tasks
        self._settings: StoreSettings = dispatcher.settings
        self._clock = clock
        self.failure: FlushFailed | None = None
        self._last_thorough_s = clock.monotonic_s()
        self._rest_s = self._settings.queue_flush_interval_ms / 1000
        self._worker = workers("flaremq-flush-queues", self._step, listener, first_s=self._rest_s)

    def start(self) -> None:
        self._worker.start()

    def ask_to_stop(self) -> None:
        self._worker.ask_to_stop()

    def stop(self) -> None:
        """End the thread. The owner decides whether to flush the rest."""
        self._worker.stop()

    def flush(self, least_pages: int) -> None:
        """One pass. After a sync that failed there is no other, and the checkpoint stays where it is.

        What that sync covered may be lost, a second one would hide it, and the next start makes it
        again from the log.
        """
        if self.failure is not None:
            return
        try:
            self._flush(least_pages)
        except FlushFailed as error:
            self.failure = error
            raise

    def _flush(self, least_pages: int) -> None:
        while self._tasks:
            self._tasks[0]()
            self._tasks.popleft()  # Behind it: a task that fails comes again.
        store_ms = self._dispatcher.last_store_ms
        if 0 < store_ms < self._checkpoint.queue_time_ms - SLACK_MS:
            # The clock was set back: entries of later records would pass for older ones, and so for safe.
            self._checkpoint.queue_time_ms = 0
        self._queues.flush(least_pages)
        if least_pages == 0 and store_ms:
            self._checkpoint.queue_time_ms = store_ms
        self._checkpoint.flush()

    def _step(self, worker: Worker) -> float:
        now_s, pages = self._clock.monotonic_s(), self._settings.queue_flush_least_pages
        if now_s - self._last_thorough_s >= self._settings.queue_flush_thorough_interval_ms / 1000:
            self._last_thorough_s, pages = now_s, 0
        try:
            self.flush(pages)
        except FlushFailed:  # Queues can be rebuilt from the log, so the log goes on.
            worker.ask_to_stop()
            raise
        except Exception:
            self._last_thorough_s = -math.inf  # The next pass looks at everything.
            raise
        return self._rest_s
