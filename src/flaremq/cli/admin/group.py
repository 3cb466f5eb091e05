"""`flaremq group`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from flaremq.admin.documents import (
    group_document,
    members_document,
    name_of,
    names_document,
    progress_document,
    reset_document,
    summaries_document,
)
from flaremq.admin.sync import Admin
from flaremq.admin.values.groups import GroupChange
from flaremq.base.errors import ConfigError, GroupNotFound, InvalidParameter
from flaremq.base.text import count, short_span
from flaremq.base.units import parse_span_ms
from flaremq.cli.admin.offsets import position_of, show_progress, show_reset
from flaremq.cli.admin.running import running
from flaremq.cli.connect import connected, note_failures, text_of
from flaremq.cli.names import group_names, topic_names
from flaremq.cli.options import Broker, Cluster, DryRun, GroupName, Json, Namesrv, Profile, TopicName, Yes
from flaremq.cli.render import BadValue, Output, confirm
from flaremq.cli.sightings import look_around, missing_documents, note_missing
from flaremq.model.retrypolicy import Customized, Exponential, RetryPolicy, RetryPolicyType
from flaremq.model.topic import GroupConfig

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Consumer groups: lag, members and offsets."
)

Enabled = Annotated[
    bool | None, typer.Option("--consume/--no-consume", help="Whether the group may consume.")
]
Broadcast = Annotated[
    bool | None, typer.Option("--broadcast/--no-broadcast", help="Whether the group may broadcast.")
]
Orderly = Annotated[
    bool | None, typer.Option("--orderly/--no-orderly", help="Whether the group consumes in order.")
]
Retries = Annotated[
    int | None,
    typer.Option(
        "--retries", metavar="N", min=-1, help="Redeliveries before a message becomes a dead letter."
    ),
]
RetryQueues = Annotated[
    int | None, typer.Option("--retry-queues", metavar="N", min=1, help="Queues of the retry topic.")
]
RetryAfter = Annotated[
    str | None,
    typer.Option(
        "--retry-after",
        metavar="SPANS",
        help="Wait this long before each redelivery: 1s,5s,1m. The last one is repeated. "
        "`default` is RocketMQ's: 10s,30s,1m and so on to 2h.",
    ),
]
RetryExponential = Annotated[
    str | None,
    typer.Option(
        "--retry-exponential",
        metavar="FIRST,MAX[,FACTOR]",
        help="Wait FIRST, then FACTOR times longer (default 2) each time, up to MAX: 1s,10m.",
    ),
]
OnlyTopic = Annotated[
    str | None,
    typer.Option("-t", "--topic", metavar="TOPIC", help="Limit to this topic.", autocompletion=topic_names),
]


@app.command("list")
def list_groups(
    namesrv: Namesrv = None,
    profile: Profile = None,
    cluster: Cluster = None,
    names_only: Annotated[
        bool, typer.Option("--names", help="List names only, including system groups; faster.")
    ] = False,
    json: Json = False,
) -> None:
    """List the groups with their members and lag."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        if names_only:
            infos = admin.groups.list(cluster=cluster)
            out.show(
                names_document(infos),
                lambda: out.table(
                    ("group", "brokers"),
                    [(g.name, ", ".join(g.brokers)) for g in infos],
                    empty="No groups found.",
                ),
            )
            return
        found = admin.groups.summaries(cluster=cluster)
        missing = look_around(admin)

    def for_people() -> None:
        rows = [
            (
                *(g.name, g.members, g.version_name),
                *(name_of(g.consume_type), name_of(g.message_model), g.tps, g.lag),
            )
            for g in found
        ]
        out.table(
            ("group", ">members", "version", "type", "model", ">tps", ">lag"), rows, empty="No groups found."
        )
        note_failures(found.failed)
        note_missing(missing)

    document = {**summaries_document(found), "missing": missing_documents(missing)}
    out.show(document, for_people)


