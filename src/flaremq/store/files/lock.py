"""The lock on a store folder, and whether its last owner stopped cleanly.

Java takes its lock after loading, so a second broker can truncate files of the first before it
fails. Here the lock comes first.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Final

from flaremq.base.errors import StoreError, StoreLocked
from flaremq.store.files.disk import Disk

_CONTENT: Final = b"lock"
_RANGE: Final = 1  # Java locks the first byte alone; so do we, or we would not see each other.
_FLOCK: Final = struct.Struct("hhqqi")  # Linux: type, whence, start, length, pid.
_FREE: Final = -1

# A POSIX lock does not keep its own process out, so folders that are open here are noted here too.
_ours: Final[set[tuple[int, int]]] = set()
_ours_lock: Final = threading.Lock()


class StoreLock:
    """The right to use one store folder, for this process and for one store within it.

    The descriptor is kept here and not behind the Disk: the system drops a POSIX lock as soon as
    *any* descriptor of that file is closed in the process, so no other code may ever open it.
    """

    def __init__(self, root: Path, disk: Disk) -> None:
        self._root = root
        self._disk = disk
        self._fd = -1
        self._identity = (-1, -1)

    @property
    def held(self) -> bool:
        return self._fd >= 0

    def acquire(self) -> None:
        """Take the folder, or raise StoreLocked at once."""
        assert not self.held, "a store lock is taken once"
        self._disk.make_folder(self._root)
        folder = self._root.stat()
        identity = (folder.st_dev, folder.st_ino)
        with _ours_lock:
            if identity in _ours:
                raise StoreLocked(
                    f"{self._root}: this process (pid {os.getpid()}) has already opened this store: "
                    "close the other one first, or give this one another storePathRootDir"
                )
            self._fd = _locked(self._root / "lock")
            self._identity = identity
            _ours.add(identity)

    def release(self) -> None:
        """Release the folder. The file stays, as in Java. Idempotent."""
        with _ours_lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                _ours.discard(self._identity)

    def __enter__(self) -> StoreLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def holder(root: Path) -> int | None:
    """The pid of the process that has opened this store, 0 if it is unknown, None if the store is closed.

    Changes nothing, and a store of this process keeps its lock.
    """
    path = root / "lock"
    with _ours_lock:
        try:
            folder = root.stat()
            if (folder.st_dev, folder.st_ino) in _ours:
                return os.getpid()
            fd = os.open(path, os.O_RDONLY)
        except OSError:
            return None
        try:
            pid = _asked(fd)
        finally:
            os.close(fd)
    return None if pid == _FREE else pid


class AbortFile:
    """The mark of a running store. If it is there before a start, the last stop was not clean."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self._path = root / "abort"
        self._disk = disk

    def exists(self) -> bool:
        return self._disk.exists(self._path)

    def create(self) -> None:
        """Durable when it returns: a crash right after it must be seen as one."""
        self._disk.replace(self._path, str(os.getpid()).encode())

    def remove(self) -> None:
        self._disk.delete(self._path)
        self._disk.sync_folder(self._path.parent)


def _locked(path: Path) -> int:
    """A descriptor that holds the lock. Its content says nothing, but Java writes it."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}: check owner and rights of this folder") from error
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, _RANGE, 0)
        if os.pread(fd, len(_CONTENT) + 1, 0) != _CONTENT:
            os.pwrite(fd, _CONTENT, 0)
            os.ftruncate(fd, len(_CONTENT))
            os.fsync(fd)
    except OSError as error:
        refusal = _refusal(fd, path, error)
        os.close(fd)
        raise refusal from error
    return fd


def _refusal(fd: int, path: Path, error: OSError) -> StoreError:
    if error.errno not in (errno.EACCES, errno.EAGAIN):
        return StoreError(
            f"{path}: {error.strerror}: the folder cannot be locked; use a file system with POSIX locks"
        )
    pid = _holder(fd)
    who = f"process {pid}" if pid else "another process"
    return StoreLocked(
        f"{path.parent}: {who} has opened this store: stop it first, or start with another storePathRootDir"
    )


def _holder(fd: int) -> int:
    """The pid of the lock's holder, 0 if the system does not say (another host, another kernel)."""
    return max(0, _asked(fd))


def _asked(fd: int) -> int:
    if sys.platform != "linux":
        return _FREE  # There is no portable way to ask.
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, _RANGE, 0)
    try:
        kind, *_, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    except OSError:
        return _FREE
    return max(0, int(pid)) if kind != fcntl.F_UNLCK else _FREE
