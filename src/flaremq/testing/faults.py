"""What can go wrong, on demand: processes that are killed, wires that are cut, files that are damaged."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from flaremq.base.errors import UsageError
from flaremq.testing.cluster import Process
from flaremq.testing.local import CLIENTS, LocalBroker, LocalCluster

End: TypeAlias = Process | Literal["clients"]
"""One end of what is cut."""


@dataclass(frozen=True, slots=True)
class Change:
    """What was done to a file."""

    path: Path
    at: int
    before: bytes
    after: bytes

    def undo(self) -> None:
        _write(self.path, self.at, self.before)


class Faults:
    """Does harm to the servers of a test. What is cut is whole again when the test is over."""

    def __init__(self, clusters: Sequence[LocalCluster], broker: LocalBroker | None = None) -> None:
        """`clusters` may grow: it is looked at when something is asked for."""
        self._clusters = clusters
        self._broker = broker

    # Processes.

    def kill(self, process: Process) -> None:
        """End a process of a `cluster` at once (SIGKILL): it saves nothing and unregisters nowhere."""
        self._found(process, "killed")[1].kill()

    def restart(self, process: Process) -> Process:
        """Start a process again where it was: after `kill`, or instead of one that still runs.

        One that runs is stopped as an operator would. The process that this gives is the new one.
        """
        cluster, found = self._found(process, "restarted")
        found.end()
        return cluster.again(found)

    def _found(self, process: object, done: str) -> tuple[LocalCluster, Process]:
        """The cluster of a process, and its newest life."""
        if isinstance(process, LocalBroker):
            raise UsageError(
                f"{process.name} runs in the process of this test and cannot be {done}: use its stop() and "
                "start(), or ask the fixture `cluster` for real processes"
            )
        if isinstance(process, Process):
            for cluster in self._clusters:
                current = cluster.current(process)
                if current is not None:
                    return cluster, current
        raise UsageError(
            f"{process!r} cannot be {done}: give one of `.brokers` or `.namesrvs` of a cluster that the "
            "fixture `cluster` made for this test"
        )

    # Wires.

    def partition(self, a: End, b: End | None = None, *, resets: bool = False) -> None:
        """Cut what lies between two processes, or a process and "clients"; one alone is cut off from all.

        A cut wire is silent, and callers notice when their time is up. With `resets` connections end at
        once, and new ones too. Needs `cluster(..., cuttable=True)`.
        """
        given = [end for end in (a, b) if end is not None]
        server = next((end for end in given if end != CLIENTS), None)
        if server is None:
            raise UsageError('"clients" can be cut off from a server only: name a broker or a NameServer too')
        cluster = self._found(server, "cut off")[0]
        if not cluster.plan.cuttable:
            raise UsageError(
                "the wires of this cluster cannot be cut: make it with cluster(..., cuttable=True)"
            )
        names = {CLIENTS if isinstance(end, str) else self._found(end, "cut off")[1].name for end in given}
        wires = [ends for ends in cluster.wires if names <= ends]
        if not wires:
            raise UsageError(
                f"there is no wire between {' and '.join(sorted(names))}: brokers talk to NameServers, and "
                '"clients" to both'
            )
        for ends in wires:
            cluster.cut(ends, resets=resets)

    def heal(self) -> None:
        """All that was cut is whole again. What was held up meanwhile arrives."""
        for cluster in self._clusters:
            if cluster.plan.cuttable:
                cluster.mend()

    # Files.

    def corrupt(
        self, what: Path | LocalBroker | Process, *, at: int | None = None, count: int = 1, seed: int = 0
    ) -> list[Change]:
        """Change bytes of a file, of a broker's newest commit log unless a path is given, and say which.

        `count` bytes from `at` on, or where the dice fall among what is written: the same `seed` gives the
        same places. Nobody may be using the file.
        """
        path, data = self._read(what)
        if not 1 <= count <= len(data):
            raise UsageError(f"{path}: count={count}: expected 1 to {len(data)}, the bytes that it holds")
        dice = random.Random(seed)
        places = sorted(dice.sample(range(len(data)), count)) if at is None else range(at, at + count)
        if not 0 <= places[0] <= places[-1] < path.stat().st_size:
            raise UsageError(f"{path}: expected a byte below {path.stat().st_size}, got {places[-1]}")
        with path.open("rb") as file:
            whole = file.read(places[-1] + 1)
        changes = [
            Change(path, place, whole[place : place + 1], bytes([whole[place] ^ dice.randrange(1, 256)]))
            for place in places
        ]
        for change in changes:
            _write(path, change.at, change.after)
        return changes

    def tear(self, what: Path | LocalBroker | Process, *, at: int | None = None, seed: int = 0) -> Change:
        """Let the end of a file be lost: zeros from `at` on, or from where the dice fall.

        So a file looks whose last pages had not come to the disk when the power failed.
        """
        path, data = self._read(what)
        place = random.Random(seed).randrange(len(data)) if at is None else at
        if not 0 <= place < len(data):
            raise UsageError(f"{path}: nothing is written from byte {place} on, it holds {len(data)}")
        change = Change(path, place, data[place:], bytes(len(data) - place))
        _write(path, place, change.after)
        return change

    def _read(self, what: Path | LocalBroker | Process) -> tuple[Path, bytes]:
        """A file that nobody uses, and what is written in it: its length says nothing, zeros follow."""
        path = what if isinstance(what, Path) else _newest_log(what.store)
        for name, store in self._in_use():
            if path.is_relative_to(store):
                raise UsageError(f"{path} is in use: stop or kill {name} first")
        data = path.read_bytes().rstrip(b"\0")
        if not data:
            raise UsageError(f"{path} holds nothing that could be damaged: send messages first")
        return path, data

    def _in_use(self) -> list[tuple[str, Path]]:
        running: list[LocalBroker | Process] = [
            each for cluster in self._clusters for each in cluster.brokers if each.is_running
        ]
        if self._broker is not None and self._broker.is_running:
            running.append(self._broker)
        return [(each.name, each.store) for each in running]


def _newest_log(store: Path) -> Path:
    """Files are made ahead, so the last one may be empty."""
    files = sorted((store / "commitlog").glob("[0-9]*"))
    written = [path for path in files if _has_data(path)]
    if not written:
        raise UsageError(f"{store} has no commit log with messages: send some first")
    return written[-1]


def _has_data(path: Path) -> bool:
    with path.open("rb") as file:
        return bool(file.read(64).strip(b"\0"))


def _write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
