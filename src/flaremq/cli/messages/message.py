"""`flaremq message`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from flaremq.admin.documents import (
    direct_result_document,
    message_document,
    messages_document,
    tracks_document,
)
from flaremq.admin.values.messages import FOUND_MAX, FoundMessage, Scan, TimeRange
from flaremq.admin.values.outcome import Failed
from flaremq.base.text import count
from flaremq.cli.connect import connected, note_failures
from flaremq.cli.messages import trace, waiting
from flaremq.cli.messages.lines import shown_body
from flaremq.cli.names import group_names, topic_names
from flaremq.cli.options import Broker, DryRun, Json, Namesrv, Profile, TopicName, Yes
from flaremq.cli.render import BadValue, Output, confirm, dumps, safe
from flaremq.cli.times import local, parse_time_ms
from flaremq.model.message import MessageQueue

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Find, inspect and redeliver messages.")

app.command("waiting")(waiting.waiting)
app.command("cancel")(waiting.cancel)
app.command("trace")(trace.trace)

BODY_SHOWN = 60

MessageId = Annotated[
    str, typer.Argument(metavar="ID", help="Message id as `flaremq send` prints it, or offset id.")
]
OfTopic = Annotated[
    str | None,
    typer.Option(
        "-t",
        "--topic",
        metavar="TOPIC",
        help="Topic of the message. Default: search all topics.",
        autocompletion=topic_names,
    ),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Earliest store time: 10m (ago), 12:30, 2024-05-01 ..."),
]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Latest store time.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of messages.")]


@app.command("get")
def get_message(
    message_id: MessageId,
    topic: OfTopic = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    track: Annotated[bool, typer.Option("--track", help="Show which groups have consumed it.")] = False,
    json: Json = False,
) -> None:
    """Show one message, found by its id."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = admin.messages.get(message_id, topic)
        tracks = admin.messages.track(found) if track else None
    document = message_document(found.stored, found.broker)
    if tracks is not None:
        document |= tracks_document(tracks)

    def for_people() -> None:
        show_message(found, out)
        if tracks is not None:
            typer.echo()
            rows = [(t.group, t.state.value, t.online, t.why) for t in tracks]
            out.table(("group", "state", "online", "why"), rows, empty="No group consumes its topic.")
            note_failures(tracks.failed)

    out.show(document, for_people)


@app.command("key")
def by_key(
    topic: TopicName,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Message key.")],
    namesrv: Namesrv = None,
    profile: Profile = None,
    from_time: From = None,
    to_time: To = None,
    limit: Limit = FOUND_MAX,
    json: Json = False,
) -> None:
    """Find messages by a message key."""
    with connected(namesrv, profile) as admin:
        found = admin.messages.by_key(topic, key, within(from_time, to_time), count_max=limit)
    show_messages(list(found)[:limit], found.failed, Output(json))


@app.command("query")
def query(
    topic: TopicName,
    namesrv: Namesrv = None,
    profile: Profile = None,
    from_time: From = None,
    to_time: To = None,
    broker: Broker = None,
    queue: Annotated[
        int | None,
        typer.Option("-q", "--queue", metavar="N", min=0, help="Limit to the queues with this id."),
    ] = None,
    from_offset: Annotated[
        int | None, typer.Option("--from-offset", metavar="N", min=0, help="Start offset in the queue.")
    ] = None,
    to_offset: Annotated[
        int | None,
        typer.Option("--to-offset", metavar="N", min=0, help="End offset in the queue (exclusive)."),
    ] = None,
    tags: Annotated[str, typer.Option("--tags", metavar="TAGS", help="Tags to match: TagA || TagB.")] = "*",
    limit: Limit = 100,
    json: Json = False,
) -> None:
    """List messages of a topic by time, queue or offset."""
    wanted = Scan(
        topic=topic,
        within=within(from_time, to_time),
        broker=broker,
        queue_id=queue,
        begin_offset=from_offset,
        end_offset=to_offset,
        tags=tags,
        count_max=limit,
    )
    with connected(namesrv, profile) as admin:
        found = list(admin.messages.scan(wanted))
    show_messages(found, {}, Output(json))


