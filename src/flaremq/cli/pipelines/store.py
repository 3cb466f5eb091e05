"""`rebuild` and `audit`: commands on the files of a store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flaremq.base.localpath import local_path
from flaremq.base.text import count, size
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
    Path, typer.Argument(metavar="STORE", help="Folder of a store: the broker's storePathRootDir.")
]
LogPath = Annotated[
    list[Path] | None,
    typer.Option(
        "--log-path", metavar="DIR", help="Folder of its commitlog, if it is elsewhere; repeatable."
    ),
]
QueueFileSize = Annotated[
    str | None,
    typer.Option(
        "--queue-file-size",
        metavar="BYTES",
        help="The broker's mappedFileSizeConsumeQueue, if changed.",
    ),
]
IndexSlots = Annotated[
    int | None,
    typer.Option("--index-slots", min=1, metavar="N", help="The broker's maxHashSlotNum, if changed."),
]
IndexEntries = Annotated[
    int | None,
    typer.Option("--index-entries", min=2, metavar="N", help="The broker's maxIndexNum, if changed."),
]


def rebuild(
    store: Store,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="DIR", help="Write to this folder (default: replace the folders of the store)."
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
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Rebuild the queues and the index of a store from its commit log.

    The result is byte for byte what the broker would write. The old folders are kept next to the
    new ones, under another name.
    """
    if to is None:
        confirm(
            f"this replaces the folders consumequeue and index of {store} and keeps the old ones under "
            "another name",
            yes,
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
        typer.Argument(
            metavar="STORE2", help="Another store whose log must be the same: a slave's, or a copy."
        ),
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option("--archive", metavar="DIR", help="Archive that must hold the same messages."),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option("--broker", metavar="NAME", help="Broker of the store, if the archive has several."),
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
    """Check everything in a store, also while its broker runs. Exits with status 1 if anything deviates.

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
    """Check before Spark starts, so that a wrong name is reported at once."""
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
            (
                "took",
                f"{done.seconds:.1f} s, {done.records / max(done.seconds, 1e-9):,.0f} records per second",
            ),
        ]
    )
    for number, what, how in (
        (done.repeated, "record", "with the queue position of another record, left out"),
        (done.missing, "queue position", "without a record, filled: consumers skip them"),
        (done.light, "record", "with more queues (INNER_MULTI_DISPATCH), which were not rebuilt"),
        (done.batches, "record", "with several messages; batch queues were not rebuilt"),
        (done.deleted, "record", "of deleted topics, which got no queue"),
    ):
        if number:
            note(f"{count(number, what)} {how}")
    for path in done.kept:
        note(f"the old folder is {path}")


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
        ("took", f"{found.seconds:.1f} s, {found.records / max(found.seconds, 1e-9):,.0f} records per second")
    )
    facts.append(("deviations", f"{found.found:,}" if found.found else "none"))
    out.facts(facts)
    for sentence in found.findings[:_SHOWN]:
        typer.echo(f"  {sentence}")
    if found.found > _SHOWN:
        typer.echo(f"  and {found.found - _SHOWN:,} more: --json has the first {len(found.findings):,}")
    for sentence in found.notes:
        note(sentence)
