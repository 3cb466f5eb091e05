"""Any file of a store is emptied, halved, flipped, overwritten or gone: all whole records are served.

Only a log file of the wrong length stops a start, and then by its name.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import pytest
from tests.store.lives import end_of
from tests.store.proofs import ByTag, Queue, a_proof, has_key, name_in, served

from flaremq.base.errors import CorruptStore
from flaremq.model.record import decode_many
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import a_message, small_settings
from flaremq.testing.fakes.disk import FaultyDisk

IDLE: Final[Queue] = (b"Idle", 0)  # These two get the first messages, and none after them.
IDLE_BATCH: Final[Queue] = (b"IdleBatch", 0)
QUEUES: Final[tuple[Queue, ...]] = ((b"A", 0), (b"A", 1), (b"Batch", 0))
OPTIONS: Final[dict[str, Any]] = {
    "append_crc": True, "force_record_crc": True, "ext_enabled": True, "index_entries": 40,
}  # fmt: skip
COUNT: Final = 300
EXPECTED: Final = {
    IDLE: [f"i{i}" for i in range(60)],
    IDLE_BATCH: [f"b{i}" for i in range(60)],
    **{queue: [f"m{i}" for i in range(COUNT) if QUEUES[i % 3] == queue] for queue in QUEUES},
}


def opened(root: Path) -> MessageStore:
    store = MessageStore(
        small_settings(root, **OPTIONS),
        clock=ManualClock(),
        disk=FaultyDisk(),
        is_batch=lambda topic: "Batch" in topic,
    )
    store.open()
    return store


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One store that was stopped, and one whose process died."""
    made = {"stopped": tmp_path_factory.mktemp("stopped"), "killed": tmp_path_factory.mktemp("killed")}
    for kind, root in made.items():
        store = opened(root)
        for queue in (IDLE, IDLE_BATCH):
            for name in EXPECTED[queue]:
                store.put(a_proof(queue, name, 400))
        cast(ManualClock, store.clock).advance_ms(10_000)
        for i in range(COUNT):
            store.put(a_proof(QUEUES[i % 3], f"m{i}", 400))
        store.dispatch()
        store.workers.queue_flusher.flush(0)
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
    "an idle queue's first": lambda root: min((root / "consumequeue" / "Idle" / "0").iterdir()),
    "an idle queue's last": lambda root: max((root / "consumequeue" / "Idle" / "0").iterdir()),
    "an idle batch queue's first": lambda root: min((root / "batchconsumequeue" / "IdleBatch/0").iterdir()),
    "an idle batch queue's last": lambda root: max((root / "batchconsumequeue" / "IdleBatch/0").iterdir()),
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
    # Formats without a checksum: a clean stop or the checkpoint vouches for them, and nobody looks again.
    if not (end == "stopped" and damage is flipped and file in TRUSTED)
    if not ("idle" in file and damage is flipped)
    # Retention leaves the same picture.
    if not (damage is removed and ("first" in file or "index" in file or "idle" in file))
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
        assert found.keys() == EXPECTED.keys()
        for queue, names in found.items():
            assert names == EXPECTED[queue][: len(names) if file == "the log's tail" else None]
            assert all(has_key(store, queue, name) for name in (names[0], names[50], *names[-20:]))
            assert store.put(a_proof(queue, "next")).queue_offset == len(names)
        assert [names[-1] for names in served(store).values()] == ["next"] * 5
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
        for queue in EXPECTED:
            at = 0
            while at < store.max_offset(*queue):
                result = store.get(*queue, at)
                assert result.next_offset > at
                at = result.next_offset
            assert at >= len(EXPECTED[queue])
    finally:
        store.close()


@pytest.mark.parametrize(
    "damage", [emptied, removed, "all"], ids=["last emptied", "last removed", "all removed"]
)
def test_units_that_were_lost_are_not_taken_for_those_that_come_later(
    stores: dict[str, Path], tmp_path: Path, damage: Any
) -> None:
    """Entries still hold their addresses. Messages with another tag must not move in there."""
    root = tmp_path / "store"
    shutil.copytree(stores["stopped"], root)
    folder = root / "consumequeue_ext" / "A" / "1"
    if damage == "all":
        shutil.rmtree(folder)
    else:
        damage(max(folder.iterdir()))
    store = opened(root)
    try:
        for _ in range(100):
            store.put(a_message(topic=b"A", queue_id=1, properties=b"TAGS\x01other\x02"))
        store.dispatch()
        found: list[str] = []
        while len(found) < 100:
            records = store.get(b"A", 1, len(found), selector=ByTag()).gathered()
            found += [name_in((b"A", 1), message.body) for message in decode_many(records)]
        assert found == EXPECTED[b"A", 1]
    finally:
        store.close()


@pytest.mark.parametrize("end", [end_of, MessageStore.close], ids=["killed", "stopped"])
@pytest.mark.parametrize("torn", [20, 8], ids=["a whole entry", "its offset"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_queue_may_be_torn_at_the_head_of_any_file(
    tmp_path: Path, number: int, torn: int, end: Callable[[MessageStore], None]
) -> None:
    """The three newest files are looked at, and what they lack is made again."""
    store = opened(tmp_path)
    names = [f"m{i}" for i in range(190)]
    for name in names:
        store.put(a_proof(IDLE, name))
    store.dispatch()
    end(store)
    path = tmp_path / "consumequeue" / "Idle" / "0" / f"{number * 1000:020d}"
    path.write_bytes(bytes(torn) + path.read_bytes()[torn:])
    store = opened(tmp_path)
    try:
        assert served(store) == {IDLE: names}
    finally:
        store.close()


def test_an_index_that_is_being_rebuilt_is_not_vouched_for(stores: dict[str, Path], tmp_path: Path) -> None:
    """Its files have the same times as those that were lost, but nobody has synced them yet."""
    root = tmp_path / "store"
    shutil.copytree(stores["stopped"], root)
    shutil.rmtree(root / "index")
    store = opened(root)
    store.workers.queue_flusher._worker.stop()
    end_of(store)
    for path in (root / "index").iterdir():  # The power fails: the headers were written back, no more.
        path.write_bytes(path.read_bytes()[:40].ljust(path.stat().st_size, b"\0"))
    store = opened(root)
    try:
        for queue, names in served(store).items():
            assert all(has_key(store, queue, name) for name in names)
    finally:
        store.close()


def test_without_a_log_the_checkpoint_vouches_for_nothing(stores: dict[str, Path], tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(stores["stopped"], root)
    shutil.rmtree(root / "commitlog")
    store = opened(root)
    try:
        assert store.checkpoint._flushed[:3] == (0, 0, 0)
        assert served(store) == {}
    finally:
        store.close()
