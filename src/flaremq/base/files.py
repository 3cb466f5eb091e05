"""Small files that are written whole or not at all, with the one before as .bak.

RocketMQ keeps its tables this way: `topics.json` beside `topics.json.bak`. The new file is on the disk
before it takes the old one's place, and so is the change of names, so a crash at any moment leaves the
old content or the new.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from flaremq.base.errors import ConfigError, FlareError, StoreError
from flaremq.base.logs import fields, logger

log = logger("base.files")

T = TypeVar("T")


class BackedFile:
    """One file and its .bak. All of it blocks: call it at start, or in a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backup = path.with_name(path.name + ".bak")
        self._lock = threading.Lock()

    def load_as(self, parse: Callable[[bytes], T]) -> T | None:
        """What `parse` makes of the first of the two files that it can read; None if there is neither.

        ConfigError if there is one, or both, and none can be read: going on without it would mean to
        overwrite it with the next change.
        """
        failures = []
        for path in (self.path, self.backup):
            try:
                found = parse(path.read_bytes())
            except FileNotFoundError:
                continue
            except (OSError, FlareError) as error:
                failures.append(f"{path}: {error}")
                continue
            if path is self.backup:
                why = failures[0] if failures else f"{self.path} is missing"
                log.warning("a table is read from its backup", extra=fields(file=path, why=why))
            return found
        if failures:
            raise ConfigError(
                f"no readable table at {self.path}: {'; '.join(failures)}. Restore one of the two files, "
                "or move them away to begin without what they held"
            )
        return None

    def save(self, data: bytes) -> None:
        """Put `data` in the place of what is there, which becomes the .bak; return when it is on the disk."""
        with self._lock:
            try:
                self._write(data)
            except OSError as error:
                raise StoreError(
                    f"{self.path} cannot be written: {error}; the one before it stays"
                ) from error

    def _write(self, data: bytes) -> None:
        fresh = self.path.with_name(self.path.name + ".tmp")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("wb") as file:
            if self.path.exists():  # Before anything is in it: what few may read, few may read.
                before = self.path.stat()
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
                with suppress(PermissionError):
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists():
            self.path.replace(self.backup)
        fresh.replace(self.path)
        sync_folder(self.path.parent)


def sync_folder(folder: Path) -> None:
    """Make new, renamed and deleted names durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
