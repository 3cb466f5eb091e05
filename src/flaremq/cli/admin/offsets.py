"""Offsets of groups: how they are printed, and how the target of a reset is parsed."""

from __future__ import annotations

import typer

from flaremq.admin.values.groups import GroupProgress, OffsetReset, Position
from flaremq.base.text import count
from flaremq.cli.connect import note_failures
from flaremq.cli.render import BadValue, Output
from flaremq.cli.times import BEGIN, local, parse_time_ms, place_of
from flaremq.model.message import MessageQueue


def position_of(topic: str, to: str | None, offsets: list[str]) -> Position:
    if (to is None) == (not offsets):
        raise BadValue(
            "expected one target: --to beginning, --to end, --to TIME, or --offset BROKER:QUEUE=OFFSET"
        )
    if to is not None:
        place = place_of(to)
        if place is not None:
            return Position.begin() if place == BEGIN else Position.end()
        return Position.time(parse_time_ms(to))
    found: dict[MessageQueue, int] = {}
    for text in offsets:
        place, _, offset = text.rpartition("=")
        broker, _, queue = place.rpartition(":")
        if not broker or not queue.isdecimal() or not offset.isdecimal():
            raise BadValue(f"--offset {text}: expected BROKER:QUEUE=OFFSET, for example broker-a:3=1700")
        found[MessageQueue(topic, broker, int(queue))] = int(offset)
    return Position.offsets(found)


def show_progress(found: GroupProgress, out: Output) -> None:
    out.table(
        ("topic", "broker", ">queue", ">broker offset", ">group offset", ">lag", "last consumed", "owner"),
        [
            (
                *(q.queue.topic, q.queue.broker_name, q.queue.queue_id),
                *(q.broker_offset, q.consumer_offset, q.lag, local(q.last_consumed_ms or 0), q.owner),
            )
            for q in found.queues
        ],
        empty="No offsets found.",
    )
    retries = f", {found.retry_lag:,} of it retries" if found.retry_lag else ""
    dead = f", {count(found.dead_letters, 'dead letter')}" if found.dead_letters else ""
    members = count(found.members, "member")
    typer.echo(f"Lag {found.lag:,}{retries}{dead}; {found.tps:,.1f} messages per second, {members}.")
    note_failures(found.failed)


def show_reset(found: OffsetReset, out: Output) -> None:
    out.table(
        ("topic", "broker", ">queue", ">old offset", ">new offset", ">change"),
        [
            (
                *(m.queue.topic, m.queue.broker_name, m.queue.queue_id, m.old, m.new),
                None if m.old is None else f"{m.new - m.old:+d}",
            )
            for m in found.moves
        ],
        empty="No queues to reset.",
    )
    typer.echo(f"Group {found.group} {'was' if found.applied else 'would be'} reset.")
