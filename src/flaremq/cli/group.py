"""`flaremq group`."""

from __future__ import annotations

from typing import Annotated

import typer

from flaremq.admin.groupvalues import GroupChange
from flaremq.admin.sync import Admin
from flaremq.base.errors import ConsumerOffline, GroupNotFound, InvalidParameter
from flaremq.cli.connect import connected, failures, note_failures, text_of
from flaremq.cli.offsets import position_of, progress_document, reset_document, show_progress, show_reset
from flaremq.cli.options import Broker, Cluster, DryRun, GroupName, Json, Namesrv, Profile, TopicName, Yes
from flaremq.cli.render import Output, confirm, safe
from flaremq.cli.running import running_document, show_running
from flaremq.model.topic import GroupConfig

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Consumer groups: their lag, clients and offsets."
)

Enabled = Annotated[
    bool | None, typer.Option("--consume/--no-consume", help="Whether it may consume at all.")
]
Broadcast = Annotated[
    bool | None, typer.Option("--broadcast/--no-broadcast", help="Whether it may broadcast.")
]
Orderly = Annotated[bool | None, typer.Option("--orderly/--no-orderly", help="It consumes in order.")]
Retries = Annotated[int | None, typer.Option("--retries", min=-1, help="Tries before a message is given up.")]
RetryQueues = Annotated[int | None, typer.Option("--retry-queues", min=1, help="Queues of its retry topic.")]
OnlyTopic = Annotated[str | None, typer.Option("-t", "--topic", help="Only this topic.")]


@app.command("list")
def list_groups(
    namesrv: Namesrv = None,
    profile: Profile = None,
    cluster: Cluster = None,
    names_only: Annotated[
        bool, typer.Option("--names", help="Names only, system groups too; faster.")
    ] = False,
    json: Json = False,
) -> None:
    """All groups with their members and lag."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        if names_only:
            infos = admin.groups.list(cluster=cluster)
            out.show(
                {
                    "groups": [
                        {"group": g.name, "system": g.is_system, "brokers": list(g.brokers)} for g in infos
                    ],
                    "failed": failures(infos.failed),
                },
                lambda: out.table(("group", "brokers"), [(g.name, ", ".join(g.brokers)) for g in infos]),
            )
            return
        found = admin.groups.summaries(cluster=cluster)
    document = {
        "groups": [
            {
                "group": g.name,
                "members": g.members,
                "version": g.version_name,
                "type": None if g.consume_type is None else g.consume_type.name,
                "model": None if g.message_model is None else g.message_model.name,
                "tps": g.tps,
                "lag": g.lag,
            }
            for g in found
        ],
        "failed": failures(found.failed),
    }

    def for_people() -> None:
        rows = [
            (
                *(g.name, g.members, g.version_name),
                None if g.consume_type is None else g.consume_type.name,
                None if g.message_model is None else g.message_model.name,
                *(g.tps, g.lag),
            )
            for g in found
        ]
        out.table(("group", ">members", "version", "type", "model", ">tps", ">lag"), rows)
        note_failures(found.failed)

    out.show(document, for_people)


@app.command("show")
def show_group(
    group: GroupName,
    namesrv: Namesrv = None,
    profile: Profile = None,
    cluster: Cluster = None,
    json: Json = False,
) -> None:
    """Settings of a group on each broker."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        details = admin.groups.get(group, cluster=cluster)

    def for_people() -> None:
        out.table(
            (
                "broker",
                "consume",
                "from min",
                "broadcast",
                "orderly",
                ">retries",
                ">retry queues",
                "attributes",
            ),
            [
                (
                    *(name, c.consume_enable, c.consume_from_min_enable, c.consume_broadcast_enable),
                    *(c.consume_message_orderly, c.retry_max_times, c.retry_queue_nums),
                    text_of(c.attributes),
                )
                for name, c in sorted(details.brokers.items())
            ],
        )
        note_failures(details.failed)

    document = {
        "group": group,
        "brokers": {name: config.to_dict() for name, config in sorted(details.brokers.items())},
        "failed": failures(details.failed),
    }
    out.show(document, for_people)


