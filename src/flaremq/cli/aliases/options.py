"""mqadmin's options. mqadmin asks for no confirmation, so neither do these commands."""

from __future__ import annotations

from typing import Annotated

import typer

from flaremq.cli.render import BadValue

Namesrv = Annotated[
    str | None,
    typer.Option("-n", "--namesrvAddr", "--namesrv", metavar="HOST:PORT", help="NameServer addresses."),
]
Topic = Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC", help="Topic name.")]
Group = Annotated[
    str,
    typer.Option("-g", "--groupName", "--consumerGroup", "--group", metavar="GROUP", help="Consumer group."),
]
Cluster = Annotated[
    str | None, typer.Option("-c", "--clusterName", "--cluster", metavar="NAME", help="Cluster name.")
]
BrokerAddr = Annotated[
    str | None, typer.Option("-b", "--brokerAddr", "--broker", metavar="NAME", help="Broker name or address.")
]
RouteCluster = Annotated[
    str | None, typer.Option("-c", "--cluster", metavar="NAME", help="Accepted, without effect.")
]
Begin = Annotated[
    str | None, typer.Option("-b", "--beginTimestamp", metavar="TIME", help="Earliest store time.")
]
End = Annotated[str | None, typer.Option("-e", "--endTimestamp", metavar="TIME", help="Latest store time.")]
Key = Annotated[str, typer.Option("-k", "--key", metavar="KEY", help="Key.")]
Value = Annotated[str, typer.Option("-v", "--value", metavar="VALUE", help="Value.")]


def truth(text: str | None, usual: bool = False) -> bool:
    """Parse true or false, as mqadmin does."""
    if text is None:
        return usual
    if text.strip().lower() not in ("true", "false"):
        raise BadValue(f"{text!r}: expected true or false")
    return text.strip().lower() == "true"


def signed_attributes(text: str | None) -> dict[str, str | None]:
    """Parse `+a=b,-c`: a gets a value, c is removed."""
    found: dict[str, str | None] = {}
    for part in filter(None, (text or "").split(",")):
        name, equals, value = part[1:].partition("=")
        if part[0] not in "+-" or not name or (part[0] == "+") != bool(equals):
            raise BadValue(f"attribute {part!r}: expected +name=value or -name")
        found[name] = value if part[0] == "+" else None
    return found
