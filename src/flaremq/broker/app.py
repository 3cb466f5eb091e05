"""A broker: its store, its tables, its ports and all that it does by the clock. The composition root."""

from __future__ import annotations

import asyncio
import gc
import logging
from dataclasses import replace
from functools import partial
from typing import Final

from flaremq.base.clock import Clock, SystemClock
from flaremq.base.lifecycle import Owned, Sleep
from flaremq.base.logs import fields, logger
from flaremq.broker.config import BrokerConfig
from flaremq.broker.configuration import Configuration
from flaremq.broker.namesrvs import NameServers
from flaremq.broker.offload import Aside
from flaremq.broker.overload import Overload
from flaremq.broker.pull.lane import PullLane
from flaremq.broker.pull.permits import Readers
from flaremq.broker.registration import Registration
from flaremq.broker.routing import Desk, Tables
from flaremq.broker.send.acks import Waits
from flaremq.broker.send.lane import Answering, SendLane
from flaremq.broker.send.plain import PlainSends
from flaremq.broker.send.plain import Tables as SendTables
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.slowconsumers import Guard
from flaremq.broker.stats.stats import Span, Stats
from flaremq.broker.tables.configfile import CONFIG_FOLDER, Autosave
from flaremq.broker.tables.tables import State
from flaremq.broker.tasks import Chores, Tasks, table
from flaremq.protocol.bulk.answers import SendAnswers
from flaremq.remoting.caller import Caller
from flaremq.remoting.connection import Connection
from flaremq.remoting.ports import BROKER, VIP, free_port, host_bytes
from flaremq.remoting.server import Server
from flaremq.store.settings import StoreSettings
from flaremq.store.store import MessageStore

log = logger("broker.app")

_FOLLOWED_BY = {
    "abort check": "delay offsets",  # There are none yet; the step keeps its place.
    "commit log flush": "statistics",
}

_NO_AGE: Final = 1 << 40  # In milliseconds: nothing is ever so old.


