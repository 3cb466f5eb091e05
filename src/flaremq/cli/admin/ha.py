"""`flaremq cluster ha`."""

from __future__ import annotations

import typer

from flaremq.admin.clusterdocuments import ha_document
from flaremq.admin.values.brokers import HaStatus
from flaremq.base.text import count, size
from flaremq.cli.connect import connected, note_failures
from flaremq.cli.options import Broker, Cluster, Json, Namesrv, Profile
from flaremq.cli.render import Output, note, safe


def ha(
    namesrv: Namesrv = None,
    profile: Profile = None,
    cluster: Cluster = None,
    broker: Broker = None,
    json: Json = False,
) -> None:
    """Show masters and slaves, and how far each slave is behind. Exit status 1 if one does not follow, or if
    a name has two masters.

    A slave whose log does not fit that of its master is refused, and copies nothing until you decide which
    of them is right. Of two masters of one name, the one that is outranked serves no clients.
    """
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = admin.brokers.ha(cluster=cluster, broker=broker)
    ends = {each.broker: each.log_max_offset for each in found if each.is_master}

    def for_people() -> None:
        out.table(
            ("broker", ">id", "role", "address", ">log ends at", ">behind", "state"),
            [_row(each, ends) for each in found],
            empty="No brokers found.",
        )
        for each in found:
            for text in _remarks(each):
                note(safe(text))
        note_failures(found.failed)

    out.show(ha_document(found), for_people)
    if not all(_is_well(each) for each in found):
        raise typer.Exit(1)


def _is_well(each: HaStatus) -> bool:
    return not (each.displaced or each.rival) if each.is_master else each.is_following


def _row(each: HaStatus, ends: dict[str, int]) -> tuple[object, ...]:
    place = each.broker, each.id, "master" if each.is_master else "slave", each.address
    if each.is_master:
        near = sum(slave.in_sync for slave in each.slaves)
        state = f"{count(len(each.slaves), 'slave')}, {near} in sync" if each.slaves else "no slaves"
        state = "serves no clients" if each.displaced else state
        return (*place, each.log_max_offset, None, state)
    end = ends.get(each.broker)
    behind = size(max(0, end - each.log_max_offset)) if end is not None and each.is_following else None
    state = f"following {each.master_address}" if each.is_following else "not following"
    return (*place, each.log_max_offset, behind, state)


def _remarks(each: HaStatus) -> list[str]:
    """What a person must know, in full sentences."""
    found = []
    if each.displaced:
        found.append(f"{each.broker} ({each.id}) serves no clients: {each.displaced}")
    if each.rival:
        found.append(f"{each.broker} ({each.id}) is not the only master of its name: {each.rival}")
    if each.state and not each.is_following:
        found.append(f"{each.broker} ({each.id}): {each.state}")
    if each.cut_bytes:
        found.append(
            f"{each.broker} ({each.id}) gave up {size(each.cut_bytes)} that its master did not have; they "
            "are kept in the folder cut of its store"
        )
    return found
