"""A NameServer: its route table, its port, and the removal of silent brokers. The composition root."""

from __future__ import annotations

import asyncio
from typing import Final

from flaremq.base.clock import Clock, SystemClock
from flaremq.base.errors import ConfigError
from flaremq.base.files import Files
from flaremq.base.lifecycle import Owned, Sleep, repeat
from flaremq.base.logs import fields, logger
from flaremq.base.settings import Sources, dump, load
from flaremq.base.settingsfile import SettingsFile
from flaremq.namesrv.handlers import Config, Handlers
from flaremq.namesrv.kvconfig import KVConfig
from flaremq.namesrv.routes import Routes
from flaremq.namesrv.settings import NamesrvSettings
from flaremq.remoting.connection import Connection
from flaremq.remoting.network import Network
from flaremq.remoting.router import Family, Router
from flaremq.remoting.server import Server
from flaremq.remoting.settings import ServerSettings
from flaremq.remoting.tls import TlsSettings

log = logger("namesrv.app")

_REQUESTS_MAX: Final = 50_000
_CHANGEABLE: Final = frozenset(
    {
        "orderMessageEnable",
        "returnOrderTopicConfigToBroker",
        "deleteTopicWithBrokerRegistration",
        "enableTopicList",
        "enableAllTopicList",
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
        self.routes = Routes(delete_missing_topics=settings.delete_topic_with_registration)
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
        await self._server.stop()
        await self._tasks.aclose(timeout_s=5)

    def expire(self) -> None:
        for address in self.routes.expire(self._clock.now_ms()):
            log.warning("a silent broker was removed from the routes", extra=fields(address=address))

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
        log.info("the configuration was changed", extra=fields(**given))
        return await asyncio.to_thread(self._file.keep, given)
