"""Servers for one test: a broker inside the test process, or a cluster of real processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from flaremq.admin.values.topics import TopicSettings
from flaremq.base.errors import UsageError
from flaremq.testing.asserts import Asserts
from flaremq.testing.clock import MovableClock
from flaremq.testing.cluster import Cluster, Process
from flaremq.testing.embedded import EmbeddedThread
from flaremq.testing.wire import Wire, Wires

CLIENTS: Final = "clients"
"""One end of a wire: all programs that are not servers of the cluster."""
_NAME: Final = "broker-a"
_BROKERS_MAX: Final = 26
_NAMESRVS_MAX: Final = 9
_REPLICAS_MAX: Final = 7
_HOST: Final = "127.0.0.1"
_CUTTABLE_HOST: Final = "127.0.0.2"
"""A broker advertises the port that it listens on, so a wire to it needs the same port at another address of
this machine. Linux has all of 127.0.0.0/8."""


class Servers(Asserts):
    """The servers of a test, wherever they run."""

    def create_topic(self, name: str, queues: int = 4) -> None:
        """Create a topic on every broker, with this many queues on each. Then clients can find it."""
        self.admin.topics.create(name, TopicSettings(read_queues=queues, write_queues=queues))


class LocalBroker(Servers):
    """A NameServer and one broker in a thread of this process."""

    def __init__(
        self,
        folder: Path,
        *,
        options: Mapping[str, object] | None = None,
        clock: MovableClock | None = None,
    ) -> None:
        super().__init__()
        self._servers = EmbeddedThread(folder, options=options, clock=clock)
        self._address = ""

    def __enter__(self) -> Self:
        self._servers.__enter__()
        (self._address,) = self._servers.addresses
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.close_admin()
        finally:
            self._servers.__exit__()

    @property
    def namesrv(self) -> str:
        return self._servers.namesrv

    @property
    def address(self) -> str:
        """host:port of the broker, even while it is stopped: it restarts there."""
        return self._address

    @property
    def name(self) -> str:
        return _NAME

    @property
    def store(self) -> Path:
        """The folder of its files."""
        return self._servers.store(_NAME)

    @property
    def is_running(self) -> bool:
        return bool(self._servers.brokers)

    def stop(self) -> None:
        """Stop the broker as an operator would; the NameServer keeps running. Idempotent."""
        if self.is_running:
            self._servers.stop(_NAME)

    def start(self) -> None:
        """Start it again, at the same address and with the same files."""
        if not self.is_running:
            self._servers.start(_NAME)


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The servers of a cluster and their options."""

    brokers: int
    namesrvs: int
    cuttable: bool
    options: Mapping[str, object]
    """RocketMQ's options, for each broker."""
    replicas: int = 1
    """Each broker is a Raft group of this many members, if there are several."""

    def __post_init__(self) -> None:
        if self.cuttable and self.replicas > 1:
            raise UsageError(
                f"replicas={self.replicas}: the members of a group know each other by one address, so the "
                "wires between them cannot be cut: leave out cuttable=True, and stop members with their "
                "`pid` and SIGSTOP"
            )
        for name, value, limit in (
            ("brokers", self.brokers, _BROKERS_MAX),
            ("namesrvs", self.namesrvs, _NAMESRVS_MAX),
            ("replicas", self.replicas, _REPLICAS_MAX),
        ):
            if not 1 <= value <= limit:
                raise UsageError(f"{name}={value}: expected 1 to {limit}")


