"""`flaremq dlq`: dead letters, the messages that a group could not consume."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer

from flaremq.admin.documents import failures_document, message_document
from flaremq.admin.sync import Admin
from flaremq.admin.values.deadletters import DeadLetter, LetterFilter, LetterSummary
from flaremq.admin.values.messages import TimeRange
from flaremq.admin.values.outcome import Failed
from flaremq.base.errors import ConfigError, GroupNotFound, Incomplete
from flaremq.base.files import replace_whole
from flaremq.base.text import count
from flaremq.base.units import parse_span_ms
from flaremq.cli.connect import connected, note_failures
from flaremq.cli.names import group_names, topic_names
from flaremq.cli.options import DryRun, GroupName, Json, Namesrv, Profile, Yes
from flaremq.cli.render import BadValue, Output, confirm, dumps, note, worded_error
from flaremq.cli.sightings import look_around, missing_documents, note_missing
from flaremq.cli.times import local

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Dead letters: messages that a group could not consume."
)

_NOT_ALL: Final = 1
_FAILURES_SHOWN: Final = 5
_REASONS_SHOWN: Final = 5

OfGroup = Annotated[
    str | None,
    typer.Option("-g", "--group", metavar="GROUP", help="Only of this group.", autocompletion=group_names),
]
Reason = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Only those whose reason contains this text."),
]
OlderThan = Annotated[
    str | None,
    typer.Option("--older-than", metavar="SPAN", help="Only those dead for longer than this: 10m, 48h, 3d."),
]
NewerThan = Annotated[
    str | None,
    typer.Option("--newer-than", metavar="SPAN", help="Only those dead for less than this: 10m, 48h, 3d."),
]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="At most this number, the oldest first.")
]


@app.command("list")
def list_letters(
    group: OfGroup = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """List the groups that have dead letters, with their number, age and reasons.

    Numbers in reasons are shown as #, so that reasons of the same kind are counted together. Dead letters
    that were resent or purged are not listed.
    """
    out, chosen = Output(json), _filter(group, reason, older_than, newer_than)
    with connected(namesrv, profile) as admin:
        found = admin.dead_letters.list(chosen)
        if not found and not found.failed:
            _check_group(admin, group)
        missing = look_around(admin)

    def for_people() -> None:
        rows = [row for each in found for row in _rows(each)]
        heads = ("group", ">count", "oldest", "newest", ">of them", "reason")
        out.table(heads, rows, empty="No dead letters found.")
        note_failures(found.failed)
        note_missing(missing)

    document = {
        "groups": [each.document() for each in found],
        "failed": failures_document(found.failed),
        "missing": missing_documents(missing),
    }
    out.show(document, for_people)


def _rows(summary: LetterSummary) -> Iterable[tuple[object, ...]]:
    """A line for each of the most frequent reasons; the first one has the facts about the group."""
    head: tuple[object, ...] = (
        *(summary.group, summary.count),
        *(local(summary.oldest_ms), local(summary.newest_ms)),
    )
    reasons = list(summary.reasons.items())
    for reason, times in reasons[:_REASONS_SHOWN]:
        yield (*head, times, reason)
        head = ("", "", "", "")
    if len(reasons) > _REASONS_SHOWN:
        rest = reasons[_REASONS_SHOWN:]
        yield (*head, sum(times for _, times in rest), f"({count(len(rest), 'other reason')})")


@app.command("show")
def show_letters(
    group: GroupName,
    reason: Reason = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="At most this number, the oldest first.")
    ] = 100,
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Show the dead letters of a group: where they came from, and why they failed."""
    out, chosen = Output(json), _filter(group, reason, older_than, newer_than, limit)
    with connected(namesrv, profile) as admin:
        letters, failed = _read(admin, chosen)
        missing = look_around(admin)

    def for_people() -> None:
        rows = [
            (
                *(local(each.message.stored_ms), each.origin_topic, each.message.message_id),
                *(" ".join(each.message.keys), each.attempts, _reason(each)),
            )
            for each in letters
        ]
        heads = ("died", "topic", "id", "keys", ">attempts", "reason")
        out.table(heads, rows, empty=f"Group {group} has no such dead letters.")
        if len(letters) == limit:
            note(f"these are the first {limit:,}: --limit shows more")
        note_failures(failed)
        note_missing(missing)

    document = {
        "group": group,
        "letters": [_document(each) for each in letters],
        "failed": failures_document(failed),
        "missing": missing_documents(missing),
    }
    out.show(document, for_people)


