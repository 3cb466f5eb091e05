"""From texts to servers: what `namesrv`, `broker`, `up` and servers inside tests have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flaremq.base.clock import Clock
from flaremq.base.lifecycle import Sleep
from flaremq.base.settings import Sources, load
from flaremq.broker.app import Broker, BrokerConfig
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings, FamilySettings
from flaremq.broker.tables.configfile import CONFIG_FOLDER
from flaremq.namesrv.app import NameServer
from flaremq.namesrv.settings import NamesrvServerSettings, NamesrvSettings
from flaremq.remoting.settings import CallerSettings
from flaremq.remoting.tls import TlsClientSettings, TlsSettings, with_tls_file
from flaremq.store.settings import StoreSettings

_BROKER_SECTIONS: Final = (
    BrokerSettings, BrokerServerSettings, CallerSettings, StoreSettings, FamilySettings, TlsSettings,
    TlsClientSettings,
)  # fmt: skip

_KEPT: Final = "flaremq.properties"
"""Beside a broker's tables: settings that were changed while it ran, if it was started without a file."""


@dataclass(frozen=True, slots=True)
class NamesrvConfig:
    """All sections of a NameServer's configuration."""

    namesrv: NamesrvSettings
    server: NamesrvServerSettings
    tls: TlsSettings

    @classmethod
    def load(cls, file: Path | None, environ: Mapping[str, str], flags: Sequence[str]) -> NamesrvConfig:
        """Without a file, the one is read in which a NameServer keeps changes (configStorePath), if any."""
        sources = Sources.of(file, environ, flags)
        if file is None:
            usual = Path(sources.said("configStorePath") or NamesrvSettings().config_store_path)
            sources = Sources.of(usual if usual.is_file() else None, environ, flags)
        elif sources.said("configStorePath") is None:
            sources = Sources.of(file, environ, [*flags, f"configStorePath={file.absolute()}"])
        return cls(*load(with_tls_file(sources), NamesrvSettings, NamesrvServerSettings, TlsSettings))

    @property
    def sections(self) -> tuple[Any, ...]:
        return self.namesrv, self.server, self.tls

    def build(self) -> NameServer:
        return NameServer(self.namesrv, self.server, tls=self.tls)


def load_broker(file: Path | None, environ: Mapping[str, str], flags: Sequence[str]) -> BrokerConfig:
    """Without a file, the one is read in which a broker keeps changes beside its store, if any."""
    sources = Sources.of(file, environ, flags)
    if file is None:
        root = Path(sources.said("storePathRootDir") or StoreSettings().root)
        file = root / CONFIG_FOLDER / _KEPT
        sources = Sources.of(file if file.is_file() else None, environ, flags)
    settings, server, caller, store, families, tls, tls_client = load(
        with_tls_file(sources), *_BROKER_SECTIONS
    )
    return BrokerConfig(
        broker=settings,
        server=server,
        caller=caller,
        store=store,
        families=families,
        tls=tls,
        tls_client=tls_client,
        file=file,
    )


def broker_sections(config: BrokerConfig) -> tuple[Any, ...]:
    """In the order in which they are printed."""
    return (
        *(config.broker, config.server, config.caller, config.store, config.families),
        *(config.tls, config.tls_client),
    )


def flags(options: Mapping[str, object]) -> list[str]:
    """Options as an operator would write them."""
    return [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in options.items()
    ]


class Together:
    """A NameServer and brokers in one process and one event loop."""

    def __init__(
        self,
        namesrv: NamesrvConfig,
        host: str,
        *,
        clock: Clock | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Brokers have the clock, and rest by `sleep`. The NameServer stays with the system's clock: it
        would take a clock that jumps for the silence of all its brokers, and forget them."""
        self._clock = clock
        self._sleep = sleep
        self._host = f"[{host}]" if ":" in host else host
        self._namesrv = namesrv.build()
        self.brokers: list[Broker] = []

    @property
    def namesrv(self) -> str:
        """The address of the NameServer, once it is started."""
        return f"{self._host}:{self._namesrv.port}"

    async def start(self) -> None:
        await self._namesrv.start()

    async def add(self, config: BrokerConfig) -> Broker:
        """Start a broker. Its settings should name our NameServer, which knows it when this returns."""
        broker = Broker(config, self._clock, sleep=self._sleep)
        await broker.start()
        self.brokers.append(broker)
        return broker

    async def remove(self, broker: Broker) -> None:
        self.brokers.remove(broker)
        await broker.stop()

    async def stop(self) -> None:
        """The last broker first, and the NameServer after all of them, so that each can say goodbye."""
        try:
            while self.brokers:
                await self.remove(self.brokers[-1])
        finally:
            await self._namesrv.stop()
