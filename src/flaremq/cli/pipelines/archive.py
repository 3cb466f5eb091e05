"""`archive`, `compact` and `replay`: topics to files, and files to topics."""

from __future__ import annotations

import signal
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flaremq.base.text import size
from flaremq.base.units import parse_size, parse_span_ms
from flaremq.cli.connect import client_settings, pairs_of
from flaremq.cli.options import DryRun, Json, Namesrv, Profile
from flaremq.cli.pipelines.progress import QueryStatus
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
)
from flaremq.cli.render import Output, note
from flaremq.cli.times import local, parse_time_ms

if TYPE_CHECKING:
    from flaremq.spark.pipelines.archive import Archived, RunningArchive
    from flaremq.spark.pipelines.replay import Replayed

_LOOK_S = 0.5

Topics = Annotated[
    list[str] | None,
    typer.Option("-t", "--topic", metavar="TOPIC", help="Topic to archive; repeatable."),
]
From = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only messages stored at this time or later: 10m (ago), 12:30, 2024-05-01.",
    ),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Only messages stored before this time.")
]


def archive(
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder of the archive.")],
    topic: Topics = None,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="REGEX", help="Archive all topics whose whole name matches."),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", metavar="NAME", help="parquet, delta or iceberg.")
    ] = "parquet",
    once: Annotated[
        bool, typer.Option("--once", help="Archive what is there now, then end (default: run until Ctrl-C).")
    ] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="SPAN", help="Shortest time from one batch to the next.")
    ] = "10s",
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", metavar="GROUP", help="Consumer group that shows the progress."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            "--option",
            metavar="NAME=VALUE",
            help="Option of format rocketmq, for example tags=paid; repeatable.",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="Checkpoint folder (default: inside the archive)."),
    ] = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    master: Master = "local[*]",
    conf: Conf = None,
    ui: Ui = False,
    ship: Ship = False,
    python_env: PythonEnv = None,
    json: Json = False,
) -> None:
    """Write topics to Parquet, Delta or Iceberg, every message exactly once.

    Files are grouped by topic, and by day and hour (UTC) at which messages were stored. If a run is killed,
    the same command continues where it stopped.
    """
    check_installed()
    from flaremq.spark.pipelines import archive as archiving

    plan = archiving.ArchivePlan(
        namesrv=client_settings(namesrv, profile).namesrv,
        to=to,
        topics=tuple(topic or ()),
        pattern=pattern,
        format=format_,
        checkpoint=checkpoint,
        interval_s=parse_span_ms(every) / 1000,
        group=group,
        options=pairs_of(option, "--option"),
    )
    out = Output(json)
    archiving.check_plan(plan)
    with spark_for(Where(master, conf or [], ui, ship, python_env), "archive") as spark:
        if once:
            with watched(spark, "archiving"):
                done = archiving.run_archive(spark, plan)
        else:
            done = _until_interrupted(archiving.start_archive(spark, plan))
    out.show(asdict(done), lambda: _show_archived(done, out))


def _until_interrupted(running: RunningArchive) -> Archived:
    """Ctrl-C and SIGTERM end it cleanly; the next run repeats an unfinished batch."""
    stopping: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda got, _frame: stopping.append(got))
    note("archiving until Ctrl-C")
    try:
        with running, QueryStatus(running.query) as shown:
            while not running.wait(_LOOK_S) and not stopping:
                shown.look()
            return running.archived()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def compact(
    archive_: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of an archive.")],
    small: Annotated[
        str, typer.Option("--small", metavar="SIZE", help="Merge files below this size.")
    ] = "32MiB",
    target: Annotated[
        str, typer.Option("--target", metavar="SIZE", help="Size of the merged files.")
    ] = "128MiB",
    keep: Annotated[
        str,
        typer.Option("--keep", metavar="SPAN", help="How long to keep merged files for running readers."),
    ] = "1d",
    json: Json = False,
) -> None:
    """Merge the small files of an archive. Readers see every row exactly once meanwhile."""
    check_installed()
    from flaremq.spark.pipelines import compact as compacting

    done = compacting.compact(
        None,
        archive_,
        small_below=parse_size(small),
        target=parse_size(target),
        vacuum_after_s=parse_span_ms(keep) / 1000,
    )
    out = Output(json)
    facts: list[tuple[str, object]] = [
        ("files", f"{done.files:,} (before: {done.files_before:,})"),
        ("size", f"{size(done.size)} (before: {size(done.size_before)})"),
        ("rows", f"{done.rows:,}"),
        ("took", f"{done.seconds:.1f} s"),
    ]
    out.show(asdict(done), lambda: out.facts(facts))


