"""Assignment and order of queues: `flaremq topic allocate` and `flaremq topic order`."""

from __future__ import annotations

from typing import Annotated

import typer

from flaremq.admin.documents import shares_document
from flaremq.cli.connect import connected
from flaremq.cli.options import Json, Namesrv, Profile, TopicName, Yes
from flaremq.cli.render import BadValue, Output, confirm, safe
from flaremq.model.allocate import Average
from flaremq.model.message import MessageQueue


def allocate(
    topic: TopicName,
    client: Annotated[list[str], typer.Argument(metavar="CLIENT", help="Client id; repeatable.")],
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Show how the queues would be shared if these clients were a group."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        route = admin.topics.route(topic)
    queues = [MessageQueue(topic, each.broker, n) for each in route.queues for n in range(each.read_queues)]
    shares = {each: Average().allocate(each, queues, client) for each in client}
    rows = [(each, q.broker_name, q.queue_id) for each, share in shares.items() for q in share]
    out.show(
        shares_document(shares),
        lambda: out.table(("client", "broker", ">queue"), rows, empty="No queues."),
    )


def order(
    topic: TopicName,
    conf: Annotated[
        str | None, typer.Option("--set", metavar="BROKER:COUNT;...", help="Queues on each broker.")
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the order configuration.")] = False,
    namesrv: Namesrv = None,
    profile: Profile = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Show or set the fixed queues of an ordered topic, which stay while a broker is away."""
    if conf is not None and delete:
        raise BadValue("--set and --delete exclude each other: give one of them")
    out = Output(json)
    with connected(namesrv, profile) as admin:
        if conf is None and not delete:
            found = admin.namesrvs.kv_get("ORDER_TOPIC_CONFIG", topic)
            out.show({"topic": topic, "order_conf": found}, lambda: typer.echo(safe(found or "-")))
            return
        if delete:
            confirm(f"This would delete the order configuration of topic {topic}", yes)
        done = admin.topics.set_order_conf(topic, conf)
    out.done(f"Done on {', '.join(done)}.", topic=topic, order_conf=conf, namesrvs=list(done))
