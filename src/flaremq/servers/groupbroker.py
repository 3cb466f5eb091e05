"""A broker whose log is kept by a Raft group.

    store and ballot opened > [node: takes part in the group] > leader, or not > a broker in that role

The store and the node live as long as the process. The broker on top of them lives for a period: as long as
this member leads in one term, or does not lead. So a member that becomes the leader starts as every master
does on the folder that it has, and goes on with timers, transactions and offsets where the last one was.

Clients lose their connections when a period ends, and find the new leader by their routes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from time import perf_counter
from typing import Final

from flaremq.base.clock import Clock, SystemClock
from flaremq.base.errors import FlareError
from flaremq.base.lifecycle import Owned, Sleep, Worker, WorkerFactory
from flaremq.base.live import Live
from flaremq.base.logs import fields, logger
from flaremq.broker.app import Broker
from flaremq.broker.config import BrokerConfig
from flaremq.broker.offload import Offload
from flaremq.broker.replicas.raftside import LeaseGate, RaftPart, RaftSide
from flaremq.broker.storage import make_store
from flaremq.broker.tables.configfile import CONFIG_FOLDER
from flaremq.broker.tables.tables import Tables
from flaremq.dledger.groupnode import GroupNode
from flaremq.dledger.ledger.raftlog import raft_log
from flaremq.dledger.ledger.storeledger import StoreLedger, member_settings
from flaremq.dledger.library.node import LibraryNode
from flaremq.dledger.node import MemberNode
from flaremq.dledger.scrub.ledgerscrub import LedgerScrub
from flaremq.dledger.types import Ballot
from flaremq.protocol.bodies.route import MASTER_ID
from flaremq.remoting.network import Network
from flaremq.remoting.ports import BROKER, free_port, host_bytes
from flaremq.remoting.settings import ServerSettings
from flaremq.store.files.disk import Disk
from flaremq.store.settings import BrokerRole
from flaremq.store.store import MessageStore

log = logger("servers.groupbroker")

_FIRST_ELECTIONS: Final = 3  # So many election timeouts a start waits for a leader before it goes on without.
_HANDED_OVER_S: Final = 3.0
_DECIDED_S: Final = 10.0
_PAUSES_S: Final = (0.1, 5.0)
_LEADERLESS: Final = -1


def broker_of(
    config: BrokerConfig, clock: Clock | None = None, *, sleep: Sleep = asyncio.sleep
) -> Broker | GroupBroker:
    """The broker that this configuration asks for: one by itself, or a member of a group."""
    return (GroupBroker if config.group.enabled else Broker)(config, clock, sleep=sleep)


class GroupBroker:
    """One member of a group. Started and stopped once."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock | None = None,
        *,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
        disk: Disk | None = None,
        network: Network | None = None,
        workers: WorkerFactory = Worker,
        pid: int | None = None,
        now_s: Callable[[], float] = perf_counter,
    ) -> None:
        """As those of `Broker`."""
        self.port = config.server.listen_port or free_port(config.server.bind_address, BROKER)
        self._config = replace(config, server=replace(config.server, listen_port=self.port))
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._disk = disk or Disk()
        self._network = network or Network()
        self._workers = workers
        self._pid = pid
        self._now_s = now_s
        self._tasks = Owned()
        self._offload = Offload(2)  # One may be long at its work, and a ballot must not wait for that.
        self._repair_offload = Offload(1)  # Nor for a repair, or for what is read for another member's.
        self._opened = AsyncExitStack()
        self.is_made = False
        """Whether its store exists."""
        self.takes_part = False
        """Whether its node does."""
        self._period: int | None = None
        """The term in which the present broker leads; _LEADERLESS if it does not. None: there is none."""
        self.broker: Broker
        """Of the present period, or the last one."""
        self.node: GroupNode
        self.scrub: LedgerScrub
        self.store: MessageStore
        self._tables: Tables
        self._part: RaftPart

    @property
    def leads(self) -> bool:
        """Whether the broker of this member serves as the leader's."""
        return self._period is not None and self._period != _LEADERLESS

    @property
    def tables(self) -> Tables:
        """Of the present period, or the last one."""
        return self._tables

    def abandon(self) -> None:
        """Release the folder and do nothing else, as the end of a killed process does: for simulators."""
        if self.is_made:
            self.store.abandon()

    async def start(self) -> None:
        """Take part in the group, and serve in the role that it gives us."""
        async with AsyncExitStack() as opened:
            opened.push_async_callback(self._offload.stop)
            opened.push_async_callback(self._repair_offload.stop)
            await self._offload.run(self._open)
            opened.push_async_callback(self._offload.run, self.store.close)
            self.node = self._make_node()
            self.scrub = self._make_scrub()
            self._part = RaftPart(self.node, self.store, self._ledger.committed, self.scrub)
            await self.node.start(self._listening())
            self.takes_part = True
            opened.push_async_callback(self.node.stop)
            self.scrub.start()
            opened.push_async_callback(self.scrub.stop)
            await self._settled()
            await self._serve(self._wanted())
            self._opened = opened.pop_all()
        self._tasks.spawn("follow-group", self._run())

    async def stop(self) -> None:
        """Hand over to another member if this one leads, and leave."""
        await self._tasks.aclose(timeout_s=30)
        led = self.node.leads
        if led:
            await self._hand_over()
        if self._period is not None:
            # Whoever leads now may have registered under the same id.
            await self.broker.stop(unregister=not led)
        await self._opened.aclose()

    # Opening and closing.

    def _open(self) -> None:
        """The store, as the leader of nobody. It asks the tables of topics while it opens."""
        config = self._config
        live = Live(config.broker)
        folder = config.store.root / CONFIG_FOLDER
        self._tables = Tables(live, folder, self._offload, self._clock, self._disk)
        self._tables.load()
        self.store = make_store(
            *(member_settings(config.store, config.group), lambda: self._tables, self._clock),
            host=host_bytes(config.broker.ip1, self.port),
            disk=self._disk,
            workers=self._workers,
            on_step=lambda step: log.info("opened: %s", step),
            make_log=raft_log(
                config.group.self_id,
                as_library=not config.group.has_own_rules,
                plain=(*config.store.commitlog_folders, *config.store.read_only_commitlog_folders),
            ),
        )
        self.is_made = True
        self._ledger = StoreLedger(self.store, config.group.membership, self._clock)
        self.store.open()
        self._ballot = self._ledger.ballots.load()

    def _make_node(self) -> GroupNode:
        group = self._config.group
        made = MemberNode if group.has_own_rules else LibraryNode
        return made(
            group,
            group.group or self._config.broker.broker_name,
            self._ledger,
            self._ledger.ballots,
            self._ballot or Ballot(),
            may_vote=self._remembers(),
            network=self._network,
            clock=self._clock,
            rng=self._rng,
            offload=self._offload.run,
        )

    def _make_scrub(self) -> LedgerScrub:
        scrub = LedgerScrub(
            *(self.node, self.store, self._config.group),
            disk=self._disk,
            clock=self._clock,
            offload=self._repair_offload.run,
            workers=self._workers,
            sleep=self._sleep,
        )
        self.node.about_repairs = scrub.heard
        return scrub

    def _remembers(self) -> bool:
        """Whether nothing is lost that this member has promised. One without any file may be new, or have
        lost its disk: it does not vote either, and a new group begins with the votes of all its members."""
        ballot, last_term = self._ballot, self._ledger.last_term
        if ballot is None and self._ledger.last_index >= 0:
            log.error("the ballot of this member is lost: it does not vote before it has followed a leader")
        elif ballot is not None and ballot.term < last_term:
            log.error(
                "the ballot of this member is older than its log, as after a restore: it does not vote "
                "before it has followed a leader",
                extra=fields(ballot_term=ballot.term, log_term=last_term),
            )
        return ballot is not None and ballot.term >= last_term and not self._ledger.damage

    def _listening(self) -> ServerSettings:
        """Where the other members connect."""
        group = self._config.group
        port = int(group.addresses[group.self_id].rpartition(":")[2])
        return replace(self._config.server, listen_port=port)

    # Periods.

    def _wanted(self) -> int:
        return self.node.term if self.node.leads else _LEADERLESS

    async def _settled(self) -> None:
        """Wait until it is known who leads, but not for ever."""
        limit_s = _FIRST_ELECTIONS * self._config.group.lost_s
        try:
            async with asyncio.timeout(limit_s):
                while not self.node.leads and self.node.leader in ("", self._config.group.self_id):
                    self.node.changed.clear()
                    await self.node.changed.wait()
        except TimeoutError:
            log.warning(
                "the group has no leader yet: this member starts without", extra=fields(waited_s=limit_s)
            )

    async def _run(self) -> None:
        """Serve in whatever role the group gives us, until this is cancelled."""
        pause_s = _PAUSES_S[0]
        while True:
            await self.node.changed.wait()
            self.node.changed.clear()
            if self._wanted() == self._period:
                continue
            try:
                await self._end()
                await self._serve(self._wanted())
                pause_s = _PAUSES_S[0]
            except Exception:
                log.exception("the broker could not take its new role, and tries again")
                await self._sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSES_S[1])
                self.node.changed.set()

    async def _end(self) -> None:
        """End the period that is over. Its listening ports are closed, and what waits is answered."""
        if self._period is None:
            return
        self._period = None
        self._config = self.broker.config()
        made = self.broker.composition
        if made is not None and isinstance(made.replication, RaftSide):
            made.replication.deposed()
        # Its address is registered again at once, under another id.
        await self.broker.stop(unregister=False)

    async def _serve(self, period: int) -> None:
        leads = period != _LEADERLESS
        if leads:
            await self._part.committed.wait(self._ledger.end, _DECIDED_S)
            await self._offload.run(lambda: self.store.lead(period))
        self.broker = self._make_broker(leads)
        await self._offload.run(self.broker.tables.load)
        self._tables = self.broker.tables  # The store asks these from now on.
        await self.broker.start()
        self._period = period
        log.info(
            "serves as the leader" if leads else "serves as a follower",
            extra=fields(member=self._config.group.self_id, term=self.node.term, leader=self.node.leader),
        )

    def _make_broker(self, leads: bool) -> Broker:
        config = self._config
        role = BrokerRole.SYNC_MASTER if leads else BrokerRole.SLAVE
        broker_id = MASTER_ID if leads else config.group.broker_id
        return Broker(
            replace(
                config,
                broker=replace(config.broker, broker_id=broker_id),
                store=replace(config.store, role=role),
            ),
            self._clock,
            sleep=self._sleep,
            gate=LeaseGate(self.node) if leads else None,
            rng=self._rng,
            disk=self._disk,
            network=self._network,
            workers=self._workers,
            pid=self._pid,
            now_s=self._now_s,
            part=self._part,
        )

    async def _hand_over(self) -> None:
        """Let the member lead that has most of the log, so that the group need not wait to miss us."""
        best = self.node.successor()
        if best is None:
            return
        try:
            self.node.transfer(best)
            async with asyncio.timeout(_HANDED_OVER_S):
                while self.node.leads:
                    self.node.changed.clear()
                    await self.node.changed.wait()
        except (FlareError, TimeoutError) as error:
            log.warning("leadership could not be handed over: %s", error or "nobody took it in time")