@app.command("create")
def create_group(
    group: GroupName,
    namesrv: Namesrv = None,
    profile: Profile = None,
    consume: Enabled = None,
    broadcast: Broadcast = None,
    orderly: Orderly = None,
    retries: Retries = None,
    retry_queues: RetryQueues = None,
    cluster: Cluster = None,
    broker: Broker = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Make a group that is not there yet."""
    change = _change(consume, broadcast, orderly, retries, retry_queues)
    config, out = change.applied(GroupConfig(group)), Output(json)
    with connected(namesrv, profile) as admin:
        if cluster is None and broker is None and _is_there(admin, group):
            raise InvalidParameter(f"group {group!r} is there already: change it by `flaremq group update`")
        if dry_run:
            out.would([f"create group {group}"], group=group, settings=config.to_dict())
            return
        made = admin.groups.create(config, cluster=cluster, broker=broker)
    out.done(f"Group {group} is on {', '.join(made)}.", group=group, brokers=list(made))


@app.command("update")
def update_group(
    group: GroupName,
    namesrv: Namesrv = None,
    profile: Profile = None,
    consume: Enabled = None,
    broadcast: Broadcast = None,
    orderly: Orderly = None,
    retries: Retries = None,
    retry_queues: RetryQueues = None,
    cluster: Cluster = None,
    broker: Broker = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Change what you name, and keep the rest."""
    change, out = _change(consume, broadcast, orderly, retries, retry_queues), Output(json)
    if change == GroupChange():
        raise InvalidParameter("nothing is to be changed: name at least one setting")
    with connected(namesrv, profile) as admin:
        if dry_run:
            before = admin.groups.get(group, cluster=cluster)
            out.would([f"change group {group} on {', '.join(before.brokers)}"], group=group)
            return
        made = admin.groups.update(group, change, cluster=cluster, broker=broker)
    out.done(f"Group {group} is changed on {', '.join(made)}.", group=group, brokers=list(made))


@app.command("delete")
def delete_group(
    group: GroupName,
    namesrv: Namesrv = None,
    profile: Profile = None,
    cluster: Cluster = None,
    broker: Broker = None,
    keep_offsets: Annotated[bool, typer.Option("--keep-offsets", help="It may go on where it was.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Delete a group, with its offsets, its retry topic and its dead letters."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        where = list(admin.groups.get(group, cluster=cluster).brokers)
        what = f"delete group {group} on {', '.join(where)}" + ("" if keep_offsets else " with its offsets")
        if dry_run:
            out.would([what], group=group, brokers=where)
            return
        confirm(f"This would {what}", yes)
        done = admin.groups.delete(group, cluster=cluster, broker=broker, offsets=not keep_offsets)
    out.done(f"Group {group} is deleted on {', '.join(done)}.", group=group, brokers=list(done))


@app.command("progress")
def progress(
    group: GroupName,
    namesrv: Namesrv = None,
    profile: Profile = None,
    topic: OnlyTopic = None,
    owners: Annotated[
        bool, typer.Option("--owners/--no-owners", help="Ask members for their queues.")
    ] = True,
    json: Json = False,
) -> None:
    """How far a group is with each queue, and who has it."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = admin.groups.progress(group, topic, owners=owners)
    out.show(progress_document(found), lambda: show_progress(found, out))


@app.command("reset")
def reset(
    group: GroupName,
    topic: TopicName,
    to: Annotated[
        str | None, typer.Option("--to", metavar="begin|end|TIME", help="Where it goes on: 10m, 12:30, end")
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option("--offset", metavar="BROKER:QUEUE=OFFSET", help="One queue; may come several times."),
    ] = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Go on from another place. --dry-run shows old and new offsets."""
    out, position = Output(json), position_of(topic, to, offset or [])
    with connected(namesrv, profile) as admin:
        planned = admin.groups.reset(group, topic, position, dry_run=True)
        if dry_run:
            out.show(reset_document(planned), lambda: show_reset(planned, out))
            return
        moved = [each for each in planned.moves if each.old != each.new]
        confirm(f"This would move group {group} in {len(moved)} queues of topic {topic}", yes)
        done = admin.groups.reset(group, topic, position)
    out.show(reset_document(done), lambda: show_reset(done, out))


@app.command("clone")
def clone(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A group.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The group that is to begin there.")],
    topic: OnlyTopic = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Let a group begin where another one is."""
    with connected(namesrv, profile) as admin:
        confirm(f"This would replace the offsets of group {target} by those of {source}", yes)
        done = admin.groups.clone(source, target, topic)
    Output(json).done(
        f"Group {target} is where {source} is, on {', '.join(done)}.", target=target, brokers=list(done)
    )


@app.command("clients")
def clients(group: GroupName, namesrv: Namesrv = None, profile: Profile = None, json: Json = False) -> None:
    """Who is connected, and what they want."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = admin.groups.members(group)

    def for_people() -> None:
        out.table(
            ("client", "address", "language", "version", "brokers"),
            [
                (m.client_id, m.address, m.language, m.version_name, ", ".join(m.brokers))
                for m in found.members
            ],
        )
        typer.echo()
        out.table(
            ("topic", "kind", "expression"), [(s.topic, s.kind, s.expression) for s in found.subscriptions]
        )
        note_failures(found.failed)

    document = {
        "group": group,
        "type": None if found.consume_type is None else found.consume_type.name,
        "model": None if found.message_model is None else found.message_model.name,
        "from": None if found.consume_from_where is None else found.consume_from_where.name,
        "clients": [
            {
                "client_id": m.client_id,
                "address": m.address,
                "language": m.language,
                "version": m.version_name,
                "brokers": list(m.brokers),
            }
            for m in found.members
        ],
        "subscriptions": [
            {"topic": s.topic, "kind": s.kind, "expression": s.expression} for s in found.subscriptions
        ],
        "failed": failures(found.failed),
    }
    out.show(document, for_people)


@app.command("running")
def running(
    group: GroupName,
    client: Annotated[
        str | None, typer.Argument(metavar="CLIENT", help="Id of one member; else all.")
    ] = None,
    stacks: Annotated[bool, typer.Option("--stacks", help="Also what its threads do.")] = False,
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """How members do: their queues, what they hold, how fast they are."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        ids = [client] if client else [each.client_id for each in admin.groups.members(group).members]
        if not ids:
            raise ConsumerOffline(f"nobody of group {group!r} is connected: start a consumer")
        found = {each: admin.groups.running(group, each, stacks=stacks) for each in ids}

    def for_people() -> None:
        for client_id, info in found.items():
            typer.secho(safe(client_id), bold=True)
            show_running(info, out)

    document = {"group": group, "clients": {each: running_document(info) for each, info in found.items()}}
    out.show(document, for_people)


# Parts.


def _change(
    consume: bool | None,
    broadcast: bool | None,
    orderly: bool | None,
    retries: int | None,
    retry_queues: int | None,
) -> GroupChange:
    return GroupChange(
        consume_enable=consume,
        consume_broadcast_enable=broadcast,
        consume_message_orderly=orderly,
        retry_max_times=retries,
        retry_queue_nums=retry_queues,
    )


def _is_there(admin: Admin, group: str) -> bool:
    try:
        return bool(admin.groups.get(group).brokers)
    except GroupNotFound:
        return False
