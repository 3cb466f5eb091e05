"""`flaremq group running`: the state that members of a group report."""

from __future__ import annotations

from typing import Annotated

import typer

from flaremq.admin.documents import running_document
from flaremq.base.errors import ConsumerOffline
from flaremq.cli.connect import connected
from flaremq.cli.options import GroupName, Json, Namesrv, Profile
from flaremq.cli.render import Output, safe
from flaremq.cli.times import local
from flaremq.protocol.bodies.running import ConsumerRunningInfo


def running(
    group: GroupName,
    client: Annotated[
        str | None, typer.Argument(metavar="CLIENT", help="Client id; all members by default.")
    ] = None,
    stacks: Annotated[bool, typer.Option("--stacks", help="Include thread stacks.")] = False,
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Show the state of members: queues, cached messages, consume rates."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        ids = [client] if client else [each.client_id for each in admin.groups.members(group).members]
        if not ids:
            raise ConsumerOffline(f"no member of group {group!r} is connected: start a consumer")
        found = {each: admin.groups.running(group, each, stacks=stacks) for each in ids}

    def for_people() -> None:
        for client_id, info in found.items():
            typer.secho(safe(client_id), bold=True)
            show_running(info, out)

    out.show(running_document(group, found), for_people)


def show_running(info: ConsumerRunningInfo, out: Output) -> None:
    out.table(
        ("topic", "broker", ">queue", ">offset", ">cached", ">MiB", "last pull", "last consumed"),
        [
            (
                *(queue.topic, queue.broker_name, queue.queue_id, state.commit_offset),
                *(state.cached_msg_count, state.cached_msg_size_in_mib),
                *(local(state.last_pull_timestamp), local(state.last_consume_timestamp)),
            )
            for queue, state in sorted(info.mq_table.items())
        ],
    )
    if info.mq_pop_table:
        rows = [(q.topic, q.broker_name, q.queue_id, s.wait_ack_count) for q, s in info.mq_pop_table.items()]
        typer.echo()
        out.table(("topic", "broker", ">queue", ">waits for ack"), rows)
    typer.echo()
    out.table(
        ("topic", ">pull ms", ">pulls/s", ">consume ms", ">ok/s", ">failed/s", ">failed in an hour"),
        [
            (
                *(topic, s.pull_rt, s.pull_tps, s.consume_rt, s.consume_ok_tps, s.consume_failed_tps),
                s.consume_failed_msgs,
            )
            for topic, s in sorted(info.status_table.items())
        ],
    )
    if info.jstack:
        typer.echo()
        typer.echo("\n".join(safe(line) for line in info.jstack.splitlines()))
