"""mqadmin's commands about groups and their offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from json import JSONDecodeError, loads
from typing import Annotated

import typer

from flaremq.base.errors import FlareError
from flaremq.cli.admin import group, rates, running
from flaremq.cli.aliases.options import (
    BrokerAddr,
    Cluster,
    Group,
    Namesrv,
    RouteCluster,
    Topic,
    signed_attributes,
    truth,
)
from flaremq.cli.connect import connected
from flaremq.cli.options import Json
from flaremq.cli.render import BadValue, Output
from flaremq.model.jsonfields import Fields
from flaremq.model.retrypolicy import RetryPolicy
from flaremq.model.topic import GroupConfig

Consumes = Annotated[
    str | None,
    typer.Option("-s", "--consumeEnable", metavar="true|false", help="Whether the group may consume."),
]
FromMin = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--consumeFromMinEnable",
        metavar="true|false",
        help="Whether it may start at the oldest message.",
    ),
]
Broadcasts = Annotated[
    str | None,
    typer.Option("-d", "--consumeBroadcastEnable", metavar="true|false", help="Whether it may broadcast."),
]
Orderly = Annotated[
    str | None,
    typer.Option("-o", "--consumeMessageOrderly", metavar="true|false", help="Whether it consumes in order."),
]
RetryQueues = Annotated[
    int, typer.Option("-q", "--retryQueueNums", min=0, metavar="N", help="Queues of the retry topic.")
]
Retries = Annotated[
    int,
    typer.Option("-r", "--retryMaxTimes", min=-1, metavar="N", help="Redeliveries before a dead letter."),
]
Policy = Annotated[str | None, typer.Option("-p", "--groupRetryPolicy", metavar="JSON", help="Retry policy.")]
BrokerId = Annotated[
    int, typer.Option("-i", "--brokerId", min=0, metavar="N", help="Broker id to consume from.")
]
WhenSlow = Annotated[
    int,
    typer.Option(
        "-w", "--whichBrokerWhenConsumeSlowly", min=0, metavar="N", help="Broker id to use when it lags."
    ),
]
Notifies = Annotated[
    str | None,
    typer.Option(
        "-a", "--notifyConsumerIdsChanged", metavar="true|false", help="Whether members learn of new ones."
    ),
]
Attributes = Annotated[str | None, typer.Option("--attributes", metavar="+a=b", help="Attributes to set.")]


def update_sub_group(
    name: Group,
    namesrv: Namesrv = None,
    broker: BrokerAddr = None,
    cluster: Cluster = None,
    consume: Consumes = None,
    from_min: FromMin = None,
    broadcast: Broadcasts = None,
    orderly: Orderly = None,
    retry_queues: RetryQueues = 1,
    retries: Retries = 16,
    policy: Policy = None,
    broker_id: BrokerId = 0,
    slowly: WhenSlow = 1,
    notify: Notifies = None,
    attributes: Attributes = None,
    json: Json = False,
) -> None:
    """Create or update a group."""
    if (broker is None) == (cluster is None):
        raise BadValue("expected either -b BROKER or -c CLUSTER")
    config = GroupConfig(
        group_name=name,
        consume_enable=truth(consume, True),
        consume_from_min_enable=truth(from_min),
        consume_broadcast_enable=truth(broadcast),
        consume_message_orderly=truth(orderly),
        retry_queue_nums=retry_queues,
        retry_max_times=retries,
        broker_id=broker_id,
        which_broker_when_consume_slowly=slowly,
        notify_consumer_ids_changed_enable=truth(notify, True),
        attributes={key: value or "" for key, value in signed_attributes(attributes).items()},
    )
    if policy is not None:
        config = replace(config, group_retry_policy=_policy(policy))
    with connected(namesrv, None) as admin:
        made = admin.groups.create(config, cluster=cluster, broker=broker)
    Output(json).done(f"Group {name} is on {', '.join(made)}.", group=name, brokers=list(made))


def _policy(text: str) -> RetryPolicy:
    try:
        found = loads(text)
        if isinstance(found, Mapping):
            return RetryPolicy.of(Fields("a retry policy", found))
    except (JSONDecodeError, FlareError) as error:
        raise BadValue(f"-p {text!r}: {error}") from None
    raise BadValue(f"-p {text!r}: expected a JSON object with type and policy")


def delete_sub_group(
    name: Group,
    namesrv: Namesrv = None,
    broker: BrokerAddr = None,
    cluster: Cluster = None,
    offsets: Annotated[
        str | None,
        typer.Option("-r", "--removeOffset", metavar="true|false", help="Whether to delete its offsets."),
    ] = None,
    json: Json = False,
) -> None:
    """Delete a group."""
    if (broker is None) == (cluster is None):
        raise BadValue("expected either -b BROKER or -c CLUSTER")
    with connected(namesrv, None) as admin:
        done = admin.groups.delete(name, cluster=cluster, broker=broker, offsets=truth(offsets))
    Output(json).done(f"Group {name} is deleted on {', '.join(done)}.", group=name, brokers=list(done))


def consumer_progress(
    name: Annotated[
        str | None, typer.Option("-g", "--groupName", metavar="GROUP", help="Consumer group.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("-t", "--topicName", metavar="TOPIC", help="Limit to this topic.")
    ] = None,
    show_clients: Annotated[
        str | None,
        typer.Option("-s", "--showClientIP", metavar="true|false", help="Show the owner of each queue."),
    ] = None,
    cluster: RouteCluster = None,  # noqa: ARG001
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Show the lag of one group, or of all."""
    if name is None:
        group.list_groups(namesrv, json=json)
    else:
        group.progress(name, namesrv, topic=topic, owners=truth(show_clients), json=json)


