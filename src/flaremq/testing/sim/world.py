"""A simulation: NameServers, brokers and clients with their real code, in one thread, from one seed.

    with Simulation(seed=7) as sim:
        sim.run(scenario(sim))

Time is virtual: an hour of waiting takes a moment. Everything random is drawn from streams of the seed, one
for each node and purpose, so that a change in one place does not shift all others.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

from flaremq.base.errors import UsageError
from flaremq.broker.config import BrokerConfig
from flaremq.client.client import Client
from flaremq.client.settings import ClientSettings
from flaremq.servers.config import NamesrvConfig, flags, load_broker
from flaremq.servers.groupbroker import GroupBroker
from flaremq.servers.together import Broker
from flaremq.store.store import MessageStore
from flaremq.testing.sim.disk import SimDisk
from flaremq.testing.sim.events import EventStream
from flaremq.testing.sim.loop import SimLoop, SimNode
from flaremq.testing.sim.wires import LinkQuality, SimNetwork, SimWires
from flaremq.testing.sim.workers import StepWorker

T = TypeVar("T")

SMALL_FILES: Final[Mapping[str, object]] = {
    "mappedFileSizeCommitLog": 128 << 10,
    "maxMessageSize": 32 << 10,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "mappedFileSizeTimerLog": 52 * 200,
    "diskMaxUsedSpaceRatio": 95,
    "cleanFileForciblyEnable": False,  # A full disk may cost old messages, which would pass for lost ones.
    "enabledAppendPropCRC": True,
    "forceVerifyPropCRC": True,
    "timerWheelEnable": False,
    "shutdownWaitTimeSeconds": 2,
}
"""Files so small that a short run rolls them. Options of every broker, unless a simulation says otherwise."""
_MEMORY: Final = Path("/dev/shm")
_NAMESRV_PORT, _BROKER_PORT, _GROUP_PORT = 9876, 10911, 40911


def _own_folder() -> Path:
    """The first that no other run has: errors name it, so that the next run of a seed is to have the same."""
    parent = _MEMORY if _MEMORY.is_dir() else Path(tempfile.gettempdir())
    for number in itertools.count():
        folder = parent / f"flaremq-sim-{number:04}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder
    raise AssertionError("there are always more numbers")


class SimClock:
    """The clocks of one node."""

    def __init__(self, loop: SimLoop, node: SimNode) -> None:
        self._loop = loop
        self._node = node

    def now_ms(self) -> int:
        return self._loop.wall_ms(self._node)

    def monotonic_s(self) -> float:
        return self._loop.time_of(self._node)


class Machine:
    """A host with an address and a disk, on which a server or a client program runs and may be killed."""

    def __init__(self, sim: Simulation, name: str, ip: str) -> None:
        self.sim = sim
        self.name = name
        self.ip = ip
        self.folder = sim.folder / name
        self.network = SimNetwork(sim.wires, ip)
        self.disk = SimDisk(name, self.folder, sim.loop, sim.events, strict=sim.strict_names)
        self.drift = 0.0
        self.skew_ms = 0
        self.lives = 0
        self.node: SimNode | None = None
        self.boot: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Starts its program; run again by `restart`."""
        self.at_end: list[Callable[[], None]] = []

    @property
    def is_running(self) -> bool:
        return self.node is not None and not self.node.dead

    @property
    def clock(self) -> SimClock:
        assert self.node is not None
        return SimClock(self.sim.loop, self.node)

    def rng(self, purpose: str) -> random.Random:
        return self.sim.rng(f"{self.name}/{self.lives}/{purpose}")

    async def start(self) -> None:
        """Start its program, and return when it runs. Raises if it cannot: then its process has ended."""
        assert not self.is_running and self.boot is not None, self.name
        self.lives += 1
        self.at_end = []
        node = self.node = SimNode(self.name, self.drift)
        node.skew_ms = self.skew_ms
        node.on_death.append(self._died)
        self.sim.wires.hosts[self.ip] = node
        self.sim.events.add(self.name, "start", self.lives)
        started = self.sim.loop.spawn(node, self.boot(), f"{self.name}-boot")
        try:
            await _ended(node, started)
        except Exception:
            self._end("failed start", silently=False)
            self.disk.let_go()
            raise

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on this machine and wait for its result. Raises if it is killed meanwhile."""
        assert self.node is not None
        if self.node.dead:
            work.close()
            raise ConnectionAbortedError(f"{self.name} was killed")
        return await _ended(self.node, self.sim.loop.spawn(self.node, work))

    # Faults.

    def kill(self) -> None:
        """SIGKILL: nothing is saved, peers are told by the kernel."""
        self._end("kill", silently=False)
        self.disk.let_go()

    def lose_power(self) -> None:
        """Whatever was not synced may be lost or torn, and peers hear nothing."""
        self._end("power loss", silently=True)
        self.disk.lose_power_by(self.rng("power"))

    def _end(self, kind: str, *, silently: bool) -> None:
        node = self.node
        if node is None or node.dead:
            return
        self.sim.events.fault(kind, self.name)
        self.sim.wires.left(node, self.ip, silently=silently)
        self.sim.loop.kill(node)

    def _died(self) -> None:
        assert self.node is not None
        for work in self.at_end:
            work()
        self.sim.dead.append(self.node)
        self.sim.loop.call_at_true(self.sim.loop.now_s, self.sim.loop.root, self.sim.bury)

    def kill_within(self, operations: int, *, power: bool) -> None:
        """End it before one of its next operations on the disk."""
        self.disk.arm(operations, self.lose_power if power else self.kill)

    def pause(self) -> None:
        """SIGSTOP."""
        if self.node is not None and not self.node.dead:
            self.sim.events.fault("pause", self.name)
            self.sim.loop.pause(self.node)

    def resume(self) -> None:
        if self.node is not None:
            self.sim.events.add(self.name, "resume")
            self.sim.loop.resume(self.node)

    def step_clock(self, by_ms: int) -> None:
        """Set its wall clock, forwards or back."""
        self.skew_ms += by_ms
        if self.node is not None:
            self.node.skew_ms = self.skew_ms
            self.sim.events.fault("clock step", self.name, by_ms)


class Simulation:
    """A context manager: its folder and loop end with it."""

    def __init__(
        self,
        seed: int | str = 0,
        *,
        namesrvs: int = 1,
        brokers: int = 1,
        slaves: int = 0,
        replicas: int = 1,
        options: Mapping[str, object] | None = None,
        namesrv_options: Mapping[str, object] | None = None,
        quality: LinkQuality | None = None,
        strict_names: bool = False,
    ) -> None:
        """`slaves` is how many each broker has; with `replicas`, each is a Raft group of that many members
        instead. `options` are RocketMQ's, for every broker, and
        `namesrv_options` for every NameServer; `quality` is that of all links. With `strict_names`, only
        syncs of folders make names of files durable."""
        self.seed = seed
        self.strict_names = strict_names
        self.events = EventStream()
        self.loop = SimLoop(self.rng("order"), self.events)
        self.wires = SimWires(self.loop, self.events, self.rng("wires"), quality)
        self.folder = _own_folder()
        self.wires.folder = os.fsencode(self.folder)
        self.dead: list[SimNode] = []
        self.options = {**SMALL_FILES, **(options or {})}
        """Of brokers that start for the first time from now on."""
        self._namesrv_options = dict(namesrv_options or {})
        self._own_options: dict[str, dict[str, object]] = {}
        self._configs: dict[str, BrokerConfig] = {}
        self.machines: dict[str, Machine] = {}
        self.names = [_broker_name(number) for number in range(brokers)]
        in_groups = replicas > 1
        self.brokers = [] if in_groups else [self._a_broker(number) for number in range(brokers)]
        self.members = self._groups(replicas) if in_groups else []
        """Of Raft groups."""
        self.slaves = [
            self._a_slave(number, broker_id)
            for number in range(brokers)
            for broker_id in range(1, slaves + 1)
        ]
        self.namesrvs = [self._a_namesrv(number) for number in range(namesrvs)]
        self.running: dict[str, Broker] = {}
        """The broker objects of now, those of slaves too, by the names of their machines."""
        self.running_members: dict[str, GroupBroker] = {}
        """The same of members of groups."""
        self.rotten: set[tuple[str, int]] = set()
        """Entries that were damaged on the disks of members, by the machine's name and the index, until they
        are seen to be repaired."""
        self.lost: dict[str, int] = {}
        """How much of its log a member had on a disk that it has lost, until it is seen to vote again."""
        self.on_started: Callable[[Machine], None] = lambda _machine: None
        """Called when a broker has started; what it raises ends the run."""
        self.on_made: Callable[[Machine], None] = lambda _machine: None
        """Called when a broker is about to start, and nothing has reached it."""

    def rng(self, purpose: str) -> random.Random:
        """A stream of draws for one purpose."""
        return random.Random(f"{self.seed}/{purpose}")

    @property
    def namesrv(self) -> str:
        """The addresses of all NameServers."""
        return ";".join(f"{machine.ip}:{_NAMESRV_PORT}" for machine in self.namesrvs)

    def machine(self, name: str, ip: str) -> Machine:
        if name in self.machines:
            raise UsageError(f"there is a machine {name!r} already: give this one another name")
        made = self.machines[name] = Machine(self, name, ip)
        return made

    # Servers.

    def _a_namesrv(self, number: int) -> Machine:
        machine = self.machine(f"namesrv-{number}", f"10.0.0.{number + 1}")

        given = {
            "listenPort": _NAMESRV_PORT,
            "bindAddress": machine.ip,
            "kvConfigPath": machine.folder / "kvConfig.json",
            "configStorePath": machine.folder / "namesrv.properties",
            "shutdownWaitTimeSeconds": 1,
            **self._namesrv_options,
        }
        config = NamesrvConfig.load(None, {}, flags(given))

        async def boot() -> None:
            await config.build(machine.clock, machine.disk, machine.network).start()

        machine.boot = boot
        return machine

    def _a_broker(self, number: int) -> Machine:
        name = _broker_name(number)
        return self._member(self.machine(name, f"10.0.1.{number + 1}"), {"brokerName": name})

    def _a_slave(self, number: int, broker_id: int) -> Machine:
        name = _broker_name(number)
        machine = self.machine(f"{name}-slave-{broker_id}", f"10.0.{2 + broker_id}.{number + 1}")
        own = {"brokerName": name, "brokerId": broker_id, "brokerRole": "SLAVE"}
        return self._member(machine, own)

    def _groups(self, replicas: int) -> list[Machine]:
        made = []
        for number, name in enumerate(self.names):
            ips = {f"n{each}": f"10.0.{20 + number}.{each + 1}" for each in range(replicas)}
            made += [self._in_group(name, ips, member) for member in ips]
        return made

    def _in_group(self, name: str, ips: Mapping[str, str], member: str) -> Machine:
        """The member of this id, which is told of all these."""
        own = {
            "brokerName": name,
            "enableDLegerCommitLog": True,
            "dLegerPeers": ";".join(f"{each}-{ip}:{_GROUP_PORT}" for each, ip in ips.items()),
            "dLegerSelfId": member,
        }
        return self._group_member(self.machine(f"{name}-{member}", ips[member]), own)

    def new_member(self, name: str) -> Machine:
        """One more machine for a group, which does not know of it yet: it may become a member."""
        others = {each.name.rpartition("-")[2]: each.ip for each in self.members_of(name)}
        number = sum(each.startswith(f"{name}-n") for each in self.machines)  # Those that left count too.
        subnet = next(iter(others.values())).rpartition(".")[0]
        machine = self._in_group(name, {**others, f"n{number}": f"{subnet}.{number + 1}"}, f"n{number}")
        self.members.append(machine)
        return machine

    def members_of(self, name: str) -> list[Machine]:
        """The machines of one group."""
        return [each for each in self.members if each.name.rpartition("-")[0] == name]

    def _group_member(self, machine: Machine, own: Mapping[str, object]) -> Machine:
        async def boot() -> None:
            given = self._of_broker(machine, own)
            broker = self.running_members[machine.name] = GroupBroker(*given.place, **given.world)
            machine.at_end.append(broker.abandon)
            await broker.start()

        machine.boot = boot
        return machine

    def _member(self, machine: Machine, own: Mapping[str, object]) -> Machine:
        async def boot() -> None:
            given = self._of_broker(machine, own)
            broker = Broker(*given.place, **given.world)
            machine.at_end.append(broker.store.abandon)
            self.running[machine.name] = broker
            self.on_made(machine)
            await broker.start()
            try:
                self.on_started(machine)
            except AssertionError as error:
                self.loop.failure = error  # It ends the run, whoever started the machine.

        machine.boot = boot
        return machine

    def master_of(self, slave: Machine) -> Machine:
        return self.brokers[int(slave.ip.rpartition(".")[2]) - 1]

    def _of_broker(self, machine: Machine, own: Mapping[str, object]) -> _Given:
        given = {
            "brokerIP1": machine.ip,
            "brokerIP2": machine.ip,
            "bindAddress": machine.ip,
            "listenPort": _BROKER_PORT,
            "namesrvAddr": self.namesrv,
            "storePathRootDir": machine.folder,
            **self.options,
            **own,
            **self._own_options.get(machine.name, {}),
        }
        clock = machine.clock
        config = self._configs.get(machine.name)
        if config is None or (config.file is not None and config.file.is_file()):  # It keeps changes there.
            config = self._configs[machine.name] = load_broker(None, {}, flags(given))
        world = {
            "rng": machine.rng("broker"),
            "disk": machine.disk,
            "network": machine.network,
            "workers": partial(
                StepWorker, self.loop, machine.rng("workers"), sync_s=lambda: machine.disk.sync_s
            ),
            "pid": 1000,
            "now_s": clock.monotonic_s,
        }
        return _Given((config, clock), world)

    def reconfigure(self, machine: Machine, **options: object) -> None:
        """Options of this broker alone, from its next start on."""
        self._own_options.setdefault(machine.name, {}).update(options)
        self._configs.pop(machine.name, None)

    async def passes(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    async def start(self) -> None:
        """Start all servers. Members of groups start together: each waits for a majority."""
        for machine in (*self.namesrvs, *self.brokers, *self.slaves):
            if not machine.is_running:
                await machine.start()
        await asyncio.gather(*(machine.start() for machine in self.members if not machine.is_running))

    @property
    def servers(self) -> list[Machine]:
        """All that keep messages: masters first, then slaves; or members of groups."""
        return [*self.brokers, *self.slaves, *self.members]

    def store_of(self, machine: Machine) -> MessageStore | None:
        """The store of a broker or member; None if it never ran."""
        if machine in self.members:
            member = self.running_members.get(machine.name)
            return member.store if member is not None and member.is_made else None
        broker = self.running.get(machine.name)
        return broker.store if broker is not None else None

    def master(self, name: str) -> Broker | GroupBroker | None:
        """The master of this name, or the leader of the group; None while there is none."""
        return self.leader(name) if self.members else self.running.get(name)

    def leader(self, name: str) -> GroupBroker | None:
        """The member of a group that serves, and may answer."""
        for machine in self.members:
            member = self.running_members.get(machine.name)
            if member is None or not machine.is_running or not machine.name.startswith(f"{name}-"):
                continue
            if member.leads and member.node.may_answer():
                return member
        return None

    async def stop_broker(self, machine: Machine) -> None:
        """Stop a broker, or a member of a group, as an operator would."""
        if machine in self.members:
            await machine.do(self.running_members.pop(machine.name).stop())
        else:
            await machine.do(self.running.pop(machine.name).stop())
        machine._end("stop", silently=False)
        machine.disk.let_go()

    # Clients.

    def client_machine(self, name: str) -> Machine:
        """A machine for a program with producers and consumers: `machine.do(program())` runs it there."""
        taken = sum(machine.ip.startswith("10.1.0.") for machine in self.machines.values())
        machine = self.machine(name, f"10.1.0.{taken + 1}")

        async def boot() -> None: ...

        machine.boot = boot
        return machine

    def client(self, machine: Machine, **settings: Any) -> Client:
        """A client for producers and consumers. Make it in a program that runs on this machine."""
        name = f"{machine.name}-{machine.lives}-{len(machine.at_end)}"
        machine.at_end.append(lambda: None)
        return Client(
            settings=ClientSettings(namesrv=self.namesrv, instance_name=name, tls=None, **settings),
            clock=machine.clock,
            rng=machine.rng(f"client-{name}"),
            network=machine.network,
            files=machine.disk,
            pid=1000,
            run_job=self._run_job,
        )

    def _run_job(self, job: Callable[[], None]) -> None:
        self.loop.call_soon(job)

    # Running.

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something outside all nodes, until it ends."""
        asyncio.set_event_loop(None)
        return self.loop.run_until_complete(self.loop.spawn(self.loop.root, work))

    def bury(self) -> None:
        for node in self.dead:
            self.loop.bury(node)
        self.dead.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("flaremq").disabled = False
        for machine in self.machines.values():
            if machine.node is not None and not machine.node.dead:
                self.loop.kill(machine.node)
        self.loop.kill(self.loop.root)
        self.dead.append(self.loop.root)
        self.bury()
        self.loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class _Given(NamedTuple):
    """What a broker is made with."""

    place: tuple[BrokerConfig, SimClock]
    world: dict[str, Any]


def _broker_name(number: int) -> str:
    return f"broker-{chr(ord('a') + number)}"


async def _ended(node: SimNode, task: asyncio.Task[T]) -> T:
    """The result of a task of another node. If that node is killed, this never waits for ever."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def tell(*_: object) -> None:
        if not over.done():
            over.set_result(None)

    here = contextvars.copy_context()
    task.add_done_callback(tell, context=here)

    def died() -> None:
        loop.call_soon(tell, context=here)

    node.on_death.append(died)
    await over
    if not task.done():
        raise ConnectionAbortedError(f"{node.name} was killed")
    return task.result()
