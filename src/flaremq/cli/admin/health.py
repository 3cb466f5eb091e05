"""`flaremq cluster health`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from flaremq.admin.clusterdocuments import health_document
from flaremq.admin.values.health import BEHIND_MAX, LAG_MAX, ClusterHealth, HealthLimits, HealthVerdict
from flaremq.base.errors import ConfigError
from flaremq.base.text import count, size
from flaremq.base.units import parse_size
from flaremq.cli.connect import connected
from flaremq.cli.options import Json, Namesrv, Profile
from flaremq.cli.render import BadValue, Output, note, safe
from flaremq.cli.sightings import Sightings, sightings_path

_BEHIND: Final = size(BEHIND_MAX)
_COLORS: Final = {HealthVerdict.HEALTHY: "green", HealthVerdict.DEGRADED: "yellow", HealthVerdict.DOWN: "red"}

LagMax = Annotated[
    int, typer.Option("--lag", metavar="N", min=0, help="Messages that a consumer group may be behind.")
]
BehindMax = Annotated[
    str,
    typer.Option(
        "--behind", metavar="SIZE", help="Data that a broker may have neither flushed nor dispatched."
    ),
]
Forget = Annotated[
    list[str] | None,
    typer.Option("--forget", metavar="BROKER", help="Stop expecting a broker that was removed; repeatable."),
]


def health(
    namesrv: Namesrv = None,
    profile: Profile = None,
    lag: LagMax = LAG_MAX,
    behind: BehindMax = _BEHIND,
    forget: Forget = None,
    json: Json = False,
) -> None:
    """Check the cluster: healthy, degraded or down. Exit status 0 if healthy, 1 if degraded or down.

    Reports servers that do not answer, NameServers that disagree, full disks, failing parts of a
    broker, data not yet flushed or dispatched, waiting requests, and consumer lag.

    NameServers forget a broker that died. It is reported as missing if an ordered topic is bound to it, or
    if an earlier command of yours saw it; these are kept in ~/.local/state/flaremq/sightings.json.
    """
    limits, out = HealthLimits(lag_max=lag, behind_max=_size_of(behind)), Output(json)
    with connected(namesrv, profile) as admin:
        sightings = Sightings(admin.settings.addresses)
        for broker in forget or ():
            if not sightings.forget(broker):
                raise BadValue(f"--forget {broker}: no earlier command has seen a broker of this name")
        expected = {each.broker: each.text for each in sightings.missing(())}
        found = admin.health.check(limits, expected)
    if any(found.namesrvs.values()):
        sightings.note_brokers({each.title: each.address for each in found.brokers})
    sightings.save()
    out.show(_document(found), lambda: _show(found, out))
    if found.verdict is not HealthVerdict.HEALTHY:
        raise typer.Exit(1)


def _size_of(text: str) -> int:
    try:
        return parse_size(text)
    except ConfigError:
        raise BadValue(f"--behind {text}: expected a size such as 64MiB or 1GiB") from None


def _show(found: ClusterHealth, out: Output) -> None:
    answering = sum(found.namesrvs.values())
    alive = sum(each.runtime is not None for each in found.brokers)
    typer.secho(f"The cluster is {found.verdict.value}.", fg=_COLORS[found.verdict], bold=True)
    typer.echo(
        f"{answering} of {count(len(found.namesrvs), 'NameServer')} and {alive} of "
        f"{count(len(found.brokers), 'registered broker')} answer. "
        f"Lag of {count(found.groups, 'group')} checked."
    )
    if found.problems:
        typer.echo()
        rows = [(each.kind, each.subject, each.text) for each in found.problems]
        out.table(("problem", "where", "what"), rows)
    for each in found.unchecked:
        note(f"not checked: {safe(each)}")


def _document(found: ClusterHealth) -> dict[str, object]:
    return {
        **health_document(found),
        "expectations": {
            "sources": ["ordered topics", "brokers seen by earlier commands"],
            "file": str(sightings_path()),
        },
    }
