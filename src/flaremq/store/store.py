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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Self

from flaremq.base.clock import Clock, SystemClock
from flaremq.base.errors import DiskFull, NotWritable, StoreClosed
from flaremq.base.lifecycle import Worker, WorkerFactory
from flaremq.base.logs import Seldom
from flaremq.base.watermark import Watermark
from flaremq.model.columns import Draft, Drafts
from flaremq.store.api import (
    ArrivalListener,
    BatchResult,
    BitMapper,
    Boundary,
    PutResult,
    PutStatus,
    ReadResult,
    Selector,
)
from flaremq.store.commitlog import CommitLog, LogFactory
from flaremq.store.dispatch import Dispatcher
from flaremq.store.drafts import Drafting, NewMessage, batch_result_of, result_of
from flaremq.store.files.checkpoint import Checkpoint
from flaremq.store.files.disk import Disk, make_way
from flaremq.store.files.lock import AbortFile, StoreLock
from flaremq.store.files.preallocate import LOOP_WAIT_S, WAIT_S
from flaremq.store.find import Finder
from flaremq.store.flags import Flags, Reporter
from flaremq.store.holes import find_hole, give_up_behind
from flaremq.store.index.index import Index, IndexShape
from flaremq.store.queue.nextoffsets import QueueOffsets
from flaremq.store.queue.queues import Queues
from flaremq.store.reader import Reader
from flaremq.store.recovery import Recovery, RecoveryReport
from flaremq.store.settings import LIVE, BrokerRole, FlushDisk, StoreSettings
from flaremq.store.space import Space
from flaremq.store.workers import Workers, Works

log = logging.getLogger(__name__)

