"""Who may write to an archive: one process at a time.

    _flaremq/lock        held by the writer; the system releases it when its process ends
    _flaremq/run.json    which process that is: shown to people, and read by a writer that was thought dead

The lock keeps out a second writer. The run id in run.json stops the first one if it lives on after the lock
was lost, for example in a virtual machine that was paused: its next commit finds another run id and fails.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, Self

from flaremq.base.errors import StoreError, StoreLocked
from flaremq.base.files import replace_whole
from flaremq.spark.archive.identity import OWN

_JVM_LIMIT_S: Final = 30.0
_LOOK_S: Final = 0.1


class WriterLease:
    """The right to write to an archive, for one process, until it is released or the process ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self.run = uuid.uuid4().hex
        """Id of this lease. Every batch carries it, and the archive accepts only the latest one."""

    def take(self, jvm: int | None = None) -> Self:
        """Raises StoreLocked, naming the holder. `jvm` is the process id of our Spark."""
        path = self._folder / OWN / "lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("ab")
        except OSError as error:
            raise StoreError(
                f"cannot write {path}: {error.strerror}; check its owner and permissions"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise StoreLocked(
                f"{self._folder} is being written by {_described(_last_run(self._folder))}: stop it first, "
                "or use another folder"
            ) from error
        self._file = file
        _outlive(_last_run(self._folder))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        run = {"run": self.run, "pid": os.getpid(), "host": socket.gethostname(), "since": now, "jvm": jvm}
        replace_whole(_run_file(self._folder), json.dumps(run).encode())
        return self

    def release(self) -> None:
        """Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def check_run(folder: Path, run: str) -> None:
    """StoreLocked if another process has taken the lease since, because this one was thought dead."""
    last = _last_run(folder)
    if last.get("run") != run:
        raise StoreLocked(
            f"{folder} has been written by {_described(last)} since {last.get('since')}: this run was "
            "thought dead and must end"
        )


def _run_file(folder: Path) -> Path:
    return folder / OWN / "run.json"


def _last_run(folder: Path) -> dict[str, Any]:
    """Empty if there has been none, or its file cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(_run_file(folder).read_bytes())
        if isinstance(found, dict):
            return found
    return {}


def _described(run: dict[str, Any]) -> str:
    return f"process {run['pid']} on {run['host']}" if "pid" in run and "host" in run else "another process"


def _outlive(before: dict[str, Any]) -> None:
    """Wait for the JVM of a killed driver to end: it notices soon, but not at once.

    Until then it may still use the same checkpoint. If it does not end, its next commit is refused.
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
