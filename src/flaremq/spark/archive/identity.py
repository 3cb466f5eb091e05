"""Whose an archive is: what lies in a folder, which query fills it, and who does so now.

    _flaremq/archive.json    format and query: the same from the first day on
    _flaremq/lock            held by whoever writes; the system lets it go when its process ends
    _flaremq/run.json        who that is, for people, and so that one who was thought dead notices

The query's id is made here and given to Spark with an empty checkpoint. So a checkpoint that is lost, or that
belongs to another archive, is noticed before it does harm: with it rows would come twice, or never.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, Self

from flaremq.base.errors import ConfigError, CorruptStore, StoreError, StoreLocked, UsageError
from flaremq.base.localpath import local_path
from flaremq.spark.archive.log import create_whole, replace_whole

OWN: Final = "_flaremq"
CHECKPOINT: Final = "_checkpoint"
_METADATA: Final = "metadata"
FORMATS: Final = ("parquet", "delta", "iceberg")
_VERSION: Final = 1
_GLOB: Final = frozenset("*?[]{}\\")
"""Spark takes a path with one of these for a pattern."""
_ODD: Final = _GLOB | frozenset("%#")
"""Where a path is made into an address, these too mean something else."""
_OURS: Final = frozenset({OWN, CHECKPOINT, "lost+found"})
_JVM_LIMIT_S: Final = 30.0
_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Identity:
    """What an archive has been since it was made."""

    format: str
    query: str


def identity_of(folder: Path) -> Identity | None:
    """None if there is no archive in this folder."""
    path = local_path(folder) / OWN / "archive.json"
    try:
        found = json.loads(path.read_bytes())
        if found["version"] != _VERSION:
            raise UsageError(
                f"{folder} is an archive of version {found['version']}, readable are those of {_VERSION}: "
                "use the release that made it"
            )
        return Identity(found["format"], found["query"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptStore(
            f"{path} cannot be read ({error}): restore it from a copy of the archive"
        ) from error
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error.strerror}: check owner and rights of the folder"
        ) from error


def known_identity(folder: Path) -> Identity:
    """UsageError if there is no archive in this folder."""
    folder = local_path(folder)
    found = identity_of(folder)
    if found is None:
        what = "is no archive of ours" if folder.is_dir() else "is not there"
        raise UsageError(f"{folder} {what}: give the folder that an archive was written to")
    return found


def made_identity(folder: Path, wanted: str) -> Identity:
    """Of the archive in this folder, or of one that begins now. UsageError if something else lies there."""
    found = checked_identity(folder, wanted)
    if found is None:
        text = json.dumps({"version": _VERSION, "format": wanted, "query": str(uuid.uuid4())})
        create_whole(folder / OWN / "archive.json", text.encode())
        found = known_identity(folder)
    return found


def checked_identity(folder: Path, wanted: str) -> Identity | None:
    """The same, but nothing is made: None if an archive could begin here."""
    check_format(wanted)
    odd = sorted({each for each in str(folder) if each in (_GLOB if wanted == "parquet" else _ODD)})
    if odd:
        raise ConfigError(
            f"{str(folder)!r} cannot hold an archive in format {wanted}: {' '.join(odd)} in a path would be "
            "read as something else; use another name"
        )
    found = identity_of(folder)
    if found is None:
        _check_empty(folder)
    elif found.format != wanted:
        raise UsageError(
            f"{folder} is an archive in format {found.format}, and {wanted} is wanted: use that format, or "
            "another folder"
        )
    return found


def check_format(name: str) -> None:
    if name not in FORMATS:
        raise ConfigError(f"format={name!r}: wanted is one of {', '.join(FORMATS)}")


def _check_empty(folder: Path) -> None:
    for each in (folder, *folder.parents):
        if each.exists() and not each.is_dir():
            raise UsageError(f"{each} is a file: an archive needs a folder of its own")
    try:
        foreign = sorted({each.name for each in folder.iterdir()} - _OURS) if folder.exists() else []
    except OSError as error:
        raise StoreError(f"cannot read {folder}: {error.strerror}: check owner and rights") from error
    if foreign:
        shown = ", ".join(foreign[:3]) + (" ..." if len(foreign) > 3 else "")
        raise UsageError(f"{folder} holds something else ({shown}): an archive needs a folder of its own")


def prepare_checkpoint(checkpoint: Path, folder: Path, query: str, last_batch: int) -> None:
    """Make a new checkpoint for a new archive, or see that it is the right one. Raises UsageError.

    `last_batch` is the last one that the archive has, or -1.
    """
    if check_checkpoint(checkpoint, folder, query):
        _check_age(checkpoint, folder, last_batch)
        return
    if last_batch >= 0:
        raise UsageError(
            f"{folder} holds rows, and its checkpoint {checkpoint} is not there: from the beginning every "
            "message would come twice; restore the checkpoint, or archive into another folder"
        )
    create_whole(checkpoint / _METADATA, json.dumps({"id": query}).encode())


def check_checkpoint(checkpoint: Path, folder: Path, query: str | None) -> bool:
    """Whether it is this query's; False if it is still to be made, UsageError if it is another's.

    An archive that is still to be made has no query.
    """
    path = checkpoint / _METADATA
    try:
        found = json.loads(path.read_text())["id"]
    except (FileNotFoundError, NotADirectoryError):
        found = None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptStore(f"{path} cannot be read ({error}): restore the checkpoint from a copy") from error
    if checkpoint.exists() and not checkpoint.is_dir():
        raise UsageError(f"{checkpoint} is a file: a checkpoint needs a folder of its own, or leave it out")
    if found is None and not (checkpoint.is_dir() and any(checkpoint.iterdir())):
        return False
    if found is None or found != query:
        raise UsageError(
            f"{checkpoint} is the checkpoint of another query: archive {folder} with its own, or leave it out"
        )
    return True


def _check_age(checkpoint: Path, folder: Path, last_batch: int) -> None:
    """What a batch is to read is in the checkpoint before it begins, so an archive is never ahead of it.

    An older copy of a checkpoint would give the numbers of batches that the archive has to other messages.
    """
    names = [each.name for each in (checkpoint / "offsets").glob("*") if each.name.isdigit()]
    known = max(map(int, names), default=-1)
    if known < last_batch:
        raise UsageError(
            f"{checkpoint} knows batches up to {known}, and {folder} has batch {last_batch}: it is an old "
            "copy, and messages would be left out; restore the newest one, or archive into another folder"
        )


class Claim:
    """The right to fill an archive: for one process, until it lets go or ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = folder / OWN
        self._file: IO[bytes] | None = None
        self.run = uuid.uuid4().hex
        """Names this right; it goes with every batch, and the archive takes only those of the last one."""

    def take(self, jvm: int | None = None) -> Self:
        """Raises StoreLocked, which says who has it. `jvm` is the process in which our Spark runs."""
        path = self._own / "lock"
        try:
            self._own.mkdir(parents=True, exist_ok=True)
            file = path.open("ab")
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}: check owner and rights") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise StoreLocked(
                f"{self._folder} is being filled by {_described(self._last())}: stop that one first, or use "
                "another folder"
            ) from error
        self._file = file
        before = self._last()
        _outlive(before)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        told = {"run": self.run, "pid": os.getpid(), "host": socket.gethostname(), "since": now, "jvm": jvm}
        replace_whole(self._own / "run.json", json.dumps(told).encode())
        return self

    def let_go(self) -> None:
        """Again is harmless."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()

    def _last(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((self._own / "run.json").read_bytes())
            if isinstance(found, dict):
                return found
        return {}


def check_run(folder: Path, run: str) -> None:
    """StoreLocked if somebody else fills the archive by now, because we were taken for dead."""
    last = Claim(folder)._last()
    if last.get("run") != run:
        raise StoreLocked(
            f"{folder} is being filled by {_described(last)} since {last.get('since')}: this run was taken "
            "for dead and has to end"
        )


def _described(last: dict[str, Any]) -> str:
    return (
        f"process {last['pid']} on {last['host']}" if "pid" in last and "host" in last else "another process"
    )


def _outlive(before: dict[str, Any]) -> None:
    """Wait for the end of a JVM whose driver was killed: it notices soon, but not at once.

    Until then it may be at work at the same checkpoint. Should it not end, it is refused at its next commit.
    """
    jvm = before.get("jvm")
    if (
        not isinstance(jvm, int)
        or before.get("host") != socket.gethostname()
        or before.get("pid") == os.getpid()
    ):
        return
    deadline_s = time.monotonic() + _JVM_LIMIT_S
    while _is_java(jvm) and time.monotonic() < deadline_s:
        time.sleep(_LOOK_S)


def _is_java(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"org.apache.spark" in command
