"""The message store: owns the log, its queues, its index and the threads that serve them.

    with MessageStore(StoreSettings(root=folder)) as store:
        result = store.put(NewMessage(topic=b"Orders", body=b"...", properties=b"TAGS\\x01paid\\x02"))
        messages = store.get(b"Orders", 0, result.queue_offset, 32)

One process has a folder at a time. Nothing is acknowledged that is not stored as the settings
promise; a store that could not sync once takes nothing more.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Self

from flaremq.base.clock import Clock, SystemClock
from flaremq.base.errors import DiskFull, FlareError, NotWritable, StoreClosed
from flaremq.base.lifecycle import Worker
from flaremq.base.watermark import Watermark
from flaremq.model.columns import Draft, Drafts
from flaremq.store.api import (
    ArrivalListener,
    BatchResult,
    BitMapper,
    PutResult,
    PutStatus,
    ReadResult,
    Selector,
)
from flaremq.store.checkpoint import Checkpoint
from flaremq.store.commitlog import CommitLog
from flaremq.store.disk import Disk, make_way
from flaremq.store.dispatch import Dispatcher
from flaremq.store.find import Finder
from flaremq.store.flags import Flag, Flags
from flaremq.store.flush import LogFlusher, QueueFlusher
from flaremq.store.index import Index, IndexShape
from flaremq.store.lock import AbortFile, StoreLock
from flaremq.store.put import Drafting, NewMessage, batch_result_of, result_of
from flaremq.store.queue_offsets import QueueOffsets
from flaremq.store.queues import Queues
from flaremq.store.reader import Reader
from flaremq.store.recovery import Recovery, Report
from flaremq.store.retention import Kept, Retention
from flaremq.store.settings import BrokerRole, FlushDisk, StoreSettings
from flaremq.store.timesearch import Boundary

log = logging.getLogger(__name__)

_LOCAL_HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
_IDLE_S, _BUSY_S, _SHORT_S = 0.1, 0.001, 1.0  # How long dispatch rests: no work, work, no disk.


class MessageStore:
    """Open, put, get, close. `put` and `get` may be called from any thread."""

    def __init__(
        self,
        settings: StoreSettings,
        *,
        store_host: bytes = _LOCAL_HOST,
        clock: Clock | None = None,
        disk: Disk | None = None,
        is_batch: Callable[[str], bool] = lambda _topic: False,
        bit_mapper: BitMapper | None = None,
        owner_dispatches: bool = False,
        on_step: Callable[[str], None] = lambda _step: None,
    ) -> None:
        """`owner_dispatches`: whoever puts also calls `dispatch`, so no thread need be woken for it.
        `on_step` hears of each step of opening when it is done."""
        self.settings = settings
        self._wakes_dispatch = not owner_dispatches
        self._on_step = on_step
        self.clock = clock or SystemClock()
        self.disk = disk or Disk()
        self.offsets = QueueOffsets()
        self.index: Index | None = None
        self.flags = Flags(
            self.clock,
            page_cache_busy_ms=settings.page_cache_busy_ms,
            dispatch_lag_max=settings.dispatch_lag_max,
        )
        self.log = CommitLog(self.disk, settings, self.clock, store_host, self.offsets)
        self.queues = Queues(self.disk, settings, is_batch)
        self.report: Report | None = None
        self._bit_mapper = bit_mapper
        self._drafting = Drafting(
            self.offsets,
            append_crc=settings.append_crc,
            lmq=settings.lmq_enabled,
            auto_v2=settings.auto_v2,
        )
        self._lock = StoreLock(settings.root, self.disk)
        self._abort = AbortFile(settings.root, self.disk)
        self._background: deque[Callable[[], None]] = deque()  # For the thread that flushes queues.
        self._append_lock = threading.Lock()
        self._appended = 0  # Records since the start.
        self._loaded = self._open = self._takes_puts = False

    # Opening and closing.

    def open(self) -> Report:
        """Take the folder, load and recover what lies there, and start to serve."""
        report = self.load()
        self.start()
        return report

    def load(self) -> Report:
        """The first half of opening: what lies there can be read, but nothing runs yet."""
        make_way(self.disk, self.settings.root)
        self._lock.acquire()
        try:
            return self._load()
        except BaseException:
            self._lock.release()
            raise

    def _load(self) -> Report:
        settings, clean = self.settings, not self._abort.exists()
        self._on_step(f"abort check: the last stop was {'clean' if clean else 'not clean'}")
        for folder in (*settings.commitlog_folders, settings.consumequeue_folder):
            make_way(self.disk, folder)
        self.log.queue.load()
        self._on_step("commit log")
        self._abort.create()  # Before anything is changed: a start that dies half way was no clean stop.
        self.checkpoint = Checkpoint(self.disk, settings.root / "checkpoint")
        self.queues.before_removal = self.checkpoint.forget_queues
        damaged = self.queues.load()
        self._on_step("consume queues")
        self._on_step("checkpoint")
        self.index, index_damaged = None, False
        if settings.index_enabled:
            shape = IndexShape(settings.index_slots, settings.index_entries)
            index = self.index = Index(self.disk, self.clock, settings.index_folder, shape,
                                       sealed=self._index_flushed, later=self._background.append)  # fmt: skip
            index_damaged = bool(index.load(clean=clean))
        self._on_step("index")
        self.dispatcher = Dispatcher(self.log, self.queues, self.index, settings, self._bit_mapper)
        recovery = Recovery(self.log, self.queues, self.index, self.checkpoint, self.dispatcher)
        self.report = recovery.run(clean=clean, damaged=damaged, index_damaged=index_damaged)
        self._on_step("recovery")
        self.reader = Reader(self.log, self.queues, settings)
        self.finder = Finder(self.log, self.queues, self.index, self.reader)
        self._make_workers()
        self._loaded = True
        return self.report

    def start(self) -> None:
        """The second half: files are made ahead, flushed, dispatched to and cleaned; messages are taken."""
        self.log.start()
        self._queue_flusher.start()
        self._on_step("consume queue flush")
        self._log_flusher.start()
        self._on_step("commit log flush")
        self._dispatch_worker.start()
        self._on_step("dispatch")
        self._on_step("abort file")  # It is there since recovery began.
        self._cleaner.start()
        self._on_step("cleaning")
        self._open = True
        self._takes_puts = self.settings.role is not BrokerRole.SLAVE

    def _index_flushed(self, end_ms: int) -> None:
        self.checkpoint.index_time_ms = end_ms

    def _make_workers(self) -> None:
        self._log_flusher = LogFlusher(self.log, self.checkpoint, self.flags, self.clock)
        self._queue_flusher = QueueFlusher(
            self.queues, self.dispatcher, self.checkpoint, self._background, self.clock
        )
        self._dispatch_worker = Worker("flaremq-dispatch", self._dispatch_step, on_crash=self._crashed)
        self._cleaner = Worker("flaremq-clean", self._clean_step, on_crash=self._crashed)
        kept = Kept(self.log.queue, self.queues.trimmed, self.index, self._log_bytes)
        self.retention = Retention(
            self.settings,
            self.clock,
            self.disk,
            self.flags,
            kept,
            pause_ms=lambda ms: self._cleaner.pause(ms / 1000),
        )
        if self.settings.flush_disk is FlushDisk.SYNC_FLUSH and self._wakes_dispatch:
            self.flushed.watch(lambda _flushed: self._dispatch_worker.wake())

    def close(self) -> None:
        """Flush and dispatch everything, and leave the folder as after a clean stop.

        Raises FlushFailed if messages that were taken could not be synced; closed it is all the same.
        One that was loaded and never started is let go as it is.
        """
        with self._append_lock:
            loaded, self._loaded = self._loaded, False
            started, self._open, self._takes_puts = self._open, False, False
        if loaded and not started:
            self._let_go()
        if not started:
            return
        try:
            self._cleaner.stop()
            self._log_flusher.stop()
        finally:
            self._dispatch_worker.stop()
            self._queue_flusher.stop()
            complete = self.flags.failure is None and self._completed()
            self.log.stop()
            self._let_go(clean=complete)

    def _let_go(self, *, clean: bool = False) -> None:
        for part in (self.queues, self.index, self.log, self.checkpoint):
            if part is not None:
                part.close()
        if clean:
            self._abort.remove()
        self._lock.release()

    def _completed(self) -> bool:
        """Bring queues and index to the end of the log, and to the disk; False if that cannot be."""
        try:
            self.dispatcher.catch_up()
            self._queue_flusher.flush(0)
            if self.index is not None:
                self.index.flush()
        except FlareError as error:
            log.error("the next start has to complete the queues: %s", error)
            return False
        return self._queue_flusher.failure is None and self.dispatcher.behind == 0

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Writing.

    @property
    def flushed(self) -> Watermark:
        """How far the log is on the disk: what a durable put waits for."""
        return self.log.flushed

    def put_many(self, drafts: Drafts) -> int:
        """Append rows of drafts, the fast lane; see CommitLog.append_many. Does not wait."""
        self.check_writable()
        with self._append_lock:
            if not self._takes_puts:
                self.check_writable()  # Closed while this one waited: behind the last flush nothing is taken.
            self.flags.append_began()
            try:
                stored = self.log.append_many(drafts)
            finally:
                self.flags.append_ended()
            self._appended += stored
        self._log_flusher.put()
        if self._wakes_dispatch:
            self._dispatch_worker.wake()
        return stored

    def put(self, message: NewMessage, *, wait: bool = True) -> PutResult:
        """Store one message; under SYNC_FLUSH return when it is on the disk, or too late."""
        self.check_writable()
        with self._append_lock:
            if not self._takes_puts:
                self.check_writable()
            drafts = self._drafting.one(message)
            self.flags.append_began()
            try:
                self._appended += self.log.append_many(drafts)
            finally:
                self.flags.append_ended()
            self._drafting.stored()
            store_ms = self.log.last_store_ms
        self._log_flusher.put()
        if self._wakes_dispatch:
            self._dispatch_worker.wake()
        return result_of(drafts, 0, self._waited(drafts, wait), store_ms)

    def put_batch(self, batch: NewMessage, *, wait: bool = True) -> BatchResult:
        """Store the messages that its body is made of: all or none, one behind the other."""
        with self._append_lock:
            drafts = self._drafting.together(batch, self.settings.message_size_max)
        stored = self.put_many(drafts)
        assert stored == len(drafts)
        return batch_result_of(drafts, self._waited(drafts, wait), self.log.last_store_ms)

    def _waited(self, drafts: Drafts, wait: bool) -> PutStatus:
        if not wait or self.settings.flush_disk is FlushDisk.ASYNC_FLUSH:
            return PutStatus.PUT_OK
        last = len(drafts.rows) - Draft.WIDTH
        end = drafts.rows[last + Draft.PHYSICAL_OFFSET] + drafts.rows[last + Draft.SIZE]
        in_time = self.flushed.wait_blocking(end, self.settings.sync_flush_timeout_ms / 1000)
        return PutStatus.PUT_OK if in_time else PutStatus.FLUSH_DISK_TIMEOUT

    def check_writable(self) -> None:
        """Raise what stands against a put: closed, a slave, stopped, disk, page cache, dispatch lag."""
        if not self._takes_puts:
            if not self._open:
                raise StoreClosed(f"the store at {self.settings.root} is not open: call open() first")
            raise NotWritable("a slave takes no messages of its own: send to the master")
        self.flags.check(self._appended - self.dispatcher.records)

    # Reading.

    def get(
        self,
        topic: bytes,
        queue_id: int,
        offset: int,
        count_max: int = 32,
        *,
        selector: Selector | None = None,
    ) -> ReadResult:
        """Messages of a queue from an offset on."""
        if self.dispatcher.position < self.log.confirmed:
            self.show(wait=False)
        return self.reader.get(topic, queue_id, offset, count_max, selector=selector)

    def record(self, physical_offset: int) -> memoryview | None:
        return self.reader.record(physical_offset)

    def query(
        self,
        topic: bytes,
        key: bytes,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        *,
        unique: bool = False,
    ) -> list[memoryview]:
        """Records with this key stored between two times, oldest first. `unique`: it is a message's id."""
        self.show(wait=False)
        limit = self.settings.unique_query_max if unique else min(count_max, self.settings.query_max)
        return self.finder.by_key(topic, key, limit, begin_ms, end_ms)

    def offset_by_time(
        self, topic: bytes, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        self.show(wait=False)
        return self.finder.by_time(topic, queue_id, timestamp_ms, boundary)

    def show(self, *, wait: bool = True) -> None:
        """Whoever looks sees all that was put before, but without `wait` not what another thread is at."""
        try:
            self.dispatcher.catch_up(wait=wait)
        except DiskFull as error:
            log.error("not all messages can be seen: queues wait for disk space: %s", error)

    def min_offset(self, topic: bytes, queue_id: int) -> int:
        queue = self.queues.get(topic, queue_id)
        return queue.min_offset if queue else 0

    def max_offset(self, topic: bytes, queue_id: int) -> int:
        self.show(wait=False)
        queue = self.queues.get(topic, queue_id)
        return queue.max_offset if queue else 0

    # Dispatch and cleaning.

    def listen(self, listener: ArrivalListener) -> None:
        self.dispatcher.listeners.append(listener)

    def dispatch(self) -> int:
        """Make everything visible that may be seen, now and in this thread."""
        return self.dispatcher.catch_up()

    def clean_now(self) -> None:
        """Delete expired files at once, as often as one request grants it."""
        self.retention.request()
        self._cleaner.wake()

    def _log_bytes(self) -> int:
        return len(self.log.queue.files) * self.log.file_size

    def _dispatch_step(self, worker: Worker) -> None:
        try:
            done = self.dispatcher.catch_up()
        except DiskFull as error:
            log.error("queues wait for disk space: %s", error)
            worker.pause(_SHORT_S)
            return
        if not self._wakes_dispatch:
            worker.pause(_SHORT_S)  # Its owner dispatches; this thread only looks after what was left.
        else:
            worker.pause(_BUSY_S if self.dispatcher.behind or done else _IDLE_S)

    def _clean_step(self, worker: Worker) -> None:
        worker.pause(self.settings.clean_interval_ms / 1000)
        if not worker.stopping:
            try:
                self.retention.run_once()
            except FlareError as error:
                log.error("old files could not be deleted: %s", error)

    def _crashed(self, error: Exception) -> None:
        """A thread that the store cannot do without has died: take nothing more."""
        self.flags.set(Flag.NOT_WRITABLE, f"an inner part of the store crashed: {error}")