def replay(
    from_: Annotated[
        Path, typer.Option("--from", metavar="DIR", help="Archive, or folder of Parquet files.")
    ],
    topic: Annotated[
        str | None,
        typer.Option("-t", "--topic", metavar="TOPIC", help="Target topic (default: the original one)."),
    ] = None,
    from_topic: Annotated[
        list[str] | None,
        typer.Option("--from-topic", metavar="TOPIC", help="Only messages of this topic; repeatable."),
    ] = None,
    since: From = None,
    until: Until = None,
    key: Annotated[
        str | None, typer.Option("-k", "--key", metavar="KEY", help="Only messages with this key.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Only rows for which this condition is true.")
    ] = None,
    rate: Annotated[
        int | None, typer.Option("--rate", min=1, metavar="N", help="At most this many messages per second.")
    ] = None,
    replay_id: Annotated[
        str | None,
        typer.Option("--id", metavar="NAME", help="A replay with the same name gives the same message ids."),
    ] = None,
    tasks: Tasks = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    conf: Conf = None,
    ui: Ui = False,
    ship: Ship = False,
    python_env: PythonEnv = None,
    json: Json = False,
) -> None:
    """Send archived messages again, in the order they had for each key.

    Properties of each message say where it came from: REPLAY_MSG_ID, REPLAY_TOPIC, REPLAY_QUEUE_OFFSET and
    others.
    """
    check_installed()
    from flaremq.spark.pipelines import replay as replaying

    plan = replaying.ReplayPlan(
        namesrv=client_settings(namesrv, profile).namesrv,
        topic=topic,
        from_topics=tuple(from_topic or ()),
        from_ms=None if since is None else parse_time_ms(since),
        until_ms=None if until is None else parse_time_ms(until),
        key=key,
        where=where,
        rate=rate,
        replay_id=replay_id,
        tasks=tasks,
        dry_run=dry_run,
    )
    replaying.check_source(from_)
    with (
        spark_for(Where(master, conf or [], ui, ship, python_env), "replay") as spark,
        watched(spark, "counting" if dry_run else "replaying"),
    ):
        done = replaying.replay(spark, from_, plan)
    out = Output(json)
    out.show({**asdict(done), "dry_run": dry_run}, lambda: _show_replayed(done, dry_run, out))


def _show_archived(done: Archived, out: Output) -> None:
    out.facts(
        [
            ("archive", f"{done.folder} ({done.format})"),
            ("added", f"{done.rows:,} messages in {done.seconds:.1f} s"),
            ("holds", f"{done.total_rows:,} messages in {done.files:,} files, {size(done.size)}"),
        ]
    )


def _show_replayed(done: Replayed, dry_run: bool, out: Output) -> None:
    span: list[Any] = [None if ms is None else local(ms) for ms in (done.first_ms, done.last_ms)]
    out.facts(
        [
            ("would send" if dry_run else "sent", f"{done.count:,} messages"),
            ("stored from", span[0]),
            ("stored until", span[1]),
        ]
    )
    if done.topics:
        rows = [(each.topic, each.count, local(each.first_ms), local(each.last_ms)) for each in done.topics]
        out.table(("topic", ">messages", "stored from", "until"), rows)
