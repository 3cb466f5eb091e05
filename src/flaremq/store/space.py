"""What the log of a server says when a disk has no room for the next log file, and when it has again."""

from __future__ import annotations

from flaremq.base.errors import DiskFull
from flaremq.base.logs import fields, logger
from flaremq.store.commitlog import CommitLog
from flaremq.store.files.disk import Disk

log = logger("store.space")


class Space:
    """Logs once that puts are refused for lack of space, and once that they are accepted again.

    This is about a disk that is really full; the levels that an operator has set belong to `retention`.
    """

    def __init__(self, disk: Disk, commit_log: CommitLog) -> None:
        self._disk = disk
        self._log = commit_log
        self.is_short = False
        self._short_at = 0

    def refused(self, error: DiskFull) -> None:
        """A put was refused: no file could be made for it."""
        self._short_at = self._log.end
        if self.is_short:
            return
        self.is_short = True
        log.error(
            "the disk has no room for the next log file, and messages are refused: free space, or lower "
            "fileReservedTime so that old files go sooner; messages are taken again by themselves: %s",
            error,
            extra=self._fields(),
        )

    def taken(self) -> None:
        """A put was stored. A small one may find its place where a large one did not, in the last file:
        that is no sign of space yet."""
        if self._log.end // self._log.file_size > self._short_at // self._log.file_size:
            self.is_short = False
            log.info("the disk has room again, and messages are taken", extra=self._fields())

    def _fields(self) -> dict[str, dict[str, object]]:
        folder = self._log.files.path_of(self._log.end).parent
        ratio, size = self._disk.used_ratio(folder), self._log.file_size
        return fields(folder=folder, used=f"{ratio:.0%}" if ratio >= 0 else "unknown", file_size=size)
