"""Retention: log files are deleted by age and by disk space, then what points at them in queues and index.

    deletion hour, full disk or request  >  log files  >  queues  >  index

A worker calls `run_once` every cleanResourceInterval. Nothing here sleeps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from flaremq.base.clock import Clock
from flaremq.base.logs import fields, logger
from flaremq.base.units import HOUR_MS
from flaremq.store.files.disk import Disk
from flaremq.store.files.filequeue import LogFiles
from flaremq.store.files.mappedfile import MappedFile
from flaremq.store.flags import Flag, Flags
from flaremq.store.settings import StoreSettings

log = logger("store.retention")

_MANUAL_ROUNDS: Final = 20  # How long one request by hand is good for.


class TrimmedWithLog(Protocol):
    """What loses its oldest files when the log begins at a later offset; says how many."""

    def delete_before(self, min_physical_offset: int, /) -> int: ...


class TrimmedQueue(TrimmedWithLog, Protocol):
    def correct_min(self, min_physical_offset: int, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Kept:
    """Everything that retention keeps short, and how many bytes of disk all of it takes."""

    log: LogFiles
    queues: Callable[[], Iterable[TrimmedQueue]]
    index: TrimmedWithLog | None
    own_bytes: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Pressure:
    """How short of disk we are: whether files may go at any hour, and whether their age counts."""

    delete: bool = False
    clean_now: bool = False

    def __or__(self, other: Pressure) -> Pressure:
        return Pressure(self.delete or other.delete, self.clean_now or other.clean_now)


@dataclass(slots=True)
class _Postponed:
    """A file that should be gone, while a reader still holds a part of its map."""

    file: MappedFile
    since_s: float
    asked_s: float


class Retention:
    """One thread calls `run_once`; any thread may call `request`.

    Invariants:
      R1  log files go from the oldest on, without gaps; the one being written to, and later ones, stay.
      R2  a reader never loses the bytes that it holds: only the name of its file goes.
      R3  a round that fails or is broken off leaves what the next one can go on with.
    """

    def __init__(
        self,
        settings: StoreSettings,
        clock: Clock,
        disk: Disk,
        flags: Flags,
        kept: Kept,
        *,
        pause_ms: Callable[[int], object],
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """`pause_ms` waits between two deletions, so that a disk has time for others. `stopping` is asked
        between two files: a store that is being closed does not wait for a long round."""
        self.settings = settings
        """May be replaced at any time: the next round goes by it."""
        self._clock = clock
        self._disk = disk
        self._flags = flags
        self._kept = kept
        self._pause_ms = pause_ms
        self._stopping = stopping
        self._unsynced: set[Path] = set()  # Folders in which names were deleted.
        self._manual_rounds = 0
        self._postponed: _Postponed | None = None
        self._seen_min = 0
        self._corrected_s = clock.monotonic_s()
        self.needed: list[Callable[[], int | None]] = []
        """Each says from which offset on others still need the log; None: they need nothing."""
        self._held_back = False

    def request(self) -> None:
        """Delete what is old enough at the next rounds, whatever the hour."""
        self._manual_rounds = _MANUAL_ROUNDS

    def request_correction(self) -> None:
        """Let all queues forget at the next round what points to deleted files, however lately they did."""
        self._corrected_s = -math.inf

    def run_once(self) -> int:
        """Delete what is due; how many log files went."""
        pressure = self._measure()
        manual, hour = self._manual_rounds > 0, self._is_hour()
        if manual:
            self._manual_rounds -= 1
        deleted = 0
        if pressure.delete or hour or manual:
            deleted = self._delete_log_files(pressure.clean_now and self.settings.clean_forcibly_enabled)
            if pressure.clean_now and not deleted:
                log.warning("the disk is nearly full, but no log file may be deleted")
        elif self._postponed is not None:
            deleted = self._delete_postponed()
        self._follow()
        return deleted

    def _is_hour(self) -> bool:
        return time.localtime(self._clock.now_ms() / 1000).tm_hour in self.settings.delete_hours

    def _measure(self) -> Pressure:
        """Look at the disks, and raise or lower the flags that follow from it."""
        folders = self.settings.commitlog_folders
        ratios = {folder: self._disk.used_ratio(folder) for folder in folders}
        emptiest = min(ratios, key=ratios.__getitem__)
        queues = self.settings.consumequeue_folder
        queues_ratio = self._disk.used_ratio(queues)
        found = self._level(emptiest, ratios[emptiest], Flag.DISK_FULL)
        found |= self._level(queues, queues_ratio, Flag.QUEUE_DISK_FULL)
        if self.settings.replicas_per_partition > 1:
            return found | self._share(emptiest)
        limit = self.settings.disk_max_used_ratio
        # A ratio that cannot be read is below zero. Deleting by age is right at any ratio.
        return found | Pressure(any(not 0 <= ratio <= limit for ratio in (ratios[emptiest], queues_ratio)))

    def _level(self, folder: Path, ratio: float, flag: Flag) -> Pressure:
        """Between the two levels the flag stays as it is, or it would flutter."""
        warning, forced = self.settings.disk_warning_ratio, self.settings.disk_clean_forcibly_ratio
        was_full = bool(self._flags.bits & flag)
        if ratio > warning:
            limit = f"limit is {warning:.0%} (diskSpaceWarningLevelRatio)"
            self._flags.set(flag, f"{folder} is {ratio:.0%} full, {limit}")
            if not was_full:
                log.error(
                    "the disk is too full, and no messages are taken: add space, or lower fileReservedTime "
                    "so that old files go sooner; messages are taken again at %.0f%% or less",
                    forced * 100,
                    extra=fields(folder=folder, used=f"{ratio:.0%}", limit=f"{warning:.0%}"),
                )
        elif ratio <= forced:
            self._flags.clear(flag)
            if was_full:
                log.info(
                    "the disk has room again, and messages are taken",
                    extra=fields(folder=folder, used=f"{ratio:.0%}", limit=f"{warning:.0%}"),
                )
        return Pressure(ratio > forced, ratio > forced)

    def _share(self, folder: Path) -> Pressure:
        """Several brokers on one partition: each has its share, and is measured against that."""
        share = self._disk.partition_size(folder) / self.settings.replicas_per_partition
        used = self._kept.own_bytes() / share if share else 1.0
        forced = used > self.settings.logical_disk_threshold
        return Pressure(forced or used > self.settings.disk_max_used_ratio, forced)

    def _delete_log_files(self, clean_now: bool) -> int:
        """Oldest first, until one may not go (R1)."""
        deleted = 0
        self._sync_names()  # A round before this one may have failed to.
        while deleted < self.settings.delete_batch_max and not self._stopping():
            files = self._kept.log.files
            if len(files) < 2 or files[0].wrote < files[0].size:
                break
            if not (clean_now or self._is_old(files[0])) or not self._may_go(files[0], clean_now):
                break
            if self._is_needed(files[0], clean_now):
                break
            if deleted:
                self._pause_ms(self.settings.delete_log_interval_ms)
            self._delete(files[0])
            deleted += 1
        return deleted

    def _is_needed(self, file: MappedFile, urgent: bool) -> bool:
        """Whether messages that wait to be delivered keep a file that is old enough to go."""
        needed = min((at for each in self.needed if (at := each()) is not None), default=file.end)
        if needed >= file.end:
            self._held_back = False
            return False
        if urgent:
            log.error(
                "the disk is nearly full: a log file goes though messages in it still wait to be delivered",
                extra=fields(file=file.path, needed_from=needed),
            )
            return False
        if not self._held_back:
            log.info(
                "an old log file stays: messages in it still wait to be delivered",
                extra=fields(file=file.path, needed_from=needed),
            )
        self._held_back = True
        return True

    def _delete_postponed(self) -> int:
        """A file that was due stays due, without any other trigger."""
        assert self._postponed is not None
        file = self._postponed.file
        if self._kept.log.files[:1] != (file,):
            self._postponed = None  # It was removed elsewhere.
            return 0
        if not self._may_go(file, False):
            return 0
        self._delete(file)
        return 1

    def _is_old(self, file: MappedFile) -> bool:
        try:
            modified_ms = self._disk.modified_ms(file.path)
        except FileNotFoundError:
            return True  # It was deleted from outside.
        return modified_ms + self.settings.file_reserved_hours * HOUR_MS <= self._clock.now_ms()

    def _may_go(self, file: MappedFile, urgent: bool) -> bool:
        """Whether no reader holds the file, or one has held it too long: then its name goes anyway."""
        now_s, waiting = self._clock.monotonic_s(), self._postponed
        if waiting is None or waiting.file is not file:
            if not file.held:
                return True
            self._postponed = _Postponed(file, now_s, now_s)
            log.info("a log file is still being read, and is deleted later", extra=fields(file=file.path))
            return self.settings.destroy_interval_ms == 0
        if (now_s - waiting.since_s) * 1000 >= self.settings.destroy_interval_ms:
            return True
        if not urgent and (now_s - waiting.asked_s) * 1000 < self.settings.redelete_interval_ms:
            return False
        waiting.asked_s = now_s
        return not file.held

    def _delete(self, file: MappedFile) -> None:
        log.info("a log file is deleted", extra=fields(file=file.path, held=file.held))
        # The name first: if the disk says no, the file is still ours (R3). Its map lives on for a reader
        # that holds it (R2).
        file.delete()
        self._unsynced.add(file.path.parent)
        self._kept.log.drop_first(file)
        self._postponed = None
        self._sync_names()

    def _sync_names(self) -> None:
        """Names must go in order, also over several folders: after a power failure a gap would be fatal."""
        for folder in sorted(self._unsynced):
            self._disk.sync_folder(folder)
            self._unsynced.discard(folder)

    def _follow(self) -> None:
        """Queues and index lose what pointed to deleted files."""
        files = self._kept.log.files
        begin = files[0].offset if files else 0
        now_s = self._clock.monotonic_s()
        if begin > self._seen_min:
            for queue in self._kept.queues():
                if self._stopping():
                    return
                deleted = queue.delete_before(begin)
                queue.correct_min(begin)
                if deleted:
                    self._pause_ms(self.settings.delete_queue_interval_ms)
            if self._kept.index is not None:
                self._kept.index.delete_before(begin)
            self._seen_min, self._corrected_s = begin, now_s  # Last: what was not done comes again (R3).
        elif (now_s - self._corrected_s) * 1000 >= self.settings.correct_min_offset_interval_ms:
            for queue in self._kept.queues():
                if self._stopping():
                    return
                queue.correct_min(begin)
            self._corrected_s = now_s
