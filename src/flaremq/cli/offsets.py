"""How far groups are and where they are to go, as people say it and see it."""

from __future__ import annotations

import typer

from flaremq.admin.groupvalues import GroupProgress, OffsetReset, Position
from flaremq.base.errors import InvalidParameter
from flaremq.cli.connect import failures, note_failures
from flaremq.cli.render import Output
from flaremq.cli.times import both, local, parse_time_ms
from flaremq.model.message import MessageQueue


def position_of(topic: str, to: str | None, offsets: list[str]) -> Position:
    if (to is None) == (not offsets):
        raise InvalidParameter(
            "say where to: --to begin, --to end, --to TIME, or --offset BROKER:QUEUE=OFFSET"
        )
    if to is not None:
        if to in ("begin", "end"):
            return Position.begin() if to == "begin" else Position.end()
        return Position.time(parse_time_ms(to))
    found: dict[MessageQueue, int] = {}
    for text in offsets:
        place, _, offset = text.rpartition("=")
        broker, _, queue = place.rpartition(":")
        if not broker or not queue.isdecimal() or not offset.isdecimal():
            raise InvalidParameter(f"--offset {text}: wanted is BROKER:QUEUE=OFFSET, as in broker-a:3=1700")
        found[MessageQueue(topic, broker, int(queue))] = int(offset)
    return Position.offsets(found)


def progress_document(found: GroupProgress) -> dict[str, object]:
    return {
        "group": found.group,
        "lag": found.lag,
        "retry_lag": found.retry_lag,
        "dead_letters": found.dead_letters,
        "inflight": found.inflight,
        "tps": found.tps,
        "members": found.members,
        "topics": dict(found.topics),
        "queues": [
            {
                "topic": q.queue.topic,
                "broker": q.queue.broker_name,
                "queue_id": q.queue.queue_id,
                "broker_offset": q.broker_offset,
                "consumer_offset": q.consumer_offset,
                "lag": q.lag,
                "inflight": q.inflight,
                "owner": q.owner,
                **both("last_consumed", q.last_consumed_ms or 0),
            }
            for q in found.queues
        ],
        "failed": failures(found.failed),
    }


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
    )
    retries = f", {found.retry_lag:,} of them tries again" if found.retry_lag else ""
    dead = f", {_counted(found.dead_letters, 'dead letter')}" if found.dead_letters else ""
    members = _counted(found.members, "member")
    typer.echo(f"Lag {found.lag:,}{retries}{dead}; {found.tps:,.1f} messages a second, {members}.")
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
    )
    typer.echo(f"Group {found.group} {'was moved' if found.applied else 'would be moved'}.")


def reset_document(found: OffsetReset) -> dict[str, object]:
    return {
        "group": found.group,
        "topic": found.topic,
        "done": found.applied,
        "dry_run": not found.applied,
        "moves": [
            {"broker": m.queue.broker_name, "queue_id": m.queue.queue_id, "old": m.old, "new": m.new}
            for m in found.moves
        ],
    }


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
