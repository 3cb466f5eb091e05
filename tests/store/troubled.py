"""A store on a disk with troubles, for tests of what survives them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.store.proofs import Promises, Queue, a_proof

from flaremq.base.errors import FlareError
from flaremq.store.api import PutStatus
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import small_settings
from flaremq.testing.fakes.disk import TroubledDisk

A: Queue = (b"A", 0)
LONG_S = 30.0


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def until(condition: Callable[[], bool]) -> None:
    """Give the threads of the store the processor until they have done what the test needs."""
    deadline_s = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline_s, "the other thread never got there"
        time.sleep(0.0005)


class Troubled:
    """A store on a disk with troubles, and what it has promised."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.disk, self.clock, self.root = TroubledDisk(), ManualClock(), root
        self.settings = small_settings(root, **options)
        self.store = MessageStore(self.settings, clock=self.clock, disk=self.disk)
        self.promises = Promises()
        self.count = 0

    def put(self, count: int, *, size: int = 0, queue: Queue | None = None) -> None:
        for _ in range(count):
            to = queue or (b"A", self.count % 3)
            result = self.store.put(a_proof(to, f"m{self.count}", size))
            assert result.status is PutStatus.PUT_OK
            self.promises.add(to, result.queue_offset, f"m{self.count}")
            self.count += 1

    def put_until_refused(self, *, size: int) -> FlareError:
        while True:
            try:
                self.put(1, size=size)
            except FlareError as refused:
                return refused

    def is_degraded(self, part: str) -> None:
        until(lambda: part in self.store.flags.degraded)
        assert self.disk.raised or part == "dispatch"

    def is_well_again(self) -> None:
        self.disk.heal()
        until(lambda: not self.store.flags.degraded)
        self.put(5)
        self.promises.check(self.store)

    def next_life(self) -> MessageStore:
        """In the same folder, on a disk without troubles: half full, however full the real one is."""
        return MessageStore(self.settings, clock=self.clock, disk=TroubledDisk())

    def stops_cleanly_and_has_all(self) -> None:
        self.store.close()
        assert not (self.root / "abort").exists()
        with self.next_life() as again:
            assert again.report is not None and again.report.clean
            self.promises.check(again)
