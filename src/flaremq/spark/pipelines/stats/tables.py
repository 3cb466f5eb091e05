"""The tables of statistics: Arrow tables made of Spark's counts, and written as Parquet files.

Nothing here needs Spark. Times are those at which brokers stored the messages.
"""

from __future__ import annotations

import contextlib
import uuid
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from flaremq.base.errors import StoreError, UsageError
from flaremq.base.localpath import local_path
from flaremq.base.units import HOUR_MS

SETS: Final[Mapping[str, tuple[str, ...]]] = {
    "topics": ("topic",),
    "queues": ("topic", "brokerName", "queueId"),
    "tags": ("topic", "tag"),
    "hosts": ("host",),
    "hours": ("topic", "hour"),
    "segments": ("topic", "brokerName", "queueId", "hour", "segment"),
}
"""What is counted, and by which columns."""

Row = dict[str, Any]
Queue = tuple[str, str, int]

_TIME: Final = pa.timestamp("ms", tz="UTC")
_KINDS: Final[Mapping[str, pa.DataType]] = {
    **dict.fromkeys(("topic", "brokerName", "tag", "host", "group", "key"), pa.string()),
    **dict.fromkeys(("messages", "bytes", "total", "sizeMax", "latencyMaxMs", "waiting"), pa.int64()),
    **dict.fromkeys(("firstOffset", "lastOffset"), pa.int64()),
    **dict.fromkeys(("messagesPerSecond", "bytesPerSecond", "sizeMean"), pa.float64()),
    **dict.fromkeys(("latencyP50Ms", "latencyP99Ms"), pa.float64()),
    **dict.fromkeys(("first", "last", "hour", "oldest"), _TIME),
    **dict.fromkeys(("queueId", "queues"), pa.int32()),
}
_SIZES: Final = ("messages", "bytes", "messagesPerSecond", "bytesPerSecond", "sizeMean", "sizeMax")
_LATENCIES: Final = ("latencyP50Ms", "latencyP99Ms", "latencyMaxMs")
_SPAN: Final = ("first", "last")
TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "topics": ("topic", *_SIZES, *_LATENCIES, *_SPAN),
    "queues": ("topic", "brokerName", "queueId", *_SIZES, *_LATENCIES, *_SPAN, "firstOffset", "lastOffset"),
    "tags": ("topic", "tag", *_SIZES, *_LATENCIES, *_SPAN),
    "hosts": ("host", *_SIZES, *_LATENCIES, *_SPAN),
    "hours": ("topic", "hour", *_SIZES, *_LATENCIES, "total"),
    "queuehours": ("topic", "brokerName", "queueId", "hour", "messages", "bytes", "total"),
    "keys": ("topic", "key", "messages"),
    "backlog": ("group", "topic", "waiting", "queues", "oldest"),
    "backloghours": ("group", "topic", "hour", "messages", "total"),
}
"""The columns of each table. `total` is the sum of all hours up to this one."""


def set_number(name: str, columns: Sequence[str]) -> int:
    """Spark's grouping id of a set of columns: a bit for each column that is not in it."""
    last = len(columns) - 1
    return sum(1 << (last - at) for at, column in enumerate(columns) if column not in SETS[name])


@dataclass(frozen=True, slots=True)
class Marks:
    """Committed offsets of groups, by queue: rows before and after each of them are counted separately."""

    by_queue: Mapping[Queue, tuple[int, ...]]
    """In rising order."""
    groups: Mapping[str, Mapping[Queue, int]]

    @classmethod
    def of(cls, offsets: Mapping[str, Mapping[str, int]]) -> Marks:
        """From offsets by group and queue. Raises UsageError for a text that is not a queue."""
        groups = {
            group: {_queue(key): offset for key, offset in queues.items()}
            for group, queues in offsets.items()
        }
        found: dict[Queue, set[int]] = defaultdict(set)
        for queues in groups.values():
            for queue, offset in queues.items():
                found[queue].add(offset)
        return cls({queue: tuple(sorted(each)) for queue, each in sorted(found.items())}, groups)

    def segment(self, queue: Queue, offset: int) -> int:
        """The first segment of a queue that a group with this offset has not consumed."""
        return bisect_left(self.by_queue[queue], offset) + 1


def _queue(key: str) -> Queue:
    """Parses topic@broker:queueId. The broker is empty for rows of a store folder."""
    topic, at, rest = key.partition("@")
    broker, colon, number = rest.rpartition(":")
    if not (topic and at and colon and number.isdecimal() and number.isascii()):
        raise UsageError(
            f"{key!r} is not a queue: expected topic@broker:queueId, for example Orders@broker-a:0"
        )
    return topic, broker, int(number)


@dataclass(frozen=True, slots=True)
class StatsTables:
    """All tables. Topics, tags, hosts, keys and backlog are sorted by size, the others by name and hour."""

    tables: Mapping[str, pa.Table]
    """By the names in TABLES."""
    messages: int
    bytes: int
    seconds: float
    """How long counting took."""
    step_ms: int = HOUR_MS
    """How long each "hour" is."""

    def rows(self, table: str) -> list[Row]:
        found: list[Row] = self.tables[table].to_pylist()
        return found


