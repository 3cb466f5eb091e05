"""Statistics for the terminal: a few tables, each with its most important rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Any, Final

from flaremq.base.text import size, span
from flaremq.spark.pipelines.stats.tables import Row, StatsTables

_COMMON: Final = (">messages", ">a second", ">size", ">mean", ">largest", ">p50", ">p99", ">slowest")
_NONE: Final = "(none)"


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table as texts. Columns whose names begin with > are numbers, aligned to the right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def shown(stats: StatsTables, most: int = 10) -> list[TextTable]:
    """The tables that are not empty, with the first `most` rows of each."""
    tables = [
        _common("Topics", ("topic",), stats.rows("topics"), most),
        _common("Queues", ("topic", "broker", ">queue"), _busiest(stats.rows("queues")), most),
        _common("Tags", ("topic", "tag"), stats.rows("tags"), most),
        _common("Producers", ("host",), stats.rows("hosts"), most),
        _hours(stats, most),
        _table("Keys", ("topic", "key", ">messages"), _keys(stats), most),
        _table("Backlog", ("group", "topic", ">waiting", ">queues", "oldest"), _backlog(stats), most),
    ]
    return [table for table in tables if table.rows]


def renderables(stats: StatsTables, most: int = 10) -> list[Any]:
    """The same for rich."""
    return [_rich(table) for table in shown(stats, most)]


def _rich(table: TextTable) -> Any:
    found = import_module("rich.table").Table(
        title=table.title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    text = import_module("rich.text").Text
    for name in table.columns:
        found.add_column(
            name.lstrip(">"), justify="right" if name.startswith(">") else "left", overflow="fold"
        )
    for row in table.rows:
        found.add_row(*map(text, row))  # Else brackets in a name would be markup.
    return found


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], most: int) -> TextTable:
    of = f", {most} of {len(rows):,}" if len(rows) > most else ""
    return TextTable(f"{title}{of}", tuple(columns), tuple(tuple(row) for row in rows[:most]))


def _common(title: str, names: Sequence[str], rows: Iterable[Row], most: int) -> TextTable:
    columns = {"broker": "brokerName", "queue": "queueId"}
    keys = [columns.get(name.lstrip(">"), name) for name in names]
    found = [[*(str(row[key]) or _NONE for key in keys), *_numbers(row)] for row in rows]
    return _table(title, (*names, *_COMMON), found, most)


def _numbers(row: Row) -> tuple[str, ...]:
    return (
        f"{row['messages']:,}",
        _rate(row["messagesPerSecond"]),
        size(row["bytes"]),
        size(row["sizeMean"]),
        size(row["sizeMax"]),
        span(row["latencyP50Ms"]),
        span(row["latencyP99Ms"]),
        span(row["latencyMaxMs"]),
    )


def _busiest(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (-row["messages"], row["topic"], row["brokerName"], row["queueId"]))


def _hours(stats: StatsTables, most: int) -> TextTable:
    """Newest hours first."""
    rows = sorted(stats.rows("hours"), key=lambda row: (row["hour"], row["messages"]), reverse=True)
    found = [[time(row["hour"]), row["topic"], *_numbers(row), f"{row['total']:,}"] for row in rows]
    return _table("Hours (UTC)", ("hour", "topic", *_COMMON, ">in all"), found, most)


def _keys(stats: StatsTables) -> list[tuple[str, ...]]:
    return [(row["topic"], row["key"], f"{row['messages']:,}") for row in stats.rows("keys")]


def _backlog(stats: StatsTables) -> list[tuple[str, ...]]:
    return [
        (
            row["group"],
            row["topic"],
            f"{row['waiting']:,}",
            str(row["queues"]),
            "-" if row["oldest"] is None else time(row["oldest"], seconds=True),
        )
        for row in stats.rows("backlog")
    ]


# Numbers for people.


def time(at: datetime, *, seconds: bool = False) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def _rate(per_second: float) -> str:
    if per_second < 0.01:
        return "< 0.01"
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"
