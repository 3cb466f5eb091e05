"""The commit log: every message of every topic, once, in arrival order.

    socket > frame > handler > put > [append] > flush > replicate > respond

One writer at a time; readers on any thread, below `readable_end` only. A record never straddles
two files: a full file ends in a blank record, so recovery and Spark can walk a file knowing nothing
of its neighbours.
"""

from __future__ import annotations

import logging
import mmap
import struct
import threading
from collections.abc import Callable
from typing import ClassVar, NoReturn, Protocol

from flaremq.base.clock import Clock
from flaremq.base.errors import (
    BodyTooLarge,
    FlareError,
    InvalidName,
    Malformed,
    PropertiesTooLong,
    RecordTooLarge,
)
from flaremq.base.lifecycle import Listener, Worker, WorkerFactory
from flaremq.base.units import MiB
from flaremq.base.watermark import Watermark
from flaremq.model import layout
from flaremq.model.columns import Draft, Drafts
from flaremq.model.encode import Encoder
from flaremq.store.filelog import FileLog
from flaremq.store.files.bufferpool import BufferPool
from flaremq.store.files.disk import Disk
from flaremq.store.files.filequeue import FileQueue, LogFiles, Placement
from flaremq.store.files.mappedfile import MappedFile
from flaremq.store.files.preallocate import WAIT_S, Preallocator
from flaremq.store.queue.nextoffsets import QueueOffsets
from flaremq.store.settings import BrokerRole, FlushDisk, StoreSettings
from flaremq.store.wholerecords import WholeRecords

log = logging.getLogger(__name__)

_BLANK = struct.Struct(">ii")


