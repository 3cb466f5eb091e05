"""`flaremq topic`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import typer

from flaremq.admin.documents import (
    route_document,
    settings_document,
    stats_document,
    topic_document,
    topics_document,
)
from flaremq.admin.values.brokers import BrokerInfo
from flaremq.admin.values.topics import QUEUES_MAX, MessageType, Perm, TopicChange, TopicKind, TopicSettings
from flaremq.base.errors import InvalidParameter, TopicNotFound
from flaremq.base.text import count
from flaremq.cli.admin import ordering, rates
from flaremq.cli.connect import connected, note_failures, pairs_of, text_of
from flaremq.cli.options import Broker, Cluster, DryRun, Json, Namesrv, Profile, TopicName, Yes
from flaremq.cli.render import BadValue, Output, confirm
from flaremq.cli.sightings import look_around, missed, missing_documents, note_missing
from flaremq.cli.times import local

app = typer.Typer(no_args_is_help=True, add_completion=False, help="List, create, inspect and delete topics.")

_PERMS: Final = {"rw": 6, "r": 4, "w": 2, "none": 0, "6": 6, "4": 4, "2": 2, "0": 0}

Queues = Annotated[
    int | None,
    typer.Option(
        "-q", "--queues", metavar="N", min=1, max=QUEUES_MAX, help="Read and write queues on each broker."
    ),
]
ReadQueues = Annotated[
    int | None,
    typer.Option("--read-queues", metavar="N", min=0, max=QUEUES_MAX, help="Read queues on each broker."),
]
WriteQueues = Annotated[
    int | None,
    typer.Option("--write-queues", metavar="N", min=0, max=QUEUES_MAX, help="Write queues on each broker."),
]
PermText = Annotated[
    str | None, typer.Option("--perm", metavar="rw|r|w|none", help="Whether clients may read and write.")
]
Order = Annotated[
    bool | None, typer.Option("--order/--no-order", help="Whether the topic is globally ordered.")
]
Type = Annotated[MessageType | None, typer.Option("--type", help="Message type; needs brokers of version 5.")]
Attributes = Annotated[
    list[str] | None,
    typer.Option("--attribute", metavar="KEY=VALUE", help="Topic attribute; repeatable."),
]


@app.command("list")
def list_topics(
    namesrv: Namesrv = None,
    profile: Profile = None,
    cluster: Cluster = None,
    all_kinds: Annotated[
        bool, typer.Option("-a", "--all", help="Include retry, dead-letter and system topics.")
    ] = False,
    json: Json = False,
) -> None:
    """List the topics of the cluster."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = [
            each for each in admin.topics.list(cluster=cluster) if all_kinds or each.kind is TopicKind.NORMAL
        ]
    rows = [(each.name, each.kind.value, ", ".join(each.clusters)) for each in found]
    out.show(
        topics_document(found),
        lambda: out.table(("topic", "kind", "clusters"), rows, empty="No topics found."),
    )


@app.command("show")
def show_topic(
    topic: TopicName, namesrv: Namesrv = None, profile: Profile = None, json: Json = False
) -> None:
    """Show a topic: settings on each broker, message count and consumer groups."""
    out = Output(json)
    with connected(namesrv, profile) as admin, missed(admin, topic):
        details = admin.topics.get(topic)
        groups = admin.topics.consumers(topic)
        messages = admin.topics.stats(topic).count
        missing = look_around(admin, topic)

    def for_people() -> None:
        out.facts(
            [
                ("Topic", topic),
                ("Kind", details.kind.value),
                ("Messages", f"{messages:,}"),
                ("Groups", ", ".join(groups) or None),
                ("Order", details.order_conf),
            ]
        )
        typer.echo()
        out.table(
            ("broker", ">read queues", ">write queues", "perm", "order", "attributes"),
            [
                (name, s.read_queues, s.write_queues, perm_text(s.perm), s.order, text_of(s.attributes))
                for name, s in sorted(details.brokers.items())
            ],
        )
        note_failures({**details.failed, **groups.failed})
        note_missing(missing, " of this topic")

    document = {**topic_document(details, groups, messages), "missing": missing_documents(missing)}
    out.show(document, for_people)


