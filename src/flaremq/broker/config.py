"""All sections of a broker's configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flaremq.broker.settings import BrokerServerSettings, BrokerSettings, FamilySettings
from flaremq.dledger.settings import RaftSettings
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
    group: RaftSettings = field(default_factory=RaftSettings)
    caller: CallerSettings = field(default_factory=CallerSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    tls_client: TlsClientSettings = field(default_factory=TlsClientSettings)
    file: Path | None = None
    """The file that keeps settings changed while the broker runs."""

    @property
    def sections(self) -> tuple[Any, ...]:
        """In the order in which they are printed."""
        return (
            *(self.broker, self.server, self.caller, self.store, self.families),
            *(self.ha, self.group, self.tls, self.tls_client),
        )

    def changed(self, now: Callable[[type[Any]], Any]) -> BrokerConfig:
        """With the sections that may change while a broker runs, as they are `now`."""
        return replace(
            self,
            broker=now(BrokerSettings),
            store=now(StoreSettings),
            families=now(FamilySettings),
            ha=now(HaSettings),
        )
