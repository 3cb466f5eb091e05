"""A JVM of RocketMQ, and a driver in one: one question at a time, one answer each, both a line of JSON."""

import json
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.java.toolchain import Toolchain

STORE_DRIVER = "flaremq.driver.StoreDriver"
CLIENT_DRIVER = "flaremq.driver.ClientDriver"
START_LIMIT_S = 60.0
STDERR_LINES_SHOWN = 30
# RocketMQ reaches into these packages; newer Javas keep them shut.
OPENED = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/java.lang")
EXPORTED = ("java.base/jdk.internal.ref", "java.base/sun.nio.ch", "java.base/jdk.internal.misc")


class JavaStoreError(Exception):
    """The driver answered with an error, did not answer in time, or is gone."""


@dataclass(frozen=True, slots=True)
class Machine:
    """How a JVM is set up."""

    heap: str
    flags: tuple[str, ...]
    log_level: str
    properties: Mapping[str, str] = field(default_factory=dict)


QUICK = Machine("512m", ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"), "WARN")
"""For tests: starts soon, stays small, and tells why it refused something."""
FAST = Machine("4g", ("-Xms4g", "-XX:+UseG1GC"), "ERROR")
"""For benches: all of the heap at once, the optimising compiler, no warning per recovered message."""


class Jvm:
    """One process of the driver's main class.

    Its stderr, where RocketMQ logs, goes to a file in a temporary folder, which is also its home: nothing
    that RocketMQ writes on its own lands elsewhere. The end of its stdin ends it, so it cannot outlive us.
    """

    def __init__(
        self, toolchain: Toolchain, version: str, machine: Machine = QUICK, main: str = STORE_DRIVER
    ) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="flaremq-java-")
        self._stderr = Path(self._home.name, "stderr")
        self._asked = 0
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                java_command(toolchain, version, main, machine, self._home.name),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=self._home.name,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._begin = time.monotonic()
        try:
            ready = self._next_answer("start", START_LIMIT_S)
            if ready != {"ready": version}:
                raise JavaStoreError(f"asked for a driver of {version}, but it says {ready}")
        except JavaStoreError:
            self.kill()
            raise
        self.start_s = time.monotonic() - self._begin

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def ask(self, command: str, limit_s: float, **fields: object) -> Any:
        """Send a command and wait for its answer. Whoever gets none in time has lost this process."""
        self._asked += 1
        line = json.dumps({"id": self._asked, "command": command, **fields}) + "\n"
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise JavaStoreError(f"{command}: the JVM is gone, {self._last_words()}") from None
        answer = self._next_answer(command, limit_s)
        if answer["id"] != self._asked:
            raise JavaStoreError(f"{command}: asked with id {self._asked}, answered with {answer['id']}")
        if "error" in answer:
            raise JavaStoreError(f"{command}: {answer['error']}\n{answer['trace']}{self._last_words()}")
        return answer["result"]

    def wait_exit(self, limit_s: float) -> int:
        """Wait for the process to end by itself and give its exit status."""
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise JavaStoreError(f"the JVM still runs after {limit_s} s, {self._last_words()}") from None

    def kill(self) -> None:
        """End the process at once, as a power cut would; once it has ended, only clean up."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue  # A command that was never read is still in the buffer.
        self._home.cleanup()

    def _next_answer(self, command: str, limit_s: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=limit_s)
        except queue.Empty:
            words = self._last_words()
            self.kill()
            raise JavaStoreError(f"{command}: no answer within {limit_s} s, {words}") from None
        if line is None:
            status = self._process.wait()
            raise JavaStoreError(f"{command}: the JVM ended with status {status}, {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _last_words(self) -> str:
        try:
            lines = self._stderr.read_text(errors="replace").splitlines()[-STDERR_LINES_SHOWN:]
        except FileNotFoundError:  # Another thread has killed it, and cleaned up.
            return "its stderr is gone"
        return "its last lines on stderr:\n" + "\n".join(lines)


def java_command(toolchain: Toolchain, version: str, main: str, machine: Machine, home: str) -> list[str]:
    """How to start a main class of RocketMQ or of a driver. What it writes on its own lands in its home."""
    doors = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENED]
    doors += [f"--add-exports={package}=ALL-UNNAMED" for package in EXPORTED]
    properties = {
        "user.home": home,
        "java.io.tmpdir": home,
        "rocketmq.home.dir": home,
        "rocketmq.client.logRoot": home,
        "java.net.preferIPv4Stack": "true",
        "tls.enable": "false",
        "flaremq.log": machine.log_level,
        # A nearly full disk is no reason to delete what a test has written.
        "rocketmq.broker.diskSpaceWarningLevelRatio": "0.99",
        "rocketmq.broker.diskSpaceCleanForciblyRatio": "0.98",
        **machine.properties,
    }
    return [
        str(toolchain.java),
        f"-Xmx{machine.heap}",
        *machine.flags,
        *doors,
        *(f"-D{name}={value}" for name, value in properties.items()),
        "-cp",
        toolchain.class_paths[version],
        main,
    ]
