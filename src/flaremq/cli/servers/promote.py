"""A slave becomes the master of its name, after a look at what would be lost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import typer

from flaremq.admin.sync import Admin
from flaremq.admin.values.brokers import BrokerInfo
from flaremq.base.errors import ConfigError, FlareError, InvalidParameter
from flaremq.base.settingsfile import SettingsFile
from flaremq.base.text import size
from flaremq.broker.config import BrokerConfig
from flaremq.broker.replicas.mastership import Mastership
from flaremq.cli.render import confirm, note
from flaremq.client.settings import ClientSettings
from flaremq.servers.config import load_broker
from flaremq.store.offline.folder import OfflineStore
from flaremq.store.settings import BrokerRole

_ASK_S: Final = 3.0


def promote_slave(config: Path | None, flags: Sequence[str], *, sync: bool, yes: bool) -> None:
    """Change the settings of a stopped slave, unless its master is alive."""
    settings = load_broker(config, os.environ, flags)
    name, end = settings.broker.broker_name, _end_of_stopped_slave(settings)
    master = _master_of(settings)
    if master is not None and master.runtime is not None:
        theirs = int(master.runtime.table.get("commitLogMaxOffset", end))
        raise InvalidParameter(
            f"the master of {name} at {master.address} is alive, and has {size(max(0, theirs - end))} that "
            "this slave has not: stop it first, or two brokers of one name take messages"
        )
    note(f"The log of this slave ends at {end}. What its master took beyond that is lost to consumers.")
    confirm(f"This would make it the master of {name}", yes)
    role = BrokerRole.SYNC_MASTER if sync else BrokerRole.ASYNC_MASTER
    why_not = SettingsFile(settings.file).keep({"brokerRole": role.name, "brokerId": "0"})
    if why_not is not None:
        raise ConfigError(
            f"{why_not}. Set brokerRole={role.name} and brokerId=0 where this slave is configured"
        )
    again = load_broker(config, os.environ, flags)
    if again.store.role is BrokerRole.SLAVE:
        raise ConfigError(
            f"{settings.file} says brokerRole={role.name} now, but an option or the environment still says "
            "SLAVE: change it there"
        )
    mastership = Mastership(settings.store.root)
    mastership.load()
    mastership.promote()
    typer.echo(
        f"{name} is a {role.name} from its next start on (epoch {mastership.epoch}). Make the old master a "
        "slave (brokerRole=SLAVE, brokerId=1): as a master it no longer starts beside this one."
    )


def _end_of_stopped_slave(settings: BrokerConfig) -> int:
    """Where its log ends. Raises InvalidParameter if it is no slave, or runs."""
    root = settings.store.root
    if settings.store.role is not BrokerRole.SLAVE:
        raise InvalidParameter(
            f"the broker of {root} has brokerRole={settings.store.role.name}: expected SLAVE; name its "
            "configuration with -c, or its options with -o"
        )
    store = OfflineStore(root)
    if store.is_live:
        raise InvalidParameter(f"{root} is in use: stop the slave first, so that nothing is copied meanwhile")
    return store.facts().log_end


def _master_of(settings: BrokerConfig) -> BrokerInfo | None:
    """The registered master of this name, with its figures if it is alive; None if there is none."""
    if not settings.broker.namesrv:
        note("No NameServer is configured, so whether the master still runs is not known.")
        return None
    try:
        with Admin(settings=ClientSettings(namesrv=settings.broker.namesrv, timeout_s=_ASK_S)) as admin:
            found = admin.brokers.list(broker=settings.broker.broker_name)
    except FlareError as error:
        note(f"The NameServers do not say whether the master still runs: {error}")
        return None
    return next((each for each in found if each.id == 0), None)
