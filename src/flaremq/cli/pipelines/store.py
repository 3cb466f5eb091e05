"""`rebuild` and `audit`: what is done with the files of a store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flaremq.base.localpath import local_path
from flaremq.base.text import size
from flaremq.base.units import parse_size
from flaremq.cli.options import Json, Yes
from flaremq.cli.pipelines.spark import (
    Conf,
    Master,
    PythonEnv,
    Ship,
    Tasks,
    Ui,
    Where,
    check_installed,
    spark_for,
    watched,
)  # fmt: skip
from flaremq.cli.render import Output, confirm, note

if TYPE_CHECKING:
    from flaremq.arrow.storefolder import ArrowStore
    from flaremq.spark.pipelines.store.audit import Audit
    from flaremq.spark.pipelines.store.rebuild import FileShape, Rebuilt

_SHOWN: int = 50

Store = Annotated[
    Path, typer.Argument(metavar="STORE", help="The folder of a store: storePathRootDir of its broker.")
]
LogPath = Annotated[
    list[Path] | None,
    typer.Option(
        "--log-path", metavar="DIR", help="Where its commitlog lies, if not in it. May be repeated."
    ),
]
QueueFileSize = Annotated[
    str | None,
    typer.Option(
        "--queue-file-size",
        metavar="BYTES",
        help="mappedFileSizeConsumeQueue of the broker, if it was changed.",
    ),
]
IndexSlots = Annotated[
    int | None,
    typer.Option(
        "--index-slots", min=1, metavar="N", help="maxHashSlotNum of the broker, if it was changed."
    ),
]
IndexEntries = Annotated[
    int | None,
    typer.Option("--index-entries", min=2, metavar="N", help="maxIndexNum of the broker, if it was changed."),
]


def rebuild(
    store: Store,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Write there. Without it the store gets new folders."),
    ] = None,
    log_path: LogPath = None,
    queue_file_size: QueueFileSize = None,
    index_slots: IndexSlots = None,
    index_entries: IndexEntries = None,
    tasks: Tasks = None,
    master: Master = "local[*]",
    conf: Conf = None,
    ui: Ui = False,
    ship: Ship = False,
    python_env: PythonEnv = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Make the queues and the index of a store anew from its commit log.

    They are, byte for byte, what the broker would have made. The folders that were there are kept beside the
    new ones, under another name.
    """
    if to is None:
        confirm(
            f"the folders consumequeue and index of {store} are replaced, and kept under another name", yes
        )
    check_installed()
    folder, to = _folder(store, log_path), None if to is None else local_path(to)
    with spark_for(Where(master, conf or [], ui, ship, python_env), "rebuild") as spark:
        from flaremq.spark.pipelines.store import rebuild as rebuilding

        shape = _shape(rebuilding.shape_of(folder.root), queue_file_size, index_slots, index_entries)
        with watched(spark, "rebuilding"):
            done = rebuilding.rebuild(spark, folder, to, shape=shape, tasks=tasks)
    out = Output(json)
    out.show(asdict(done), lambda: _show_rebuilt(done, out))


