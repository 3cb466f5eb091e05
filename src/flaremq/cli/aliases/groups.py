"""mqadmin's commands about groups and their offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from json import JSONDecodeError, loads
from typing import Annotated

import typer

from flaremq.base.errors import FlareError, InvalidParameter
from flaremq.cli import group, traffic
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
from flaremq.cli.render import Output
from flaremq.model.jsonfields import Fields
from flaremq.model.retrypolicy import RetryPolicy
from flaremq.model.topic import GroupConfig


def update_sub_group(
    name: Group,
    namesrv: Namesrv = None,
    broker: BrokerAddr = None,
    cluster: Cluster = None,
    consume: Annotated[str | None, typer.Option("-s", "--consumeEnable")] = None,
    from_min: Annotated[str | None, typer.Option("-m", "--consumeFromMinEnable")] = None,
    broadcast: Annotated[str | None, typer.Option("-d", "--consumeBroadcastEnable")] = None,
    orderly: Annotated[str | None, typer.Option("-o", "--consumeMessageOrderly")] = None,
    retry_queues: Annotated[int, typer.Option("-q", "--retryQueueNums", min=0)] = 1,
    retries: Annotated[int, typer.Option("-r", "--retryMaxTimes", min=-1)] = 16,
    policy: Annotated[str | None, typer.Option("-p", "--groupRetryPolicy", metavar="JSON")] = None,
    broker_id: Annotated[int, typer.Option("-i", "--brokerId", min=0)] = 0,
    slowly: Annotated[int, typer.Option("-w", "--whichBrokerWhenConsumeSlowly", min=0)] = 1,
    notify: Annotated[str | None, typer.Option("-a", "--notifyConsumerIdsChanged")] = None,
    attributes: Annotated[str | None, typer.Option("--attributes", metavar="+a=b")] = None,
    json: Json = False,
) -> None:
    """Make a group, or make it so."""
    if (broker is None) == (cluster is None):
        raise InvalidParameter("say where: -b BROKER or -c CLUSTER")
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
        raise InvalidParameter(f"-p {text!r}: {error}") from None
    raise InvalidParameter(f"-p {text!r}: wanted is a JSON object with type and the policy")


def delete_sub_group(
    name: Group,
    namesrv: Namesrv = None,
    broker: BrokerAddr = None,
    cluster: Cluster = None,
    offsets: Annotated[str | None, typer.Option("-r", "--removeOffset", metavar="true|false")] = None,
    json: Json = False,
) -> None:
    """Delete a group."""
    if (broker is None) == (cluster is None):
        raise InvalidParameter("say where: -b BROKER or -c CLUSTER")
    with connected(namesrv, None) as admin:
        done = admin.groups.delete(name, cluster=cluster, broker=broker, offsets=truth(offsets))
    Output(json).done(f"Group {name} is deleted on {', '.join(done)}.", group=name, brokers=list(done))


def consumer_progress(
    name: Annotated[str | None, typer.Option("-g", "--groupName")] = None,
    topic: Annotated[str | None, typer.Option("-t", "--topicName")] = None,
    show_clients: Annotated[str | None, typer.Option("-s", "--showClientIP", metavar="true|false")] = None,
    cluster: RouteCluster = None,  # noqa: ARG001
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """How far a group is, or all of them."""
    if name is None:
        group.list_groups(namesrv, json=json)
    else:
        group.progress(name, namesrv, topic=topic, owners=truth(show_clients), json=json)


def consumer_status(
    name: Group,
    client: Annotated[str | None, typer.Option("-i", "--clientId")] = None,
    stacks: Annotated[bool, typer.Option("-s", "--jstack")] = False,
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """How members of a group do."""
    group.running(name, client, stacks, namesrv, json=json)


def get_consumer_config(name: Group, namesrv: Namesrv = None, json: Json = False) -> None:
    """Settings of a group."""
    group.show_group(name, namesrv, json=json)


def consumer_connection(name: Group, namesrv: Namesrv = None, json: Json = False) -> None:
    """Who is connected."""
    group.clients(name, namesrv, json=json)


def producer_connection(
    name: Annotated[str, typer.Option("-g", "--producerGroup")],
    topic: Topic,
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Producers of a group."""
    traffic.producers(topic, name, namesrv, json=json)


def reset_offset_by_time(
    name: Group,
    topic: Topic,
    timestamp: Annotated[
        str, typer.Option("-s", "--timestamp", metavar="now|MS|yyyy-MM-dd#HH:mm:ss:SSS", help="Where to.")
    ],
    force: Annotated[str | None, typer.Option("-f", "--force", help="Accepted: it is so anyway.")] = None,  # noqa: ARG001
    broker: BrokerAddr = None,
    queue: Annotated[int | None, typer.Option("-q", "--queue", min=0)] = None,
    offset: Annotated[int | None, typer.Option("-o", "--offset", min=0)] = None,
    cluster: RouteCluster = None,  # noqa: ARG001
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Let a group go on from another time, or with one queue from another offset."""
    given = (broker is not None, queue is not None, offset is not None)
    if not any(given):
        to = "end" if timestamp.strip() == "-1" else timestamp
        group.reset(name, topic, to, None, namesrv, yes=True, json=json)
        return
    if not all(given):
        raise InvalidParameter("one queue needs all of -b BROKER, -q QUEUE and -o OFFSET")
    assert broker is not None
    with connected(namesrv, None) as admin:
        broker = admin.brokers.list(broker=broker, runtime=False)[0].name
    group.reset(name, topic, None, [f"{broker}:{queue}={offset}"], namesrv, yes=True, json=json)


def clone_group_offset(
    source: Annotated[str, typer.Option("-s", "--srcGroup")],
    target: Annotated[str, typer.Option("-d", "--destGroup")],
    topic: Topic,
    offline: Annotated[str | None, typer.Option("-o", "--offline", help="Accepted: it is asked for.")] = None,  # noqa: ARG001
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Let a group begin where another one is."""
    group.clone(source, target, topic, namesrv, yes=True, json=json)


def skip_accumulated_message(
    name: Group,
    topic: Topic,
    force: Annotated[str | None, typer.Option("-f", "--force", help="Accepted: it is so anyway.")] = None,  # noqa: ARG001
    cluster: RouteCluster = None,  # noqa: ARG001
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Never consume what waits now."""
    group.reset(name, topic, "end", None, namesrv, yes=True, json=json)
