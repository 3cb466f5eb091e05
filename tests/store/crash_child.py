"""A process that fills a store from several threads until it is killed. Run by test_crash.

    python crash_child.py ROOT LIFE OPTIONS [OPERATIONS]

Each acknowledged message is told on a line of its own: topic, queue, queue offset, name. A line is
written only after `put` has returned PUT_OK. With OPERATIONS the process kills itself at that
operation of its disk, which may be in the middle of its start.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.store.proofs import Queue, a_proof

from flaremq.store.api import PutStatus
from flaremq.store.files.disk import Disk
from flaremq.store.settings import FlushDisk
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import put_together, small_settings

QUEUES: Final[tuple[Queue, ...]] = ((b"A", 0), (b"A", 1), (b"B", 0), (b"B", 7))
THREADS: Final = 3


class SuicidalDisk(Disk):
    """Kills its own process at the n-th thing that it is asked to do."""

    def __init__(self, operations: int) -> None:
        self._left = operations

    def _count(self) -> None:
        self._left -= 1
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def create(self, path: Path, size: int, *, reserved: bool = False) -> None:
        self._count()
        super().create(path, size, reserved=reserved)
        self._count()

    def delete(self, path: Path) -> None:
        self._count()
        super().delete(path)

    def replace(self, path: Path, data: bytes) -> None:
        self._count()
        super().replace(path, data)

    def sync_folder(self, folder: Path) -> None:
        self._count()
        super().sync_folder(folder)


def settings_of(root: Path, options: dict[str, Any]) -> Any:
    flush = FlushDisk[options.get("flush_disk", "SYNC_FLUSH")]
    return small_settings(root, **{**options, "flush_disk": flush})


def tell(queue: Queue, offset: int, name: str) -> None:
    """One write, so that lines of several threads do not mix and none waits in a buffer."""
    os.write(1, f"{queue[0].decode()} {queue[1]} {offset} {name}\n".encode())


def produce(store: MessageStore, life: str, thread: int) -> None:
    random, number = Random(f"{life}/{thread}"), 0
    while True:
        queue = random.choice(QUEUES)
        names = [f"{life}-{thread}-{number + i}" for i in range(random.choice([1, 1, 1, 5]))]
        number += len(names)
        sizes = [0, 50, 700, 5000 if len(names) == 1 else 2500]  # A batch is no larger than a message may be.
        messages = [a_proof(queue, name, random.choice(sizes)) for name in names]
        results = put_together(store, messages) if len(messages) > 1 else [store.put(messages[0])]
        for name, result in zip(names, results, strict=True):
            if result.status is PutStatus.PUT_OK:
                tell(queue, result.queue_offset, name)


def main(root: str, life: str, options: str, operations: str = "") -> None:
    disk = SuicidalDisk(int(operations)) if operations else Disk()
    store = MessageStore(settings_of(Path(root), json.loads(options)), disk=disk)
    store.open()
    for thread in range(1, THREADS):
        threading.Thread(target=produce, args=(store, life, thread), daemon=True).start()
    produce(store, life, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
