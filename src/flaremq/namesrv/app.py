"""A NameServer: its route table, its port, and the removal of silent brokers. The composition root."""

from __future__ import annotations

import asyncio
from typing import Final

from flaremq.base.clock import Clock, SystemClock
from flaremq.base.errors import ConfigError, Unreachable
from flaremq.base.files import Files
from flaremq.base.lifecycle import Owned, Sleep, repeat
from flaremq.base.logs import fields, logger
from flaremq.base.settings import Sources, dump, load
from flaremq.base.settingsfile import SettingsFile
from flaremq.namesrv.handlers import Config, Handlers
from flaremq.namesrv.kvconfig import KVConfig
from flaremq.namesrv.routes import LowestChange, Routes
from flaremq.namesrv.settings import NamesrvSettings
from flaremq.protocol import fields as wire
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command
from flaremq.protocol.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader
from flaremq.remoting.caller import Caller
from flaremq.remoting.connection import Connection
from flaremq.remoting.network import Network
from flaremq.remoting.router import Family, Router
from flaremq.remoting.server import Server
from flaremq.remoting.settings import ServerSettings
from flaremq.remoting.tls import TlsSettings

log = logger("namesrv.app")

_REQUESTS_MAX: Final = 50_000
_TELL_S: Final = 0.3  # As RocketMQ: members that miss it ask for their group soon anyway.
_CHANGEABLE: Final = frozenset(
    {
        "orderMessageEnable",
        "returnOrderTopicConfigToBroker",
        "deleteTopicWithBrokerRegistration",
        "enableTopicList",
        "enableAllTopicList",
        "supportActingMaster",
        "notifyMinBrokerIdChanged",
    }
)
"""Options that a remote command may change. All others need the configuration file and a restart."""


class NameServer:
    """Independent of all other NameServers: it knows what brokers register, and forgets it when it stops."""

    def __init__(
        self,
        settings: NamesrvSettings,
        server: ServerSettings,
        clock: Clock | None = None,
        *,
        tls: TlsSettings | None = None,
        sleep: Sleep = asyncio.sleep,
        files: Files | None = None,
        network: Network | None = None,
    ) -> None:
        """`files` and `network` are the system's unless they are given."""
        self._settings = settings
        self._server_settings = server
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self.routes = Routes(
            delete_missing_topics=settings.delete_topic_with_registration,
            acting_masters=settings.acting_masters,
            on_lowest=self._lowest_changed,
        )
        self._kv = KVConfig(settings.kv_config_path, files)
        self._file = SettingsFile(settings.config_store_path, files)
        config = Config(self._read_config, self._update_config)
        self._handlers = Handlers(self.routes, self._kv, settings, config, self._clock)
        router = Router()
        router.serve(Family("NameServer", _REQUESTS_MAX), self._handlers.table())
        self._server = Server(
            server,
            router,
            tls=tls,
            on_close=self._connection_closed,
            network=network,
            now_s=self._clock.monotonic_s,
        )
        self._caller = Caller(network=network, clock_s=self._clock.monotonic_s)
        self._tasks = Owned()

    @property
    def port(self) -> int:
        return self._server.port

    async def start(self) -> None:
        self._kv.load()
        await self._server.start()
        period_s = self._settings.scan_interval_ms / 1000
        watch = repeat("the watch over silent brokers", self.expire, period_s, sleep=self._sleep)
        self._tasks.spawn("watch-brokers", watch)

    async def stop(self) -> None:
        self.routes.on_lowest = None  # Connections that end with us say nothing about their brokers.
        await self._server.stop()
        await self._tasks.aclose(timeout_s=5)
        await self._caller.aclose()

    def expire(self) -> None:
        now_ms = self._clock.now_ms()
        silent = self.routes.silent(now_ms)
        for address in self.routes.expire(now_ms):
            log.warning("a silent broker was removed from the routes", extra=fields(address=address))
        for peer in silent:  # One that was only paused sees it, and registers again.
            if isinstance(peer, Connection):
                peer.abort()

    def _lowest_changed(self, change: LowestChange) -> None:
        if not self._settings.notify_lowest_id:
            return
        log.info(
            "another member of a group has the lowest id",
            extra=fields(id=change.lowest_id, address=change.lowest_address, told=";".join(change.to)),
        )
        for address in change.to:
            self._tasks.spawn(f"tell {address}", self._tell(address, change))

    async def _tell(self, address: str, change: LowestChange) -> None:
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=change.lowest_id,
            min_broker_addr=change.lowest_address,
            offline_broker_addr=change.offline_address,
            ha_broker_addr=change.ha_address,
        )
        request = Command(code=RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ext_fields=wire.encode(header))
        try:
            await self._caller.send_oneway(address, request, _TELL_S)
        except Unreachable as error:
            log.info("a member could not be told who has the lowest id", extra=fields(why=error))

    def _connection_closed(self, connection: Connection) -> None:
        for address in self.routes.lost(connection):
            log.warning("the connection of a broker was closed", extra=fields(address=address))

    def _read_config(self) -> str:
        pairs = [*dump(self._settings), *dump(self._server_settings)]
        return "".join(f"{name}={value}\n" for name, value in pairs)

    async def _update_config(self, given: dict[str, str]) -> str | None:
        fixed = sorted(given.keys() - _CHANGEABLE)
        if fixed:
            allowed = ", ".join(sorted(_CHANGEABLE))
            raise ConfigError(
                f"{', '.join(fixed)} cannot be changed while the NameServer runs; expected one of {allowed}"
            )
        merged = {**dict(dump(self._settings)), **given}
        flags = [f"{name}={value}" for name, value in merged.items()]
        (self._settings,) = load(Sources.of(None, {}, flags), NamesrvSettings)
        self._handlers.settings = self._settings
        self.routes.delete_missing_topics = self._settings.delete_topic_with_registration
        self.routes.acting_masters = self._settings.acting_masters
        log.info("the configuration was changed", extra=fields(**given))
        return await asyncio.to_thread(self._file.keep, given)
