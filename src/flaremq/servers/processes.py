"""Servers as separate processes, started by another program: the demo, and tests.

A server is ready when it prints its line with "boot success".
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

READY: Final = "boot success"
READY_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 60.0
_LINES_SHOWN: Final = 40


class ProcessFailed(Exception):
    """A server ended, or was not ready in time; the message shows its last output."""


class Process:
    """One server process. Its output goes to a file next to its settings."""

    def __init__(
        self, what: str, name: str, port: int, folder: Path, *, descriptors: int | None = None
    ) -> None:
        """`descriptors` limits its open files (ulimit -n)."""
        limited = [] if descriptors is None else ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(descriptors)]
        self.what = what
        self.name = name
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.folder = folder
        self._ready = threading.Event()
        self._said_ready = False
        self._printed = folder / "printed"
        self._process = subprocess.Popen(
            [*limited, sys.executable, "-m", "flaremq.cli.main", what, "-c", str(folder / "conf.properties")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._reader = threading.Thread(target=self._read, name=f"printed-{name}", daemon=True)
        self._reader.start()

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def lines(self) -> list[str]:
        """All its output, including that of earlier runs."""
        return self._printed.read_text(errors="replace").splitlines()

    def wait_ready(self, limit_s: float = READY_LIMIT_S) -> Self:
        came = self._ready.wait(limit_s)
        if came and not self._said_ready:  # Its pipe is closed, so it is about to end.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_LIMIT_S)
        if not self._said_ready or self._process.poll() is not None:
            status = self._process.poll()
            self.kill()
            how = f"did not get ready within {limit_s} s" if status is None else f"ended with status {status}"
            raise ProcessFailed(f"{self.name} {how}, {self._last_words()}")
        return self

    def stop(self) -> int:
        """Ask it to end, as an operator would (SIGTERM), and return its exit status."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessFailed(f"{self.name} ran on after SIGTERM, {self._last_words()}") from None
        self.kill()
        return self._process.returncode

    def end(self) -> None:
        """Stop it if it runs; kill it if it does not stop. Never raises: there may be others to end."""
        if self.is_running:
            with suppress(ProcessFailed):
                self.stop()
        else:
            self.kill()

    def kill(self) -> None:
        """End it at once (SIGKILL). Idempotent."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _last_words(self) -> str:
        return "the last that it printed:\n" + "\n".join(self.lines[-_LINES_SHOWN:])

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._printed.open("ab", buffering=0) as copy:
            for line in self._process.stdout:
                copy.write(line)
                if READY in line.decode(errors="replace"):
                    self._said_ready = True
                    self._ready.set()
        self._ready.set()  # No more output: wake up the waiter, which then sees that it ended.


def properties_file(folder: Path, options: Mapping[str, object]) -> Path:
    path = folder / "conf.properties"
    lines = [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}\n"
        for name, value in options.items()
    ]
    path.write_text("".join(lines))
    return path
