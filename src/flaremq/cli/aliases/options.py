"""Options as mqadmin has them. mqadmin asks nobody, so neither do these commands."""

from __future__ import annotations

from typing import Annotated

import typer

from flaremq.base.errors import InvalidParameter

Namesrv = Annotated[
    str | None, typer.Option("-n", "--namesrvAddr", "--namesrv", metavar="HOST:PORT", help="NameServers.")
]
Topic = Annotated[str, typer.Option("-t", "--topic")]
Group = Annotated[str, typer.Option("-g", "--groupName", "--consumerGroup", "--group")]
Cluster = Annotated[str | None, typer.Option("-c", "--clusterName", "--cluster")]
BrokerAddr = Annotated[
    str | None, typer.Option("-b", "--brokerAddr", "--broker", help="Address, or name, of a broker.")
]
RouteCluster = Annotated[
    str | None, typer.Option("-c", "--cluster", help="Accepted: only queues of queues need it.")
]
Begin = Annotated[str | None, typer.Option("-b", "--beginTimestamp")]
End = Annotated[str | None, typer.Option("-e", "--endTimestamp")]
Key = Annotated[str, typer.Option("-k", "--key")]
Value = Annotated[str, typer.Option("-v", "--value")]


def truth(text: str | None, usual: bool = False) -> bool:
    """mqadmin wants the word."""
    if text is None:
        return usual
    if text.strip().lower() not in ("true", "false"):
        raise InvalidParameter(f"{text!r}: wanted is true or false")
    return text.strip().lower() == "true"


def signed_attributes(text: str | None) -> dict[str, str | None]:
    """`+a=b,-c`: a gets a value, c goes."""
    found: dict[str, str | None] = {}
    for part in filter(None, (text or "").split(",")):
        name, equals, value = part[1:].partition("=")
        if part[0] not in "+-" or not name or (part[0] == "+") != bool(equals):
            raise InvalidParameter(f"attribute {part!r}: wanted is +name=value or -name")
        found[name] = value if part[0] == "+" else None
    return found
