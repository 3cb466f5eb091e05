"""A broker: its store, tables, ports and periodic work. The composition root.

`compose` makes all parts and lists them as features in the order in which they start:

    inner   offload > store > tables > calls > lanes > requests     a broker without ports
    outer   periodic work > ports > metrics port > registration      what shows it to the world

They stop in the reverse order; one that fails to stop does not keep the others from stopping.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from time import perf_counter
from typing import Final

from flaremq.base.clock import Clock, SystemClock
from flaremq.base.lifecycle import Sleep, Worker, WorkerFactory
from flaremq.base.live import Derived, Live
from flaremq.base.logs import fields, logger
from flaremq.broker.composition import (
    Composition,
    HandlerTables,
    OpenCalls,
    OpenLanes,
    PeriodicWork,
    Steps,
    told_to,
)
from flaremq.broker.config import BrokerConfig
from flaremq.broker.configuration import Configuration
from flaremq.broker.delay.levels import DelayedMessages
from flaremq.broker.delay.requests import TimerRequests
from flaremq.broker.delay.timerdoor import TimerRewrite
from flaremq.broker.delay.timers import Timers
from flaremq.broker.deliveries import Deliveries
from flaremq.broker.doors import Doors
from flaremq.broker.features import Feature
from flaremq.broker.handlers.admin_broker import AdminBrokerHandlers
from flaremq.broker.handlers.admin_group import AdminGroupHandlers
from flaremq.broker.handlers.admin_topic import AdminTopicHandlers
from flaremq.broker.handlers.clients import ClientHandlers
from flaremq.broker.handlers.consumers import ConsumerHandlers
from flaremq.broker.handlers.offset import OffsetHandlers
from flaremq.broker.handlers.progress import ProgressHandlers
from flaremq.broker.handlers.query import QueryHandlers
from flaremq.broker.handlers.reply import ReplyHandlers
from flaremq.broker.handlers.sendback import SendBackHandlers
from flaremq.broker.handlers.unsupported import UnsupportedHandlers
from flaremq.broker.namesrvs import NameServers
from flaremq.broker.offload import Offload
from flaremq.broker.overload import Overload
from flaremq.broker.pull.lane import PullLane
from flaremq.broker.registration import Registration
from flaremq.broker.replicas.logside import LogSide
from flaremq.broker.replicas.mastership import Mastership
from flaremq.broker.replicas.metasync import MetaSync
from flaremq.broker.replicas.raftside import RaftPart, RaftSide
from flaremq.broker.replicas.replication import Replication
from flaremq.broker.replicas.rivals import DisplacedGate, Rivals
from flaremq.broker.replicas.seat import Seat
from flaremq.broker.role import Role
from flaremq.broker.routing import Families
from flaremq.broker.send.acks import Acks
from flaremq.broker.send.bulkrewrites import BulkRewrites
from flaremq.broker.send.deduplication import Deduplication
from flaremq.broker.send.lane import SendLane
from flaremq.broker.send.plain import PlainSends
from flaremq.broker.send.replies import ReplyLane
from flaremq.broker.send.rewrites import DeadLetters, Delays, LightQueues, need_key, unmarked
from flaremq.broker.settings import BrokerSettings, Place
from flaremq.broker.slowconsumers import SlowConsumers
from flaremq.broker.stats.exporter import Exporter
from flaremq.broker.stats.metrics import BrokerMetrics
from flaremq.broker.stats.runtime import Runtime
from flaremq.broker.stats.stats import Stats
from flaremq.broker.storage import Storage, make_store
from flaremq.broker.tables.configfile import CONFIG_FOLDER
from flaremq.broker.tables.tables import Tables
from flaremq.broker.tasks import Tasks
from flaremq.broker.transactions.halves import HalfRewrite
from flaremq.broker.transactions.lane import EndLane
from flaremq.broker.transactions.requests import TransactionRequests
from flaremq.broker.transactions.transactions import Transactions
from flaremq.protocol.bulk.answers import SendAnswers
from flaremq.remoting.caller import Caller
from flaremq.remoting.gate import Gate
from flaremq.remoting.network import Network
from flaremq.remoting.ports import BROKER, HA, free_port, host_bytes
from flaremq.remoting.router import Handler
from flaremq.remoting.turn import Lane
from flaremq.store.files.disk import Disk
from flaremq.store.settings import BrokerRole
from flaremq.store.store import MessageStore

log = logger("broker.app")

_NO_AGE: Final = 1 << 40  # In milliseconds: no request is ever that old.


class Broker:
    """One broker of one group. Started and stopped once."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock | None = None,
        *,
        sleep: Sleep = asyncio.sleep,
        gate: Gate | None = None,
        rng: random.Random | None = None,
        disk: Disk | None = None,
        network: Network | None = None,
        workers: WorkerFactory = Worker,
        pid: int | None = None,
        now_s: Callable[[], float] = perf_counter,
        part: RaftPart | None = None,
    ) -> None:
        """`sleep` paces periodic work; sockets always use the event loop's time. `gate` may refuse
        requests; `rng` makes all random choices; `disk` is what store and tables write to; `workers` makes
        the store's threads; `pid` is a part of message ids; `now_s` measures how long work takes. `part` is
        this broker's in a Raft group, whose store is open before it starts and stays so after it stops."""
        self._config = config
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._gate = gate
        self._rng = rng or random.Random()
        self._disk = disk or Disk()
        self._network = network or Network()
        self._workers = workers
        self._pid = pid
        self._now_s = now_s
        self._part = part
        # First of all, so that unusable TLS keys are reported before anything else is done.
        config.tls.context()
        calls_by_tls = config.tls_client.is_enabled(config.tls.effective_mode)
        self._tls_client = config.tls_client.context() if calls_by_tls else None
        self.port = config.server.listen_port or free_port(config.server.bind_address, BROKER)
        self._host = host_bytes(config.broker.ip1, self.port)
        self.role = Role(is_slave=config.store.role is BrokerRole.SLAVE, may_act=config.broker.acting_master)
        self._steps = Steps(log, self._clock)
        self._offload = Offload(config.families.query_threads)
        self.configuration = Configuration(
            config.sections,
            self._clock,
            black_list=config.broker.config_black_list,
            file=config.file,
            files=self._disk,
        )
        self._settings: Live[BrokerSettings] = self.configuration.live(BrokerSettings)
        self._folder = config.store.root / CONFIG_FOLDER
        self.tables = Tables(self._settings, self._folder, self._offload, self._clock, self._disk)
        self.stats = Stats(self._settings, self._clock)
        self.store = part.store if part else self._make_store()
        self.tables.attach(self.store)
        self._mastership = Mastership(config.store.root, self._disk)
        self._running = AsyncExitStack()
        self.composition: Composition | None = None
        """Set when the broker is started."""

    def _make_store(self) -> MessageStore:
        return make_store(
            *(self._config.store, lambda: self.tables, self._clock),
            host=self._host,
            disk=self._disk,
            workers=self._workers,
            on_step=self._steps.done,
        )

    # Composing. Runs in the event loop, because lanes belong to one.

    def compose(self) -> Composition:
        tables, live = self.tables, self._settings
        overload = Overload(self._config.families.send_max)
        families = Families(self._config.families, overload)
        caller = Caller(self._config.caller, tls=self._tls_client, network=self._network, clock_s=self._now_s)
        replication = self._replication(caller)
        acks = Acks(list(replication.marks()), show=lambda: sends.dispatch_soon())
        namesrvs = NameServers(live.now.namesrv, by_dns=live.now.namesrv_by_dns)
        seat = self._seat(namesrvs, caller, replication)
        registration = Registration(
            *(live, tables.topics, namesrvs, caller, self._offload),
            place=self._place,
            on_master=seat.master_named,
            clock=self._clock,
        )
        seat.rivals.register = registration.again
        seat.rivals.displaced += [replication.withdraw, registration.withdraw]
        tables.topics.listeners.append(registration.topics_changed)
        storage = Storage(self.store, tables, self._offload, self._steps.done, is_open=self._part is not None)
        self.configuration.listeners += [
            lambda _names: storage.changed(self.configuration),
            tables.topics.settings_changed,
            registration.settings_changed,
        ]
        pulls = PullLane(
            *(live, self.store, tables, self.stats, self._offload, self._config.families, self._now_s),
            role=self.role,
            has_slaves=lambda: replication.has_slaves,
            has_master=lambda: self.role.has_master,
        )
        delayed, timers = self._waiting(seat.deliveries)
        moments = TimerRewrite(self.store, timers, self._clock, self._rng)
        once = Deduplication(live, self.store, self._folder, self._offload, self._clock)
        plain = self._plain(moments, once)
        rewrites = BulkRewrites(live, self.store, self._clock, slot_count=timers.slot_count)
        sends = self._sends(plain, rewrites, acks, once, overload, pulls, registration)
        transactions = self._transactions(moments, seat.deliveries)
        storage.listener = pulls.parked
        slow = SlowConsumers(
            *(live, self.store, tables.offsets, tables.subscriptions, self._offload),
            is_online=lambda group: tables.groups.get(group) is not None,
        )
        recalls = TimerRequests(
            live, self.store, timers, tables.topics, acks, self._offload, self._clock, self._host
        )
        replication.shown, replication.was_cut = sends.dispatch_soon, timers.log_was_cut
        copies = self._copies_of_master(caller, timers)
        caller.on_close = told_to(registration.connection_lost, copies.connection_lost)
        figures = [delayed.figures, timers.figures, once.figures, replication.figures, seat.rivals.figures]
        shared = replication.tables(tables, self.stats, timers, self._offload, self._clock)
        requests = HandlerTables(self._requests(families, plain, acks, moments, figures), families)
        inner: list[Feature] = [
            *(self._offload, storage, once, tables, OpenCalls(caller), seat.rivals, OpenLanes(pulls, acks)),
            *(requests, self.stats, slow, delayed, timers, recalls, *shared),
            *(transactions, TransactionRequests(transactions, acks), copies, seat.duty),
        ]
        ends = EndLane(transactions, self.store, tables.topics, self.stats, acks, stored=sends.dispatch_soon)
        # A slave ends no transactions: all ends go to their handler, which refuses them.
        lanes: list[Lane] = [self._replies(plain, sends), *([] if self.role.is_slave else [ends])]
        made = Composition(
            *(sends, pulls, lanes, acks, overload, families, namesrvs, self.role, replication),
            registration,
            inner,
            [],
        )
        online = seat.pre_online(registration, tables, timers, self._offload)
        made.outer.extend(self._outer(made, online, seat.rivals))
        return made

    def config(self) -> BrokerConfig:
        """The settings of now, with all changes since the start."""
        return self._config.changed(self.configuration.get)

    def _place(self) -> Place:
        return Place.of(self._settings.now, self.port, self._config.ha.listen_port)

    def _replication(self, caller: Caller) -> LogSide:
        ha = self._config.ha
        if self._part is not None:
            return RaftSide(self._part, self.role, timeout_s=self._config.group.commit_timeout_s)
        return Replication(
            *(ha, self._settings, self.store),
            place=self._place,
            server=replace(self._config.server, listen_port=ha.listen_port or self.port + HA),
            calls=caller,
            offload=self._offload,
            network=self._network,
            clock=self._clock,
            mastership=self._mastership,
            sleep=self._sleep,
        )

    def _seat(self, namesrvs: NameServers, caller: Caller, replication: LogSide) -> Seat:
        return Seat(
            *(self._settings, self.role, namesrvs, caller, replication),
            store=self.store,
            place=self._place,
            version=lambda: self.tables.topics.version,
            mastership=self._mastership,
            offload=self._offload,
            clock=self._clock,
            sleep=self._sleep,
            rng=self._rng,
            in_group=self._part is not None,
        )

    def _waiting(self, deliveries: Deliveries) -> tuple[DelayedMessages, Timers]:
        shared = self.store, self.tables, self.stats, self._offload, self._clock
        delayed = DelayedMessages(*shared, deliveries=deliveries, sleep=self._sleep, now_s=self._now_s)
        return delayed, Timers(*shared, deliveries=deliveries, sleep=self._sleep, now_s=self._now_s)

    def _transactions(self, moments: TimerRewrite, deliveries: Deliveries) -> Transactions:
        shared = self.store, self.tables, self.stats, self._offload, self._clock
        levels = Delays(self.store)
        return Transactions(
            self._settings,
            *shared,
            later=lambda message, known: moments.later(levels.later(message, known), known),
            host=self._host,
            deliveries=deliveries,
            sleep=self._sleep,
        )

    def _copies_of_master(self, caller: Caller, timers: Timers) -> MetaSync:
        return MetaSync(
            *(self.store, self.tables, self.stats, self._offload, self._clock),
            role=self.role,
            ask=caller.call,
            timers=timers,
            address=self._address,
            counts_on=self._part is not None and self._config.group.has_own_rules,
            sleep=self._sleep,
        )

    def _plain(self, moments: TimerRewrite, once: Deduplication) -> PlainSends:
        return PlainSends(
            *(self._settings, self.store, self._host, self.tables, self._clock),
            rewrites=(
                *(unmarked, LightQueues(self.store), DeadLetters(self.tables), need_key),
                *(HalfRewrite(self._settings), Delays(self.store), moments),
            ),
            once=once,
            role=self.role,
            rng=self._rng,
            pid=self._pid,
        )

    def _replies(self, plain: PlainSends, sends: SendLane) -> ReplyLane:
        return ReplyLane(
            *(self._settings, self.store, self.tables, plain, self.stats, self._clock),
            address=self._address,
            stored=sends.dispatch_soon,
        )

    def _sends(
        self,
        plain: PlainSends,
        rewrites: BulkRewrites,
        acks: Acks,
        once: Deduplication,
        overload: Overload,
        pulls: PullLane,
        registration: Registration,
    ) -> SendLane:
        families = self._config.families
        return SendLane(
            self.store,
            self.tables.topics,
            plain,
            Derived(self._settings, lambda now: SendAnswers(self._host, now.region.encode(), now.trace_on)),
            acks=acks,
            once=once,
            stats=self.stats,
            overload=overload,
            rewrites=rewrites,
            age_max_ms=families.send_age_ms if families.fast_failure else _NO_AGE,
            awaited=lambda: len(pulls.parked),
            told=registration.told,
            now_s=self._now_s,
        )

    def _requests(
        self,
        families: Families,
        plain: PlainSends,
        acks: Acks,
        moments: TimerRewrite,
        parts: Sequence[Callable[[], Mapping[str, str]]],
    ) -> Iterable[tuple[str, Mapping[int, Handler]]]:
        """All requests but sends and pulls: pairs of a family and the handlers of its codes."""
        live, tables, store, stats = self._settings, self.tables, self.store, self.stats
        offload, clock = self._offload, self._clock
        shared = tables.topics, tables.subscriptions
        runtime = Runtime(live, store, stats, families.backlogs, clock, parts)
        yield "heartbeat", ClientHandlers(live, tables, clock, self.role).table()
        yield "consumerManager", OffsetHandlers(*shared, tables.offsets, tables.locks, store).table()
        yield (
            "consumerManager",
            SendBackHandlers(
                *(live, store, *shared, stats, acks), later=moments.later, clock=clock, rng=self._rng
            ).table(),
        )
        replies = ReplyHandlers(live, store, plain, tables.producers, stats, clock, self._address)
        yield "consumerManager", replies.table()
        yield "query", QueryHandlers(store, offload, tables.groups, tables.filters).table()
        yield "adminBroker", ConsumerHandlers(live, tables, store, offload).table()
        address = ProgressHandlers(tables, store, stats, offload, clock, self._address)
        yield "adminBroker", address.table()
        yield "adminBroker", AdminTopicHandlers(tables, store, stats, offload).table()
        groups = AdminGroupHandlers(tables.subscriptions, tables.offsets, stats, offload)
        yield "adminBroker", groups.table()
        yield (
            "adminBroker",
            AdminBrokerHandlers(
                *(store, stats, runtime, self.configuration, offload, tables.delays), modes=tables.modes
            ).table(),
        )
        yield "adminBroker", UnsupportedHandlers().table()

    def _address(self) -> str:
        """The address that clients connect to."""
        return f"{self._settings.now.ip1}:{self.port}"

    def _outer(self, made: Composition, registration: Feature, rivals: Rivals) -> Iterable[Feature]:
        yield PeriodicWork(lambda: Tasks(made.tasks(), self._clock, sleep=self._sleep))
        yield made.replication  # Before the doors: they close first, while slaves still acknowledge.
        doors = Doors(
            replace(self._config.server, listen_port=self.port),
            self._config.tls,
            sends=made.sends,
            pulls=made.pulls,
            others=made.lanes,
            acks=made.acks,
            families=made.families,
            served=made.served,
            closed=self.tables.closed,
            gate=self._gate,
            network=self._network,
            now_s=self._now_s,
        )
        rivals.displaced.append(lambda: doors.shut(DisplacedGate(self.role.displaced)))
        yield doors
        metrics = BrokerMetrics(
            self._settings,
            store=self.store,
            stats=self.stats,
            tables=self.tables,
            families=made.families.backlogs,
            parts=(made.replication.metrics, *(each.metrics for each in made.inner)),
            displaced=lambda: self.role.displaced,
            offload=self._offload,
            clock=self._clock,
        )
        yield Exporter(self._settings, metrics)
        yield registration

    # Starting and stopping.

    async def start(self) -> None:
        """Start every part, or none: if one fails, those started before it are stopped again."""
        made = self.composition = self.compose()
        async with AsyncExitStack() as started:
            for feature in (*made.inner, *made.outer):
                await feature.start()
                started.push_async_callback(feature.stop)
                if feature.step:
                    self._steps.done(feature.step)
            self._running = started.pop_all()

    async def stop(self, *, unregister: bool = True) -> None:
        """Unregister, answer the requests under way, save everything, and close the store."""
        if self.composition is not None and not unregister:
            self.composition.registration.withdraw()
        await self._running.aclose()
        log.info("the broker has stopped", extra=fields(name=self._settings.now.broker_name))
