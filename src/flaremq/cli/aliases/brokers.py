"""mqadmin's commands about brokers, clusters and NameServers."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Annotated

import typer

from flaremq.cli.admin import cluster, config, ha
from flaremq.cli.admin.cluster import What
from flaremq.cli.aliases.options import BrokerAddr, Cluster, Key, Namesrv, Value
from flaremq.cli.options import Json
from flaremq.cli.render import BadValue

BrokerName = Annotated[str, typer.Option("-b", "--brokerName", metavar="NAME", help="Broker name.")]
Namespace = Annotated[
    str, typer.Option("-s", "--namespace", metavar="NAMESPACE", help="Namespace of the key.")
]


Interval = Annotated[
    int | None,
    typer.Option("-i", "--interval", metavar="SECONDS", min=1, help="Repeat at this interval, until Ctrl-C."),
]


def repeated(show: Callable[[], None], interval_s: int | None) -> None:
    """Show something once, or at an interval, until Ctrl-C."""
    if interval_s is None:
        show()
        return
    while True:
        with suppress(typer.Exit):  # What is wrong now, as a slave that does not follow, may be right later.
            show()
        time.sleep(interval_s)


def cluster_list(
    namesrv: Namesrv = None,
    cluster_name: Cluster = None,
    more: Annotated[bool, typer.Option("-m", "--moreStats", help="Accepted: always shown.")] = False,  # noqa: ARG001
    interval_s: Interval = None,
    json: Json = False,
) -> None:
    """List the brokers with their rates and disk use."""
    repeated(partial(cluster.brokers, namesrv, cluster=cluster_name, json=json), interval_s)


def broker_status(
    namesrv: Namesrv = None, broker: BrokerAddr = None, cluster_name: Cluster = None, json: Json = False
) -> None:
    """Show the runtime information of a broker or a cluster."""
    if (broker is None) == (cluster_name is None):
        raise BadValue("expected either -b BROKER or -c CLUSTER")
    cluster.status(broker, namesrv, cluster=cluster_name, json=json)


def ha_status(
    namesrv: Namesrv = None,
    broker: BrokerAddr = None,
    cluster_name: Cluster = None,
    interval_s: Interval = None,
    json: Json = False,
) -> None:
    """Show masters and slaves, and how far each slave is behind."""
    repeated(partial(ha.ha, namesrv, cluster=cluster_name, broker=broker, json=json), interval_s)


def get_broker_config(
    namesrv: Namesrv = None, broker: BrokerAddr = None, cluster_name: Cluster = None, json: Json = False
) -> None:
    """Show broker settings."""
    config.get_config(None, namesrv, cluster=cluster_name, broker=broker, json=json)


def update_broker_config(
    key: Key,
    value: Value,
    namesrv: Namesrv = None,
    broker: BrokerAddr = None,
    cluster_name: Cluster = None,
    json: Json = False,
) -> None:
    """Change a broker setting."""
    if (broker is None) == (cluster_name is None):
        raise BadValue("expected either -b BROKER or -c CLUSTER")
    config.set_config([f"{key}={value}"], namesrv, None, cluster_name, broker, yes=True, json=json)


def clean_expired_cq(
    namesrv: Namesrv = None, broker: BrokerAddr = None, cluster_name: Cluster = None, json: Json = False
) -> None:
    """Delete queue entries of deleted log files."""
    cluster.clean(What.QUEUES, namesrv, None, cluster_name, broker, yes=True, json=json)


def clean_unused_topic(
    namesrv: Namesrv = None, broker: BrokerAddr = None, cluster_name: Cluster = None, json: Json = False
) -> None:
    """Delete queues of unknown topics."""
    cluster.clean(What.TOPICS, namesrv, None, cluster_name, broker, yes=True, json=json)


def delete_expired_commit_log(
    namesrv: Namesrv = None, broker: BrokerAddr = None, cluster_name: Cluster = None, json: Json = False
) -> None:
    """Delete expired log files now."""
    cluster.clean(What.FILES, namesrv, None, cluster_name, broker, yes=True, json=json)


def wipe_write_perm(broker: BrokerName, namesrv: Namesrv = None, json: Json = False) -> None:
    """Stop producers from sending to a broker."""
    cluster.write_perm(broker, False, namesrv, yes=True, json=json)


def add_write_perm(broker: BrokerName, namesrv: Namesrv = None, json: Json = False) -> None:
    """Let producers send to a broker again."""
    cluster.write_perm(broker, True, namesrv, json=json)


def get_namesrv_config(namesrv: Namesrv = None, json: Json = False) -> None:
    """Show NameServer settings."""
    config.get_namesrv_config(None, namesrv, json=json)


def update_namesrv_config(key: Key, value: Value, namesrv: Namesrv = None, json: Json = False) -> None:
    """Change a NameServer setting."""
    config.set_namesrv_config([f"{key}={value}"], namesrv, yes=True, json=json)


def update_kv_config(
    namespace: Namespace, key: Key, value: Value, namesrv: Namesrv = None, json: Json = False
) -> None:
    """Set a value on the NameServers."""
    config.kv_set(namespace, key, value, namesrv, json=json)


def delete_kv_config(namespace: Namespace, key: Key, namesrv: Namesrv = None, json: Json = False) -> None:
    """Delete a value on the NameServers."""
    config.kv_delete(namespace, key, namesrv, yes=True, json=json)
