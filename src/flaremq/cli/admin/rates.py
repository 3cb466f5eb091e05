"""Traffic of topics and their producers: `flaremq topic rates` and `flaremq topic producers`."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated

import typer

from flaremq.admin.documents import topic_producers_document, traffic_document
from flaremq.admin.sync import Admin
from flaremq.admin.values.brokers import BrokerRates
from flaremq.admin.values.groups import GroupProgress
from flaremq.admin.values.topics import TopicKind, TopicTraffic
from flaremq.base.errors import FlareError
from flaremq.base.units import DAY_MS
from flaremq.cli.connect import connected, note_failures
from flaremq.cli.names import topic_names
from flaremq.cli.options import Json, Namesrv, Profile, TopicName
from flaremq.cli.render import Output
from flaremq.cli.sightings import look_around, note_missing


def rates(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Limit to this topic.", autocompletion=topic_names)
    ] = None,
    active: Annotated[
        bool, typer.Option("-a", "--active", help="Only topics with traffic in the last 24 hours.")
    ] = False,
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Show message rates: incoming, outgoing per group, and the lag of each group.

    The columns IN_24H and OUT_24H count messages of the last 24 hours since the brokers started.
    """
    out = Output(json)
    found: list[TopicTraffic] = []
    with connected(namesrv, profile) as admin:
        kinds = (TopicKind.NORMAL, TopicKind.RETRY)
        names = [topic] if topic else [each.name for each in admin.topics.list() if each.kind in kinds]
        for name in names:
            found += _of_topic(admin, name)
        note_missing(look_around(admin))
    shown = [each for each in found if each.is_active or not active]
    rows = [(e.topic, e.group, e.lag, e.in_tps, e.out_tps, e.in_today, e.out_today) for e in shown]
    columns = ("topic", "group", ">lag", ">in/s", ">out/s", ">in 24h", ">out 24h")
    out.show(traffic_document(shown), lambda: out.table(columns, rows, empty="No topics found."))


def _of_topic(admin: Admin, topic: str) -> list[TopicTraffic]:
    in_tps, in_today = _sums(admin.brokers.rates("TOPIC_PUT_NUMS", topic))
    if in_today == 0 and _has_new_messages(admin, topic):
        in_today = None
    groups = admin.topics.consumers(topic)
    if not groups:
        return [TopicTraffic(topic, None, None, in_tps, in_today)]
    found = []
    for group in groups:
        out_tps, out_today = _sums(admin.brokers.rates("GROUP_GET_NUMS", f"{topic}@{group}"))
        progress = _progress(admin, group, topic)
        lag = None if progress is None else progress.topics.get(topic)
        consumed_ms = (
            0 if progress is None else max((q.last_consumed_ms or 0 for q in progress.queues), default=0)
        )
        if out_today == 0 and _is_of_today(consumed_ms):
            out_today = None
        found.append(TopicTraffic(topic, group, lag, in_tps, in_today, out_tps, out_today))
    return found


def _progress(admin: Admin, group: str, topic: str) -> GroupProgress | None:
    try:
        return admin.groups.progress(group, topic, owners=False)
    except FlareError:
        return None  # The group was deleted meanwhile, or has no offsets yet.


def _sums(found: Iterable[BrokerRates]) -> tuple[float, int | None]:
    """Messages per second now, and of the last day. Apache's brokers sample a day once an hour, an hour every
    ten minutes and a minute every ten seconds: the largest of these is a lower bound."""
    listed = list(found)
    return (
        sum(each.minute.tps for each in listed),
        sum(max(each.day.sum, each.hour.sum, each.minute.sum) for each in listed),
    )


def _has_new_messages(admin: Admin, topic: str) -> bool:
    """Whether messages arrived within the last day, whatever the statistics say."""
    try:
        queues = admin.topics.stats(topic).queues
    except FlareError:
        return False
    return _is_of_today(max((each.last_update_ms or 0 for each in queues), default=0))


def _is_of_today(at_ms: int) -> bool:
    return at_ms > time.time() * 1000 - DAY_MS


def producers(
    topic: TopicName,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Producer group.")],
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """List the producers of a group that are connected to the brokers of a topic."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = admin.topics.producers(topic, group)

    def for_people() -> None:
        rows = [(c.client_id, c.address, c.language, c.version_name, ", ".join(c.brokers)) for c in found]
        out.table(
            ("client", "address", "language", "version", "brokers"), rows, empty="No producers connected."
        )
        note_failures(found.failed)

    out.show(topic_producers_document(topic, group, found), for_people)
