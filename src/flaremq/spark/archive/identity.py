"""The identity of an archive: its format, and the streaming query that writes it.

    _flaremq/archive.json    format and query id, fixed when the archive is created

The query id is made here and given to Spark with an empty checkpoint. A checkpoint that is lost, or belongs
to another archive, is therefore noticed before rows are written twice or left out.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flaremq.base.errors import ConfigError, CorruptStore, StoreError, UsageError
from flaremq.base.files import create_whole
from flaremq.base.localpath import local_path

OWN: Final = "_flaremq"
CHECKPOINT: Final = "_checkpoint"
_METADATA: Final = "metadata"
FORMATS: Final = ("parquet", "delta", "iceberg")
_VERSION: Final = 1
_GLOB: Final = frozenset("*?[]{}\\")
"""Spark reads a path with one of these as a pattern."""
_ODD: Final = _GLOB | frozenset("%#")
"""These have a meaning in URLs, which Delta and Iceberg make of paths."""
_OURS: Final = frozenset({OWN, CHECKPOINT, "lost+found"})


@dataclass(frozen=True, slots=True)
class Identity:
    """Fixed when the archive is created."""

    format: str
    query: str


def identity_of(folder: Path) -> Identity | None:
    """None if there is no archive in this folder."""
    path = local_path(folder) / OWN / "archive.json"
    try:
        found = json.loads(path.read_bytes())
        if found["version"] != _VERSION:
            raise UsageError(
                f"{folder} is an archive of version {found['version']}: expected version {_VERSION}; use the "
                "release that wrote it"
            )
        return Identity(found["format"], found["query"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptStore(f"cannot read {path} ({error}): restore it from a copy of the archive") from error
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}; check its owner and permissions") from error


def known_identity(folder: Path) -> Identity:
    """UsageError if there is no archive in this folder."""
    folder = local_path(folder)
    found = identity_of(folder)
    if found is None:
        what = "is not an archive of FlareMQ" if folder.is_dir() else "does not exist"
        raise UsageError(f"{folder} {what}: expected the folder that an archive was written to")
    return found


def made_identity(folder: Path, wanted: str) -> Identity:
    """The archive in this folder, created if there is none. UsageError if the folder holds something else."""
    found = checked_identity(folder, wanted)
    if found is None:
        text = json.dumps({"version": _VERSION, "format": wanted, "query": str(uuid.uuid4())})
        create_whole(folder / OWN / "archive.json", text.encode())
        found = known_identity(folder)
    return found


def checked_identity(folder: Path, wanted: str) -> Identity | None:
    """The archive in this folder, or None if one could be created here."""
    check_format(wanted)
    odd = sorted({each for each in str(folder) if each in (_GLOB if wanted == "parquet" else _ODD)})
    if odd:
        raise ConfigError(
            f"{str(folder)!r} cannot hold an archive in format {wanted}: {' '.join(odd)} has a special "
            "meaning in its path; use another name"
        )
    found = identity_of(folder)
    if found is None:
        _check_empty(folder)
    elif found.format != wanted:
        raise UsageError(
            f"{folder} is an archive in format {found.format}, not {wanted}: use {found.format}, or another "
            "folder"
        )
    return found


def check_format(name: str) -> None:
    if name not in FORMATS:
        raise ConfigError(f"format={name!r}: expected one of {', '.join(FORMATS)}")


def _check_empty(folder: Path) -> None:
    for each in (folder, *folder.parents):
        if each.exists() and not each.is_dir():
            raise UsageError(f"{each} is a file: expected an empty or new folder for the archive")
    try:
        foreign = sorted({each.name for each in folder.iterdir()} - _OURS) if folder.exists() else []
    except OSError as error:
        raise StoreError(
            f"cannot read {folder}: {error.strerror}; check its owner and permissions"
        ) from error
    if foreign:
        shown = ", ".join(foreign[:3]) + (" ..." if len(foreign) > 3 else "")
        raise UsageError(f"{folder} is not empty ({shown}): expected an empty or new folder for the archive")


def prepare_checkpoint(checkpoint: Path, folder: Path, query: str, last_batch: int) -> None:
    """Create the checkpoint of a new archive, or check that it belongs to this one. Raises UsageError.

    `last_batch` is the archive's last batch, or -1.
    """
    if check_checkpoint(checkpoint, folder, query):
        _check_age(checkpoint, folder, last_batch)
        return
    if last_batch >= 0:
        raise UsageError(
            f"{folder} holds rows, but its checkpoint {checkpoint} is missing: starting over would write "
            "every message twice; restore the checkpoint, or archive into another folder"
        )
    create_whole(checkpoint / _METADATA, json.dumps({"id": query}).encode())


def check_checkpoint(checkpoint: Path, folder: Path, query: str | None) -> bool:
    """True if it is this query's, False if there is none yet, UsageError if it is another query's.

    `query` is None for an archive that does not exist yet.
    """
    path = checkpoint / _METADATA
    try:
        found = json.loads(path.read_text())["id"]
    except (FileNotFoundError, NotADirectoryError):
        found = None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptStore(f"cannot read {path} ({error}): restore the checkpoint from a copy") from error
    if checkpoint.exists() and not checkpoint.is_dir():
        raise UsageError(
            f"{checkpoint} is a file: expected a folder; to use the default, leave the checkpoint out"
        )
    if found is None and not (checkpoint.is_dir() and any(checkpoint.iterdir())):
        return False
    if found is None or found != query:
        raise UsageError(
            f"{checkpoint} is the checkpoint of another query: use the one that {folder} was written with, "
            "or leave it out"
        )
    return True


def _check_age(checkpoint: Path, folder: Path, last_batch: int) -> None:
    """A batch is planned in the checkpoint before it begins, so an archive is never ahead of its checkpoint.

    An old copy of a checkpoint would reuse batch numbers that the archive has, for other messages.
    """
    names = [each.name for each in (checkpoint / "offsets").glob("*") if each.name.isdigit()]
    known = max(map(int, names), default=-1)
    if known < last_batch:
        raise UsageError(
            f"{checkpoint} ends at batch {known}, but {folder} has batch {last_batch}: the checkpoint is an "
            "old copy, and messages would be lost; restore the newest one, or archive into another folder"
        )
