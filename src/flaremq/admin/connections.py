"""Clients that are connected, as many brokers tell of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flaremq.admin.values.topics import Connection
from flaremq.admin.wording import version_name
from flaremq.protocol.bodies import running


def joined(told: Mapping[str, Iterable[running.Connection]]) -> tuple[Connection, ...]:
    """One for each client id, in order, with all brokers that know it."""
    known: dict[str, running.Connection] = {}
    brokers: dict[str, list[str]] = {}
    for broker, connections in told.items():
        for each in connections:
            known.setdefault(each.client_id, each)
            brokers.setdefault(each.client_id, []).append(broker)
    return tuple(
        Connection(
            client_id,
            each.client_addr or "",
            each.language.name if each.language is not None else "OTHER",
            each.version,
            version_name(each.version),
            tuple(brokers[client_id]),
        )
        for client_id, each in sorted(known.items())
    )
