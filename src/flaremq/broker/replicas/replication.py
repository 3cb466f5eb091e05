"""Replication, by the role of the broker: a master sends its log to slaves, a slave follows its master.

brokerRole     what runs           answers to producers wait
ASYNC_MASTER   the HA port         as without slaves
SYNC_MASTER    the HA port         until enough slaves have the message (inSyncReplicas)
SLAVE          the follower        there are none: it takes no messages
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError
from flaremq.base.lifecycle import Owned, Sleep
from flaremq.base.live import Live
from flaremq.base.logs import fields as logged
from flaremq.base.logs import logger
from flaremq.broker.features import Figure, Requests
from flaremq.broker.offload import Offload
from flaremq.broker.replicas.logside import LogSide
from flaremq.broker.replicas.mastership import Mastership
from flaremq.broker.replicas.sheet import master_figures, slave_figures
from flaremq.broker.send.acks import Mark
from flaremq.broker.settings import BrokerSettings, Place
from flaremq.ha.acks import SlaveAcks
from flaremq.ha.fit import LogFit, PeerCalls, checksums
from flaremq.ha.master import HaMaster
from flaremq.ha.settings import HaSettings
from flaremq.ha.slave import HaSlave
from flaremq.ha.states import FollowState, SlaveLink, SlaveStatus
from flaremq.protocol import fields
from flaremq.protocol.bodies.cluster import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers import broker as headers
from flaremq.protocol.headers import replicas as own_headers
from flaremq.remoting.network import Network
from flaremq.remoting.router import Handler, Peer
from flaremq.remoting.settings import ServerSettings
from flaremq.store.follow import FollowingLog
from flaremq.store.settings import BrokerRole, FlushDisk
from flaremq.store.store import MessageStore

log = logger("broker.replication")

_INTRODUCE_S = 3.0


class Replication(LogSide):
    """The HA port, or the follower."""

    step = "replication"

    def __init__(
        self,
        settings: HaSettings,
        broker: Live[BrokerSettings],
        store: MessageStore,
        *,
        place: Callable[[], Place],
        server: ServerSettings,
        calls: PeerCalls,
        offload: Offload,
        network: Network,
        clock: Clock,
        mastership: Mastership,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`server` says where the HA port listens, `place` how others reach it."""
        self._settings = settings
        self._broker = broker
        self._store = store
        self._place = place
        self._server = server
        self._calls = calls
        self._offload = offload
        self._network = network
        self._clock = clock
        self._mastership = mastership
        self._sleep = sleep
        self._tasks = Owned()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._unwatch: Callable[[], None] = lambda: None
        self._acks = SlaveAcks(max(1, settings.slaves_needed), settings.gap_max)
        self._own = FollowingLog(store)
        self._end_at_start = 0
        self.master: HaMaster | None = None
        self.slave: HaSlave | None = None
        self.shown = store.show
        self.was_cut = lambda: None

    @property
    def role(self) -> BrokerRole:
        return self._store.settings.role

    def marks(self) -> Iterable[Mark]:
        if self._store.settings.flush_disk is FlushDisk.SYNC_FLUSH:
            timeout_s = self._store.settings.sync_flush_timeout_ms / 1000
            yield Mark(self._store.flushed, late=ResponseCode.FLUSH_DISK_TIMEOUT, timeout_s=timeout_s)
        if self._relies_on_slaves:
            yield Mark(
                self._acks.replicated,
                late=ResponseCode.FLUSH_SLAVE_TIMEOUT,
                timeout_s=self._settings.slave_timeout_ms / 1000,
                absent=self._absent,
            )

    @property
    def _relies_on_slaves(self) -> bool:
        return self.role is BrokerRole.SYNC_MASTER and self._settings.slaves_needed > 0

    def _absent(self, end: int) -> ResponseCode | None:
        """As RocketMQ 4 does, unless inSyncReplicas says otherwise: without a slave near, say so at once."""
        at_once = self._settings.answers_at_once_without_slave
        if at_once and self._acks.near(end) < self._settings.slaves_needed:
            return ResponseCode.SLAVE_NOT_AVAILABLE
        return None

    # Life.

    async def start(self) -> None:
        self._end_at_start = self._store.log.end
        if self.role is BrokerRole.SLAVE:
            self._start_slave()
            return
        self.master = HaMaster(
            self._settings,
            self._store.log,
            self._acks,
            network=self._network,
            watch=self._store.log.watch,
            is_awaited=self._relies_on_slaves,
        )
        await self.master.start(self._server)

    def _start_slave(self) -> None:
        fit = LogFit(self._calls, self._own, self._broker.now.broker_id, self._offload.run, self._mastership)
        self.slave = HaSlave(
            self._settings,
            self._own,
            fit,
            network=self._network,
            clock=self._clock,
            sleep=self._sleep,
            introduce=self._introduce,
            was_cut=lambda: self.was_cut(),
        )
        self.slave.cut_bytes, self.slave.resyncs = self._store.given_up, int(self._store.given_up > 0)
        self._unwatch = self._store.log.watch(self._grown)
        self.slave.start()
        if self._settings.master_address:
            self.slave.follow(self._settings.master_address, "")

    async def stop(self) -> None:
        self._unwatch()
        if self.slave is not None:
            await self.slave.stop()
        if self.master is not None:
            await self.master.stop()
        await self._tasks.aclose(timeout_s=5)

    def withdraw(self) -> None:
        """Serve no slaves any more: another master does."""
        if self.master is not None:
            self._tasks.spawn("withdraw", self.master.stop())

    def _grown(self) -> None:
        """The part of a slave's log that consumers may see has grown."""
        if threading.get_ident() == self._thread:
            self.shown()
            return
        try:
            self._loop.call_soon_threadsafe(self.shown)
        except RuntimeError:  # The loop has ended, and with it all consumers.
            return

    # The master of a slave.

    def master_is(self, address: str, ha_address: str) -> None:
        """The NameServers know this master. Empty: none at the moment, as right after the start of a
        NameServer; the slave keeps to the one that it knows. A configured HA address stands."""
        ha_address = self._settings.master_address or ha_address
        if self.slave is not None and ha_address:
            self.slave.follow(ha_address, address)

    def _introduce(self, address: str, own_address: str) -> None:
        """Say whose the new connection is, so that a master counts slaves and not connections."""
        self._tasks.spawn("introduce", self._say_who(address, own_address))

    async def _say_who(self, address: str, own_address: str) -> None:
        header = own_headers.IntroduceSlaveRequestHeader(
            broker_id=self._broker.now.broker_id, address=own_address
        )
        request = Command(code=RequestCode.FLAREMQ_INTRODUCE_SLAVE, ext_fields=fields.encode(header))
        try:
            await self._calls.call(address, request, _INTRODUCE_S)
        except FlareError as error:  # Then our machine's address stands for us.
            log.info("the master does not know our name", extra=logged(master=address, error=error))

    # What others want to know.

    @property
    def has_slaves(self) -> bool:
        return self.master is not None and self.master.has_slaves

    def is_followed_by(self, host: str) -> bool:
        return self.master is not None and self.master.is_followed_by(host)

    def is_following(self) -> bool:
        return self.slave is not None and self.slave.is_following

    def figures(self) -> Mapping[str, str]:
        """For the runtime information."""
        if self.slave is not None:
            state = self.slave.status()
            return {
                "haState": state.state.name,
                "haMasterAddress": state.master_address,
                "haBehindBytes": str(max(0, state.master_end - state.end)),
                "haWhyNot": state.why,
                "haCutBytes": str(state.cut_bytes),
            }
        if self.master is None:
            return {}
        leading = self.master.status()
        lags = [each.lag for each in leading.followers]
        return {
            "haSlaves": str(len(leading.followers)),
            "haReplicatedOffset": str(leading.replicated),
            "haBehindBytes": str(max(lags, default=0)),
            "haRefusedSlaves": str(leading.refused),
            "haLastRefusal": leading.last_refusal,
        }

    def metrics(self) -> Iterable[Figure]:
        """For /metrics."""
        if self.slave is not None:
            return slave_figures(self.slave.status(), self._clock.now_ms())
        is_displaced = self.rivals is not None and bool(self.rivals.displaced_by)
        return () if self.master is None else master_figures(self.master.status(), is_displaced=is_displaced)

    def ha_info(self) -> HARuntimeInfo:
        if self.slave is not None:
            return _slave_info(self.slave.status(), self._store.checkpoint.master_flushed_offset)
        assert self.master is not None
        state = self.master.status()
        return HARuntimeInfo.of_master(
            state.end,
            map(_connection, state.followers),
            flare_refused=state.refused,
            flare_last_refusal=state.last_refusal or None,
            flare_epoch=self._mastership.epoch,
            flare_displaced=(self.rivals and self.rivals.displaced_by) or None,
            flare_rival=(self.rivals and self.rivals.rival) or None,
        )

    # Requests.

    def handlers(self) -> Iterable[Requests]:
        code = RequestCode
        table: dict[int, Handler] = {
            code.GET_BROKER_HA_STATUS: self.get_ha_status,
            code.EXCHANGE_BROKER_HA_INFO: self.exchange_addresses,
            code.RESET_MASTER_FLUSH_OFFSET: self.reset_master_offset,
            code.FLAREMQ_COMPARE_LOG: self.compare_log,
            code.FLAREMQ_INTRODUCE_SLAVE: self.introduce_slave,
        }
        yield "adminBroker", table

    async def exchange_addresses(self, _peer: Peer, request: Command) -> Command:
        """Asked by a slave: where to follow us. Told by a master that starts: whom to follow."""
        header = fields.decode(headers.ExchangeHAInfoRequestHeader, request.fields)
        if self.slave is not None:
            if header.master_ha_address:
                self.master_is(header.master_address or "", header.master_ha_address)
                self._store.checkpoint.master_flushed_offset = header.master_flush_offset or 0
            answer = headers.ExchangeHAInfoResponseHeader(master_flush_offset=0)
        else:
            place = self._place()
            answer = headers.ExchangeHAInfoResponseHeader(
                master_ha_address=place.ha_address,
                master_flush_offset=self._end_at_start,
                master_address=place.address,
            )
        return response_to(request, ext_fields=fields.encode(answer))

    async def reset_master_offset(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.ResetMasterFlushOffsetHeader, request.fields)
        if self.slave is not None:
            self._store.checkpoint.master_flushed_offset = header.master_flush_offset
        return response_to(request)

    async def compare_log(self, _peer: Peer, request: Command) -> Command:
        given = fields.decode(own_headers.CompareLogRequestHeader, request.fields)
        own, end = self._own, min(given.end, self._store.log.confirmed)
        sums = await self._offload.run(partial(checksums, own, given.begin, end, given.piece))
        said = own_headers.CompareLogResponseHeader(
            begin=own.begin,
            end=self._store.log.confirmed,
            file_size=own.file_size,
            vouches=self._relies_on_slaves,
            epoch=self._mastership.epoch,
        )
        return response_to(request, ext_fields=fields.encode(said), body=sums)

    async def introduce_slave(self, peer: Peer, request: Command) -> Command:
        """Believed only from the machine that the connection comes from: the count of slaves rests on it."""
        given = fields.decode(own_headers.IntroduceSlaveRequestHeader, request.fields)
        is_its_own = given.address.rpartition(":")[0] == peer.address[0]
        known = (
            is_its_own and self.master is not None and self.master.introduced(given.address, given.broker_id)
        )
        if not known:
            return response_to(
                request, ResponseCode.SYSTEM_ERROR, f"no slave is connected from {given.address}"
            )
        return response_to(request)


def _slave_info(state: SlaveStatus, master_flushed_offset: int) -> HARuntimeInfo:
    return HARuntimeInfo(
        master=False,
        ha_client_runtime_info=HAClientRuntimeInfo(
            master_addr=state.master_address or None,
            transferred_byte_in_second=state.bytes_per_s,
            max_offset=state.end,
            last_read_timestamp=state.read_ms,
            last_write_timestamp=state.written_ms,
            master_flush_offset=master_flushed_offset,
            activated=state.state is FollowState.FOLLOWING,
            flare_state=state.state.value,
            flare_why=state.why or None,
            flare_cut_bytes=state.cut_bytes,
        ),
    )


def _connection(slave: SlaveLink) -> HAConnectionRuntimeInfo:
    return HAConnectionRuntimeInfo(
        addr=slave.address,
        slave_ack_offset=max(0, slave.acked),
        diff=slave.lag,
        in_sync=slave.is_near,
        transferred_byte_in_second=slave.bytes_per_s,
        transfer_from_where=slave.sent,
    )
