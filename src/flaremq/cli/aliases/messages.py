"""mqadmin's commands about messages."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from flaremq.admin.documents import message_document
from flaremq.admin.messages.traces import TRACES_MAX
from flaremq.admin.values.messages import Scan
from flaremq.cli.aliases.options import Begin, End, Namesrv, RouteCluster, Topic, truth
from flaremq.cli.connect import connected
from flaremq.cli.messages import message, send, trace
from flaremq.cli.messages.lines import line_of
from flaremq.cli.options import Json
from flaremq.cli.render import BadValue, Output, dumps
from flaremq.model.names import TRACE_TOPIC

_ALL = (1 << 31) - 1
_CONSUMED_MAX = 128

Ids = Annotated[str, typer.Option("-i", "--msgId", metavar="ID,ID,...", help="Message ids.")]
ForGroup = Annotated[
    str | None, typer.Option("-g", "--consumerGroup", metavar="GROUP", help="Have this group consume it.")
]
Client = Annotated[
    str | None, typer.Option("-d", "--clientId", metavar="CLIENT", help="Have this member consume it.")
]
Format = Annotated[
    str | None,
    typer.Option("-f", "--bodyFormat", metavar="FORMAT", help="Accepted: bodies are shown as text."),
]
Charset = Annotated[
    str | None, typer.Option("-c", "--charsetName", metavar="CHARSET", help="Accepted: bodies are UTF-8.")
]
Tags = Annotated[
    str, typer.Option("-s", "--subExpression", metavar="TAGS", help="Tags to match: TagA || TagB.")
]
Body = Annotated[
    str | None, typer.Option("-d", "--printBody", metavar="true|false", help="Print message bodies.")
]
AnyGroup = Annotated[
    str | None, typer.Option("-g", "--consumerGroup", metavar="GROUP", help="Accepted: no offset is stored.")
]
BrokerName = Annotated[str, typer.Option("-b", "--brokerName", metavar="NAME", help="Broker name.")]
QueueId = Annotated[int, typer.Option("-i", "--queueId", "--qid", min=0, metavar="N", help="Queue id.")]


def query_msg_by_id(
    ids: Ids,
    topic: Annotated[str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Topic name.")] = None,
    group: ForGroup = None,
    client: Client = None,
    body_format: Format = None,  # noqa: ARG001
    cluster: RouteCluster = None,  # noqa: ARG001
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Show messages by id, or have a group consume them again."""
    if group is not None:
        message.consume(ids, group, topic, client, namesrv, json=json)
    elif "," not in ids:
        message.get_message(ids, topic, namesrv, track=True, json=json)
    else:
        with connected(namesrv, None) as admin:
            found = [admin.messages.get(each, topic) for each in ids.split(",") if each]
        message.show_messages(found, {}, Output(json))


