"""From properties file, environment and flags to the sections of a server's configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flaremq.base.clock import Clock
from flaremq.base.errors import ConfigError
from flaremq.base.files import Files
from flaremq.base.settings import Sources, load
from flaremq.broker.config import BrokerConfig
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings, FamilySettings
from flaremq.broker.tables.configfile import CONFIG_FOLDER
from flaremq.dledger.settings import RaftSettings
from flaremq.ha.settings import HaSettings
from flaremq.namesrv.app import NameServer
from flaremq.namesrv.settings import NamesrvServerSettings, NamesrvSettings
from flaremq.remoting.network import Network
from flaremq.remoting.settings import CallerSettings
from flaremq.remoting.tls import TlsClientSettings, TlsSettings, with_tls_file
from flaremq.store.settings import BrokerRole, StoreSettings

_BROKER_SECTIONS: Final = (
    BrokerSettings, BrokerServerSettings, CallerSettings, StoreSettings, FamilySettings, HaSettings,
    RaftSettings, TlsSettings, TlsClientSettings,
)  # fmt: skip
_KEPT: Final = "flaremq.properties"
"""Next to a broker's tables: settings changed while it ran, if it was started without a file."""


@dataclass(frozen=True, slots=True)
class NamesrvConfig:
    """All sections of a NameServer's configuration."""

    namesrv: NamesrvSettings
    server: NamesrvServerSettings
    tls: TlsSettings

    @classmethod
    def load(cls, file: Path | None, environ: Mapping[str, str], flags: Sequence[str]) -> NamesrvConfig:
        """Without a file, reads the one that a NameServer keeps changes in (configStorePath), if any."""
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

    def build(
        self, clock: Clock | None = None, files: Files | None = None, network: Network | None = None
    ) -> NameServer:
        return NameServer(self.namesrv, self.server, clock, tls=self.tls, files=files, network=network)


def load_broker(file: Path | None, environ: Mapping[str, str], flags: Sequence[str]) -> BrokerConfig:
    """Without a file, reads the one that a broker keeps changes in, next to its store, if it exists."""
    sources = Sources.of(file, environ, flags)
    if file is None:
        root = Path(sources.said("storePathRootDir") or StoreSettings().root)
        file = root / CONFIG_FOLDER / _KEPT
        sources = Sources.of(file if file.is_file() else None, environ, flags)
    settings, server, caller, store, families, ha, group, tls, tls_client = load(
        with_tls_file(sources), *_BROKER_SECTIONS
    )
    if not group.enabled:  # In a group the members decide on their roles.
        _check_role(settings, store)
    return BrokerConfig(
        broker=settings,
        server=server,
        caller=caller,
        store=store,
        families=families,
        ha=ha,
        group=group,
        tls=tls,
        tls_client=tls_client,
        file=file,
    )


def _check_role(broker: BrokerSettings, store: StoreSettings) -> None:
    """A master has the id 0, a slave another one: both sides of a name rely on it."""
    if store.role is BrokerRole.SLAVE and broker.broker_id == 0:
        raise ConfigError(
            f"brokerRole=SLAVE with brokerId=0: 0 is the master of {broker.broker_name}; give each of its "
            "slaves a number of its own, such as brokerId=1"
        )
    if store.role is not BrokerRole.SLAVE and broker.broker_id:
        raise ConfigError(
            f"brokerId={broker.broker_id} with brokerRole={store.role.name}: a master has the id 0; set "
            "brokerRole=SLAVE, or brokerId=0"
        )


def flags(options: Mapping[str, object]) -> list[str]:
    """Options as `key=value` flags."""
    return [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in options.items()
    ]
