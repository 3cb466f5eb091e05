"""`flaremq transaction`: transactions that have not ended."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from flaremq.admin.documents import failures_document, message_document
from flaremq.admin.values.transactions import HalfState
from flaremq.base.text import span
from flaremq.cli.connect import connected, note_failures
from flaremq.cli.messages.message import body_text
from flaremq.cli.options import DryRun, Json, Namesrv, Profile, Yes
from flaremq.cli.render import Output, confirm, dumps
from flaremq.cli.sightings import look_around, missing_documents, note_missing
from flaremq.cli.times import local

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Transactions that have not ended: list and decide."
)

TransactionId = Annotated[
    str, typer.Argument(metavar="ID", help="Message id or offset id, as `flaremq transaction list` shows it.")
]


@app.command("list")
def list_transactions(
    parked: Annotated[bool, typer.Option("--parked", help="Only parked ones.")] = False,
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """List transactions that are neither committed nor rolled back.

    Producers are being asked about an open one. A parked one was asked about too often, and waits for you. An
    Apache RocketMQ broker notes ends every three seconds, one of 4.9 with the next check, and shows ended
    transactions as open until then.
    """
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = admin.transactions.list(HalfState.PARKED if parked else None)
        missing = look_around(admin)
    now_ms = time.time_ns() // 1_000_000

    def for_people() -> None:
        rows = [
            (
                *(each.state.value, each.message_id, each.topic, " ".join(each.message.keys), each.group),
                *(each.checks, span(max(0, now_ms - each.message.born_ms))),
            )
            for each in found
        ]
        heads = ("state", "id", "topic", "keys", "producers", ">checks", ">age")
        empty = "No transactions are parked." if parked else "No transactions are open or parked."
        out.table(heads, rows, empty=empty)
        note_failures(found.failed)
        note_missing(missing)

    document = {
        "transactions": [each.document() for each in found],
        "failed": failures_document(found.failed),
        "missing": missing_documents(missing),
    }
    out.show(document, for_people)


@app.command("show")
def show_transaction(
    message_id: TransactionId, namesrv: Namesrv = None, profile: Profile = None, json: Json = False
) -> None:
    """Show a transaction and its message."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = admin.transactions.get(message_id)
    message = found.message

    def for_people() -> None:
        out.facts(
            [
                ("State", found.state.value),
                ("Topic", found.topic),
                ("Id", found.message_id),
                ("Producers", found.group),
                ("Checks", found.checks),
                ("Broker", message.broker),
                ("Offset id", message.offset_id),
                ("Tags", message.tags),
                ("Keys", " ".join(message.keys) or None),
                ("Born", f"{local(message.born_ms)} at {message.stored.born_host}"),
                ("Stored", local(message.stored_ms)),
                ("Properties", dumps(dict(message.properties))),
                ("Body", body_text(message, None)),
            ]
        )

    stored = message_document(message.stored, message.broker)
    rest = {name: stored[name] for name in ("properties", "body", "body_encoding")}
    out.show({**found.document(), **rest}, for_people)


@app.command("commit")
def commit(
    message_id: TransactionId,
    namesrv: Namesrv = None,
    profile: Profile = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Deliver the message of a parked transaction. It comes once, however often you commit it."""
    _decide(message_id, namesrv, profile, yes, dry_run, json, committed=True)


@app.command("rollback")
def rollback(
    message_id: TransactionId,
    namesrv: Namesrv = None,
    profile: Profile = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Withdraw the message of a parked transaction: it is never delivered."""
    _decide(message_id, namesrv, profile, yes, dry_run, json, committed=False)


@app.command("resume")
def resume(
    message_id: TransactionId,
    namesrv: Namesrv = None,
    profile: Profile = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Have the producers of a parked transaction asked again, as RocketMQ's resumeCheckHalfMessage does."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        if dry_run:
            half = admin.transactions.get(message_id)
            out.would(
                [f"ask producers {half.group} again about {half.message_id}"], message_id=half.message_id
            )
            return
        admin.transactions.resume(message_id)
    out.done(f"Producers are asked again about transaction {message_id}.", message_id=message_id)


def _decide(
    message_id: str,
    namesrv: str | None,
    profile: str | None,
    yes: bool,
    dry_run: bool,
    json: bool,
    *,
    committed: bool,
) -> None:
    out = Output(json)
    verb, done = ("commit", "committed") if committed else ("roll back", "rolled back")
    with connected(namesrv, profile) as admin:
        if dry_run:
            half = admin.transactions.get(message_id)
            out.would([f"{verb} transaction {half.message_id} for {half.topic}"], message_id=half.message_id)
            return
        effect = "deliver its message" if committed else "withdraw its message for good"
        confirm(f"This would {verb} transaction {message_id} and {effect}", yes)
        decide = admin.transactions.commit if committed else admin.transactions.roll_back
        is_new = decide(message_id)
    sentence = (
        f"Transaction {message_id} is {done}." if is_new else f"Transaction {message_id} was {done} before."
    )
    out.done(sentence, message_id=message_id, outcome=done, changed=is_new)
