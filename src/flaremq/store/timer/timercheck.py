"""timercheck: how far the timer has come, in one page that is written in place."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Final, NamedTuple

from flaremq.base.errors import Malformed
from flaremq.model.layout import TIMER_CHECK_FORMAT, TIMER_CHECK_SIZE
from flaremq.store.files.disk import Disk, DiskFile

_LONGS: Final = struct.Struct(TIMER_CHECK_FORMAT)
_LEAST: Final = 4
"""Older members send no version with it."""
_SEAL: Final = struct.Struct(">8sIIII")
"""Ours, behind RocketMQ's numbers: a mark, their checksum, the precision, whether the wheel is vouched for,
and its checksum."""
_SEAL_MARK: Final = b"FlareMQ1"


class Progress(NamedTuple):
    read_ms: int = 0
    """The slot to read next: all before it are delivered."""
    log_end: int = 0
    """How far the timer log was on the disk."""
    queue_offset: int = 0
    """The next waiting message to enter in the wheel."""
    master_queue_offset: int = 0
    state_version: int = 0
    changed_ms: int = 0
    counter: int = 0
    """These three are the version: members take over the newer progress."""

    def packed(self) -> bytes:
        return _LONGS.pack(*self)


def progress_of(body: bytes) -> Progress:
    """What a member of the group has written: seven numbers, or the first four."""
    if len(body) < _LEAST * 8 or len(body) % 8:
        raise Malformed(f"the timer progress has {len(body)} bytes: expected {_LONGS.size}")
    numbers = struct.unpack_from(f">{min(len(body), _LONGS.size) // 8}q", body)
    return Progress(*(max(0, each) for each in numbers))


class TimerCheck:
    """The progress on the disk. A clean stop seals it with the checksum of the wheel."""

    def __init__(self, disk: Disk, path: Path) -> None:
        if disk.exists(path) and disk.size(path) != TIMER_CHECK_SIZE:
            disk.delete(path)
        if not disk.exists(path):
            disk.create(path, TIMER_CHECK_SIZE, reserved=True)
            disk.sync_folder(path.parent)
        self._file: DiskFile = disk.open(path, TIMER_CHECK_SIZE, lasting=True)
        self._file.reserve(0, TIMER_CHECK_SIZE)

    def read(self) -> Progress:
        """What lies there; nothing is negative in it."""
        return Progress(*(max(0, each) for each in _LONGS.unpack_from(self._file.view)))

    def seal(self) -> int | None:
        """The checksum of the wheel at the last clean stop; None if nothing vouches for it."""
        mark, numbers, _precision_ms, is_sealed, wheel = _SEAL.unpack_from(self._file.view, _LONGS.size)
        return wheel if mark == _SEAL_MARK and numbers == self._numbers() and is_sealed else None

    def precision_ms(self) -> int | None:
        """The precision that it was written with; None if RocketMQ wrote it, or nobody did."""
        mark, numbers, precision_ms, *_ = _SEAL.unpack_from(self._file.view, _LONGS.size)
        return precision_ms if mark == _SEAL_MARK and numbers == self._numbers() else None

    def write(self, progress: Progress, precision_ms: int, wheel: int | None = None) -> None:
        """Make it durable; with `wheel`, sealed."""
        _LONGS.pack_into(self._file.view, 0, *progress)
        seal = _SEAL_MARK, self._numbers(), precision_ms, wheel is not None, wheel or 0
        _SEAL.pack_into(self._file.view, _LONGS.size, *seal)
        self._file.sync()

    def _numbers(self) -> int:
        """A checksum of the numbers: RocketMQ changes them, and leaves the seal as it is."""
        return zlib.crc32(self._file.view[: _LONGS.size])

    def close(self) -> None:
        self._file.close()
