"""A file as it lies on the disk, and not as the system remembers it.

The problem
-----------
What was written lately, or read often, is in the page cache: the map of a file shows that, and so does a
read. The copy on the disk below it may have rotted meanwhile, and nobody sees it before the page is dropped
from memory: at the next start, perhaps, when all copies are read for the first time in months.

How it works
------------
The file is opened with O_DIRECT: its reads come from the device, leave the page cache as it is, and put
nothing into it. Where the file system does not offer that (some in memory do not), the system is asked to
drop the pages before and after each read; it keeps those that are mapped, and then memory is read after all.
What the device itself remembers, or which half of a mirror it reads, cannot be seen from here.

A block that the device cannot read (EIO) is a gap: all around it is read block by block.
"""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from typing import Final, NamedTuple, Self

from flaremq.base.errors import FileUnavailable

BLOCK: Final = 4096
"""What a direct read begins and ends at: no device or file system in use asks for more."""
_DIRECT: Final = getattr(os, "O_DIRECT", 0)


class ColdBytes(NamedTuple):
    """A part of a file."""

    view: memoryview
    """Valid until the next read."""
    readable: int
    """So many bytes from its beginning on could be read; behind them is a gap, or the end of the file."""

    def is_whole(self) -> bool:
        return self.readable == len(self.view)


class ColdFile:
    """Of one thread. Opening it raises OSError, so that a file that is gone can be told from others."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_direct = bool(_DIRECT)
        self._fd = self._opened()
        self._room = memoryview(b"")

    def _opened(self) -> int:
        if self._is_direct:
            try:
                return os.open(self.path, os.O_RDONLY | _DIRECT)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                    raise
                self._is_direct = False
        return os.open(self.path, os.O_RDONLY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, at: int, size: int) -> ColdBytes:
        """The bytes [at, at + size), as far as they can be read."""
        begin, end = at // BLOCK * BLOCK, -(-(at + size) // BLOCK) * BLOCK
        room = self._room_for(end - begin)
        self._forget(begin, end)
        read = self._fill(begin, room)
        self._forget(begin, end)
        return ColdBytes(room[at - begin : at - begin + size], max(0, min(begin + read - at, size)))

    def _room_for(self, size: int) -> memoryview:
        """Where a direct read may write to: a map of its own begins at a page."""
        if len(self._room) < size:
            self._room = memoryview(mmap.mmap(-1, size))
        return self._room[:size]

    def _forget(self, begin: int, end: int) -> None:
        if not self._is_direct and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, begin, end - begin, os.POSIX_FADV_DONTNEED)

    def _fill(self, begin: int, room: memoryview) -> int:
        """How many bytes could be read before the first that cannot."""
        done, step = 0, len(room)
        while done < len(room):
            try:
                count = self._read_into(room[done : done + step], begin + done)
            except OSError as error:
                if error.errno == errno.EINVAL and self._is_direct:
                    self._is_direct = False
                    self.close()
                    self._fd = self._opened()
                elif error.errno != errno.EIO:
                    raise FileUnavailable(
                        f"{self.path}: {error.strerror}: the file cannot be read now; check the disk and the "
                        "limits of this process (ulimit -n)"
                    ) from error
                elif step > BLOCK:
                    step = BLOCK  # Which one is it?
                else:
                    return done
                continue
            done += count
            if not count or done % BLOCK:  # The file ends here.
                return done
        return done

    def _read_into(self, room: memoryview, at: int) -> int:
        return os.preadv(self._fd, [room], at)
