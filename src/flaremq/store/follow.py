"""A store whose log follows another: what is appended as it is, compared, and given up again."""

from __future__ import annotations

from collections.abc import Callable

from flaremq.base.errors import StoreError
from flaremq.base.units import MiB
from flaremq.model.columns import Check, Fact, facts_table
from flaremq.store.holes import CUT_FOLDER
from flaremq.store.settings import FlushDisk
from flaremq.store.store import MessageStore

_ROWS = 1024
_SETTLE_S = 30.0


class FollowingLog:
    """The log of a slave. `append` is for one thread; all else may be called from any."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._syncs = store.settings.flush_disk is FlushDisk.SYNC_FLUSH

    @property
    def begin(self) -> int:
        return self._store.log.begin

    @property
    def end(self) -> int:
        return self._store.log.end

    @property
    def file_size(self) -> int:
        return self._store.log.file_size

    @property
    def safe_end(self) -> int:
        """How far it is as safe as this store promises: on the disk under SYNC_FLUSH, else in memory."""
        return self._store.flushed.value if self._syncs else self._store.log.end

    def append(self, physical_offset: int, data: memoryview) -> None:
        self._store.append_raw(physical_offset, data)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when `safe_end` has grown by itself, in the thread that synced."""
        if self._syncs:
            return self._store.flushed.watch(lambda _value: callback())
        return lambda: None

    async def settled(self) -> None:
        """Wait until all of it is as safe as promised."""
        end = self.end
        if self._syncs and not await self._store.flushed.wait(end, _SETTLE_S):
            raise StoreError(
                f"the log is not on the disk up to {end} after {_SETTLE_S:g} s: the disk is stuck"
            )

    def slice(self, physical_offset: int, size: int) -> memoryview | None:
        return self._store.log.slice(physical_offset, size)

    # Comparing and cutting. These read much: not for an event loop.

    def whole_before(self, physical_offset: int) -> int:
        """Behind the last whole record that ends there or before; `begin` if there is none."""
        log = self._store.log
        start = max(log.begin, (max(1, physical_offset) - 1) // log.file_size * log.file_size)
        found = self._walked(start, physical_offset)
        return found[1] if found else start

    def last_record(self) -> tuple[int, bytes] | None:
        """The newest whole record, and where it lies."""
        log = self._store.log
        for start in reversed(log.starts()):
            found = self._walked(start, min(log.end, start + log.file_size))
            if found:
                record = log.slice(found[0], found[1] - found[0])
                return (found[0], bytes(record)) if record is not None else None
        return None

    def _walked(self, start: int, end: int) -> tuple[int, int] | None:
        """Where the last record of one file that ends at or before `end` begins and ends."""
        facts, found, at = facts_table(_ROWS), None, start
        while at < end:
            stretch = self._store.log.walk(at, end, facts, Check.OFFSET)
            if stretch is None or not stretch.count:
                break
            last = (stretch.count - 1) * Fact.WIDTH
            at = facts[last + Fact.OFFSET] + facts[last + Fact.SIZE]
            found = facts[last + Fact.OFFSET], at
        return found

    def cut(self, end: int) -> None:
        """Give up everything from `end` on, after a copy was put aside."""
        self._put_aside(end)
        self._store.cut(end)
        self._store.show()

    def _put_aside(self, begin: int) -> None:
        store, end = self._store, self.end
        folder = store.settings.root / CUT_FOLDER
        path = folder / f"{begin:020d}-{store.clock.now_ms()}"
        if end <= begin:
            return
        store.disk.create(path, end - begin, reserved=True)
        file = store.disk.open(path, end - begin)
        try:
            at = begin
            while at < end:
                size = min(MiB, end - at, self.file_size - at % self.file_size)
                data = self.slice(at, size)
                if data is None:
                    raise StoreError(f"{size} bytes at {at} of the log cannot be read: nothing is cut")
                file.put(at - begin, data)
                at += size
            file.sync()
        finally:
            file.close()
        store.disk.sync_folder(folder)