@app.command("create")
def create_topic(
    topic: TopicName,
    namesrv: Namesrv = None,
    profile: Profile = None,
    queues: Queues = None,
    read_queues: ReadQueues = None,
    write_queues: WriteQueues = None,
    perm: PermText = None,
    order: Order = None,
    kind: Type = None,
    attribute: Attributes = None,
    cluster: Cluster = None,
    broker: Broker = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Create a topic, by default with 8 queues on each broker."""
    usual = TopicSettings()
    settings = TopicSettings(
        read_queues=_first(read_queues, queues, usual.read_queues),
        write_queues=_first(write_queues, queues, usual.write_queues),
        perm=usual.perm if perm is None else perm_of(perm),
        order=bool(order),
        attributes={**pairs_of(attribute, "--attribute"), **_type_attribute(kind)},
    )
    out = Output(json)
    with connected(namesrv, profile) as admin:
        try:
            admin.topics.route(topic)
        except TopicNotFound:
            pass
        else:
            if cluster is None and broker is None:
                raise InvalidParameter(
                    f"topic {topic!r} already exists: change it with `flaremq topic update`"
                )
        facts: dict[str, object] = {"topic": topic, "settings": settings_document(settings)}
        if dry_run:
            names = _masters(admin.brokers.list(cluster=cluster, broker=broker, runtime=False))
            out.would([f"create topic {topic} with {_wording(settings)} on {', '.join(names)}"], **facts)
            return
        made = admin.topics.create(topic, settings, cluster=cluster, broker=broker)
    out.done(f"Topic {topic} with {_wording(settings)} is on {', '.join(made)}.", **facts, brokers=list(made))


@app.command("update")
def update_topic(
    topic: TopicName,
    namesrv: Namesrv = None,
    profile: Profile = None,
    queues: Queues = None,
    read_queues: ReadQueues = None,
    write_queues: WriteQueues = None,
    perm: PermText = None,
    order: Order = None,
    kind: Type = None,
    attribute: Attributes = None,
    remove_attribute: Annotated[
        list[str] | None,
        typer.Option("--remove-attribute", metavar="KEY", help="Remove this attribute; repeatable."),
    ] = None,
    cluster: Cluster = None,
    broker: Broker = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Change settings of a topic; settings you do not give stay as they are."""
    attributes: dict[str, str | None] = {**pairs_of(attribute, "--attribute"), **_type_attribute(kind)}
    attributes |= dict.fromkeys(remove_attribute or [])
    change = TopicChange(
        read_queues=read_queues if read_queues is not None else queues,
        write_queues=write_queues if write_queues is not None else queues,
        perm=None if perm is None else perm_of(perm),
        order=order,
        attributes=attributes,
    )
    if change == TopicChange() and not attributes:
        raise BadValue("nothing to change: give at least one setting")
    out = Output(json)
    with connected(namesrv, profile) as admin:
        if dry_run:
            before = admin.topics.get(topic)
            words = _changes(change)
            out.would([f"change {words} of topic {topic} on {', '.join(before.brokers)}"], topic=topic)
            return
        made = admin.topics.update(topic, change, cluster=cluster, broker=broker)
    out.done(f"Topic {topic} is changed on {', '.join(made)}.", topic=topic, brokers=list(made))


@app.command("delete")
def delete_topic(
    topic: TopicName,
    namesrv: Namesrv = None,
    profile: Profile = None,
    cluster: Cluster = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Delete a topic and all its messages, on all brokers."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        stats = admin.topics.stats(topic)
        what = f"delete topic {topic} with {count(stats.count, 'message')}"
        if dry_run:
            out.would([what], topic=topic, messages=stats.count)
            return
        confirm(f"This would {what}", yes)
        done = admin.topics.delete(topic, cluster=cluster)
    out.done(f"Topic {topic} is deleted from {', '.join(done)}.", topic=topic, servers=list(done))


@app.command("stats")
def topic_stats(
    topic: TopicName, namesrv: Namesrv = None, profile: Profile = None, json: Json = False
) -> None:
    """Show offsets and message counts of each queue."""
    out = Output(json)
    with connected(namesrv, profile) as admin, missed(admin, topic):
        stats = admin.topics.stats(topic)
        missing = look_around(admin, topic)

    def for_people() -> None:
        out.table(
            ("broker", ">queue", ">min offset", ">max offset", ">messages", "newest"),
            [
                (
                    *(q.queue.broker_name, q.queue.queue_id, q.min_offset, q.max_offset, q.count),
                    local(q.last_update_ms or 0),
                )
                for q in stats.queues
            ],
        )
        rate = "" if stats.put_tps is None else f", {stats.put_tps:,.1f} incoming per second"
        absent = ", ".join((*sorted(stats.failed), *(each.broker for each in missing)))
        without = f", not counting {absent}" if absent else ""
        messages, queues = count(stats.count, "message"), count(len(stats.queues), "queue")
        typer.echo(f"{messages} in {queues}{rate}{without}.")
        note_failures(stats.failed)
        note_missing(missing, " of this topic")

    document = {**stats_document(topic, stats), "missing": missing_documents(missing)}
    out.show(document, for_people)


@app.command("route")
def topic_route(
    topic: TopicName, namesrv: Namesrv = None, profile: Profile = None, json: Json = False
) -> None:
    """Show the route of a topic: the brokers and queues that clients see."""
    out = Output(json)
    with connected(namesrv, profile) as admin, missed(admin, topic):
        route = admin.topics.route(topic)
    addresses = {each.name: each for each in route.brokers}

    def for_people() -> None:
        rows = []
        for each in route.queues:
            where = addresses.get(each.broker)
            listed = "" if where is None else " ".join(f"{n}={a}" for n, a in where.addresses.items())
            cluster = None if where is None else where.cluster
            perm = perm_text(each.perm)
            rows.append((each.broker, cluster, each.read_queues, each.write_queues, perm, listed))
        out.table(("broker", "cluster", ">read queues", ">write queues", "perm", "addresses"), rows)
        if route.order_conf:
            typer.echo(f"Order: {route.order_conf}")

    out.show(route_document(topic, route), for_people)


RARE: Final = "Rarely needed"
app.command("rates")(rates.rates)
app.command("producers", rich_help_panel=RARE)(rates.producers)
app.command("order", rich_help_panel=RARE)(ordering.order)
app.command("allocate", rich_help_panel=RARE)(ordering.allocate)


def perm_of(text: str) -> Perm:
    if text.lower() not in _PERMS:
        raise BadValue(f"--perm {text}: expected rw, r, w or none (or 6, 4, 2, 0)")
    return Perm(_PERMS[text.lower()])


def perm_text(perm: Perm) -> str:
    return {6: "rw", 4: "r", 2: "w", 0: "none"}.get(int(perm), str(int(perm)))


def _wording(settings: TopicSettings) -> str:
    queues = count(settings.write_queues, "queue")
    if settings.read_queues != settings.write_queues:
        queues = f"{count(settings.read_queues, 'queue')} to read and {settings.write_queues} to write"
    rest = text_of(settings.attributes)
    return f"{queues}, perm {perm_text(settings.perm)}" + (f", {rest}" if rest else "")


def _changes(change: TopicChange) -> str:
    named: Mapping[str, object] = {
        "read queues": change.read_queues,
        "write queues": change.write_queues,
        "perm": None if change.perm is None else perm_text(change.perm),
        "order": change.order,
        **{name: value if value is not None else "nothing" for name, value in change.attributes.items()},
    }
    return ", ".join(f"{name} to {value}" for name, value in named.items() if value is not None)


def _type_attribute(kind: MessageType | None) -> dict[str, str]:
    return {} if kind is None else {"message.type": kind.value}


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _masters(brokers: Iterable[BrokerInfo]) -> list[str]:
    return [each.name for each in brokers if each.is_master]