class CommitLog(FileLog):
    """Append-only run of equal-sized mapped files.

    Invariants, asserted on the way in and checked again by recovery:
      L1  `end` only grows, and bytes below it never change.
      L2  a record lies in one file, with BLANK_SIZE bytes left after it.
      L3  the offset stored in a record is the offset it was appended at.
    """

    is_shared: ClassVar[bool] = False
    """Whether a group decides who appends to it, and how far consumers may see it."""
    files_ahead: ClassVar[int] = 2
    """Made before they are needed: a burst may fill one while the next is being made."""

    def __init__(
        self,
        disk: Disk,
        settings: StoreSettings,
        clock: Clock,
        store_host: bytes,
        offsets: QueueOffsets,
        *,
        roll_wait_s: float = WAIT_S,
        listener: Listener | None = None,
        workers: WorkerFactory = Worker,
    ) -> None:
        """`roll_wait_s`: so long an append waits for its next file; `listener` hears how making them goes."""
        self.settings = settings
        self.offsets = offsets
        self.flushed = Watermark()
        self.last_store_ms = 0  # Of the newest append, for the checkpoint.
        self.flushes_at_once = settings.flush_disk is FlushDisk.SYNC_FLUSH
        """Whether somebody waits for each append to be on the disk."""
        self._confirms_flushed = settings.flush_disk is FlushDisk.SYNC_FLUSH and not settings.read_uncommitted
        self._whole: WholeRecords | None = None  # Of a log that follows another, and may end within a record.
        self._watchers: tuple[Callable[[], None], ...] = ()
        self._clock = clock
        self._encoder = Encoder(
            store_host, settings.append_crc, settings.message_size_max, self.record_size_max, self.head
        )
        self._placement = Placement(disk, settings)
        self.files = FileQueue(
            disk, self._placement.all_folders, settings.commitlog_file_size, place=self._placement.folder_for
        )
        self.preallocator = Preallocator(
            disk, settings, wait_s=roll_wait_s, listener=listener, workers=workers
        )
        self.pool: BufferPool | None = None
        self._buffers: dict[MappedFile, mmap.mmap] = {}
        self._committing = threading.Lock()
        self._active: MappedFile | None = None
        self._out = memoryview(b"")  # Where the active file is written: its map, or its pool buffer.

    def load(self) -> None:
        """Find what lies on the disk. Recovery says how much of it is whole."""
        self.files.load()

    @property
    def record_size_max(self) -> int:
        """The largest record, as far as a file can hold it."""
        room = self.settings.commitlog_file_size - self.head - layout.BLANK_SIZE
        return min(self.settings.record_size_max, room)

    @property
    def deletable(self) -> LogFiles:
        """The files of which the oldest may go."""
        return self.files

    @property
    def safe(self) -> Watermark:
        """How far nothing can be lost any more that this log has promised to keep."""
        return self.flushed

    @property
    def end(self) -> int:
        """Behind the last byte that was appended."""
        files = self.files.files
        return files[-1].offset + files[-1].wrote if files else 0

    @property
    def unflushed(self) -> int:
        """Bytes that were appended and are not known to be on the disk."""
        file = self._active
        return 0 if file is None else file.offset + file.wrote - self.flushed.value

    @property
    def readable_end(self) -> int:
        """Behind the last byte that readers may see: with a pool, what was committed to the file."""
        newest = self._active
        if newest is not None and newest.committed:
            return newest.offset + newest.committed
        files = self.files.files
        for file in reversed(files):
            if file.committed or file is self.files.files[0]:
                return file.offset + file.committed
        return self.begin

    @property
    def confirmed(self) -> int:
        """How far dispatch may go, and so what consumers can see."""
        end = self.flushed.value if self._confirms_flushed else self.readable_end
        return end if self._whole is None else min(end, self._whole.end)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when `confirmed` may have grown, in the thread that made it grow, perhaps under the lock
        of an append: it must be quick and never raise. Returns a function that ends this."""
        if self._confirms_flushed:
            return self.flushed.watch(lambda _value: callback())
        self._watchers = (*self._watchers, callback)

        def unwatch() -> None:
            self._watchers = tuple(other for other in self._watchers if other is not callback)

        return unwatch

    def _grown(self) -> None:
        for callback in self._watchers:
            callback()

    def await_confirmed(self) -> int:
        """Return the end of now, when everything up to it may be seen."""
        return self.confirmed

    def is_of(self, term: int) -> bool:  # noqa: ARG002 - Of a log that is not shared, always.
        """Whether it takes appends of this term of its group."""
        return True

    def start(self) -> None:
        """After recovery: make the pool, take the active file, and let the next ones be made."""
        if self.settings.pool_used:
            self.pool = BufferPool(self.settings.pool_size, self.file_size)
        self.preallocator.start()
        files = self.files.files
        if files and files[-1].wrote < files[-1].size:
            self._activate(files[-1])
        end = files[-1].end if files else self.begin
        if self.settings.role is BrokerRole.SLAVE:
            self._whole = WholeRecords(self, self.end)
            if not files:
                return  # Its master says where it begins.
        self._make_ahead(end)
        if self._active is None:
            self.preallocator.wait_ready(end)  # The first message shall not have to.

    def _make_ahead(self, end: int) -> None:
        for offset in range(end, end + self.files_ahead * self.file_size, self.file_size):
            self.preallocator.want(offset, self.files.path_of(offset))

    def change(self, settings: StoreSettings) -> None:
        """Go on with other levels of how full a disk may be."""
        self._placement.full_ratio = settings.disk_clean_forcibly_ratio

    def append_many(self, drafts: Drafts) -> int:
        """Store rows of drafts and say how many; their last columns tell where each one landed.

        Nothing is durable yet: that is `flushed`. A row that may not be stored raises before any
        byte is written. When the next file cannot be had, the rows that still found room stand and
        the number is less than asked; if none did, the reason is raised.
        """
        rows, done = len(drafts), 0
        if self._active is None:
            self._roll()
        self.last_store_ms = now_ms = self._clock.now_ms()
        while True:
            file = self._active
            assert file is not None
            written = self._encoder.encode_many(
                drafts, done, self._out, file.wrote, file.offset, self.offsets.next, now_ms
            )
            if written < 0:
                self._refuse(drafts, -1 - written)
            if written:
                self._seal(drafts, done, written, file)
                done += written
                last = (done - 1) * Draft.WIDTH
                end = drafts.rows[last + Draft.PHYSICAL_OFFSET] + drafts.rows[last + Draft.SIZE] - file.offset
                assert end + layout.BLANK_SIZE <= file.size  # L2
                self._wrote(file, end)
            if done == rows:
                self._grown()
                return done
            if file.wrote == 0:
                self._refuse_together(drafts, done)
            try:
                self._roll()
            except FlareError:
                if done:
                    return done
                raise

    def _seal(self, drafts: Drafts, first: int, count: int, file: MappedFile) -> None:
        """Complete these rows, which were just written and nobody sees yet."""

    def append_raw(self, data: bytes | memoryview, offset: int | None = None) -> None:
        """Copy bytes of another log, where they lie at `offset`, to the end of this one.

        They do not cross the end of a file, and need not end with a record. An empty log begins with them,
        so they must be the first of a file there. Raises Malformed if they belong elsewhere.
        """
        files = self.files.files
        begins = self.end if files else (offset or 0) // self.file_size * self.file_size
        if offset is not None and offset != begins:
            raise Malformed(
                f"bytes of offset {offset} came, and this log goes on at {begins}: the logs are not the same"
            )
        room = self.file_size - begins % self.file_size
        if len(data) > room:
            raise Malformed(
                f"{len(data)} bytes at {begins} cross the end of a file of {self.file_size} bytes: "
                "the files of the other log have another size"
            )
        if not data:
            return
        if self._active is None or self._active.wrote == self._active.size:
            self._roll(begins)
        file = self._active
        assert file is not None
        end = file.wrote + len(data)
        self._out[file.wrote : end] = data
        self._wrote(file, end)
        if self._whole is not None:
            self._whole.grown(file.offset + end)
            self.last_store_ms = self._whole.last_store_ms or self.last_store_ms
        self._grown()

    def _wrote(self, file: MappedFile, position: int) -> None:
        file.wrote = position  # Last: a reader below it never sees half a record.
        if file not in self._buffers:
            file.committed = position

    def _refuse(self, drafts: Drafts, row: int) -> NoReturn:
        """Say what is wrong with a row that the encoder did not take."""
        r, rows = row * Draft.WIDTH, drafts.rows
        topic_size, body_max = rows[r + Draft.TOPIC_SIZE], self.settings.message_size_max
        if not 0 < topic_size <= layout.TOPIC_SIZE_MAX_V2:
            raise InvalidName(f"topic of {topic_size} bytes, limit is {layout.TOPIC_SIZE_MAX_V2}")
        if rows[r + Draft.BODY_SIZE] > body_max:
            raise BodyTooLarge(rows[r + Draft.BODY_SIZE], body_max)
        if rows[r + Draft.PROPERTIES_SIZE] + layout.CRC_TAIL_SIZE >= layout.PROPERTIES_SIZE_MAX:
            raise PropertiesTooLong(rows[r + Draft.PROPERTIES_SIZE], layout.PROPERTIES_SIZE_MAX)
        raise RecordTooLarge(layout.FIXED_SIZE + _variable_size(drafts, r), self.record_size_max)

    def _refuse_together(self, drafts: Drafts, row: int) -> NoReturn:
        """A batch that not even an empty file can hold."""
        size = 0
        for other in range(row, row + drafts.rows[row * Draft.WIDTH + Draft.TOGETHER]):
            size += self.head + layout.FIXED_SIZE + _variable_size(drafts, other * Draft.WIDTH)
        raise RecordTooLarge(size, self.file_size - layout.BLANK_SIZE)

    def _roll(self, begin: int = 0) -> None:
        """Have the next file ready, then end the current one with a blank record and go over to it. `begin`
        is where an empty log begins."""
        files = self.files.files
        offset = files[-1].end if files else begin
        pool = self.pool
        if pool is not None and not pool.available and self.settings.pool_fast_fail:
            pool.borrow()  # Raises if the pool is empty, before a file is made.
        file = self.preallocator.take(offset, self.files.path_of(offset))
        self._finish_active()
        self.files.adopt(file)
        self._activate(file)
        self._make_ahead(file.end)

    def _finish_active(self) -> None:
        file = self._active
        if file is not None and file.wrote < file.size:
            blank = self._blank(file.size - file.wrote)
            self._out[file.wrote : file.wrote + len(blank)] = blank
            self._wrote(file, file.size)
        if file is not None:
            file.file.unlock()
            if self.flushes_at_once and self.settings.read_ahead_enabled:
                file.file.expect_reads()

    def _blank(self, left: int) -> bytes:
        """What ends a file that has so many bytes left."""
        return _BLANK.pack(left, layout.BLANK_MAGIC)

    def _activate(self, file: MappedFile) -> None:
        if self.pool is not None and self.pool.available:
            buffer = self.pool.borrow()
            buffer[: file.wrote] = file.view[: file.wrote]
            self._buffers[file] = buffer
            self._out = memoryview(buffer)
        else:
            self._out = file.view
        self._active = file
        self._expect_appends(file)

    def _expect_appends(self, file: MappedFile) -> None:
        if self.flushes_at_once:
            file.file.expect_appends(file.wrote)

    def commit(self, least_pages: int) -> bool:
        """Copy what lies in pool buffers to their files; True if anything moved.

        Any thread may ask: under SYNC_FLUSH the flusher commits too.
        """
        with self._committing:
            return self._commit(least_pages)

    def _commit(self, least_pages: int) -> bool:
        moved = False
        for file, buffer in list(self._buffers.items()):
            wrote = file.wrote
            pages = wrote // layout.PAGE - file.committed // layout.PAGE
            if wrote > file.committed and (pages >= least_pages or wrote == file.size):
                with memoryview(buffer) as view:
                    file.file.write(file.committed, view[file.committed : wrote])
                file.committed = wrote
                moved = True
            if file.committed == file.size:
                del self._buffers[file]
                if self.pool is not None:
                    self.pool.give_back(buffer)
        if moved:
            self._grown()
        return moved

    def flush(self, least_pages: int) -> None:
        """Sync every file with at least this many dirty pages, oldest first, and move the mark.

        The mark never passes a file that still has unsynced bytes, so all before the one that it
        stands in are safe, and are not looked at: a log may have thousands.
        """
        files = self.files.files
        first = (self.flushed.value - files[0].offset) // self.file_size if files else 0
        for file in files[max(0, first) :]:
            if file.flushed < file.committed:
                if file.dirty_pages() < least_pages:
                    return
                self.flushed.advance(file.offset + file.flush())
            if file.committed < file.size:
                return

    def cut(self, end: int) -> int:
        """Bytes behind `end` are torn or were never written; spare files are blank."""
        files = self.files.files
        before = files[-1].end
        behind = sum(1 for file in files if file.offset > end and _has_bytes(file))
        tail = self.files.find(end)
        torn = tail is not None and any(tail.view[end - tail.offset : end - tail.offset + layout.BLANK_SIZE])
        if behind or torn:
            log.warning("the log ends at %d: a torn record and %d files behind it are removed", end, behind)
        self.truncate(end)
        self.flushed.advance(end)
        return before - end if behind or torn else 0

    def sync(self, begin: int, unsure: int) -> None:
        for file in self.files.files:
            if file.offset >= begin:
                self._write_again(file, max(0, unsure - file.offset))
                file.flushed = 0
                file.flush()

    @staticmethod
    def _write_again(file: MappedFile, at: int) -> None:
        for part in range(at, file.wrote, MiB):
            file.file.write(part, bytes(file.view[part : min(part + MiB, file.wrote)]))

    def truncate(self, offset: int) -> None:
        """Forget everything from `offset` on. Only while nothing is appended (recovery, a follower)."""
        self.files.truncate(offset, keep_first=True)
        self._active = None
        self._out = memoryview(b"")
        if self._whole is not None:
            self._whole.cut(offset)
        if self.flushed.value > offset:
            self.flushed.rewind(offset)
        files = self.files.files
        if files and files[-1].wrote < files[-1].size:
            files[-1].file.reserve(0, files[-1].size)  # A log of Java's has holes where nothing was written.
            self._active = files[-1]
            self._out = files[-1].view
            self._expect_appends(files[-1])

    def stop(self) -> None:
        """Nothing is appended any more."""
        self.preallocator.stop()

    def close(self) -> None:
        self._out = memoryview(b"")
        self._active = None
        self.files.close()


class LogFactory(Protocol):
    """Makes the log of a store."""

    def __call__(
        self,
        disk: Disk,
        settings: StoreSettings,
        clock: Clock,
        store_host: bytes,
        offsets: QueueOffsets,
        *,
        roll_wait_s: float,
        listener: Listener | None,
        workers: WorkerFactory,
    ) -> CommitLog: ...


def _has_bytes(file: MappedFile) -> bool:
    return any(file.view[: layout.BLANK_SIZE])


def _variable_size(drafts: Drafts, r: int) -> int:
    columns = (Draft.BODY_SIZE, Draft.TOPIC_SIZE, Draft.PROPERTIES_SIZE)
    return sum(drafts.rows[r + column] for column in columns)
