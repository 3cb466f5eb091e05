"""`flaremq store`: look into a store folder, even while its broker runs, or convert one. Read-only."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from flaremq.admin.documents import message_document
from flaremq.base.localpath import local_path
from flaremq.base.settings import load
from flaremq.base.sources import Sources
from flaremq.base.text import count, size
from flaremq.cli.options import Json
from flaremq.cli.render import Output, ProgressBar, dumps, note
from flaremq.cli.times import local, parse_time_ms
from flaremq.dledger.convert import Conversion, Converted, StoreKind, converted_document
from flaremq.protocol.configfiles import deleted_topics
from flaremq.store.offline.documents import facts_document, report_document
from flaremq.store.offline.export import ExportFilter, by_log, by_queue
from flaremq.store.offline.folder import OfflineStore, StoreFacts, file_sizes
from flaremq.store.offline.report import VerifyReport
from flaremq.store.offline.verify import Verifier
from flaremq.store.settings import StoreSettings

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Inspect, verify and export a store folder, or convert it into another. Nothing in it is changed.",
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="storePathRootDir of the broker.")]


@app.command("inspect")
def inspect(folder: Folder, json: Json = False) -> None:
    """Show files, offsets, queues, index and checkpoint."""
    facts, out = OfflineStore(folder).facts(), Output(json)
    out.show(facts_document(facts), lambda: _show_facts(facts, out))


@app.command("verify")
def verify(
    folder: Folder,
    index: Annotated[bool, typer.Option("--index/--no-index", help="Check index files too.")] = True,
    json: Json = False,
) -> None:
    """Check every record, queue entry and index entry. Exit status 1 if anything is wrong."""
    store, out = OfflineStore(folder), Output(json)
    total = sum(file.size for file in store.scan.log_files())
    with ProgressBar("verifying", total) as progress:
        verifier = Verifier(store, progress.at, deleted=deleted_topics(store.root))
        report = verifier.run(with_index=index)
    out.show(report_document(folder, report), lambda: _show_report(folder, report, out))
    if not report.is_sound:
        raise typer.Exit(1)


@app.command("export")
def export(
    folder: Folder,
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", help="Topic. Default: all topics, in log order.")
    ] = None,
    queue: Annotated[int | None, typer.Option("-q", "--queue", min=0, help="Queue id.")] = None,
    from_offset: Annotated[int, typer.Option("--from-offset", min=0, help="Start offset in the queue.")] = 0,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, help="End offset in the queue (exclusive).")
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Earliest store time: 10m (ago), 12:30, 2024-05-01 ..."),
    ] = None,
    to_time: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Latest store time.")] = None,
    key: Annotated[str | None, typer.Option("-k", "--key", help="Message key or message id.")] = None,
    by_log_order: Annotated[
        bool,
        typer.Option("--by-log", help="Read the log instead of queues; also finds messages without a queue."),
    ] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Maximum number of messages.")] = None,
) -> None:
    """Print messages as JSON, one per line.

    A UTF-8 body is text, any other is base64; body_encoding says which.
    """
    times: dict[str, Any] = {}
    if from_time is not None:
        times["begin_ms"] = parse_time_ms(from_time)
    if to_time is not None:
        times["end_ms"] = parse_time_ms(to_time)
    wanted = ExportFilter(topic=topic, queue_id=queue, begin=from_offset, end=to_offset, key=key, **times)
    store = OfflineStore(folder)
    total = sum(file.size for file in store.scan.log_files())
    with ProgressBar("exporting", total) as progress:
        if by_log_order or topic is None:
            found = by_log(store, wanted, progress.at)
        else:
            found = by_queue(store, wanted, _note_damage)
        for number, message in enumerate(found, 1):
            sys.stdout.write(dumps(message_document(message)) + "\n")
            if number == limit:
                break
    sys.stdout.flush()


@app.command("convert")
def convert(
    folder: Folder,
    to: Annotated[
        StoreKind,
        typer.Option("--to", help="The other kind: a ledger of DLedger, or plain commit log files."),
    ],
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="DIR", help="New folder. Default: FOLDER.dledger or FOLDER.plain."),
    ] = None,
    self_id: Annotated[
        str, typer.Option("--self-id", metavar="ID", help="dLegerSelfId of the member that will open it.")
    ] = "n0",
    config: Annotated[
        Path | None,
        typer.Option(
            "-c",
            "--config",
            metavar="FILE",
            help="The broker's settings file, if it changes store options.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Convert the store of a stopped broker into a DLedger store, or back. Works for RocketMQ's, too.

    Every message keeps its keys, ids, times and queue offset; only ids made of a physical offset change.
    Every record and its queue entry are compared with the original. If it is interrupted,
    run the same command again.
    """
    source = local_path(folder)
    target = local_path(into) if into is not None else source.with_name(f"{source.name}.{to.value}")
    settings = _settings_of(source, config)
    out, began_s = Output(json), time.monotonic()
    total = sum(file.size for file in OfflineStore(source).scan.log_files())
    with ProgressBar("copying", total) as progress:
        done = Conversion(source, target, to, settings, self_id=self_id, progress=progress.show).run()
    took_s = time.monotonic() - began_s
    out.show(converted_document(done, took_s), lambda: _show_converted(done, took_s))


