"""The scrub of one member at work: a thread that reads, a task that repairs, and what is told of both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from flaremq.base.clock import Clock
from flaremq.base.errors import CorruptStore
from flaremq.base.lifecycle import Sleep, Worker, WorkerFactory
from flaremq.dledger.ledger.raftlog import RaftLog
from flaremq.dledger.scrub.repairs import Courier, Repairs
from flaremq.dledger.scrub.scrubber import Scrubber
from flaremq.dledger.settings import RaftSettings
from flaremq.dledger.types import MemberId, RepairMessage
from flaremq.store.files.disk import Disk
from flaremq.store.flags import Reporter
from flaremq.store.store import MessageStore

_FIRST_S: Final = 60.0  # A start has other work for the disk.
_PART: Final = "the files of the log"


class LedgerScrub:
    """Started when its member takes part in the group, stopped before that ends."""

    def __init__(
        self,
        courier: Courier,
        store: MessageStore,
        settings: RaftSettings,
        *,
        disk: Disk,
        clock: Clock,
        offload: Callable[[Callable[[], Any]], Awaitable[Any]],
        workers: WorkerFactory = Worker,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`offload` has a thread of its own: what runs there reads and writes cold files."""
        assert isinstance(store.log, RaftLog)
        self._flags = store.flags
        self._known = store.log.known_damage
        self._offload = offload
        interval_s = settings.scrub_interval_s
        self.scrubber = Scrubber(
            *(store.log, disk, clock),
            interval_s=interval_s,
            bytes_per_s=settings.scrub_bytes_per_s,
        )
        self.repairs = Repairs(
            *(courier, store.log, disk),
            offload=offload,
            part_size=settings.push_size,
            told_s=interval_s,
            sleep=sleep,
        )
        self._worker: Worker | None = None
        if interval_s:
            self._worker = workers(
                *("flaremq-scrub", self.scrubber.step),
                Reporter(store.flags, "reading the log again"),
                first_s=min(_FIRST_S, interval_s),
            )
        self._unwatch: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._unwatch = self._known.watch(self._changed)
        self.repairs.start()
        if self._worker is not None:
            self._worker.start()

    async def stop(self) -> None:
        self._unwatch()
        await self.repairs.stop()
        if self._worker is not None:
            await self._offload(self._worker.stop)

    def heard(self, sender: MemberId, message: RepairMessage) -> None:
        self.repairs.heard(sender, message)

    def _changed(self) -> None:
        """Tell the health page, and let the scrub note it."""
        damage = str(self._known)
        if damage:
            self._flags.trouble(_PART, CorruptStore(f"damaged and not repaired yet: {damage}"))
        else:
            self._flags.healed(_PART)
        if self._worker is not None:
            self._worker.wake()

    # Figures.

    @property
    def scrubbed_bytes(self) -> int:
        """Since the start."""
        return self.scrubber.scrubbed_bytes

    @property
    def repaired_entries(self) -> int:
        """Since the start."""
        return self._known.repaired

    @property
    def damaged_entries(self) -> int:
        """That are known and not repaired yet."""
        return self._known.entries