def audit(
    store: Store,
    other: Annotated[
        Path | None,
        typer.Argument(metavar="STORE2", help="Another store whose log must be the same: its slave, a copy."),
    ] = None,
    archive: Annotated[
        Path | None, typer.Option("--archive", metavar="DIR", help="An archive that must hold the same.")
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker", metavar="NAME", help="Whose store it is, if the archive has several brokers'."
        ),
    ] = None,
    log_path: LogPath = None,
    queue_file_size: QueueFileSize = None,
    index_slots: IndexSlots = None,
    index_entries: IndexEntries = None,
    tasks: Tasks = None,
    master: Master = "local[*]",
    conf: Conf = None,
    ui: Ui = False,
    ship: Ship = False,
    python_env: PythonEnv = None,
    json: Json = False,
) -> None:
    """Prove what a store holds, beside its running broker too. Ends with status 1 if anything deviates.

    Every record's CRC, lengths and offset; queue offsets without gaps; each queue entry at its record and
    each record with its entry; each key found in the index; two logs equal, byte by byte; each message once
    in the archive, as it is in the store.
    """
    check_installed()
    folder = _folder(store, log_path)
    if other is not None:
        _folder(other, None)
    if archive is not None:
        from flaremq.spark.archive.identity import known_identity

        known_identity(archive)
    with spark_for(Where(master, conf or [], ui, ship, python_env), "audit") as spark:
        from flaremq.spark.pipelines.store import audit as auditing
        from flaremq.spark.pipelines.store.rebuild import shape_of

        shape = _shape(shape_of(folder.root), queue_file_size, index_slots, index_entries)
        with watched(spark, "auditing") as counted:
            against = None if archive is None else auditing.AuditedArchive(archive, broker)
            found = auditing.audit(
                spark, folder, other, against=against, shape=shape, tasks=tasks, counted=counted
            )
    out = Output(json)
    out.show({**asdict(found), "is_sound": found.is_sound}, lambda: _show_audit(found, out))
    if not found.is_sound:
        raise typer.Exit(1)


def _folder(root: Path, logs: list[Path] | None) -> ArrowStore:
    """Looked at before Spark is started: nobody likes to wait for being told of a wrong name."""
    from flaremq.arrow.storefolder import ArrowStore

    folder = ArrowStore(local_path(root), tuple(local_path(path) for path in logs or ()))
    folder.check()
    return folder


def _shape(
    usual: FileShape, queue_file_size: str | None, slots: int | None, entries: int | None
) -> FileShape:
    return type(usual)(
        usual.queue_file_size if queue_file_size is None else parse_size(queue_file_size),
        slots or usual.index_slots,
        entries or usual.index_entries,
    )


def _show_rebuilt(done: Rebuilt, out: Output) -> None:
    out.facts(
        [
            ("written to", done.folder),
            ("records", f"{done.records:,} ({size(done.bytes)})"),
            ("queues", f"{done.queues:,} in {done.queue_files:,} files"),
            ("index", f"{done.index_entries:,} entries in {done.index_files:,} files"),
            ("took", f"{done.seconds:.1f} s, {done.records / max(done.seconds, 1e-9):,.0f} records a second"),
        ]
    )
    for count, what in (
        (done.repeated, "records have a place in their queue that another one has, and were left out"),
        (done.missing, "places in queues have no record; they are filled, and nobody is sent there"),
        (done.light, "records name further queues (INNER_MULTI_DISPATCH), which were not made"),
        (done.batches, "records hold several messages; batch queues were not made"),
        (done.deleted, "records are of deleted topics, and were given no queue"),
    ):
        if count:
            note(f"{count:,} {what}")
    for path in done.kept:
        note(f"what was there before is {path}")


def _show_audit(found: Audit, out: Output) -> None:
    facts: list[tuple[str, object]] = [
        ("store", found.store),
        ("records", f"{found.records:,} ({size(found.bytes)})"),
        ("queues", f"{found.queues:,} in {found.queue_files:,} files"),
        ("index", f"{found.index_keys:,} keys in {found.index_files:,} files"),
    ]
    if found.compared_bytes:
        facts.append(("compared", f"{size(found.compared_bytes)} of the log with the other store"))
    if found.archived:
        facts.append(("compared", f"{found.archived:,} messages of the archive"))
    facts.append(
        ("took", f"{found.seconds:.1f} s, {found.records / max(found.seconds, 1e-9):,.0f} records a second")
    )
    facts.append(("deviations", f"{found.found:,}" if found.found else "none"))
    out.facts(facts)
    for sentence in found.findings[:_SHOWN]:
        typer.echo(f"  {sentence}")
    if found.found > _SHOWN:
        typer.echo(f"  and {found.found - _SHOWN:,} more: --json has the first {len(found.findings):,}")
    for sentence in found.notes:
        note(sentence)
