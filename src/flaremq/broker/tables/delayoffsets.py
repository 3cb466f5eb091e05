"""How far each delay level has been delivered, kept in delayOffset.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flaremq.base.clock import Clock
from flaremq.broker.offload import Offload
from flaremq.broker.tables.configfile import ConfigFile, Saving
from flaremq.model.topic import DataVersion
from flaremq.protocol import beans
from flaremq.protocol.bodies.group import DelayOffsetSerializeWrapper


class DelayOffsets:
    """The queue offset of the first message of each level that may still have to be delivered.

    Only deliveries whose messages are on the disk move it: after a power failure the file would otherwise
    be ahead of the log, and messages would be delivered never instead of twice.
    """

    def __init__(self, file: ConfigFile, offload: Offload, clock: Clock) -> None:
        self._clock = clock
        self._saving = Saving(file, offload, self._take)
        self._table: dict[int, int] = {}
        self.version = DataVersion()

    def load(self) -> None:
        """Load the file. Blocks."""
        kept = self._saving.file.load_as(lambda text: beans.decode(DelayOffsetSerializeWrapper, text))
        if kept is not None:
            self._table = dict(kept.offset_table)
            self.version = kept.data_version or DataVersion()

    @property
    def dirty(self) -> bool:
        return self._saving.dirty

    async def save(self) -> None:
        await self._saving.save()

    def get(self, level: int) -> int:
        return self._table.get(level, 0)

    def set(self, level: int, queue_offset: int) -> None:
        if self._table.get(level) != queue_offset:
            self._table[level] = queue_offset
            self.version = self.version.next(self._clock.now_ms())
            self._saving.changes += 1

    def replace(self, offsets: Mapping[int, int], version: DataVersion) -> None:
        """Take over the table of a slave's master."""
        if self._table != offsets or self.version != version:
            self._table, self.version = dict(offsets), version
            self._saving.changes += 1

    def wrapper(self) -> DelayOffsetSerializeWrapper:
        """A copy of the table."""
        return DelayOffsetSerializeWrapper(offset_table=dict(self._table), data_version=self.version)

    def _take(self) -> Callable[[], bytes]:
        wrapper = self.wrapper()
        return lambda: beans.encode(wrapper)