class Broker:
    """One broker of one group. Started and stopped once."""

    def __init__(
        self, config: BrokerConfig, clock: Clock | None = None, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        """`sleep` is what periodic work rests by. Sockets have the event loop's own time, always."""
        self._config = config
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._settings = config.broker
        # Keys that cannot be used are told before anything else is done.
        config.tls.context()
        calls_by_tls = config.tls_client.is_enabled(config.tls.effective_mode)
        self._tls_client = config.tls_client.context() if calls_by_tls else None
        self.port = config.server.listen_port or free_port(config.server.bind_address, BROKER)
        self._aside = Aside(config.families.query_threads)
        self._tasks = Owned()
        self.state = State(config.broker, config.store.root / CONFIG_FOLDER, self._aside, self._clock)
        self.stats = Stats(config.broker, self._clock)
        self.configuration = Configuration(
            (
                *(config.broker, config.server, config.caller, config.store, config.families),
                *(config.tls, config.tls_client),
            ),
            self._clock,
            black_list=config.broker.config_black_list,
            file=config.file,
        )
        self._steps = Steps(log, self._clock)
        self._host = host_bytes(config.broker.ip1, self.port)
        mapper, settings = self.state.filters.bit_mapper(), config.store
        if mapper is not None:
            # As RocketMQ does: a map that is cut would deny messages, so the store makes room for all of it.
            settings = replace(settings, ext_bit_map_length=self.state.filters.bit_map_length)
        self.store = MessageStore(
            settings,
            store_host=self._host,
            clock=self._clock,
            is_batch=self._is_batch,
            bit_mapper=mapper,
            owner_dispatches=True,
            on_step=self._steps.done,
        )
        self.state.attach(self.store)

    def _is_batch(self, topic: str) -> bool:
        found = self.state.topics.get(topic)
        return found is not None and found.is_batch_queue

    # Starting, in the order in which one thing needs the other.

    async def start(self) -> None:
        try:
            await self._aside.run(self.state.load)
            self._steps.done("config files")
            await self._aside.run(self.store.load)
            await self._aside.run(lambda: self.state.deleted.apply(self.store, self.state.topics))
            self._make_handlers()
            self._steps.done("handlers")
            self._make_tasks()
            self._steps.done("scheduled tasks")
            await self._aside.run(self.store.start)
            self.store.listen(self._pulls.parked)
            self._chores.start()
            await self._open_doors()
            await self._registration.start()
            self._steps.done("registration")
        except BaseException:
            await self._give_up()
            raise
        gc.collect()
        gc.freeze()  # What is there now stays: no collection need look at it again.

    def _make_handlers(self) -> None:
        config, state = self._config, self.state
        self._waits = Waits(self.store)
        self._overload = Overload(config.families.send_max)
        plain = PlainSends(
            config.broker,
            self.store,
            self._host,
            SendTables(state.topics, state.subscriptions, state.locks),
            self._clock,
        )
        answering = Answering(
            self._waits,
            self.stats,
            self._overload,
            config.families.send_age_ms if config.families.fast_failure else _NO_AGE,
            awaited=lambda: len(self._pulls.parked),
            told=lambda: self._registration.told(),
        )
        self._plain = plain
        self._sends = SendLane(self.store, state.topics, plain, self._send_answers(), answering)
        readers = Readers(
            state.topics, state.subscriptions, state.groups, state.filters, state.offsets, state.broadcast
        )
        self._pulls = PullLane(config.broker, self.store, readers, self.stats, self._aside, config.families)
        self._caller = Caller(config.caller, tls=self._tls_client)
        self._namesrvs = NameServers(config.broker.namesrv, by_dns=config.broker.namesrv_by_dns)
        self._registration = Registration(
            config.broker,
            state.topics,
            self._namesrvs,
            self._caller,
            self._aside,
            port=lambda: self.port,
            clock=self._clock,
        )
        self._caller.on_close = self._registration.connection_lost
        saves = self._saves = (
            Autosave("topics", state.topics, self._tasks),
            Autosave("groups", state.subscriptions, self._tasks),
        )
        state.topics.listeners += [self._registration.topics_changed, lambda _changed: saves[0].changed()]
        state.subscriptions.listeners.append(saves[1].changed)
        tables = Tables(self.store, self.stats, state, self.configuration, self._aside, self._clock)
        self._desk = Desk(config.broker, config.families, tables, self._backlogs, lambda: self.port)
        self.configuration.listeners.append(self._changed)

    def _send_answers(self) -> SendAnswers:
        return SendAnswers(self._host, self._settings.region.encode(), self._settings.trace_on)

    @property
    def _backlogs(self) -> tuple[Overload, PullLane]:
        return self._overload, self._pulls

    def _make_tasks(self) -> None:
        state, stats = self.state, self.stats
        guard = Guard(
            self._settings,
            self.store,
            state.offsets,
            state.subscriptions,
            self._aside,
            is_online=lambda group: state.groups.get(group) is not None,
        )
        self._guard = guard
        chores = Chores(
            save_offsets=state.save,
            sample_second=stats.sample_second,
            sample_minute=partial(stats.sample, Span.MINUTE),
            sample_hour=partial(stats.sample, Span.HOUR),
            sample_day=partial(stats.sample, Span.DAY),
            turn_put_times=stats.put_times.turn,
            midnight=stats.midnight,
            drop_idle_statistics=stats.drop_idle,
            guard=guard.run,
            print_watermarks=self._desk.print_watermarks,
            print_dispatch_lag=self._print_dispatch_lag,
            refresh_namesrvs=self._namesrvs.refresh,
            expire_clients=state.expire,
            expire_subscriptions=state.groups.tell,
            expire_filters=lambda: state.filters.expire(self._clock.now_ms()),
        )
        self._chores = Tasks(table(self._settings, self._clock, chores), self._clock, sleep=self._sleep)

    async def _open_doors(self) -> None:
        """The port of clients, and below it the one without pulls. Not before there is all to serve them."""
        settings, tls = replace(self._config.server, listen_port=self.port), self._config.tls
        self._server = Server(
            settings,
            self._desk.router(with_pulls=True),
            lanes=(self._sends, self._pulls),
            tls=tls,
            on_close=self._closed,
        )
        await self._server.start()
        self._vip: Server | None = None
        if self.port + VIP > 0:
            vip = Server(
                replace(settings, listen_port=self.port + VIP),
                self._desk.router(with_pulls=False),
                lanes=(self._sends,),
                tls=tls,
                on_close=self._closed,
            )
            await vip.start()
            self._vip = vip
        await self._desk.start()
        self._steps.done(f"listening on {settings.bind_address}:{self.port}")

    def _closed(self, connection: Connection) -> None:
        self.state.closed(connection)

    async def _give_up(self) -> None:
        """A start that failed leaves nothing behind."""
        for door in (getattr(self, "_server", None), getattr(self, "_vip", None)):
            if door is not None:
                await door.stop()
        if hasattr(self, "_chores"):
            await self._chores.stop()
        await self._tasks.aclose(timeout_s=5)
        await self._aside.run(self.store.close)
        self._aside.close()

    # Running.

    def _changed(self, names: frozenset[str]) -> None:
        """Some settings have other values now."""
        settings = self._settings = self.configuration.get(BrokerSettings)
        self.state.change(settings)
        self._plain.change(settings)
        self._sends.answers = self._send_answers()
        self._pulls.settings = self._registration.settings = settings
        self._guard.settings = self.stats.settings = settings
        self._desk.change(settings)
        self._sends.forget()
        self.store.change(self.configuration.get(StoreSettings))
        if "defaultTopicQueueNums" in names:
            self.state.topics.default_queues_changed()
        if "namesrvAddr" in names:
            self._namesrvs.set(settings.namesrv)
            self._tasks.spawn("refresh-namesrvs", self._namesrvs.refresh())
        if "brokerPermission" in names:
            self._registration.register_now()

    def _print_dispatch_lag(self) -> None:
        behind = self.store.dispatcher.behind
        if behind:
            log.info("queues are behind the log", extra=fields(bytes=behind))

    # Stopping.

    async def stop(self) -> None:
        """Leave the NameServers, answer what is under way, keep everything, and close the folder."""
        for save in self._saves:
            save.stop()
        await self._registration.stop()
        self._pulls.parked.close()
        doors = [door for door in (self._server, self._vip) if door is not None]
        for door in doors:
            door.drain()
        await self._answered()
        await asyncio.gather(*(door.stop() for door in doors))
        await self._desk.stop()
        await self._pulls.close()
        self._waits.close()
        await self._chores.stop()
        await self._caller.aclose()
        await self._tasks.aclose(timeout_s=5)
        try:
            await self.state.save()
        finally:
            await self._aside.run(self.store.close)
            self._aside.close()
        log.info("the broker has stopped", extra=fields(name=self._settings.broker_name))

    async def _answered(self) -> None:
        try:
            await asyncio.wait_for(self._waits.drain(), self._config.server.drain_s or None)
        except TimeoutError:
            log.warning("%d sends are not on the disk yet and stay without an answer", len(self._waits))


class Steps:
    """Steps come one after the other, whichever thread does them."""

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._since_s = clock.monotonic_s()

    def done(self, step: str) -> None:
        now_s = self._clock.monotonic_s()
        self._log.info("started: %s", step, extra=fields(took_ms=round((now_s - self._since_s) * 1000, 1)))
        self._since_s = now_s
        following = _FOLLOWED_BY.get(step.partition(":")[0])
        if following is not None:
            self.done(following)
