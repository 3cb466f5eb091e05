"""Programs of users as processes of their own: started, read, stopped and killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, Self

from flaremq.testing.cluster import eventually
from flaremq.testing.patience import load_factor

PROGRAM = Path(__file__).with_name("userprogram.py")
STOP_LIMIT_S = 30.0


class Program:
    """One process. What it says is read from the files that it writes to."""

    def __init__(self, what: Literal["produce", "consume"], folder: Path, **wish: Any) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._said = folder / "said"
        self._errors = folder / "errors"
        self._size, self._lines = 0, list[dict[str, Any]]()
        words = [sys.executable, str(PROGRAM), what, json.dumps({"folder": str(folder), **wish})]
        with self._said.open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, cwd=folder
            )

    @property
    def said(self) -> list[dict[str, Any]]:
        """All of it so far. A line that is not whole yet is left for the next time."""
        with self._said.open("rb") as file:
            file.seek(self._size)
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._size += len(whole)
        self._lines += [json.loads(line) for line in whole.splitlines()]
        return self._lines

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Sent, or got."""
        return [each for each in self.said if "body" in each]

    @property
    def bodies(self) -> set[str]:
        return {each["body"] for each in self.messages}

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    async def ready(self) -> Self:
        async def is_ready() -> bool:
            assert self._process.poll() is None, self.errors
            return bool(self.said)

        await eventually("a program is ready", is_ready)
        return self

    def stop(self) -> int:
        """SIGTERM, and its exit status. One that does not end says what its threads are at."""
        self._process.terminate()
        limit_s = STOP_LIMIT_S * load_factor()
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)
            self._process.wait()
            raise AssertionError(f"it still ran {limit_s:g} s after SIGTERM:\n{self.errors}") from None

    def kill(self) -> None:
        """SIGKILL. Again is harmless."""
        self._process.kill()
        self._process.wait()


class Programs:
    """Leave it, and none of them runs any more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()
        self._started = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def start(self, what: Literal["produce", "consume"], **wish: Any) -> Program:
        self._started += 1
        program = Program(what, self._folder / f"{self._started}-{what}", **wish)
        self._running.callback(program.kill)
        return program