@app.command("show")
def show_group(
    group: GroupName,
    namesrv: Namesrv = None,
    profile: Profile = None,
    cluster: Cluster = None,
    json: Json = False,
) -> None:
    """Show the settings of a group on each broker."""
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
                "retry after",
                "attributes",
            ),
            [
                (
                    *(name, c.consume_enable, c.consume_from_min_enable, c.consume_broadcast_enable),
                    *(c.consume_message_orderly, c.retry_max_times, c.retry_queue_nums),
                    *(_policy_text(c.group_retry_policy), text_of(c.attributes)),
                )
                for name, c in sorted(details.brokers.items())
            ],
        )
        note_failures(details.failed)

    out.show(group_document(group, details), for_people)


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
    retry_after: RetryAfter = None,
    retry_exponential: RetryExponential = None,
    cluster: Cluster = None,
    broker: Broker = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Create a group."""
    policy = _policy(retry_after, retry_exponential)
    change = _change(consume, broadcast, orderly, retries, retry_queues, policy)
    config, out = change.applied(GroupConfig(group)), Output(json)
    with connected(namesrv, profile) as admin:
        if cluster is None and broker is None and _is_there(admin, group):
            raise InvalidParameter(f"group {group!r} already exists: change it with `flaremq group update`")
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
    retry_after: RetryAfter = None,
    retry_exponential: RetryExponential = None,
    cluster: Cluster = None,
    broker: Broker = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Change settings of a group; settings you do not give stay as they are."""
    policy, out = _policy(retry_after, retry_exponential), Output(json)
    change = _change(consume, broadcast, orderly, retries, retry_queues, policy)
    if change == GroupChange():
        raise BadValue("nothing to change: give at least one setting")
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
    keep_offsets: Annotated[
        bool, typer.Option("--keep-offsets", help="Keep its offsets, so that it can resume.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Delete a group with its offsets, retry topic and dead letters."""
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
        bool, typer.Option("--owners/--no-owners", help="Ask the members which queues they own.")
    ] = True,
    json: Json = False,
) -> None:
    """Show the offset, lag and owner of each queue."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = admin.groups.progress(group, topic, owners=owners)
        missing = look_around(admin)

    def for_people() -> None:
        show_progress(found, out)
        note_missing(missing)

    out.show({**progress_document(found), "missing": missing_documents(missing)}, for_people)


@app.command("reset")
def reset(
    group: GroupName,
    topic: TopicName,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="beginning|end|TIME", help="Target: beginning, end, 10m (ago), 12:30 ..."
        ),
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option("--offset", metavar="BROKER:QUEUE=OFFSET", help="Target of one queue; repeatable."),
    ] = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Reset a group's offsets to a time or position. --dry-run shows old and new offsets."""
    out, position = Output(json), position_of(topic, to, offset or [])
    with connected(namesrv, profile) as admin:
        planned = admin.groups.reset(group, topic, position, dry_run=True)
        if dry_run:
            out.show(reset_document(planned), lambda: show_reset(planned, out))
            return
        moved = [each for each in planned.moves if each.old != each.new]
        confirm(f"This would move group {group} in {count(len(moved), 'queue')} of topic {topic}", yes)
        done = admin.groups.reset(group, topic, position)
    out.show(reset_document(done), lambda: show_reset(done, out))


@app.command("clone")
def clone(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Group to copy from.", autocompletion=group_names)
    ],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="Group to copy to.", autocompletion=group_names)
    ],
    topic: OnlyTopic = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Copy the offsets of one group to another."""
    with connected(namesrv, profile) as admin:
        confirm(f"This would replace the offsets of group {target} with those of {source}", yes)
        done = admin.groups.clone(source, target, topic)
    Output(json).done(
        f"Group {target} has the offsets of {source} on {', '.join(done)}.", target=target, brokers=list(done)
    )


@app.command("clients")
def clients(group: GroupName, namesrv: Namesrv = None, profile: Profile = None, json: Json = False) -> None:
    """List the connected clients and their subscriptions."""
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

    out.show(members_document(group, found), for_people)


app.command("running")(running)


# Helpers.


def _change(
    consume: bool | None,
    broadcast: bool | None,
    orderly: bool | None,
    retries: int | None,
    retry_queues: int | None,
    policy: RetryPolicy | None,
) -> GroupChange:
    return GroupChange(
        consume_enable=consume,
        consume_broadcast_enable=broadcast,
        consume_message_orderly=orderly,
        retry_max_times=retries,
        retry_queue_nums=retry_queues,
        group_retry_policy=policy,
    )


def _policy(after: str | None, exponential: str | None) -> RetryPolicy | None:
    """What the options say; None if they say nothing."""
    if after is not None and exponential is not None:
        raise BadValue("got --retry-after and --retry-exponential: give only one of them")
    if after is not None:
        if after.strip().lower() == "default":
            return RetryPolicy()
        policy = RetryPolicy(customized=Customized.after(_spans_ms("--retry-after", after.split(","))))
    elif exponential is not None:
        first, *rest = exponential.split(",")
        factor = rest.pop().strip() if len(rest) == 2 else "2"
        if len(rest) != 1 or not (factor.isascii() and factor.isdigit()):
            raise BadValue(
                f"--retry-exponential {exponential}: expected FIRST,MAX or FIRST,MAX,FACTOR, as in 1s,10m,2"
            )
        least_ms, most_ms = _spans_ms("--retry-exponential", [first, *rest])
        kind = RetryPolicyType.EXPONENTIAL
        policy = RetryPolicy(kind, exponential=Exponential(least_ms, most_ms, int(factor)))
    else:
        return None
    try:
        policy.check()
    except InvalidParameter as error:
        raise BadValue(str(error)) from None
    return policy


def _spans_ms(option: str, words: Sequence[str]) -> tuple[int, ...]:
    try:
        return tuple(parse_span_ms(word) for word in words)
    except ConfigError as error:
        raise BadValue(f"{option}: {error}") from None


def _policy_text(policy: RetryPolicy) -> str:
    """How long failed messages wait, in one cell."""
    chosen = policy.chosen
    if chosen is None:
        return "default"
    if isinstance(chosen, Exponential):
        return f"{short_span(chosen.initial_ms)} x{chosen.multiplier} to {short_span(chosen.max_ms)}"
    return ",".join(short_span(delay_ms) for delay_ms in chosen.delays_ms)


def _is_there(admin: Admin, group: str) -> bool:
    try:
        return bool(admin.groups.get(group).brokers)
    except GroupNotFound:
        return False
