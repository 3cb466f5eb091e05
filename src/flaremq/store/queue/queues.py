"""All queues of all topics: found, made when first needed, recovered, flushed and cut together."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from flaremq.base import descriptors
from flaremq.base.errors import CorruptStore, InvalidName
from flaremq.store.files.disk import Disk
from flaremq.store.files.filequeue import FileQueue
from flaremq.store.files.mappedfile import OpenFiles
from flaremq.store.queue.batchconsumequeue import BatchConsumeQueue
from flaremq.store.queue.consumequeue import ConsumeQueue
from flaremq.store.queue.entries import Key
from flaremq.store.queue.extension import ConsumeQueueExt, is_address
from flaremq.store.queue.nextoffsets import QueueOffsets
from flaremq.store.settings import StoreSettings

log = logging.getLogger(__name__)

AnyQueue: TypeAlias = ConsumeQueue | BatchConsumeQueue

_LONG_MAX = (1 << 63) - 1
_NAME_SIZE_MAX = 255  # Of a folder, in bytes.


class Queues:
    """One small object per queue. Only a limited number of their files are mapped at a time."""

    def __init__(self, disk: Disk, settings: StoreSettings, is_batch: Callable[[str], bool]) -> None:
        self._disk = disk
        self._settings = settings
        self._is_batch = is_batch
        self._queues: dict[Key, AnyQueue] = {}
        self._exts: dict[Key, ConsumeQueueExt] = {}
        self._removal = threading.Lock()  # Of removing a topic, and of flushing or trimming a queue.
        self._leaving: tuple[bytes, threading.Event] | None = None  # A topic, and the end of its removal.
        self.dirty: set[Key] = set()
        self.before_removal: Callable[[], None] = lambda: None
        """Called before a damaged queue is removed: from then on the log alone knows its messages."""
        self.open_files = OpenFiles(descriptors.queue_files(descriptors.limit()))

    def __iter__(self) -> Iterator[AnyQueue]:
        return iter(list(self._queues.values()))

    def __len__(self) -> int:
        return len(self._queues)

    def items(self) -> list[tuple[Key, AnyQueue]]:
        return list(self._queues.items())

    def get(self, topic: bytes, queue_id: int) -> AnyQueue | None:
        return self._queues.get((topic, queue_id))

    def ensure(self, key: Key) -> AnyQueue:
        """The queue of this topic and number, made now if it is new."""
        queue = self._queues.get(key)
        if queue is None:
            leaving = self._leaving
            if leaving is not None and leaving[0] == key[0]:
                leaving[1].wait()  # Not for the lock: the next who removes may have it, and wait for us.
            queue = self._queues[key] = self._make(key, self._is_batch(os.fsdecode(key[0])))
        return queue

    def ext(self, key: Key) -> ConsumeQueueExt | None:
        """The queue's extension; None while extensions are off."""
        ext = self._exts.get(key)
        if ext is None and self._settings.ext_enabled:
            ext = self._exts[key] = self._make_ext(key)
        return ext

    def _make(self, key: Key, batch: bool) -> AnyQueue:
        topic, queue_id = folder_name(key[0]), key[1]
        settings = self._settings
        if batch:
            folder = settings.batch_queue_folder / topic / str(queue_id)
            return BatchConsumeQueue(self._files(folder, settings.batch_queue_file_size))
        folder = settings.consumequeue_folder / topic / str(queue_id)
        return ConsumeQueue(topic, queue_id, self._files(folder, settings.consumequeue_bytes))

    def _make_ext(self, key: Key) -> ConsumeQueueExt:
        folder = self._settings.ext_folder / folder_name(key[0]) / str(key[1])
        return ConsumeQueueExt(self._files(folder, self._settings.ext_file_size))

    def _files(self, folder: Path, file_size: int) -> FileQueue:
        return FileQueue(self._disk, [folder], file_size, open_files=self.open_files)

    def load(self) -> list[Key]:
        """Find the queues on disk. Those whose files make no sense are removed and returned: they
        will be rebuilt from the log."""
        damaged: list[Key] = []
        for root, batch in (
            (self._settings.consumequeue_folder, False),
            (self._settings.batch_queue_folder, True),
        ):
            for key in self._keys_below(root):
                queue, folder = self._make(key, batch), root / folder_name(key[0]) / str(key[1])
                try:
                    self._check_hollow(folder)
                    queue.load()
                except CorruptStore as error:
                    log.error("a queue is damaged and will be rebuilt: %s", error)
                    self.before_removal()
                    self._disk.delete_folder(folder)
                    damaged.append(key)
                    continue
                self._queues[key] = queue
        if self._settings.ext_enabled:
            for key in self._keys_below(self._settings.ext_folder):
                self._load_ext(key)
        return damaged

    def _check_hollow(self, folder: Path) -> None:
        """A queue has bytes, unless it died at its very birth; a log file may be empty, as in Java."""
        names = self._disk.names(folder)
        if not names or not all(self._disk.size(folder / name) for name in names):
            raise CorruptStore(f"{folder}: {len(names)} files, and not all of them have any bytes")

    def _load_ext(self, key: Key) -> None:
        ext = self._make_ext(key)
        try:
            ext.load()
        except CorruptStore as error:
            # Filters then look at the messages themselves: slower, and as right.
            log.error(
                "queue extension %s-%d is damaged and was removed: %s", os.fsdecode(key[0]), key[1], error
            )
            self._disk.delete_folder(self._settings.ext_folder / os.fsdecode(key[0]) / str(key[1]))
            ext = self._make_ext(key)
        self._exts[key] = ext

    def _keys_below(self, root: Path) -> Iterator[Key]:
        for topic in self._disk.folders(root):
            for queue_id in self._disk.folders(root / topic):
                if queue_id.isascii() and queue_id.isdigit():
                    yield os.fsencode(topic), int(queue_id)
                else:
                    log.warning("%s is no queue: its name is not a number", root / topic / queue_id)

    def recover(self, damaged: dict[Key, None], trusted_end: int | None = None) -> int:
        """Find the end of every queue; where the newest record lies that any of them knows, or -1.

        Entries of records from `trusted_end` on are forgotten. A queue that makes no sense is removed
        and joins `damaged`.
        """
        newest = -1
        for key, queue in self.items():
            try:
                queue.recover(_LONG_MAX if trusted_end is None else trusted_end)
            except CorruptStore as error:
                log.error("queue %s-%d will be rebuilt: %s", folder_name(key[0]), key[1], error)
                self.before_removal()
                self.remove(key)
                damaged[key] = None
                continue
            if trusted_end is not None:
                self.dirty.add(key)  # Cuts, here or above, are not on the disk yet.
                if queue.newest >= trusted_end:
                    queue.truncate_to(trusted_end)
            newest = max(newest, queue.newest)
            self._recover_ext(key, queue)
        return newest

    def _recover_ext(self, key: Key, queue: AnyQueue) -> None:
        """An extension that was lost with its folder is missed when the last entry points to it."""
        last = queue.listed(queue.max_offset - 1, 1)
        missed = bool(last) and is_address(last[0][2])
        ext = self.ext(key) if missed else self._exts.get(key)
        if ext is not None:
            ext.recover(queue.last_address() or 0)

    def number(self, offsets: QueueOffsets) -> None:
        """The next offsets follow from the queues, so they cannot run ahead of the log."""
        offsets.reset()
        for (topic, queue_id), queue in self.items():
            offsets.set(topic, queue_id, queue.max_offset)

    def truncate(self, physical_offset: int) -> None:
        """Forget the entries of records at or behind `physical_offset`."""
        for queue in self:
            if queue.newest >= physical_offset:
                queue.truncate_to(physical_offset)

    def remove(self, key: Key) -> None:
        """Take a queue away with its files and its folder."""
        queue, ext = self._queues.pop(key, None), self._exts.pop(key, None)
        self.dirty.discard(key)
        if queue is not None:
            queue.destroy()
            if self._disk.exists(queue.folder):
                self._disk.sync_folder(queue.folder)  # It must not come back.
                self._disk.delete_folder(queue.folder)
        if ext is not None:
            ext.destroy()

    def remove_topic(self, topic: bytes, dispatching: threading.Lock) -> int:
        """Take all queues of a topic away with their files and folders; how many there were.

        Nothing is dispatched while they leave the table, which is short. Their files go behind that, and
        who needs a queue of this topic anew waits for it: new files would go with the old ones.
        """
        name, settings, gone = folder_name(topic), self._settings, threading.Event()
        with self._removal:
            with dispatching:
                self._leaving = topic, gone
                keys = [key for key in self._queues if key[0] == topic]
                taken = [(self._queues.pop(key), self._exts.pop(key, None)) for key in keys]
                self.dirty.difference_update(keys)
            try:
                for queue, ext in taken:
                    queue.destroy()
                    if ext is not None:
                        ext.destroy()
                for root in (settings.consumequeue_folder, settings.batch_queue_folder, settings.ext_folder):
                    if self._disk.exists(root / name):
                        self._disk.delete_folder(root / name)
                        self._disk.sync_folder(root)  # It must not come back.
            finally:
                self._leaving = None
                gone.set()
        return len(keys)

    def remove_all(self) -> None:
        for key in list(self._queues):
            self.remove(key)

    def trimmed(self) -> list[Trimmed]:
        """Every queue with its extension, to follow a log that has lost its oldest files."""
        return [Trimmed(self, key, queue) for key, queue in self.items()]

    @contextmanager
    def staying(self, key: Key, queue: AnyQueue) -> Iterator[bool]:
        """Whether this queue is still the one of its key; as long as this is held it is not removed."""
        with self._removal:
            yield self._queues.get(key) is queue

    def ext_of(self, key: Key) -> ConsumeQueueExt | None:
        """The queue's extension, if it has one."""
        return self._exts.get(key)

    def flush(self, least_pages: int) -> None:
        """Sync queues with at least this many dirty pages; 0 syncs all that were written to."""
        for key in sorted(self.dirty):
            if least_pages == 0:
                self.dirty.discard(key)  # First: an entry that comes meanwhile marks it again.
            try:
                with self._removal:
                    queue, ext = self._queues.get(key), self._exts.get(key)
                    if queue is not None:
                        queue.flush(least_pages)
                    if ext is not None:
                        ext.flush(least_pages)
            except BaseException:
                self.dirty.add(key)  # It is as unsafe as before.
                raise

    def close(self) -> None:
        for queue in self:
            queue.close()
        for ext in self._exts.values():
            ext.close()


@dataclass(frozen=True, slots=True)
class Trimmed:
    """A queue and its extension, which lose their oldest files together.

    Its topic may be removed at any time. Then nothing is done here: its files go, or are gone.
    """

    queues: Queues
    key: Key
    queue: AnyQueue

    def delete_before(self, log_min: int) -> int:
        with self.queues.staying(self.key, self.queue) as stays:
            return self.queue.delete_before(log_min) if stays else 0

    def correct_min(self, log_min: int) -> None:
        with self.queues.staying(self.key, self.queue) as stays:
            if not stays:
                return
            self.queue.correct_min(log_min)
            ext = self.queues.ext_of(self.key)
            first = self.queue.first_address() if ext else None
            if ext is not None and first is not None:
                ext.delete_before(first)


def folder_name(topic: bytes) -> str:
    """A topic as the name of a folder. What would lead elsewhere is refused."""
    name = os.fsdecode(topic)
    if not name or "/" in name or "\0" in name or name in (".", "..") or len(topic) > _NAME_SIZE_MAX:
        raise InvalidName(f"topic {name!r} cannot be the name of a folder, and so of no queue")
    return name
