"""Faults on demand: killed processes, cut connections and damaged files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from flaremq.base.errors import UsageError
from flaremq.store.offline.scan import ledger_data
from flaremq.testing.cluster import Process
from flaremq.testing.local import CLIENTS, LocalBroker, LocalCluster

End: TypeAlias = Process | Literal["clients"]
"""One end of a connection to cut."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change to a file."""

    path: Path
    at: int
    before: bytes
    after: bytes

    def undo(self) -> None:
        _write(self.path, self.at, self.before)


class Faults:
    """Injects faults into the servers of a test. Cut connections are repaired when the test ends."""

    def __init__(self, clusters: Sequence[LocalCluster], broker: LocalBroker | None = None) -> None:
        """`clusters` may grow: it is read at each call."""
        self._clusters = clusters
        self._broker = broker

    # Processes.

    def kill(self, process: Process) -> None:
        """End a process of a `cluster` at once (SIGKILL): it saves nothing and unregisters nowhere."""
        self._found(process, "killed")[1].kill()

    def restart(self, process: Process) -> Process:
        """Start a process again with its address and files, after `kill` or in place of a running one.

        A running process is stopped first, as an operator would. Returns the new process.
        """
        cluster, found = self._found(process, "restarted")
        found.end()
        return cluster.again(found)

    def _found(self, process: object, done: str) -> tuple[LocalCluster, Process]:
        """The cluster of a process, and its current run."""
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

    # Connections.

    def partition(self, a: End, b: End | None = None, *, resets: bool = False) -> None:
        """Cut the connections between two processes, or a process and "clients"; one alone is isolated.

        A cut connection is silent: callers notice when their timeout is over. With `resets` existing and new
        connections are reset at once. Needs `cluster(..., cuttable=True)`.
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
        """Repair all connections. Data that waited meanwhile arrives."""
        for cluster in self._clusters:
            if cluster.plan.cuttable:
                cluster.mend()

    # Files.

    def corrupt(
        self, what: Path | LocalBroker | Process, *, at: int | None = None, count: int = 1, seed: int = 0
    ) -> list[Change]:
        """Change bytes of a file: the given one, or a broker's newest commit log file. Returns the changes.

        Changes `count` bytes from `at` on, or at random among the written ones: the same `seed` gives the
        same places. The file must not be in use.
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
        """Lose the end of a file: zeros from `at` on, or from a random place.

        The file looks as if its last pages had not reached the disk at a power failure.
        """
        path, data = self._read(what)
        place = random.Random(seed).randrange(len(data)) if at is None else at
        if not 0 <= place < len(data):
            raise UsageError(f"{path}: nothing is written from byte {place} on, it holds {len(data)}")
        change = Change(path, place, data[place:], bytes(len(data) - place))
        _write(path, place, change.after)
        return change

    def _read(self, what: Path | LocalBroker | Process) -> tuple[Path, bytes]:
        """A file that is not in use, and its written bytes: zeros follow up to its length."""
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
    """The newest log file with data: files are created ahead, so the last one may be empty."""
    files = sorted(
        path for folder in [*ledger_data(store), store / "commitlog"] for path in folder.glob("[0-9]*")
    )
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
