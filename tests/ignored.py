"""Settings in which one option is ignored, as if nobody read it.

`pytest --ignored-option traceOn ...` runs tests with it: those that claim that the option has an effect
must then fail.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from flaremq.base.settings import java_names
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings, FamilySettings
from flaremq.dledger.settings import RaftSettings
from flaremq.ha.settings import HaSettings
from flaremq.namesrv.settings import NamesrvSettings
from flaremq.remoting.settings import CallerSettings, ServerSettings
from flaremq.remoting.tls import TlsClientSettings, TlsSettings

SECTIONS: tuple[type[Any], ...] = (
    BrokerSettings,
    FamilySettings,
    HaSettings,
    RaftSettings,
    BrokerServerSettings,
    ServerSettings,
    CallerSettings,
    TlsSettings,
    TlsClientSettings,
    NamesrvSettings,
)


def ignore(option: str) -> None:
    """From now on every section has the default of this option, whatever it was made with."""
    found = [
        (section, name)
        for section in SECTIONS
        for name, java in java_names(section).items()
        if java == option
    ]
    assert found, f"no section has the option {option}"
    for section, name in found:
        _forget(section, name)


def _forget(section: type[Any], name: str) -> None:
    (field,) = (each for each in dataclasses.fields(section) if each.name == name)
    checked = section.__post_init__

    def post_init(self: Any) -> None:
        factory = field.default_factory
        value = field.default if factory is dataclasses.MISSING else factory()
        object.__setattr__(self, name, value)
        checked(self)

    section.__post_init__ = post_init