_LOCAL_HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
_UNSEEN_S = 60.0  # How often the log hears that queues cannot be written.


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
        workers: WorkerFactory = Worker,
        make_log: LogFactory = CommitLog,
    ) -> None:
        """`owner_dispatches`: the code that puts also calls `show`, in an event loop that must not wait for
        the disk, so no thread need be woken for it.
        `on_step` is called after each step of opening; `workers` makes the threads."""
        self._worker_factory = workers
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
        self.log = make_log(
            self.disk,
            settings,
            self.clock,
            store_host,
            self.offsets,
            roll_wait_s=LOOP_WAIT_S if owner_dispatches else WAIT_S,
            listener=Reporter(self.flags, "making log files"),
            workers=workers,
        )
        self._space = Space(self.disk, self.log)
        self._unseen = Seldom(_UNSEEN_S)
        self.queues = Queues(self.disk, settings, is_batch)
        self.report: RecoveryReport | None = None
        self.given_up = 0
        """How many bytes of a slave's log lay behind a hole when it was opened, and were put aside."""
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
        self._appended = 0  # Records that were put, or copied before this store led.
        self._loaded = self._open = self._takes_puts = False
        self._may_put = not self.log.is_shared
        self._leads = self._may_put and settings.role is not BrokerRole.SLAVE

    # Opening and closing.

    def open(self) -> RecoveryReport:
        """Take the folder, load and recover what lies there, and start to serve."""
        report = self.load()
        self.start()
        return report

    def load(self) -> RecoveryReport:
        """The first half of opening: what lies there can be read, but nothing runs yet."""
        make_way(self.disk, self.settings.root)
        self._lock.acquire()
        try:
            return self._load()
        except BaseException:
            self._lock.release()
            raise

    def _load(self) -> RecoveryReport:
        settings, clean = self.settings, not self._abort.exists()
        self._on_step(f"abort check: the last stop was {'clean' if clean else 'not clean'}")
        for folder in (*settings.commitlog_folders, settings.consumequeue_folder):
            make_way(self.disk, folder)
        is_copy = settings.role is BrokerRole.SLAVE or self.log.is_shared
        hole = find_hole(self.disk, settings) if is_copy else None
        if hole is not None:
            self._abort.create()  # Queues and index may know more than the log: that is no clean stop.
            clean, self.given_up = False, give_up_behind(hole, self.disk, settings, self.clock)
        self.log.load()
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
        recovery = Recovery(
            settings, self.log, self.queues, self.index, self.checkpoint, self.dispatcher, self.offsets
        )
        self.report = recovery.run(clean=clean, damaged=damaged, index_damaged=index_damaged)
        if hole is not None:
            self.checkpoint.forget()  # What is copied again has the times of what is gone.
        self._on_step("recovery")
        dispatcher = self.dispatcher
        self.reader = Reader(
            self.log, self.queues, settings, lambda: self.follows, lambda: dispatcher.behind > 0
        )
        self.finder = Finder(self.log, self.queues, self.index, self.reader)
        self._make_workers()
        self._loaded = True
        return self.report

    def start(self) -> None:
        """The second half: files are made ahead, flushed, dispatched to and cleaned; messages are taken."""
        self.log.start()
        self.workers.start(self._on_step)
        self._open = True
        self._takes_puts = self._leads and self._may_put

    def _index_flushed(self, end_ms: int) -> None:
        self.checkpoint.index_time_ms = end_ms

    def _make_workers(self) -> None:
        works = Works(
            self.log, self.queues, self.index, self.dispatcher, self.checkpoint, self.flags, self._background
        )
        self.workers = Workers(
            self.settings,
            self.clock,
            self.disk,
            works,
            owner_dispatches=not self._wakes_dispatch,
            workers=self._worker_factory,
        )
        self.retention = self.workers.retention

    def change(self, settings: StoreSettings) -> None:
        """Go on with other values of what may change while a store runs; all else stays (settings.LIVE)."""
        self.settings = replace(self.settings, **{name: getattr(settings, name) for name in LIVE})
        self.log.change(self.settings)
        if self._loaded:
            self.retention.settings = self.settings
            self.workers.cleaner.wake()  # A disk that was too full by the old values may not be by these.

    def close(self) -> None:
        """Flush and dispatch everything, and leave the folder as after a clean stop.

        Accepted messages are committed and synced whatever else fails. If that fails, or queues cannot be
        completed, the next start recovers as after a crash. Raises the first failure, but is closed all
        the same. A store that was loaded and never started is closed as it is.
        """
        with self._append_lock:
            loaded, self._loaded = self._loaded, False
            started, self._open, self._takes_puts = self._open, False, False
        if loaded and not started:
            self._let_go()
        if not started:
            return
        failed = self.workers.stop()
        complete = self.workers.complete()
        try:
            self.log.stop()
        except Exception as error:
            log.exception("spare log files could not be removed")
            failed.append(error)
        self._let_go(clean=complete)
        if failed:
            raise failed[0]

    def abandon(self) -> None:
        """Release the folder and do nothing else, as the end of a killed process does: for simulators."""
        self._lock.release()

    def _let_go(self, *, clean: bool = False) -> None:
        try:
            for part in (self.queues, self.index, self.log, self.checkpoint):
                if part is not None:
                    part.close()
            if clean:
                self._abort.remove()
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Writing.

    @property
    def flushed(self) -> Watermark:
        """How far the log is safe: what a durable put waits for, and what progress may be saved for. On the
        disk, or, of a log that is shared, decided on by its group."""
        return self.log.safe

    def sync(self, end: int) -> None:
        """Put the log on the disk up to an end, if it is not there yet. Blocks, and raises FlushFailed."""
        if self.flushed.value < end:
            self.log.commit(0)
            self.workers.log_flusher.flush(0)
            if self.flags.failure is not None:
                raise self.flags.failure

    def put_many(self, drafts: Drafts) -> int:
        """Append rows of drafts, the fast lane; see CommitLog.append_many. Does not wait."""
        self.check_writable()
        with self._append_lock:
            stored = self._append(drafts)
        self._wake()
        return stored

    def _append(self, drafts: Drafts) -> int:
        """Append under the lock."""
        if not self._takes_puts:
            self.check_writable()  # Closed while this put waited: nothing is taken after the last flush.
        self.flags.append_began()
        try:
            stored = self.log.append_many(drafts)
        except DiskFull as error:
            self._space.refused(error)
            raise
        finally:
            self.flags.append_ended()
        if self._space.is_short:
            self._space.taken()
        self._appended += stored
        return stored

    def _wake(self) -> None:
        """Wake the flusher, and the dispatcher unless the owner dispatches."""
        self.workers.log_flusher.put()
        if self._wakes_dispatch:
            self.workers.dispatch.wake()

    def put(self, message: NewMessage, *, wait: bool = True) -> PutResult:
        """Store one message; under SYNC_FLUSH return when it is on the disk, or too late."""
        self.check_writable()
        with self._append_lock:
            drafts = self._drafting.one(message)
            self._append(drafts)
            self._drafting.stored()
            store_ms = self.log.last_store_ms
        self._wake()
        return result_of(drafts, 0, self._waited(drafts, wait), store_ms)

    def put_group(self, messages: Sequence[NewMessage]) -> list[PutResult]:
        """Store messages of any topics together, one behind the other: all or none. Does not wait."""
        self.check_writable()
        with self._append_lock:
            drafts = self._drafting.group(messages)
            self._append(drafts)
            store_ms = self.log.last_store_ms
        self._wake()
        return [result_of(drafts, row, PutStatus.PUT_OK, store_ms) for row in range(len(drafts))]

    def put_batch(self, batch: NewMessage, *, wait: bool = True) -> BatchResult:
        """Store the messages that its body is made of: all or none, one behind the other."""
        with self._append_lock:
            drafts = self._drafting.together(batch, self.settings.message_size_max)
        stored = self.put_many(drafts)
        assert stored == len(drafts)
        return batch_result_of(drafts, self._waited(drafts, wait), self.log.last_store_ms)

    def append_raw(self, physical_offset: int, data: memoryview) -> None:
        """Append bytes of the log that this one follows; see CommitLog.append_raw."""
        with self.appending():
            self.log.append_raw(data, physical_offset)

    @contextmanager
    def appending(self) -> Iterator[None]:
        """What is appended to the log meanwhile is flushed, and dispatched, like any put."""
        with self._append_lock:
            if not self._open:
                raise StoreClosed(f"the store at {self.settings.root} is not open: call open() first")
            if self.flags.failure is not None:
                raise NotWritable(f"this store takes no more messages: {self.flags.failure}")
            yield
        self._wake()

    @contextmanager
    def giving_up(self) -> Iterator[None]:
        """The end of the log may be given up meanwhile, as far as nothing of it was dispatched."""
        with self._append_lock, self.workers.log_flusher.paused():
            yield

    def cut(self, end: int) -> None:
        """Give up all records from the boundary `end` on, while the store is open: only for a log that
        follows another, which does not have them. Readers never see less than what is left."""
        with self._append_lock:
            failed = self.workers.stop()
            if failed:
                raise failed[0]
            self.checkpoint.forget()  # What comes now has the times of what goes, and is not yet safe.
            self.dispatcher.rewind(end, lambda: self._cut(end))
            if self.index is not None and self.index.cut(end):
                again = self.index.next_offset // self.log.file_size * self.log.file_size
                self.dispatcher.rewind(max(self.log.begin, again), lambda: None)
            needed = self.retention.needed
            self._make_workers()
            self.retention.needed = needed
            self.workers.start(lambda _step: None)

    def _cut(self, end: int) -> None:
        self.queues.truncate(end)
        self.log.truncate(end)

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
            if self.log.is_shared:
                raise NotWritable("this member of the group does not take messages now: send to its leader")
            raise NotWritable("this broker is a slave: send to its master")
        self.flags.check(self._appended - self.dispatcher.records)

    # A log that several stores share.

    @property
    def follows(self) -> bool:
        """Whether another store may have what this one lacks: a slave, or a member that does not lead."""
        return not self._leads

    def lead(self, term: int) -> None:
        """Take puts, now that all that the log holds may be seen, and is dispatched. Blocks until then.
        Raises NotWritable if the log belongs to another term by now, or the group does not decide on it."""
        end = self.log.await_confirmed()
        self.dispatch()
        with self._append_lock:
            if not self.log.is_of(term) or self.dispatcher.position < end:
                raise NotWritable(f"this member does not lead in term {term} any more: ask again who does")
            self.queues.number(self.offsets)
            self._appended = self.dispatcher.records
            self._leads = True
            self._takes_puts = self._open and self._may_put

    def follow(self) -> None:
        """Take no puts any more."""
        with self._append_lock:
            self._leads = self._takes_puts = False

    def allow(self, may_put: bool) -> None:
        """Whether a store that leads takes puts at the moment."""
        with self._append_lock:
            self._may_put = may_put
            self._takes_puts = self._open and self._leads and may_put

    def forget_owners(self) -> None:
        """Nobody hears of messages any more, or keeps old ones: the next owner begins anew."""
        self.dispatcher.listeners.clear()
        self.retention.needed.clear()

    # Reading.

    def get(
        self,
        topic: bytes,
        queue_id: int,
        queue_offset: int,
        count_max: int = 32,
        *,
        selector: Selector | None = None,
    ) -> ReadResult:
        """Messages of a queue, from a queue offset on."""
        if self.dispatcher.position < self.log.confirmed:
            self.show(wait=False)
        return self.reader.get(topic, queue_id, queue_offset, count_max, selector=selector)

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
        """Records with this key stored between two times, oldest first. `unique`: it is a message's id.

        Everything put before is found. Reads and makes files: not for an event loop."""
        self.show()
        limit = self.settings.unique_query_max if unique else min(count_max, self.settings.query_max)
        return self.finder.by_key(topic, key, limit, begin_ms, end_ms)

    def offset_by_time(
        self, topic: bytes, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        self.show(wait=False)
        return self.finder.by_time(topic, queue_id, timestamp_ms, boundary)

    def show(self, *, wait: bool = True) -> None:
        """Dispatch, so that readers see all earlier puts (without `wait`, except those that another thread
        is dispatching).

        Without `wait`, an owner that dispatches makes no files here: its event loop would wait for the disk.
        A thread does the rest soon. Never raises: that thread tries again until it succeeds.
        """
        try:
            self.dispatcher.catch_up(wait=wait, makes_files=wait or self._wakes_dispatch)
        except Exception as error:
            if self._unseen.due() is not None:
                log.error("consumers do not see all messages yet: %s", error, exc_info=error)
        if self.dispatcher.behind:
            self.workers.dispatch.wake()

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
        self.workers.cleaner.wake()
