"""Small files, written whole or not at all.

    create_whole     a new file; the first of several writers wins
    replace_whole    a new file, or new content for an existing one
    BackedFile       the same, keeping the previous content as .bak, as RocketMQ does for its tables

    Files            the file system behind the last one, which a simulator replaces

All three make one promise. The content is on disk before the file appears under its name, and the name is on
disk before the call returns, so a crash at any moment leaves the old content or the new, never a part of it.
"""

from __future__ import annotations

import os
import stat
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from flaremq.base.errors import ConfigError, FlareError, StoreError
from flaremq.base.logs import fields, logger

log = logger("base.files")

T = TypeVar("T")


class Files:
    """The file system, as far as tables and settings need it. A store's disk is one too."""

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def save(self, path: Path, backup: Path, data: bytes) -> None:
        """Replace the content of a file, keeping the old one as `backup`; return when it is on the disk."""
        fresh = path.with_name(path.name + ".tmp")
        _make_durable(path.parent)
        fresh.unlink(missing_ok=True)  # Left by a crash.
        before = path.stat() if path.exists() else None
        _write_synced(fresh, data, None if before is None else stat.S_IMODE(before.st_mode), before)
        if path.exists():
            path.replace(backup)
        fresh.replace(path)
        sync_folder(path.parent)


class BackedFile:
    """One file and its .bak. All of it blocks: call it at start, or in a thread."""

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self.path = path
        self.files = files or Files()
        self.backup = path.with_name(path.name + ".bak")
        self._lock = threading.Lock()

    def load_as(self, parse: Callable[[bytes], T]) -> T | None:
        """The result of `parse` for the first of the two files that is readable; None if neither exists.

        Raises ConfigError if there are files but none is readable: going on without them would overwrite
        them with the next change.
        """
        failures = []
        for path in (self.path, self.backup):
            try:
                found = parse(self.files.read(path))
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
        """Replace the content, keeping the old one as .bak; return when it is on the disk."""
        with self._lock:
            try:
                self.files.save(self.path, self.backup, data)
            except OSError as error:
                raise StoreError(f"{self.path} cannot be written: {error}; the previous one stays") from error


def create_whole(path: Path, data: bytes) -> bool:
    """Create a file with this content. False, and nothing done, if it exists. Needs hard links."""
    fresh = _unused_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write_synced(fresh, data)
            os.link(fresh, path)
        finally:
            with suppress(OSError):
                fresh.unlink()
        sync_folder(path.parent)
    except FileExistsError:
        return False
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}; expected a writable folder on a file system "
            "with hard links"
        ) from error
    return True


def replace_whole(path: Path, data: bytes, mode: int | None = None) -> None:
    """Give a file this content, whether it exists or not; of several writers at once, the last wins.

    Without a `mode` its permissions are those of any new file.
    """
    fresh = _unused_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write_synced(fresh, data, mode)
            fresh.replace(path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error


def sync_folder(folder: Path) -> None:
    """Make new, renamed and deleted names durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _make_durable(folder: Path) -> None:
    """Make a folder with all above it, so that the whole way to its first file survives a power failure."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_folder(each.parent)


def _unused_name(path: Path) -> Path:
    return path.with_name(f".{path.name}-{uuid.uuid4().hex}")


def _write_synced(
    path: Path, data: bytes, mode: int | None = None, owner: os.stat_result | None = None
) -> None:
    """Permissions and owner are set while the file is still empty, so it is never readable by more users."""
    with path.open("xb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        if owner is not None:
            with suppress(PermissionError):
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
