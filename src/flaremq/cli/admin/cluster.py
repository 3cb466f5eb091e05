"""`flaremq cluster`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from flaremq.admin.clusterdocuments import (
    brokers_document,
    clusters_document,
    producers_document,
    status_document,
)
from flaremq.admin.values.brokers import BrokerInfo
from flaremq.base.text import count
from flaremq.cli.admin.config import config_app, kv_app, namesrv_app
from flaremq.cli.admin.ha import ha
from flaremq.cli.admin.health import health
from flaremq.cli.admin.raft import app as raft_app
from flaremq.cli.connect import connected, note_failures
from flaremq.cli.options import Broker, Cluster, Json, Namesrv, Profile, Yes
from flaremq.cli.render import Output, confirm
from flaremq.cli.sightings import look_around, missing_documents, note_missing
from flaremq.cli.times import local

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Brokers and NameServers: health, status and settings."
)
app.command("health")(health)
app.command("ha")(ha)
app.add_typer(raft_app, name="group")

BrokerName = Annotated[str, typer.Argument(metavar="BROKER", help="Broker name or address.")]


@app.command("list")
def list_clusters(namesrv: Namesrv = None, profile: Profile = None, json: Json = False) -> None:
    """List the clusters and their brokers."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = admin.brokers.clusters()
    rows = [(each.name, ", ".join(each.brokers)) for each in found]
    out.show(
        clusters_document(found),
        lambda: out.table(("cluster", "brokers"), rows, empty="No clusters found."),
    )


@app.command("brokers")
def brokers(
    namesrv: Namesrv = None,
    profile: Profile = None,
    cluster: Cluster = None,
    broker: Broker = None,
    json: Json = False,
) -> None:
    """List the brokers with their version, message rates and disk use."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = admin.brokers.list(cluster=cluster, broker=broker)
        missing = look_around(admin, slaves=True) if cluster is None and broker is None else []

    def for_people() -> None:
        out.table(
            (
                *("cluster", "broker", ">id", "address", "version", ">in/s", ">out/s", ">in today"),
                *(">out today", ">disk"),
            ),
            [_broker_row(each) for each in found],
            empty="No brokers found.",
        )
        note_failures(found.failed)
        note_missing(missing)

    document = {**brokers_document(found), "missing": missing_documents(missing)}
    out.show(document, for_people)


@app.command("status")
def status(
    broker: Annotated[
        str | None, typer.Argument(metavar="BROKER", help="Broker name or address; all by default.")
    ] = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    cluster: Cluster = None,
    json: Json = False,
) -> None:
    """Show the runtime information of brokers."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = admin.brokers.list(cluster=cluster, broker=broker)
    if found.failed and not any(each.runtime for each in found):
        raise next(iter(found.failed.values()))
    tables = {
        f"{each.name} {each.address}": dict(sorted(each.runtime.table.items()))
        for each in found
        if each.runtime is not None
    }

    def for_people() -> None:
        for title, table in tables.items():
            out.facts(table.items(), title if len(tables) > 1 else "")
        note_failures(found.failed)

    out.show(status_document(found), for_people)


@app.command("producers")
def producers(
    namesrv: Namesrv = None,
    profile: Profile = None,
    cluster: Cluster = None,
    broker: Broker = None,
    json: Json = False,
) -> None:
    """List the connected producers."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = admin.brokers.producers(cluster=cluster, broker=broker)

    def for_people() -> None:
        out.table(
            ("group", "client", "address", "language", "version", "last seen"),
            [
                (p.group, p.client_id, p.address, p.language, p.version_name, local(p.last_seen_ms))
                for p in found
            ],
            empty="No producers connected.",
        )
        note_failures(found.failed)

    out.show(producers_document(found), for_people)


class What(Enum):
    """Kinds of data that a broker can clean up."""

    QUEUES = "queues"
    TOPICS = "topics"
    FILES = "files"


@app.command("clean")
def clean(
    what: Annotated[
        What,
        typer.Argument(
            metavar="queues|topics|files",
            help="queues: entries of deleted files; topics: queues of unknown topics; files: expired files.",
        ),
    ],
    namesrv: Namesrv = None,
    profile: Profile = None,
    cluster: Cluster = None,
    broker: Broker = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Have brokers delete expired data now instead of on schedule."""
    with connected(namesrv, profile) as admin:
        confirm(f"This would have brokers delete old {what.value}", yes)
        done = {
            What.QUEUES: admin.brokers.clean_expired_queues,
            What.TOPICS: admin.brokers.clean_unused_topics,
            What.FILES: admin.brokers.delete_expired_files,
        }[what](cluster=cluster, broker=broker)
    Output(json).done(f"Done by {', '.join(done)}.", brokers=list(done))


@app.command("write-perm")
def write_perm(
    broker: BrokerName,
    on: Annotated[bool, typer.Option("--on/--off", help="Whether producers may send to the broker.")],
    namesrv: Namesrv = None,
    profile: Profile = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Stop producers from sending to a broker, or allow it again."""
    with connected(namesrv, profile) as admin:
        if not on:
            confirm(f"This would keep all producers away from {broker}", yes)
        changed = admin.brokers.add_write_perm(broker) if on else admin.brokers.wipe_write_perm(broker)
    topics = max(changed.values(), default=0)
    may = "may send to" if on else "keep away from"
    Output(json).done(
        f"Producers {may} {broker}: {count(topics, 'topic')}, at {', '.join(changed)}.",
        broker=broker,
        topics=dict(changed),
    )


app.add_typer(config_app, name="config")
app.add_typer(namesrv_app, name="namesrv")
app.add_typer(kv_app, name="kv")


# Helpers.


def _broker_row(each: BrokerInfo) -> tuple[object, ...]:
    head = (each.cluster, each.name, each.id, each.address)
    r = each.runtime
    if r is None:
        return (*head, *(None,) * 6)
    disk = None if r.disk_ratio is None else f"{r.disk_ratio:.0%}"
    return (*head, r.version, r.put_tps, r.get_tps, r.put_today, r.get_today, disk)