def query_msg_by_unique_key(
    ids: Ids,
    topic: Topic,
    group: ForGroup = None,
    client: Client = None,
    show_all: Annotated[bool, typer.Option("-a", "--showAll", help="Show all copies of it.")] = False,
    cluster: RouteCluster = None,  # noqa: ARG001
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Show a message by its unique id."""
    if not show_all:
        query_msg_by_id(ids, topic, group, client, namesrv=namesrv, json=json)
        return
    with connected(namesrv, None) as admin:
        found = admin.messages.by_unique_key(topic, ids)
    message.show_messages(found, found.failed, Output(json))


def query_msg_by_key(
    topic: Topic,
    key: Annotated[str, typer.Option("-k", "--msgKey", metavar="KEY", help="Message key.")],
    begin: Begin = None,
    end: End = None,
    limit: Annotated[
        int, typer.Option("-m", "--maxNum", min=1, metavar="N", help="Maximum number of messages.")
    ] = 64,
    cluster: RouteCluster = None,  # noqa: ARG001
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Find messages by key."""
    message.by_key(topic, key, namesrv, from_time=begin, to_time=end, limit=limit, json=json)


def query_msg_by_offset(
    topic: Topic,
    broker: BrokerName,
    queue: QueueId,
    offset: Annotated[int, typer.Option("-o", "--offset", min=0, metavar="N", help="Offset in the queue.")],
    body_format: Format = None,  # noqa: ARG001
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Show the message at an offset."""
    message.at_offset(topic, broker, queue, offset, namesrv, json=json)


def query_msg_trace_by_id(
    message_id: Annotated[str, typer.Option("-i", "--msgId", metavar="ID", help="Message id.")],
    trace_topic: Annotated[
        str, typer.Option("-t", "--traceTopic", metavar="TOPIC", help="Topic of the trace records.")
    ] = TRACE_TOPIC,
    begin: Annotated[
        str | None, typer.Option("-b", "--beginTimestamp", metavar="TIME", help="Earliest store time.")
    ] = None,
    end: End = None,
    limit: Annotated[
        int, typer.Option("-c", "--maxNum", min=1, metavar="N", help="Maximum number of trace messages.")
    ] = TRACES_MAX,
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Show what happened to a message."""
    within = message.within(begin, end)
    trace.show_trace(message_id, None, trace_topic, namesrv, within=within, limit=limit, json=json)


def print_msg(
    topic: Topic,
    charset: Charset = None,  # noqa: ARG001
    tags: Tags = "*",
    begin: Begin = None,
    end: End = None,
    body: Body = None,
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Print the messages of a topic."""
    wanted = Scan(topic=topic, within=message.within(begin, end), tags=tags, count_max=_ALL)
    _print(wanted, namesrv, json=json, body=truth(body, True))


def print_msg_by_queue(
    topic: Topic,
    broker: Annotated[str, typer.Option("-a", "--brokerName", metavar="NAME", help="Broker name.")],
    queue: QueueId,
    charset: Charset = None,  # noqa: ARG001
    tags: Tags = "*",
    begin: Begin = None,
    end: End = None,
    show: Annotated[
        str | None, typer.Option("-p", "--print", metavar="true|false", help="Print the messages.")
    ] = None,
    body: Body = None,
    count_tags: Annotated[
        str | None, typer.Option("-f", "--calculate", metavar="true|false", help="Count messages by tag.")
    ] = None,
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Print the messages of a queue, or count them by tag."""
    wanted = Scan(
        topic=topic,
        within=message.within(begin, end),
        broker=broker,
        queue_id=queue,
        tags=tags,
        count_max=_ALL,
    )
    if truth(show, usual=not truth(count_tags)):
        _print(wanted, namesrv, json=json, body=truth(body))
    if truth(count_tags):
        with connected(namesrv, None) as admin:
            counts = Counter(each.tags for each in admin.messages.scan(wanted))
        out = Output(json)
        document = [{"tags": tag, "messages": count} for tag, count in counts.most_common()]
        out.show(document, lambda: out.table(("tags", ">messages"), counts.most_common()))


def _print(wanted: Scan, namesrv: str | None, *, json: bool, body: bool) -> None:
    """Print messages one by one, as they are read: there may be millions."""
    with connected(namesrv, None) as admin:
        for each in admin.messages.scan(wanted):
            if json:
                typer.echo(dumps(message_document(each.stored, each.broker)))
            else:
                typer.echo(line_of(each.stored, each.broker, body=body))


def consume_message(
    topic: Topic,
    broker: Annotated[
        str | None, typer.Option("-b", "--brokerName", metavar="NAME", help="Broker name.")
    ] = None,
    queue: Annotated[
        int | None, typer.Option("-i", "--queueId", min=0, metavar="N", help="Queue id.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option("-o", "--offset", min=0, metavar="N", help="Offset in the queue.")
    ] = None,
    group: AnyGroup = None,  # noqa: ARG001
    begin: Annotated[
        str | None, typer.Option("-s", "--beginTimestamp", metavar="TIME", help="Earliest store time.")
    ] = None,
    end: End = None,
    count: Annotated[
        int, typer.Option("-c", "--MessageNumber", min=1, metavar="N", help="Maximum number of messages.")
    ] = _CONSUMED_MAX,
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Read messages of a topic. No group's offset moves."""
    message.query(
        topic,
        namesrv,
        from_time=begin,
        to_time=end,
        broker=broker,
        queue=queue,
        from_offset=offset,
        limit=count,
        json=json,
    )


def send_message(
    topic: Topic,
    body: Annotated[str, typer.Option("-p", "--body", metavar="TEXT", help="Message text.")],
    keys: Annotated[
        str | None,
        typer.Option("-k", "--key", "--keys", metavar="KEYS", help="Message keys, separated by spaces."),
    ] = None,
    tags: Annotated[str | None, typer.Option("-c", "--tags", metavar="TAG", help="Message tag.")] = None,
    broker: Annotated[str | None, typer.Option("-b", "--broker", metavar="NAME", help="Broker name.")] = None,
    queue: Annotated[int | None, typer.Option("-i", "--qid", min=0, metavar="N", help="Queue id.")] = None,
    namesrv: Namesrv = None,
    json: Json = False,
) -> None:
    """Send a message."""
    if (broker is None) != (queue is None):
        raise BadValue("a single queue needs both -b BROKER and -i QUEUE")
    to = None if broker is None else f"{broker}:{queue}"
    send.command(topic, body, namesrv, tags=tags, key=(keys or "").split(), queue=to, json=json)
