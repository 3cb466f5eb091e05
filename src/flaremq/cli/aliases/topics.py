"""mqadmin's commands about topics."""

from __future__ import annotations

from typing import Annotated

import typer

from flaremq.admin.values.topics import TopicChange, TopicSettings
from flaremq.base.errors import TopicNotFound
from flaremq.cli.admin import ordering, rates, topic
from flaremq.cli.aliases.options import (
    BrokerAddr,
    Cluster,
    Namesrv,
    RouteCluster,
    Topic,
    signed_attributes,
    truth,
)
from flaremq.cli.connect import connected
from flaremq.cli.options import Json
from flaremq.cli.render import BadValue, Output

_UNIT, _UNIT_SUB = 1, 2

ByCluster = Annotated[bool, typer.Option("-c", "--clusterModel", help="Accepted: clusters are always shown.")]


def update_topic(
    topic_name: Topic,
    namesrv: Namesrv = None,
    broker: BrokerAddr = None,
    cluster: Cluster = None,
    read_queues: Annotated[
        int, typer.Option("-r", "--readQueueNums", metavar="N", min=0, help="Read queues per broker.")
    ] = 8,
    write_queues: Annotated[
        int, typer.Option("-w", "--writeQueueNums", metavar="N", min=0, help="Write queues per broker.")
    ] = 8,
    perm: Annotated[str, typer.Option("-p", "--perm", metavar="2|4|6", help="Write, read, or both.")] = "6",
    order: Annotated[
        str | None, typer.Option("-o", "--order", metavar="true|false", help="Globally ordered.")
    ] = None,
    unit: Annotated[str | None, typer.Option("-u", "--unit", metavar="true|false", help="Unit flag.")] = None,
    unit_sub: Annotated[
        str | None, typer.Option("-s", "--hasUnitSub", metavar="true|false", help="Unit subscription flag.")
    ] = None,
    attributes: Annotated[
        str | None,
        typer.Option("-a", "--attributes", metavar="+a=b,-c", help="Attributes to set and to remove."),
    ] = None,
    json: Json = False,
) -> None:
    """Create or update a topic."""
    if (broker is None) == (cluster is None):
        raise BadValue("expected either -b BROKER or -c CLUSTER")
    changes = signed_attributes(attributes)
    settings = TopicSettings(
        read_queues=read_queues,
        write_queues=write_queues,
        perm=topic.perm_of(perm),
        order=truth(order),
        attributes={name: value for name, value in changes.items() if value is not None},
        sys_flag=truth(unit) * _UNIT | truth(unit_sub) * _UNIT_SUB,
    )
    removed: dict[str, str | None] = dict.fromkeys(name for name, value in changes.items() if value is None)
    with connected(namesrv, None) as admin:
        made = admin.topics.create(topic_name, settings, cluster=cluster, broker=broker)
        if removed:
            admin.topics.update(topic_name, TopicChange(attributes=removed), cluster=cluster, broker=broker)
    Output(json).done(f"Topic {topic_name} is on {', '.join(made)}.", topic=topic_name, brokers=list(made))


def delete_topic(topic_name: Topic, cluster: Cluster, namesrv: Namesrv = None, json: Json = False) -> None:
    """Delete a topic."""
    topic.delete_topic(topic_name, namesrv, cluster=cluster, yes=True, json=json)


def update_topic_perm(
    topic_name: Topic,
    perm: Annotated[str, typer.Option("-p", "--perm", metavar="2|4|6", help="Write, read, or both.")],
    namesrv: Namesrv = None,
    broker: BrokerAddr = None,
    cluster: Cluster = None,
    json: Json = False,
) -> None:
    """Change the permission of a topic."""
    topic.update_topic(topic_name, namesrv, perm=perm, broker=broker, cluster=cluster, json=json)


def topic_route(
    topic_name: Topic,
    namesrv: Namesrv = None,
    as_list: Annotated[bool, typer.Option("-l", "--list", help="Accepted: it is always a table.")] = False,  # noqa: ARG001
    json: Json = False,
) -> None:
    """Show the route of a topic."""
    topic.topic_route(topic_name, namesrv, json=json)


def topic_status(
    topic_name: Topic,
    namesrv: Namesrv = None,
    cluster: RouteCluster = None,  # noqa: ARG001
    json: Json = False,
) -> None:
    """Show offsets and message counts of each queue."""
    topic.topic_stats(topic_name, namesrv, json=json)


def topic_cluster_list(topic_name: Topic, namesrv: Namesrv = None, json: Json = False) -> None:
    """List the clusters of a topic."""
    with connected(namesrv, None) as admin:
        found = [each for each in admin.topics.list() if each.name == topic_name]
        if not found:
            raise TopicNotFound(f"topic {topic_name!r} does not exist: see `flaremq topic list --all`")
    out, clusters = Output(json), list(found[0].clusters)
    out.show(
        {"topic": topic_name, "clusters": clusters},
        lambda: out.table(("cluster",), [(each,) for each in clusters]),
    )


def topic_list(
    namesrv: Namesrv = None,
    by_cluster: ByCluster = False,  # noqa: ARG001
    json: Json = False,
) -> None:
    """List all topics."""
    topic.list_topics(namesrv, all_kinds=True, json=json)


def update_order_conf(
    topic_name: Topic,
    method: Annotated[str, typer.Option("-m", "--method", metavar="put|get|delete", help="What to do.")],
    conf: Annotated[
        str | None,
        typer.Option("-v", "--orderConf", metavar="BROKER:COUNT;...", help="Queues on each broker."),
    ] = None,
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Show or set the fixed queues of an ordered topic."""
    if method not in ("put", "get", "delete"):
        raise BadValue(f"-m {method}: expected put, get or delete")
    if method == "put" and not conf:
        raise BadValue("-m put needs -v, for example -v 'broker-a:4;broker-b:4'")
    wanted = conf if method == "put" else None
    ordering.order(topic_name, wanted, method == "delete", namesrv, yes=True, json=json)


def allocate_mq(
    topic_name: Topic,
    clients: Annotated[str, typer.Option("-i", "--ipList", metavar="CLIENT,CLIENT,...", help="Client ids.")],
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Show how the queues would be shared among these clients."""
    ordering.allocate(topic_name, [each for each in clients.split(",") if each], namesrv, json=json)


def stats_all(
    namesrv: Namesrv = None,
    active: Annotated[bool, typer.Option("-a", "--activeTopic", help="Only topics with traffic.")] = False,
    topic_name: Annotated[
        str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Limit to this topic.")
    ] = None,
    json: Json = False,
) -> None:
    """Show message rates of topics."""
    rates.rates(topic_name, active, namesrv, json=json)