class LocalCluster(Servers):
    """NameServers and brokers as processes, all in one cluster.

    Brokers are broker-a, broker-b and so on, members of a Raft group broker-a-n0, broker-a-n1. In a cuttable
    cluster there is a wire to each server for all clients, and one more to each NameServer from each broker.
    """

    def __init__(self, folder: Path, plan: ClusterPlan) -> None:
        super().__init__()
        self.plan = plan
        self.wires: dict[frozenset[str], Wire] = {}
        """Wires by the names of their two ends."""
        self.namesrvs: list[Process] = []
        self.brokers: list[Process] = []
        self._cluster = Cluster(folder)
        self._ending = ExitStack()
        self._ending.enter_context(self._cluster)
        if plan.cuttable:
            self._laid = self._ending.enter_context(Wires())

    def __enter__(self) -> Self:
        try:
            for number in range(self.plan.namesrvs):
                self.namesrvs.append(self._cluster.namesrv(f"namesrv-{number + 1}"))
                self._lay(CLIENTS, self.namesrvs[-1])
            for number in range(self.plan.brokers):
                self.brokers += self._brokers(f"broker-{chr(ord('a') + number)}")
        except BaseException:
            self._ending.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.close_admin()
        finally:
            self._ending.close()

    @property
    def namesrv(self) -> str:
        return ";".join(self._address(CLIENTS, each) for each in self.namesrvs)

    @property
    def processes(self) -> Iterator[Process]:
        yield from self.namesrvs
        yield from self.brokers

    def current(self, process: Process) -> Process | None:
        """The current run of a process: each start is a new one."""
        return next((each for each in self.processes if each.folder == process.folder), None)

    def again(self, ended: Process) -> Process:
        """Restart a process that has ended, at its old port and with its old files."""
        started = self._cluster.again(ended)
        for each in (self.namesrvs, self.brokers):
            each[:] = [started if one.folder == ended.folder else one for one in each]
        return started

    def cut(self, ends: frozenset[str], *, resets: bool) -> None:
        self._laid.cut(self.wires[ends], resets=resets)

    def mend(self) -> None:
        """Repair all wires."""
        for wire in self.wires.values():
            self._laid.mend(wire)

    def leader(self, name: str = _NAME) -> Process | None:
        """The member of a Raft group that serves its clients now; None while there is none."""
        for each in self.admin.raft.members(broker=name):
            if each.is_leader and each.answers:
                return next(process for process in self.brokers if each.address.endswith(f":{process.port}"))
        return None

    def _brokers(self, name: str) -> list[Process]:
        if self.plan.replicas == 1:
            return [self._broker(name)]
        return self._cluster.group(self.plan.replicas, name, self.namesrv, options=self.plan.options)

    def _broker(self, name: str) -> Process:
        for namesrv in self.namesrvs:
            self._lay(name, namesrv)
        options: dict[str, Any] = dict(self.plan.options)
        if self.plan.cuttable:
            options = {"brokerIP1": _CUTTABLE_HOST, **options}
        known = ";".join(self._address(name, each) for each in self.namesrvs)
        broker = self._cluster.broker(name, known, **options)
        self._lay(CLIENTS, broker, _CUTTABLE_HOST, broker.port)
        return broker

    def _lay(self, end: str, server: Process, host: str = _HOST, port: int = 0) -> None:
        if not self.plan.cuttable:
            return
        try:
            wire = self._laid.lay((_HOST, server.port), host, port)
        except OSError as error:
            raise UsageError(
                f"a cuttable cluster needs {host}:{port} for {server.name}: {error}; a machine that is not "
                f"Linux may need the address first (macOS: sudo ifconfig lo0 alias {host})"
            ) from error
        self.wires[frozenset((end, server.name))] = wire

    def _address(self, end: str, server: Process) -> str:
        wire = self.wires.get(frozenset((end, server.name)))
        return server.address if wire is None else wire.address


class Clusters:
    """Makes clusters, and stops all of them at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ending = ExitStack()
        self.made: list[LocalCluster] = []

    def __call__(
        self,
        brokers: int = 1,
        *,
        namesrvs: int = 1,
        replicas: int = 1,
        cuttable: bool = False,
        **options: object,
    ) -> LocalCluster:
        """`options` are RocketMQ's, for each broker: `cluster(3, flushDiskType="SYNC_FLUSH")`. With
        `replicas=3` each broker is a Raft group of three processes."""
        plan = ClusterPlan(brokers, namesrvs, cuttable, options, replicas)
        folder = self._folder / f"cluster-{len(self.made) + 1}"
        cluster = self._ending.enter_context(LocalCluster(folder, plan))
        self.made.append(cluster)
        return cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()