def consumer_status(
    name: Group,
    client: Annotated[
        str | None, typer.Option("-i", "--clientId", metavar="CLIENT", help="Client id.")
    ] = None,
    stacks: Annotated[bool, typer.Option("-s", "--jstack", help="Include thread stacks.")] = False,
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Show the state of the members of a group."""
    running.running(name, client, stacks, namesrv, json=json)


def get_consumer_config(name: Group, namesrv: Namesrv = None, json: Json = False) -> None:
    """Show the settings of a group."""
    group.show_group(name, namesrv, json=json)


def consumer_connection(name: Group, namesrv: Namesrv = None, json: Json = False) -> None:
    """List the connected clients of a group."""
    group.clients(name, namesrv, json=json)


def producer_connection(
    name: Annotated[str, typer.Option("-g", "--producerGroup", metavar="GROUP", help="Producer group.")],
    topic: Topic,
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """List the connected producers of a group."""
    rates.producers(topic, name, namesrv, json=json)


def reset_offset_by_time(
    name: Group,
    topic: Topic,
    timestamp: Annotated[
        str, typer.Option("-s", "--timestamp", metavar="now|MS|yyyy-MM-dd#HH:mm:ss:SSS", help="Target time.")
    ],
    force: Annotated[str | None, typer.Option("-f", "--force", help="Accepted: always so.")] = None,  # noqa: ARG001
    broker: BrokerAddr = None,
    queue: Annotated[int | None, typer.Option("-q", "--queue", min=0, metavar="N", help="Queue id.")] = None,
    offset: Annotated[
        int | None, typer.Option("-o", "--offset", min=0, metavar="N", help="Offset in the queue.")
    ] = None,
    cluster: RouteCluster = None,  # noqa: ARG001
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Reset a group's offsets to a time, or one queue to an offset."""
    given = (broker is not None, queue is not None, offset is not None)
    if not any(given):
        to = "end" if timestamp.strip() == "-1" else timestamp
        group.reset(name, topic, to, None, namesrv, yes=True, json=json)
        return
    if not all(given):
        raise BadValue("a single queue needs all of -b BROKER, -q QUEUE and -o OFFSET")
    assert broker is not None
    with connected(namesrv, None) as admin:
        broker = admin.brokers.list(broker=broker, runtime=False)[0].name
    group.reset(name, topic, None, [f"{broker}:{queue}={offset}"], namesrv, yes=True, json=json)


def clone_group_offset(
    source: Annotated[str, typer.Option("-s", "--srcGroup", metavar="GROUP", help="Group to copy from.")],
    target: Annotated[str, typer.Option("-d", "--destGroup", metavar="GROUP", help="Group to copy to.")],
    topic: Topic,
    offline: Annotated[str | None, typer.Option("-o", "--offline", help="Accepted, without effect.")] = None,  # noqa: ARG001
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Copy the offsets of one group to another."""
    group.clone(source, target, topic, namesrv, yes=True, json=json)


def skip_accumulated_message(
    name: Group,
    topic: Topic,
    force: Annotated[str | None, typer.Option("-f", "--force", help="Accepted: always so.")] = None,  # noqa: ARG001
    cluster: RouteCluster = None,  # noqa: ARG001
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Skip all messages that are waiting now."""
    group.reset(name, topic, "end", None, namesrv, yes=True, json=json)