@app.command("at")
def at_offset(
    topic: TopicName,
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="Broker name.")],
    queue: Annotated[int, typer.Argument(metavar="QUEUE", min=0, help="Queue id.")],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, help="Offset in the queue.")],
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Show the message at an offset of a queue."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = admin.messages.by_offset(MessageQueue(topic, broker, queue), offset)
    out.show(message_document(found.stored, found.broker), lambda: show_message(found, out))


@app.command("consume")
def consume(
    message_id: MessageId,
    group: Annotated[
        str,
        typer.Option(
            "-g",
            "--group",
            metavar="GROUP",
            help="Group whose member consumes it.",
            autocompletion=group_names,
        ),
    ],
    topic: OfTopic = None,
    client: Annotated[
        str | None, typer.Option("--client", metavar="CLIENT", help="Client id; any member by default.")
    ] = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Have a connected member of a group consume a message now."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        result = admin.messages.consume_directly(admin.messages.get(message_id, topic), group, client)
    said = None if result.result is None else result.result.name
    words = f"{result.client_id} says {said} after {result.spent_ms} ms"
    sentence = safe(words + (f": {result.remark}" if result.remark else ""))
    out.show(direct_result_document(result), lambda: typer.echo(sentence))


@app.command("resend")
def resend(
    message_id: MessageId,
    topic: OfTopic = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Send a dead letter to its group again. The dead letter itself stays."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        letter = admin.messages.get(message_id, topic)
        what = f"send message {letter.message_id} of {letter.topic} to its group again"
        if dry_run:
            out.would([what], message_id=letter.message_id, topic=letter.topic)
            return
        confirm(f"This would {what}", yes)
        done = admin.messages.resend(letter)
    place = f"{done.queue.topic}, {done.queue.broker_name}, queue {done.queue.queue_id}"
    out.done(
        f"Its copy is {done.offset_id} in {place} at {done.queue_offset}.",
        topic=done.queue.topic,
        broker=done.queue.broker_name,
        queue_id=done.queue.queue_id,
        queue_offset=done.queue_offset,
        offset_id=done.offset_id,
    )


# Output.


def show_messages(found: Iterable[FoundMessage], failed: Failed, out: Output) -> None:
    """One line per message."""
    listed = list(found)

    def for_people() -> None:
        out.table(
            ("stored", "broker", ">queue", ">offset", "id", "tags", "keys", "body"),
            [
                (
                    *(local(m.stored_ms), m.broker, m.stored.queue_id, m.queue_offset, m.message_id),
                    *(m.tags, " ".join(m.keys), body_text(m)),
                )
                for m in listed
            ],
            empty="No messages found.",
        )
        note_failures(failed)

    out.show(messages_document(listed, failed), for_people)


def show_message(found: FoundMessage, out: Output) -> None:
    """All details of a message."""
    stored = found.stored
    out.facts(
        [
            ("Topic", found.topic),
            ("Id", found.message_id),
            ("Stored in", f"{found.broker}, queue {stored.queue_id}, offset {found.queue_offset}"),
            ("Offset id", found.offset_id),
            ("Tags", found.tags),
            ("Keys", " ".join(found.keys) or None),
            ("Born", f"{local(found.born_ms)} at {stored.born_host}"),
            ("Stored", f"{local(found.stored_ms)} at {stored.store_host}"),
            ("Redelivered", found.reconsume_times),
            ("Properties", dumps(dict(found.properties))),
            ("Size", count(stored.size, "byte")),
            ("Body", body_text(found, None)),
        ]
    )


def body_text(found: FoundMessage, limit: int | None = BODY_SHOWN) -> str:
    body = shown_body(found.stored)
    return body if limit is None or len(body) <= limit else f"{body[: limit - 1]}…"


def within(from_time: str | None, to_time: str | None) -> TimeRange:
    usual = TimeRange()
    begin_ms = usual.begin_ms if from_time is None else parse_time_ms(from_time)
    end_ms = usual.end_ms if to_time is None else parse_time_ms(to_time)
    if begin_ms > end_ms:
        raise BadValue(f"--from {from_time} is later than --to {to_time}: expected the earlier time first")
    return TimeRange(begin_ms, end_ms)
