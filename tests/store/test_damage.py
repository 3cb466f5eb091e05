"""Any file of a store is emptied, halved, flipped, overwritten or gone: all whole records are served.

Only a log file of the wrong length stops a start, and then by its name.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from tests.store.lives import end_of
from tests.store.proofs import Queue, a_proof, has_key, served

from flaremq.base.errors import CorruptStore
from flaremq.store.store import MessageStore
from flaremq.testing.builders import small_settings
from flaremq.testing.clock import ManualClock
from flaremq.testing.disk import FaultyDisk

QUEUES: Final[tuple[Queue, ...]] = ((b"A", 0), (b"A", 1), (b"Batch", 0))
OPTIONS: Final[dict[str, Any]] = {
    "append_crc": True, "force_record_crc": True, "ext_enabled": True, "index_entries": 40,
}  # fmt: skip
COUNT: Final = 300
EXPECTED: Final = {queue: [f"m{i}" for i in range(COUNT) if QUEUES[i % 3] == queue] for queue in QUEUES}


def opened(root: Path) -> MessageStore:
    store = MessageStore(
        small_settings(root, **OPTIONS),
        clock=ManualClock(),
        disk=FaultyDisk(),
        is_batch=lambda topic: topic == "Batch",
    )
    store.open()
    return store


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One store that was stopped, and one whose process died."""
    made = {"stopped": tmp_path_factory.mktemp("stopped"), "killed": tmp_path_factory.mktemp("killed")}
    for kind, root in made.items():
        store = opened(root)
        for i in range(COUNT):
            store.put(a_proof(QUEUES[i % 3], f"m{i}", 400))
        store.dispatch()
        store._queue_flusher.flush(0)
        if kind == "stopped":
            store.close()
        else:
            end_of(store)
    return made


def last_with_bytes(folder: Path) -> Path:
    return max(path for path in folder.iterdir() if any(path.read_bytes()))


FILES: Final[dict[str, Callable[[Path], Path]]] = {
    "the log's tail": lambda root: last_with_bytes(root / "commitlog"),
    "a queue's first": lambda root: min((root / "consumequeue" / "A" / "1").iterdir()),
    "a queue's last": lambda root: max((root / "consumequeue" / "A" / "1").iterdir()),
    "a batch queue's first": lambda root: min((root / "batchconsumequeue" / "Batch" / "0").iterdir()),
    "a batch queue's last": lambda root: max((root / "batchconsumequeue" / "Batch" / "0").iterdir()),
    "an extension's first": lambda root: min((root / "consumequeue_ext" / "A" / "1").iterdir()),
    "an extension's last": lambda root: max((root / "consumequeue_ext" / "A" / "1").iterdir()),
    "the index's first": lambda root: min((root / "index").iterdir()),
    "the index's last": lambda root: max((root / "index").iterdir()),
    "the checkpoint": lambda root: root / "checkpoint",
    "the lock": lambda root: root / "lock",
    "the abort mark": lambda root: root / "abort",
}


TRUSTED: Final = [file for file in FILES if any(word in file for word in ("queue", "extension", "index"))]


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    used = len(data.rstrip(b"\0"))
    for at in Random(path.name).sample(range(used), min(used, 5)):
        data[at] ^= 0x55
    path.write_bytes(data)


def overwritten(path: Path) -> None:
    path.write_bytes(b"\xff" * path.stat().st_size)


def removed(path: Path) -> None:
    path.unlink()


def damaged(store: Path, root: Path, file: str, damage: Any) -> Path:
    shutil.copytree(store, root)
    path = FILES[file](root)
    if not path.exists():
        path.touch()
    damage(path)
    return path


CASES: Final = [
    pytest.param(end, file, damage, id=f"{end}, {file} {damage.__name__}")
    for end in ("stopped", "killed")
    for file in FILES
    for damage in (emptied, halved, flipped, overwritten, removed)
    # Formats without a checksum: a clean stop vouches for them, and nobody looks again.
    if not (end == "stopped" and damage is flipped and file in TRUSTED)
    # Retention leaves the same picture.
    if not (damage is removed and ("first" in file or "index" in file))
]


@pytest.mark.parametrize(("end", "file", "damage"), CASES)
def test_whatever_happened_to_a_file_all_whole_records_are_served(
    stores: dict[str, Path], tmp_path: Path, end: str, file: str, damage: Any
) -> None:
    path = damaged(stores[end], tmp_path / "store", file, damage)
    if file == "the log's tail" and damage is halved:
        with pytest.raises(CorruptStore, match=path.name):
            opened(tmp_path / "store")
        return
    store = opened(tmp_path / "store")
    try:
        found = served(store)
        if file == "the log's tail":
            assert all(names == EXPECTED[queue][: len(names)] for queue, names in found.items())
        else:
            assert found == EXPECTED
            assert all(has_key(store, queue, found[queue][i]) for queue in QUEUES for i in (0, 50, -1))
        for queue, names in found.items():
            assert store.put(a_proof(queue, "next")).queue_offset == len(names)
        assert [names[-1] for names in served(store).values()] == ["next"] * 3
    finally:
        store.close()


@pytest.mark.parametrize("file", TRUSTED)
def test_flipped_bytes_after_a_clean_stop_stop_no_reader(
    stores: dict[str, Path], tmp_path: Path, file: str
) -> None:
    """What the entry pointed to is not found, but whoever reads gets on, and other queues are whole."""
    damaged(stores["stopped"], tmp_path / "store", file, flipped)
    store = opened(tmp_path / "store")
    try:
        for queue in QUEUES:
            at = 0
            while at < store.max_offset(*queue):
                result = store.get(*queue, at)
                assert result.next_offset > at
                at = result.next_offset
            assert at >= 100
    finally:
        store.close()
