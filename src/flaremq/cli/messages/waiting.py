"""`flaremq message waiting` and `flaremq message cancel`: messages that are not delivered yet."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import typer

from flaremq.admin.documents import waiting_document
from flaremq.admin.values.messages import WaitingMessage, WaitingMessages
from flaremq.base.errors import MessageNotFound
from flaremq.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from flaremq.cli.connect import connected, note_failures
from flaremq.cli.names import topic_names
from flaremq.cli.options import Json, Namesrv, Profile
from flaremq.cli.render import BadValue, Output, note
from flaremq.cli.times import local
from flaremq.client.message import Recall

_SPANS: Final = (("minute", MINUTE_MS), ("hour", HOUR_MS), ("day", DAY_MS))
_NOT_DONE: Final = 1
_ID_MAX: Final = 60  # No id is longer: what is must be a recall handle.

WaitingTopic = Annotated[
    str | None,
    typer.Option(
        "-t",
        "--topic",
        metavar="TOPIC",
        help="Only messages for this topic.",
        autocompletion=topic_names,
    ),
]
Listed = Annotated[bool, typer.Option("--list", "-l", help="List the messages one by one, with their ids.")]
Which = Annotated[
    str,
    typer.Argument(metavar="ID", help="Message id as `flaremq send` prints it, or a recall handle."),
]


def waiting(
    topic: WaitingTopic = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    listed: Listed = False,
    json: Json = False,
) -> None:
    """Show messages that wait to be delivered: timers, delay levels and retries."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = admin.messages.waiting(topic)

    def for_people() -> None:
        if listed:
            _list(found, out)
        else:
            _sum_up(found, out)
        note_failures(found.failed)
        for name, why in sorted(found.partial.items()):
            note(f"incomplete: {name}: {why}")

    out.show(waiting_document(found), for_people)


def _list(found: Iterable[WaitingMessage], out: Output) -> None:
    rows = [
        (local(each.due_ms), each.topic, each.why, each.message.message_id, " ".join(each.message.keys))
        for each in found
    ]
    out.table(("due", "topic", "waits for", "id", "keys"), rows, empty="No messages wait.")


def _sum_up(found: Sequence[WaitingMessage], out: Output) -> None:
    """A row for each topic: how many are due within a minute, an hour, a day, and later."""
    now_ms = int(time.time() * 1000)
    topics: dict[str, list[int]] = {}
    for each in found:
        topics.setdefault(each.topic, []).append(each.due_ms)
    rows = []
    for topic, due in sorted(topics.items()):
        ends = [sum(1 for at_ms in due if at_ms - now_ms <= span_ms) for _, span_ms in _SPANS]
        rows.append((topic, len(due), *ends, len(due) - ends[-1], local(min(due)), local(max(due))))
    heads = ("topic", "waiting", *(f"within a {name}" for name, _ in _SPANS), "later", "first", "last")
    out.table(tuple(head.replace("a hour", "an hour") for head in heads), rows, empty="No messages wait.")


def cancel(
    which: Which,
    topic: WaitingTopic = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Cancel a message that waits for its moment, so that it is never delivered."""
    with connected(namesrv, profile) as admin:
        is_id = len(which) <= _ID_MAX
        handle = _handle(admin.messages.waiting(topic), which) if is_id else which
        recall = admin.messages.recall(handle)
    told = {
        Recall.CANCELLED: "cancelled: it will not be delivered",
        Recall.TOO_LATE: "too late: its moment has come",
        Recall.UNKNOWN: "not found: no such message has waited there",
    }[recall]
    out = Output(json)
    out.show({"recall_handle": handle, "outcome": recall.value}, lambda: typer.echo(told))
    if recall is not Recall.CANCELLED:
        raise typer.Exit(_NOT_DONE)


def _handle(found: WaitingMessages, which: str) -> str:
    for each in found:
        if each.message.message_id == which:
            if each.recall_handle is None:
                raise BadValue(
                    f"message {which} waits for its {each.why}, and only a timer can be cancelled: "
                    "send with --delay or --deliver-at to be able to"
                )
            return each.recall_handle
    if found.partial or found.failed:
        whys = (f"{name}: {why}" for name, why in sorted({**found.failed, **found.partial}.items()))
        raise MessageNotFound(
            f"message {which} is not among those that were read, and not all were ({'; '.join(whys)}): "
            "give its recall handle instead"
        )
    raise MessageNotFound(f"no message {which} waits: see `flaremq message waiting --list`")