@app.command("resend")
def resend(
    group: GroupName,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TOPIC",
            help="Send to this topic. Default: the topic of each message.",
            autocompletion=topic_names,
        ),
    ] = None,
    to_group: Annotated[
        bool, typer.Option("--to-group", help="Send to the group alone, so that no other group gets them.")
    ] = False,
    reason: Reason = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Limit = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Send dead letters again, to the topics that they came from.

    Every group of such a topic gets them, not only the one that failed; --to-group avoids that. A message
    keeps its id, keys, tags and properties. What was resent is no longer listed and not resent again; if the
    command is killed, the next one may resend up to 32 messages a second time.
    """
    out, chosen = Output(json), _filter(group, reason, older_than, newer_than, limit)
    if to is not None and to_group:
        raise BadValue("got --to and --to-group: give only one of them")
    with connected(namesrv, profile) as admin:
        number = _number(admin, chosen)
        origin = "the topic it came from" if number == 1 else "the topics they came from"
        where = "that group alone" if to_group else origin if to is None else f"topic {to}"
        what = f"resend {count(number, 'dead letter')} of group {group} to {where}"
        if dry_run or not number:
            _nothing_done(out, group, what, number, dry_run)
            return
        confirm(f"This would {what}", yes)
        done = admin.dead_letters.resend(chosen, to=to, to_group=to_group)
    facts = {
        "group": group,
        "resent": done.sent,
        "failed": failures_document(done.failed),
    }
    out.done(f"{count(done.sent, 'dead letter')} of group {group} resent.", **facts)
    if done.failed:
        for message_id, error in list(done.failed.items())[:_FAILURES_SHOWN]:
            note(f"not resent: {message_id}: {worded_error(error)}")
        rest = len(done.failed) - _FAILURES_SHOWN
        if rest > 0:
            note(f"not resent: {count(rest, 'other')}")
        if done.is_cut_short:
            note("the rest was not tried, because too many failed")
        raise typer.Exit(_NOT_ALL)


@app.command("export")
def export(
    group: GroupName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, one JSON document per line.")],
    reason: Reason = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Limit = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Write dead letters to a file, with bodies and properties. They stay listed.

    The file appears when it is complete. A UTF-8 body is text, any other is base64; body_encoding says which.
    """
    out, chosen = Output(json), _filter(group, reason, older_than, newer_than, limit)
    with connected(namesrv, profile) as admin:
        if dry_run:
            number = _number(admin, chosen)
            _nothing_done(out, group, f"write {count(number, 'dead letter')} to {file}", number, dry_run)
            return
        if file.exists():
            confirm(f"This would replace {file}", yes)
        lines = [dumps(_document(each)) + "\n" for each in admin.dead_letters.scan(chosen)]
        if not lines:
            _check_group(admin, group)
    replace_whole(file, "".join(lines).encode())
    out.done(f"{count(len(lines), 'dead letter')} written to {file}.", file=str(file), written=len(lines))


@app.command("purge")
def purge(
    group: GroupName,
    reason: Reason = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Limit = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Put dead letters away for good: they are no longer listed, resent or exported.

    A log cannot delete single messages. Their bytes stay in the topic %DLQ%GROUP until the broker deletes its
    old files (fileReservedTime).
    """
    out, chosen = Output(json), _filter(group, reason, older_than, newer_than, limit)
    with connected(namesrv, profile) as admin:
        number = _number(admin, chosen)
        what = f"purge {count(number, 'dead letter')} of group {group}"
        if dry_run or not number:
            _nothing_done(out, group, what, number, dry_run)
            return
        confirm(f"This would {what}", yes)
        done = admin.dead_letters.purge(chosen)
    out.done(f"{count(done, 'dead letter')} of group {group} purged.", group=group, purged=done)


# Helpers.


def _filter(
    group: str | None,
    reason: str | None,
    older_than: str | None,
    newer_than: str | None,
    limit: int | None = None,
) -> LetterFilter:
    now_ms = time.time_ns() // 1_000_000
    usual = TimeRange()
    begin_ms = usual.begin_ms if newer_than is None else now_ms - _span_ms("--newer-than", newer_than)
    end_ms = usual.end_ms if older_than is None else now_ms - _span_ms("--older-than", older_than)
    if begin_ms > end_ms:
        raise BadValue(
            f"--newer-than {newer_than} and --older-than {older_than} exclude each other: "
            "expected the longer span for --newer-than"
        )
    within = TimeRange(max(0, begin_ms), max(0, end_ms))
    return LetterFilter(group=group, reason=reason, within=within, limit=limit)


def _span_ms(option: str, text: str) -> int:
    try:
        return parse_span_ms(text)
    except ConfigError as error:
        raise BadValue(f"{option}: {error}") from None


def _read(admin: Admin, chosen: LetterFilter) -> tuple[list[DeadLetter], Failed]:
    """Those of the brokers that answer, and which of them do not."""
    letters: list[DeadLetter] = []
    try:
        letters.extend(admin.dead_letters.scan(chosen))
    except Incomplete as error:
        return letters, error.failed
    if not letters:
        _check_group(admin, chosen.group)
    return letters, {}


def _number(admin: Admin, chosen: LetterFilter) -> int:
    """How many are chosen now. Raises if not all brokers can say."""
    found = admin.dead_letters.list(chosen)
    for error in found.failed.values():
        raise error
    number = sum(each.count for each in found)
    if not number:
        _check_group(admin, chosen.group)
    return number


def _check_group(admin: Admin, group: str | None) -> None:
    """A group without dead letters is not the same as a wrong name."""
    if group is not None and not any(each.name == group for each in admin.groups.list()):
        raise GroupNotFound(f"no master knows group {group!r}, and it has no dead letters")


def _nothing_done(out: Output, group: str, what: str, number: int, dry_run: bool) -> None:
    if dry_run:
        out.would([what], group=group, count=number)
    else:
        out.done(f"Group {group} has no such dead letters.", group=group, count=0)


def _reason(letter: DeadLetter) -> str | None:
    return None if letter.failure is None else letter.failure.reason


def _document(letter: DeadLetter) -> dict[str, object]:
    stored = message_document(letter.message.stored, letter.message.broker)
    return {**letter.document(), **{name: stored[name] for name in ("properties", "body", "body_encoding")}}
