"""All requests but sends and pulls: which handler serves each, in families with limits of their own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.errors import ServiceStops
from flaremq.base.logs import fields, logger
from flaremq.broker.configuration import Configuration
from flaremq.broker.handlers.admin_broker import AdminBroker
from flaremq.broker.handlers.admin_group import AdminGroupHandlers
from flaremq.broker.handlers.admin_topic import AdminTopicHandlers, TopicParts
from flaremq.broker.handlers.clients import GroupHandlers, Membership
from flaremq.broker.handlers.consumers import ConsumerHandlers, ConsumerParts
from flaremq.broker.handlers.offset import OffsetHandlers
from flaremq.broker.handlers.progress import ProgressHandlers, ProgressParts
from flaremq.broker.handlers.query import Query
from flaremq.broker.handlers.sendback import SendBack
from flaremq.broker.handlers.unsupported import Refused
from flaremq.broker.offload import Aside
from flaremq.broker.overload import Overload
from flaremq.broker.pull.lane import CODES as PULLS
from flaremq.broker.pull.lane import PullLane
from flaremq.broker.send.lane import CODES as SENDS
from flaremq.broker.settings import BrokerSettings, FamilySettings, MetricsExporter
from flaremq.broker.stats.metrics import BrokerMetrics, Watched
from flaremq.broker.stats.runtime import Backlog, Runtime
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.tables import State
from flaremq.protocol.command import Command
from flaremq.remoting.http import HttpServer
from flaremq.remoting.router import Family, Handler, Peer, Router
from flaremq.store.store import MessageStore

log = logger("broker.desk")

_QUERIES_AT_ONCE: Final = 16
_HEARTBEATS_MAX: Final = 50_000  # RocketMQ's heartbeatThreadPoolQueueCapacity.


@dataclass(frozen=True, slots=True)
class Tables:
    """What handlers work on."""

    store: MessageStore
    stats: Stats
    state: State
    configuration: Configuration
    aside: Aside
    clock: Clock


class _Line:
    """Sends or parked pulls, as those see them who show backlogs."""

    def __init__(self, limit: int, waiting: Callable[[], int]) -> None:
        self.limit = limit
        self._waiting = waiting

    @property
    def waiting(self) -> int:
        return self._waiting()

    def head_wait_ms(self) -> int:
        return 0  # Nothing stands in line before it is looked at: what waits here waits for the disk.


class Desk:
    """Makes the handlers, and a router to them for each port."""

    def __init__(
        self,
        settings: BrokerSettings,
        families: FamilySettings,
        tables: Tables,
        lanes: tuple[Overload, PullLane],
        port: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._tables = tables
        self._families = _families(families)
        overload, pulls = lanes
        self._pulls = pulls
        self.backlogs: dict[str, Backlog] = {
            **self._families,
            "send": _Line(overload.limit, lambda: overload.held),
            "pull": _Line(families.pull_max, lambda: 0),
            "litePull": _Line(families.pull_max, lambda: 0),  # They are parked with the others.
        }
        self._make_handlers(settings, port)
        self._http: HttpServer | None = None
        self._metrics: BrokerMetrics | None = None

    def _make_handlers(self, settings: BrokerSettings, port: Callable[[], int]) -> None:
        tables, state = self._tables, self._tables.state
        store, aside, stats, clock = tables.store, tables.aside, tables.stats, tables.clock
        shared = (state.topics, state.subscriptions)
        self._membership = GroupHandlers(
            settings,
            Membership(
                topics=state.topics,
                subscriptions=state.subscriptions,
                groups=state.groups,
                producers=state.producers,
                filters=state.filters,
            ),
            clock,
        )
        self._consumers = ConsumerHandlers(
            settings,
            ConsumerParts(
                topics=state.topics,
                subscriptions=state.subscriptions,
                groups=state.groups,
                offsets=state.offsets,
                store=store,
            ),
            aside,
        )
        progress = ProgressHandlers(
            ProgressParts(
                topics=state.topics,
                subscriptions=state.subscriptions,
                groups=state.groups,
                offsets=state.offsets,
                stats=stats,
                store=store,
            ),
            aside,
            clock,
            lambda: f"{self._settings.ip1}:{port()}",
        )
        topics = AdminTopicHandlers(
            TopicParts(
                topics=state.topics,
                groups=state.groups,
                offsets=state.offsets,
                stats=stats,
                store=store,
                deleted=state.deleted,
            ),
            aside,
        )
        self._runtime = Runtime(settings, store, stats, self.backlogs, clock)
        self._sendback = SendBack(settings, store, *shared, stats)
        self._handlers: tuple[tuple[str, dict[int, Handler]], ...] = (
            ("heartbeat", self._membership.table()),
            ("consumerManager", OffsetHandlers(*shared, state.offsets, state.locks, store).table()),
            ("consumerManager", self._sendback.table()),
            ("query", Query(store, aside, state.groups, state.filters).table()),
            ("adminBroker", self._consumers.table()),
            ("adminBroker", progress.table()),
            ("adminBroker", topics.table()),
            (
                "adminBroker",
                AdminGroupHandlers(state.subscriptions, state.offsets, stats, aside).table(),
            ),
            (
                "adminBroker",
                AdminBroker(store, stats, self._runtime, tables.configuration, aside).table(),
            ),
            ("adminBroker", Refused().table()),
        )

    def router(self, *, with_pulls: bool) -> Router:
        """Sends and pulls are served by their lanes; here is what becomes of them while we stop."""
        router = Router()
        for family, handlers in self._handlers:
            router.serve(self._families[family], handlers)
        lanes: Iterable[int] = SENDS | PULLS if with_pulls else SENDS
        router.serve(self._families["adminBroker"], dict.fromkeys(lanes, _stopping))
        return router

    def change(self, settings: BrokerSettings) -> None:
        self._settings = settings
        for handlers in (self._membership, self._consumers, self._runtime, self._sendback):
            handlers.settings = settings
        if self._metrics is not None:
            self._metrics.settings = settings

    def print_watermarks(self) -> None:
        """Backlogs that there are, for who looks for them; those that come near their limit for everybody."""
        waiting = {name: line.waiting for name, line in self.backlogs.items() if line.waiting}
        high = any(line.waiting > line.limit // 2 for line in self.backlogs.values())
        if waiting:
            log.log(logging.WARNING if high else logging.DEBUG, "requests wait", extra=fields(**waiting))

    # Figures for Prometheus.

    async def start(self) -> None:
        settings, tables = self._settings, self._tables
        if settings.metrics_exporter is not MetricsExporter.PROM:
            return
        state = tables.state
        watched = Watched(
            store=tables.store,
            stats=tables.stats,
            topics=state.topics,
            subscriptions=state.subscriptions,
            producers=state.producers,
            groups=state.groups,
            offsets=state.offsets,
            families=self.backlogs,
        )
        metrics = self._metrics = BrokerMetrics(settings, watched, tables.aside, tables.clock)
        pages = {"/metrics": metrics.page, "/health": metrics.health}
        self._http = HttpServer(settings.metrics_host or settings.ip1, settings.metrics_port, pages)
        await self._http.start()

    async def stop(self) -> None:
        if self._http is not None:
            await self._http.stop()


def _families(settings: FamilySettings) -> dict[str, Family]:
    """RocketMQ gives each of these a pool of threads; what is slow here has as many as it can use.
    Heartbeats are served as they are read, and wait for nothing."""
    return {
        "query": Family("query", settings.query_max, at_once=_QUERIES_AT_ONCE),
        "heartbeat": Family("heartbeat", _HEARTBEATS_MAX),
        "consumerManager": Family("consumerManager", settings.consumer_max),
        "adminBroker": Family(
            "adminBroker",
            settings.admin_max,
            at_once=_QUERIES_AT_ONCE,
            age_max_ms=settings.admin_age_ms if settings.fast_failure else 0,
        ),
    }


async def _stopping(_peer: Peer, request: Command) -> Command:
    raise ServiceStops(f"this broker is shutting down and takes no {request}: ask another one")