def made_stats(
    counted: pa.Table, keys: pa.Table | None, marks: Marks, seconds: float, step_ms: int = HOUR_MS
) -> StatsTables:
    """All tables from Spark's counts. `counted` has the rows of all sets, and `kind` says of which."""
    names = tuple(dict.fromkeys(name for each in SETS.values() for name in each))
    by_kind: dict[int, list[Row]] = defaultdict(list)
    for row in counted.to_pylist():
        by_kind[row["kind"]].append(row)
    found: dict[str, list[Row]] = {}
    for name in SETS:
        rows = [_derived(row, name, step_ms) for row in by_kind[set_number(name, names)]]
        by_size = name in ("topics", "tags", "hosts")
        columns = SETS[name]
        found[name] = sorted(
            rows,
            key=lambda row: (-row["messages"] if by_size else 0, *(row[column] for column in columns)),
        )
    segments = found.pop("segments")
    found["hours"] = _with_totals(found["hours"], ("topic",))
    found["queuehours"] = _queue_hours(segments)
    found["keys"] = [] if keys is None else keys.to_pylist()
    found["backlog"], found["backloghours"] = _backlog(
        segments, marks, {row["topic"] for row in found["topics"]}
    )
    tables = {name: _table(found[name], columns) for name, columns in TABLES.items()}
    messages, size = (sum(row[name] for row in found["topics"]) for name in ("messages", "bytes"))
    return StatsTables(tables, messages, size, seconds, step_ms)


def _table(rows: Iterable[Row], columns: Sequence[str]) -> pa.Table:
    schema = pa.schema([pa.field(name, _KINDS[name]) for name in columns])
    return pa.Table.from_pylist([{name: row[name] for name in columns} for row in rows], schema)


def _derived(row: Row, name: str, step_ms: int) -> Row:
    # At least a second: a few messages within a millisecond are not a rate of thousands.
    span_s = step_ms / 1000 if name == "hours" else max(1.0, (row["last"] - row["first"]) / 1000)
    found = {column: row[column] for column in SETS[name]}
    if "hour" in found:
        found["hour"] *= step_ms
    return found | {
        "messages": row["messages"],
        "bytes": row["bytes"],
        "messagesPerSecond": row["messages"] / span_s,
        "bytesPerSecond": row["bytes"] / span_s,
        "sizeMean": row["bytes"] / row["messages"],
        "sizeMax": row["sizeMax"],
        "latencyP50Ms": min(row["percentiles"][0], row["latencyMax"]),
        "latencyP99Ms": min(row["percentiles"][1], row["latencyMax"]),
        "latencyMaxMs": row["latencyMax"],
        "first": row["first"],
        "last": row["last"],
        "firstOffset": row["offsetMin"],
        "lastOffset": row["offsetMax"],
    }


def _with_totals(rows: Iterable[Row], of: Sequence[str]) -> list[Row]:
    """Adds a running total for each combination of the columns `of`. Rows are in the order of their hours."""
    totals: dict[tuple[Any, ...], int] = defaultdict(int)
    found = []
    for row in rows:
        key = tuple(row[name] for name in of)
        totals[key] += row["messages"]
        found.append(row | {"total": totals[key]})
    return found


def _queue_hours(segments: Sequence[Row]) -> list[Row]:
    of = ("topic", "brokerName", "queueId")
    hours: dict[tuple[Any, ...], Row] = {}
    for row in segments:
        key = tuple(row[name] for name in (*of, "hour"))
        known = hours.get(key)
        if known is None:
            hours[key] = dict(row)
        else:
            known["messages"] += row["messages"]
            known["bytes"] += row["bytes"]
    return _with_totals(hours.values(), of)


def _backlog(segments: Sequence[Row], marks: Marks, topics: set[str]) -> tuple[list[Row], list[Row]]:
    """The backlog of each group in each topic, in total and by hour."""
    now, hours = [], []
    by_queue: dict[Queue, list[Row]] = defaultdict(list)
    for row in segments:
        by_queue[row["topic"], row["brokerName"], row["queueId"]].append(row)
    for group, queues in sorted(marks.groups.items()):
        for topic in sorted({queue[0] for queue in queues} & topics):
            own = {queue: offset for queue, offset in queues.items() if queue[0] == topic}
            rows = [
                row
                for queue, offset in own.items()
                for row in by_queue[queue]
                if row["segment"] >= marks.segment(queue, offset)
            ]
            waiting = sum(row["messages"] for row in rows)
            oldest = min((row["first"] for row in rows), default=None)
            now.append(
                {"group": group, "topic": topic, "waiting": waiting, "queues": len(own), "oldest": oldest}
            )
            by_hour: dict[int, int] = defaultdict(int)
            for row in rows:
                by_hour[row["hour"]] += row["messages"]
            hours += [
                {"group": group, "topic": topic, "hour": hour, "messages": count}
                for hour, count in sorted(by_hour.items())
            ]
    now.sort(key=lambda row: (-row["waiting"], row["group"], row["topic"]))
    return now, _with_totals(hours, ("group", "topic"))


def write_stats(stats: StatsTables, folder: Path) -> list[Path]:
    """Write a Parquet file for each table. Files of an earlier run are replaced atomically; others stay."""
    written, folder = [], local_path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in stats.tables.items():
            path, temporary = folder / f"{name}.parquet", folder / f".{name}-{uuid.uuid4().hex}.tmp"
            try:
                pq.write_table(table, temporary)
                temporary.replace(path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    temporary.unlink()
            written.append(path)
    except OSError as error:
        raise StoreError(f"cannot write statistics to {folder}: {error}") from error
    return written
