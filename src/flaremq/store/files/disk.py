"""The one door to the disk. Every other room asks here, so that tests can put a faulty disk behind it.

Files are mapped whole. A write into a map of a sparse file on a full disk would kill the process
(SIGBUS), so space is reserved before it is written to: `reserve` fails with DiskFull instead.
"""

from __future__ import annotations

import ctypes
import errno
import math
import mmap
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flaremq.base.errors import CorruptStore, DiskFull, FileUnavailable, FlushFailed, StoreError
from flaremq.base.files import Files
from flaremq.model.layout import PAGE
from flaremq.store.files.coldfile import ColdFile

_libc = ctypes.CDLL(None, use_errno=True)
_KEEP_SIZE, _PUNCH_HOLE, _ZERO_RANGE = 0x01, 0x02, 0x10  # Modes of Linux' fallocate.
_ZEROS_SIZE = 1 << 20
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_PROC = Path("/proc/self/fd")


class DiskFile:
    """One open file: a map of its whole length, and a descriptor while it may have to be synced.

    A `lasting` file keeps its descriptor, so that no write-back error is missed between two syncs.
    The others open one when they need it: a store may have more queues than a process has descriptors.
    """

    def __init__(self, path: Path, size: int, *, lasting: bool) -> None:
        self._fd = -1
        self.path = path
        self.size = size
        self.locked = False
        fd = os.open(path, os.O_RDWR)
        try:
            self._map = mmap.mmap(fd, size)
        except BaseException:
            os.close(fd)
            raise
        if lasting:
            self._fd = fd
        else:
            os.close(fd)

    @property
    def view(self) -> memoryview:
        """The whole map. Whoever has it, or a slice of it, keeps the map alive."""
        return memoryview(self._map)

    @property
    def held(self) -> bool:
        """True while there are views of the map: each is a reference besides our own two."""
        return sys.getrefcount(self._map) > 2

    def reserve(self, at: int, size: int) -> None:
        """Make sure that bytes [at, at + size) have a place on the disk."""
        with _Descriptor(self) as fd:
            _allocate(fd, self.path, at, size)

    def put(self, at: int, data: bytes | memoryview) -> None:
        """Write into the map."""
        self._map[at : at + len(data)] = data

    def write(self, at: int, data: bytes | memoryview) -> None:
        """Write through the descriptor; the map shows it at once."""
        with _Descriptor(self) as fd:
            done = 0
            while done < len(data):
                try:
                    done += os.pwrite(fd, data[done:], at + done)
                except OSError as error:
                    raise _translated(error, self.path, len(data)) from error

    def sync(self) -> None:
        """Return only when everything written so far, by map or descriptor, is on the disk.

        FileUnavailable if it was not even tried, and may be again; FlushFailed if the disk said no.
        """
        try:
            descriptor = _Descriptor(self)
        except FileNotFoundError:
            return  # Deleted meanwhile: it need not be on the disk.
        except OSError as error:
            raise _translated(error, self.path, 0) from error
        try:
            with descriptor as fd:
                os.fdatasync(fd)
        except OSError as error:
            raise FlushFailed(
                f"{self.path}: fdatasync failed ({error.strerror}): what it covered may be lost. "
                "Check the disk, then start again; recovery keeps what is whole"
            ) from error

    def clear_from(self, at: int, *, keep_space: bool = False) -> None:
        """Make everything from `at` on zero again. The file keeps its length at every moment: a
        reader in another process must not find the ground gone under its map."""
        if self._is_clear_from(at):
            return
        modes = ([_ZERO_RANGE] if keep_space else []) + [_PUNCH_HOLE]
        with _Descriptor(self) as fd:
            for mode in modes:
                if _libc_fallocate(fd, mode | _KEEP_SIZE, at, self.size - at):
                    return
        for begin in range(at, self.size, _ZEROS_SIZE):
            self._map[begin : min(begin + _ZEROS_SIZE, self.size)] = bytes(
                min(_ZEROS_SIZE, self.size - begin)
            )

    def _is_clear_from(self, at: int) -> bool:
        """Whether there is nothing to clear: zeros up to the next page, and no data on the disk behind it."""
        page_end = min(self.size, -(-at // PAGE) * PAGE)
        if self._map[at:page_end].strip(b"\0"):
            return False
        if page_end == self.size:
            return True
        with _Descriptor(self) as fd:
            try:
                return os.lseek(fd, page_end, os.SEEK_DATA) >= self.size
            except OSError as error:
                return error.errno == errno.ENXIO  # No data at all; anything else says nothing.

    def warm(self, sync_every_pages: int) -> None:
        """Touch every page, so that no append meets a page fault; keep them in memory if allowed.

        With `sync_every_pages` the disk gets its work in portions, not in one heap at the end.
        """
        for page, at in enumerate(range(0, self.size, PAGE)):
            self._map[at] = 0
            if sync_every_pages and page % sync_every_pages == sync_every_pages - 1:
                self.sync()
        if sync_every_pages:
            self.sync()
        self.locked = lock_memory(self._map)
        self._map.madvise(mmap.MADV_WILLNEED)

    def unlock(self) -> None:
        if self.locked:
            unlock_memory(self._map)
            self.locked = False

    def expect_random_reads(self) -> None:
        self._map.madvise(mmap.MADV_RANDOM)

    def expect_appends(self, at: int) -> None:
        """From `at` on, let the system take single pages into its cache. Since Linux 6.16 it takes megabytes
        together, and then writes all of them whenever one byte of them is synced."""
        begin = at // PAGE * PAGE
        if begin < self.size:
            self._map.madvise(mmap.MADV_RANDOM, begin, self.size - begin)

    def expect_reads(self) -> None:
        """From one end to the other: let the system read ahead."""
        self._map.madvise(mmap.MADV_NORMAL)

    def close(self) -> None:
        """Let go of the map; it lives until its last reader lets go of it too."""
        del self._map
        self.__del__()

    def __del__(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class _Descriptor:
    """The file's lasting descriptor, or one for the moment."""

    def __init__(self, file: DiskFile) -> None:
        self._lasting = file._fd
        self._fd = file._fd if file._fd >= 0 else os.open(file.path, os.O_RDWR)

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        if self._lasting < 0:
            os.close(self._fd)


class Disk(Files):
    """The real disk."""

    def create(self, path: Path, size: int, *, reserved: bool = False) -> None:
        """Make a file of full length: zeros, sparse unless its space is to be reserved now.

        It has its name only when it is whole, where the system can do that: RocketMQ 4.x does not start
        with a shorter file. The name is durable only after `sync_folder`.
        """
        self.make_folder(path.parent)
        with _space_needed(path, size):
            self._create(path, size, reserved)

    def _create(self, path: Path, size: int, reserved: bool) -> None:
        nameless = _open_nameless(path.parent)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644) if nameless is None else nameless
        try:
            if reserved:
                _allocate(fd, path, 0, size)
            os.ftruncate(fd, size)
            if nameless is not None:
                # With a folder given, even an unused one, the link is followed to the file itself.
                os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd)
        except BaseException:
            if nameless is None:
                path.unlink()
            raise
        finally:
            os.close(fd)

    def open(self, path: Path, size: int, *, lasting: bool = False) -> DiskFile:
        try:
            length = path.stat().st_size
            if length != size:
                raise CorruptStore(f"{path}: {length} bytes long, not {size}")
            return DiskFile(path, size, lasting=lasting)
        except OSError as error:
            raise _translated(error, path, size) from error

    def look(self, path: Path) -> memoryview:
        """A read-only map of a file, as long as it is now."""
        try:
            with path.open("rb") as file:
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped.
            raise CorruptStore(f"{path}: {error}") from error

    def cold(self, path: Path) -> ColdFile:
        """To read what lies on the disk itself. Raises OSError if the file cannot be opened."""
        return ColdFile(path)

    def lengthen(self, path: Path, size: int) -> None:
        """Give a file that was cut short its length again, with zeros. One that has it is left alone."""
        try:
            if path.stat().st_size < size:
                os.truncate(path, size)
        except OSError as error:
            raise _translated(error, path, size) from error

    def names(self, folder: Path) -> list[str]:
        """Names of the plain files in a folder, sorted; none if there is no folder."""
        if not folder.is_dir():
            return []
        return sorted(entry.name for entry in os.scandir(folder) if entry.is_file())

    def folders(self, folder: Path) -> list[str]:
        if not folder.is_dir():
            return []
        return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def data_from(self, path: Path, at: int) -> int | None:
        """Where the first byte that was ever written lies from `at` on, as far as the system tells; None
        where nothing follows. A file that was made ahead is mostly such a hole."""
        if not hasattr(os, "SEEK_DATA"):
            return at
        with path.open("rb") as file:
            try:
                return os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                return None if error.errno == errno.ENXIO else at

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def exists(self, path: Path) -> bool:
        return path.exists()

    def make_folder(self, folder: Path) -> None:
        with _space_needed(folder, 0):
            folder.mkdir(parents=True, exist_ok=True)

    def replace(self, path: Path, data: bytes) -> None:
        """Write a small file so that a crash leaves the old or the new content, never a part."""
        make_way(self, path.parent)
        fresh = path.with_name(path.name + ".new")
        with _space_needed(path, len(data)):
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                os.write(fd, data)
                os.fsync(fd)
            finally:
                os.close(fd)
            fresh.replace(path)
        self.sync_folder(path.parent)

    def save(self, path: Path, backup: Path, data: bytes) -> None:
        make_way(self, path.parent)
        super().save(path, backup, data)

    def move(self, path: Path, to: Path) -> None:
        """Durable when it returns; to another file system it is a copy."""
        with _space_needed(to, self.size(path)):
            shutil.move(path, to)
        for folder in {path.parent, to.parent}:
            self.sync_folder(folder)

    def delete(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def delete_folder(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def sync_folder(self, folder: Path) -> None:
        """Make new, renamed and deleted names durable. FlushFailed if the disk said no."""
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        except OSError as error:
            raise FlushFailed(
                f"{folder}: fsync failed ({error.strerror}): names of files in it may be lost. "
                "Check the disk, then start again"
            ) from error
        finally:
            os.close(fd)

    def used_ratio(self, path: Path) -> float:
        """Used share of the partition, in whole percents rounded up as RocketMQ does; -1 if unknown."""
        try:
            stat = os.statvfs(path)
        except OSError:
            return -1.0
        used, usable = stat.f_blocks - stat.f_bfree, stat.f_bavail
        return math.ceil(100 * used / (used + usable)) / 100 if used + usable else -1.0

    def partition_size(self, path: Path) -> int:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize


@contextmanager
def _space_needed(path: Path, size: int) -> Iterator[None]:
    """Even a name needs space, and a disk without it is full, nothing worse."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise _translated(error, path, size) from error
        raise


def _open_nameless(folder: Path) -> int | None:
    """A file that goes with its descriptor unless it is linked; None where that is not to be had."""
    kind = getattr(os, "O_TMPFILE", 0)
    if not kind or not _PROC.is_dir():
        return None
    try:
        return os.open(folder, os.O_RDWR | kind, 0o644)
    except OSError:
        return None


def _allocate(fd: int, path: Path, at: int, size: int) -> None:
    try:
        os.posix_fallocate(fd, at, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise _translated(error, path, size) from error


def _libc_fallocate(fd: int, mode: int, at: int, size: int) -> bool:
    """Linux' own fallocate, which Python does not offer; False where it does not do this."""
    call = getattr(_libc, "fallocate", None)
    if call is None:
        return False
    return bool(call(fd, mode, ctypes.c_int64(at), ctypes.c_int64(size)) == 0)


def _translated(error: OSError, path: Path, size: int) -> StoreError:
    if error.errno in _NO_SPACE:
        return DiskFull(
            f"{path}: no room for {size} more bytes ({error.strerror}): free space on this disk, "
            "or lower fileReservedTime so that old log files go sooner"
        )
    if error.errno == errno.ENOENT:
        return CorruptStore(f"{path}: {error.strerror}: the file was expected to be there")
    return FileUnavailable(
        f"{path}: {error.strerror}: the file cannot be opened, read or written now; "
        "check the limits of this process (ulimit -n), its rights and the disk"
    )


def lock_memory(area: mmap.mmap) -> bool:
    """Keep a map in memory (mlock); False where the limit of locked memory does not allow it."""
    place = ctypes.c_char.from_buffer(area)
    return bool(_libc.mlock(ctypes.c_void_p(ctypes.addressof(place)), ctypes.c_size_t(len(area))) == 0)


def unlock_memory(area: mmap.mmap) -> None:
    place = ctypes.c_char.from_buffer(area)
    _libc.munlock(ctypes.c_void_p(ctypes.addressof(place)), ctypes.c_size_t(len(area)))


def make_way(disk: Disk, folder: Path) -> None:
    """Make a folder with all above it, so that the whole way to its first file survives a power failure."""
    missing = [each for each in (folder, *folder.parents) if not disk.exists(each)]
    disk.make_folder(folder)
    for each in missing:
        disk.sync_folder(each.parent)
