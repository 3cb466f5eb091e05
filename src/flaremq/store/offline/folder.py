"""A store folder at a glance: files, ranges, queues, index, checkpoint, and its owner. Read-only."""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from flaremq.base.errors import CorruptStore, InvalidParameter
from flaremq.base.localpath import local_path
from flaremq.model import layout
from flaremq.model.columns import Fact
from flaremq.store.files.disk import Disk
from flaremq.store.files.lock import holder
from flaremq.store.index.indexfile import IndexHeader
from flaremq.store.offline.queuefiles import OfflineQueues
from flaremq.store.offline.scan import LogFile, StoreScan, Walked, ledger_data

_CHECKPOINT: Final = struct.Struct(layout.CHECKPOINT_FORMAT)
_MARKS: Final = ("commitlog", "consumequeue", "index", "checkpoint", "abort", "lock", "config")


@dataclass(frozen=True, slots=True)
class QueueFacts:
    topic: str
    queue_id: int
    min_offset: int
    """Of the first message whose record is still there."""
    max_offset: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class IndexFacts:
    path: Path
    size: int
    header: IndexHeader


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    log_time_ms: int
    queue_time_ms: int
    index_time_ms: int


@dataclass(slots=True)
class StoreFacts:
    root: Path
    holder: int | None
    has_abort: bool
    log_files: list[LogFile]
    log_begin: int = 0
    log_end: int = 0
    first_ms: int = 0
    last_ms: int = 0
    queues: list[QueueFacts] = field(default_factory=list)
    index: list[IndexFacts] = field(default_factory=list)
    checkpoint: CheckpointFacts | None = None
    odd: list[str] = field(default_factory=list)
    """What does not look as it should, in sentences."""

    @property
    def log_bytes(self) -> int:
        return sum(file.size for file in self.log_files)


class OfflineStore:
    """A store folder, read only. InvalidParameter if it is not one."""

    def __init__(self, root: Path) -> None:
        root = local_path(root)
        if not root.is_dir():
            what = "is a file" if root.exists() else "does not exist"
            raise InvalidParameter(f"{root} {what}: expected a store folder (storePathRootDir)")
        if not any((root / name).exists() for name in _MARKS[:3]) and not ledger_data(root):
            inside = root / "store"
            hint = (
                f"did you mean {inside}?"
                if inside.is_dir()
                else "expected the folder named by storePathRootDir"
            )
            raise InvalidParameter(f"{root} is not a store folder, it has no commitlog: {hint}")
        self.root = root
        self.disk = Disk()
        self.scan = StoreScan(root)
        self.queues = OfflineQueues(root, self.disk)

    @property
    def is_live(self) -> bool:
        return holder(self.root) is not None

    @property
    def has_abort(self) -> bool:
        return (self.root / "abort").exists()

    def facts(self) -> StoreFacts:
        facts = StoreFacts(self.root, holder(self.root), self.has_abort, self.scan.log_files())
        self._log(facts)
        self._queues(facts)
        self._index(facts)
        facts.checkpoint = self.checkpoint(facts.odd)
        return facts

    def _log(self, facts: StoreFacts) -> None:
        files = facts.log_files
        if not files:
            return
        facts.log_begin = files[0].offset
        for before, after in pairwise(files):
            if before.offset + before.size != after.offset:
                facts.odd.append(
                    f"{after.path}: begins at {after.offset}, but the file before it ends at "
                    f"{before.offset + before.size}"
                )
        first = next(self.scan.file_records(files[0]), None)
        if first is not None:
            facts.first_ms = first.facts[Fact.STORE_TIMESTAMP]
        for file in reversed(files):  # A spare one that nothing was written to yet may be the last.
            last = _last(self.scan.file_records(file))
            if last is not None:
                row = (last.count - 1) * Fact.WIDTH
                facts.log_end = last.facts[row + Fact.OFFSET] + last.facts[row + Fact.SIZE]
                facts.last_ms = last.facts[row + Fact.STORE_TIMESTAMP]
                return
        facts.log_end = facts.log_begin

    def _queues(self, facts: StoreFacts) -> None:
        for topic, queue_id in self.queues.names():
            queue = self.queues.get(topic, queue_id)
            if queue is not None:
                size = sum(file.count for file in queue.files) * layout.ENTRY_SIZE
                first = queue.first_of(facts.log_begin)
                facts.queues.append(QueueFacts(topic, queue_id, first, queue.end, len(queue.files), size))

    def _index(self, facts: StoreFacts) -> None:
        folder = self.root / "index"
        for name in self.disk.names(folder):
            path = folder / name
            try:
                view = self.disk.look(path)
                facts.index.append(IndexFacts(path, len(view), IndexHeader.read(view)))
            except (CorruptStore, struct.error):
                facts.odd.append(f"{path}: too short to be an index file")

    def committed_index(self) -> int | None:
        """The last entry of a ledger of which its member knows that the group has decided on it; None in a
        plain store, or if the checkpoint of the ledger does not say."""
        for data in ledger_data(self.root):
            path = data.parent / "checkpoint"
            text = path.read_text() if path.is_file() else ""
            found = re.search(r"^committedIndex=(-?\d+)", text, re.MULTILINE)
            return int(found[1]) if found is not None else None
        return None

    def checkpoint(self, odd: list[str]) -> CheckpointFacts | None:
        path = self.root / "checkpoint"
        if not path.exists():
            return None
        try:
            found = _CHECKPOINT.unpack_from(self.disk.look(path))
        except (CorruptStore, struct.error):
            odd.append(f"{path}: too short to be a checkpoint; a broker would make a new one")
            return None
        if min(found) < 0:
            odd.append(f"{path}: has negative values, so a broker would count them as none")
        return CheckpointFacts(*found[:3])


def file_sizes(root: Path) -> dict[str, object]:
    """Options with the file sizes of a store, as far as its files show them."""
    found: dict[str, object] = {}
    patterns = {
        "mappedFileSizeCommitLog": "commitlog/[0-9]*",
        "mappedFileSizeConsumeQueue": "consumequeue/*/*/[0-9]*",
    }
    for option, pattern in patterns.items():
        size = _first_size(root, pattern)
        if size:
            found[option] = size
    slots = layout.index_slots(_first_size(root, "index/[0-9]*"))
    if slots is not None:
        found |= {"maxHashSlotNum": slots, "maxIndexNum": 4 * slots}
    return found


def _first_size(root: Path, pattern: str) -> int:
    """Size of the first file that has one, else 0."""
    return next((size for path in root.glob(pattern) if (size := path.stat().st_size)), 0)


def _last(all_walked: Iterator[Walked]) -> Walked | None:
    found: deque[Walked] = deque(all_walked, maxlen=1)
    return found[0] if found else None
