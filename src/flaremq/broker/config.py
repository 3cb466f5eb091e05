"""All sections of a broker's configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from flaremq.broker.settings import BrokerServerSettings, BrokerSettings, FamilySettings
from flaremq.ha.settings import HaSettings
from flaremq.remoting.settings import CallerSettings
from flaremq.remoting.tls import TlsClientSettings, TlsSettings
from flaremq.store.settings import StoreSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """All sections of a broker's configuration."""

    broker: BrokerSettings
    server: BrokerServerSettings
    store: StoreSettings
    families: FamilySettings = field(default_factory=FamilySettings)
    ha: HaSettings = field(default_factory=HaSettings)
    caller: CallerSettings = field(default_factory=CallerSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    tls_client: TlsClientSettings = field(default_factory=TlsClientSettings)
    file: Path | None = None
    """The file that keeps settings changed while the broker runs."""
