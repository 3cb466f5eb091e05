"""Options that mean the same wherever they stand."""

from __future__ import annotations

from typing import Annotated

import typer

from flaremq.cli.profiles import known_names

Namesrv = Annotated[
    str | None,
    typer.Option(
        "-n", "--namesrv", metavar="HOST:PORT", help="NameServers; else the environment or a profile says it."
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile", metavar="NAME", help="The cluster of this profile.", autocompletion=known_names
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document, for programs.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
Cluster = Annotated[str | None, typer.Option("-c", "--cluster", metavar="NAME", help="Only this cluster.")]
Broker = Annotated[
    str | None, typer.Option("-b", "--broker", metavar="NAME", help="Only this broker: its name or address.")
]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC")]
GroupName = Annotated[str, typer.Argument(metavar="GROUP")]
