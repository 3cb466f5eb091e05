"""`flaremq message trace`: the journey of a message as a time line."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Final

import typer

from flaremq.admin.messages.traces import TRACES_MAX, journey_document
from flaremq.admin.values.messages import TimeRange
from flaremq.admin.values.trace import Journey, JourneyStep, StepKind
from flaremq.base.text import count
from flaremq.cli.connect import connected, note_failures
from flaremq.cli.names import topic_names
from flaremq.cli.options import Json, Namesrv, Profile
from flaremq.cli.render import Output, safe
from flaremq.cli.times import local
from flaremq.model.names import TRACE_TOPIC

_ENDS: Final = {
    "COMMIT_MESSAGE": "committed",
    "ROLLBACK_MESSAGE": "rolled back",
    "UNKNOW": "left open: the broker will ask",
}
_CODES: Final = {
    "EXCEPTION": "the handler raised",
    "FAILED": "the handler did not accept it",
    "TIME_OUT": "the handler took too long",
    "RETURN_NULL": "the handler returned nothing",
}
_MARKS: Final = {True: "✓", False: "✗", None: "·"}
_COLORS: Final = {True: "green", False: "red", None: "yellow"}

TracedId = Annotated[str, typer.Argument(metavar="ID", help="Message id as `flaremq send` prints it.")]
OfTopic = Annotated[
    str | None,
    typer.Option(
        "-t",
        "--topic",
        metavar="TOPIC",
        help="Only records about messages of this topic.",
        autocompletion=topic_names,
    ),
]
TraceTopic = Annotated[
    str,
    typer.Option(
        "--trace-topic", metavar="TOPIC", help="Topic of the trace records.", autocompletion=topic_names
    ),
]


def trace(
    message_id: TracedId,
    topic: OfTopic = None,
    trace_topic: TraceTopic = TRACE_TOPIC,
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Show what happened to a message: sent, delivered, retried. Its clients must trace."""
    show_trace(message_id, topic, trace_topic, namesrv, profile, json=json)


def show_trace(
    message_id: str,
    topic: str | None,
    trace_topic: str,
    namesrv: str | None,
    profile: str | None = None,
    *,
    within: TimeRange | None = None,
    limit: int = TRACES_MAX,
    json: bool = False,
) -> None:
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = admin.messages.trace(message_id, topic, trace_topic, within, count_max=limit)

    def for_people() -> None:
        _draw(found)
        note_failures(found.failed)

    out.show(journey_document(found), for_people)


def _draw(journey: Journey) -> None:
    about = [f"of {journey.topic}"] if journey.topic else []
    about += [f"tag {journey.tags}"] if journey.tags else []
    about += [f"keys {' '.join(journey.keys)}"] if journey.keys else []
    lines = _lines(journey)
    if not sys.stdout.isatty():
        typer.echo(safe(f"Message {journey.message_id} {', '.join(about)}".rstrip()))
        for moment, pause, step in lines:
            typer.echo(safe(f"{moment}  {pause:>9}  {_words(step)}"))
        return
    text = import_module("rich.text").Text
    shown = text.assemble(
        ("Message ", ""), (safe(journey.message_id), "bold"), " ", safe(", ".join(about)), "\n"
    )
    for moment, pause, step in lines:
        style = _COLORS[_outcome(step)]
        mark, words = _MARKS[_outcome(step)], safe(_words(step))
        shown.append_text(
            text.assemble((moment, "dim"), f"  {pause:>9}  ", (mark, style), " ", (words, style), "\n")
        )
    import_module("rich.console").Console(highlight=False).print(shown, end="", soft_wrap=True)


def _outcome(step: JourneyStep) -> bool | None:
    if step.kind is StepKind.END:
        return {"COMMIT_MESSAGE": True, "ROLLBACK_MESSAGE": False}.get(step.detail or "")
    return False if step.kind is StepKind.DEAD_LETTER else step.success


def _lines(journey: Journey) -> list[tuple[str, str, JourneyStep]]:
    """The time of each step, and how long after the step before it."""
    lines = []
    before_ms: int | None = None
    for step in journey.steps:
        pause = "" if before_ms is None else f"+{_span(step.at_ms - before_ms)}"
        lines.append((local(step.at_ms), pause, step))
        before_ms = step.at_ms
    return lines


def _span(span_ms: int) -> str:
    if span_ms < 1000:
        return f"{span_ms} ms"
    return f"{span_ms / 1000:.1f} s" if span_ms < 100_000 else f"{span_ms // 60_000} min"


def _words(step: JourneyStep) -> str:
    by = f"{step.group} ({step.client})" if step.client else step.group
    took = "" if step.took_ms is None else f"{step.took_ms} ms"
    match step.kind:
        case StepKind.SEND | StepKind.HALF:
            verb = "prepared" if step.kind is StepKind.HALF else "sent"
            size = count(step.body_size or 0, "byte")
            later = ", to be delivered later" if step.detail == "DELAY" else ""
            if step.success:
                return f"{verb} by {by} to {step.broker} in {took}, {size}{later}"
            return f"not {verb} by {by}: {step.broker or 'no broker'} did not store it safely, after {took}"
        case StepKind.DELIVERY:
            return f"delivered to {by}{_attempt(step)}: {_ended(step, took)}"
        case StepKind.END:
            asked = ", as the broker asked" if step.from_check else ""
            return f"transaction of {by} {_ENDS.get(step.detail or '', step.detail)}{asked}"
        case StepKind.RECALL:
            return f"cancelled by {by}" if step.success else f"could not be cancelled by {by}"
        case StepKind.DEAD_LETTER:
            return f"dead letter of {step.group} at {step.broker}"


def _attempt(step: JourneyStep) -> str:
    return "" if step.attempt is None else f", attempt {step.attempt}"


def _ended(step: JourneyStep, took: str) -> str:
    if step.success is None:
        return "no end recorded yet"
    if step.success:
        return f"ok after {took}"
    return f"failed after {took} ({_CODES.get(step.detail or '', step.detail)})"
