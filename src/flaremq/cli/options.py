"""Options that mean the same in all commands."""

from __future__ import annotations

from typing import Annotated

import typer

from flaremq.cli.names import group_names, topic_names
from flaremq.cli.profiles import known_names

Namesrv = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namesrv",
        metavar="HOST:PORT",
        help="NameServer addresses. Default: $FLAREMQ_NAMESRV, $NAMESRV_ADDR, then the active profile.",
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile", metavar="NAME", help="Use the cluster of this profile.", autocompletion=known_names
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, without doing it.")]
Cluster = Annotated[
    str | None, typer.Option("-c", "--cluster", metavar="NAME", help="Limit to this cluster.")
]
Broker = Annotated[
    str | None, typer.Option("-b", "--broker", metavar="NAME", help="Limit to this broker (name or address).")
]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic name.", autocompletion=topic_names)]
GroupName = Annotated[
    str, typer.Argument(metavar="GROUP", help="Consumer group.", autocompletion=group_names)
]