def _settings_of(source: Path, config: Path | None) -> StoreSettings:
    """The options that say how a broker makes queues and index; without a file, as far as its files show."""
    if config is not None:
        from flaremq.servers.config import load_broker  # It knows all of a broker, and loads it.

        return load_broker(config, os.environ, ()).store
    sizes = {name: each for name, each in file_sizes(source).items() if name != "mappedFileSizeCommitLog"}
    (found,) = load(Sources.of(None, {}, [f"{name}={each}" for name, each in sizes.items()]), StoreSettings)
    return found


def _show_converted(done: Converted, took_s: float) -> None:
    for sentence in done.notes:
        note(sentence)
    speed = size(int(done.bytes / max(took_s, 0.001)))
    typer.echo(
        f"{done.target} holds {count(done.records, 'record')} ({size(done.bytes)}), each compared with the "
        f"original. It took {took_s:.1f} s, {speed}/s."
    )


def _note_damage(sentence: str) -> None:
    note(f"{sentence}; `flaremq store verify` says why, and --by-log reads past the damage")


def _show_facts(facts: StoreFacts, out: Output) -> None:
    if facts.holder is not None:
        held = f"by process {facts.holder}" if facts.holder else "by another process"
    else:
        held = "by no process" + (", but the last stop was not clean" if facts.has_abort else "")
    checkpoint = facts.checkpoint
    rows: list[tuple[str, object]] = [
        ("Folder", facts.root),
        ("Held", held),
        ("Log", f"offsets {facts.log_begin} to {facts.log_end}, {count(len(facts.log_files), 'file')}"),
        ("", f"{size(facts.log_end - facts.log_begin)} of messages in {size(facts.log_bytes)} of files"),
        ("Stored", f"{local(facts.first_ms)} to {local(facts.last_ms)}"),
    ]
    if checkpoint is not None:
        rows += [("Safe", f"log {local(checkpoint.log_time_ms)}, queues {local(checkpoint.queue_time_ms)}")]
    out.facts(rows)
    typer.echo()
    out.table(
        (">offset", ">size", "log file"),
        [(file.offset, size(file.size), file.path) for file in facts.log_files],
    )
    typer.echo()
    out.table(
        ("topic", ">queue", ">min offset", ">max offset", ">files", ">size"),
        [(q.topic, q.queue_id, q.min_offset, q.max_offset, q.files, size(q.bytes)) for q in facts.queues],
    )
    if facts.index:
        typer.echo()
        out.table(
            ("index file", ">entries", "begin", "end"),
            [
                (i.path.name, i.header.next_entry - 1, local(i.header.begin_ms), local(i.header.end_ms))
                for i in facts.index
            ],
        )
    for sentence in facts.odd:
        note(sentence)


def _show_report(folder: Path, report: VerifyReport, out: Output) -> None:
    rows = [("wrong", problem) for problem in report.problems] + [("note", each) for each in report.notes]
    if rows:
        out.table(("", "what"), rows)
    read = (
        f"{count(report.records, 'record')} ({size(report.bytes)}), "
        f"{count(report.entries, 'queue entry', 'queue entries')} and "
        f"{count(report.index_entries, 'index entry', 'index entries')} were read"
    )
    if report.is_sound:
        typer.echo(f"{folder} is sound: {read}.")
    else:
        typer.echo(f"{folder} is damaged in {count(report.problems_count, 'place')}: {read}.")
