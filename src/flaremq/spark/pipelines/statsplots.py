"""Statistics as pictures: when messages came, how large and how late, which keys and tags, and what waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from flaremq.base.errors import StoreError, UsageError
from flaremq.base.localpath import local_path
from flaremq.spark.pipelines.statsshown import size, span
from flaremq.spark.pipelines.statstables import Row, Stats

_HOUR: Final = timedelta(hours=1)
_COLOURS: Final = (
    *("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#17becf", "#e377c2", "#bcbd22"),
    "#b0b0b0",
)
_LINES_MAX: Final = 5
_BARS_MAX: Final = 15
_NAME_MAX: Final = 32
_DPI: Final = 120

Draw = Callable[[Any, Stats], Any]


def plot_stats(stats: Stats, folder: Path) -> list[Path]:
    """hours.png, latency.png, top.png and backlog.png. UsageError where matplotlib is not installed."""
    try:
        matplotlib = import_module("matplotlib")
    except ImportError:
        raise UsageError(
            "plots need matplotlib, which is not installed: pip install 'flaremq[spark]'"
        ) from None
    matplotlib.use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    drawn: dict[str, Draw] = {"hours": _hours, "latency": _latency, "top": _top, "backlog": _backlog}
    written, folder = [], local_path(folder)
    for name, draw in drawn.items():
        figure = draw(pyplot, stats)
        path = folder / f"{name}.png"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=_DPI)
        except OSError as error:
            raise StoreError(f"cannot write plots to {folder}: {error}") from error
        finally:
            pyplot.close(figure)
        written.append(path)
    return written


def _hours(pyplot: Any, stats: Stats) -> Any:
    """Messages of each hour, topics on top of each other."""
    figure, axis = pyplot.subplots(figsize=(11, 5.5), constrained_layout=True)
    axis.set_title("Messages per hour, by topic")
    rows = stats.rows("hours")
    if not rows:
        return _empty(figure, [axis])
    times = _all_hours(row["hour"] for row in rows)
    kept = [row["topic"] for row in stats.rows("topics")][: len(_COLOURS) - 1]
    counts: dict[str, dict[datetime, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        counts[row["topic"] if row["topic"] in kept else "others"][row["hour"]] += row["messages"]
    base = [0] * len(times)
    for label, colour in zip((*kept, "others"), (*_COLOURS[: len(kept)], _COLOURS[-1]), strict=True):
        if label not in counts:
            continue
        values = [counts[label][at] for at in times]
        axis.bar(times, values, _HOUR * 0.92, base, align="edge", label=_short(label), color=colour)
        base = [low + value for low, value in zip(base, values, strict=True)]
    axis.set_ylabel("messages an hour")
    axis.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    _number_axis(axis.yaxis, _count)
    _time_axis(axis, times)
    return _plain(figure, [axis])


def _latency(pyplot: Any, stats: Stats) -> Any:
    """How large messages are above, and how late they were stored below."""
    figure, (above, below) = pyplot.subplots(2, 1, figsize=(11, 7.5), sharex=True, constrained_layout=True)
    above.set_title("Mean size of messages, by hour")
    below.set_title("From born to stored, by hour: 99th percentile, dotted the median")
    rows = stats.rows("hours")
    if not rows:
        return _empty(figure, [above, below])
    topics = [row["topic"] for row in stats.rows("topics")][:_LINES_MAX]
    for topic, colour in zip(topics, _COLOURS, strict=False):
        own = [row for row in rows if row["topic"] == topic]
        times = [row["hour"] + _HOUR / 2 for row in own]
        line = {"color": colour, "linewidth": 1.6, "marker": "o", "markersize": 3}
        above.plot(times, [row["sizeMean"] for row in own], label=_short(topic), **line)
        below.plot(times, [max(1.0, row["latencyP99Ms"]) for row in own], **line)
        below.plot(times, [max(1.0, row["latencyP50Ms"]) for row in own], color=colour, linestyle=":")
    above.set_ylabel("size")
    above.set_ylim(bottom=0)
    _number_axis(above.yaxis, size)
    below.set_ylabel("latency (below 1 ms as 1 ms)")
    # Some messages are delayed by hours, and others take a millisecond.
    below.set_yscale("log")
    below.set_ylim(bottom=0.8, top=2 * max(10.0, below.get_ylim()[1]))
    _number_axis(below.yaxis, span)
    above.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    _time_axis(below, _all_hours(row["hour"] for row in rows))
    return _plain(figure, [above, below])


def _top(pyplot: Any, stats: Stats) -> Any:
    """Bars of the most frequent keys and tags."""
    keys = [(f"{row['key']}  ({row['topic']})", row["messages"]) for row in stats.rows("keys")]
    tags = [(f"{row['tag'] or '(no tag)'}  ({row['topic']})", row["messages"]) for row in stats.rows("tags")]
    most = max(3, min(_BARS_MAX, max(len(keys), len(tags))))
    figure, axes = pyplot.subplots(1, 2, figsize=(13, 1.6 + 0.34 * most), constrained_layout=True)
    for axis, title, found, colour in (
        (axes[0], "Keys with the most messages", keys, "#1f77b4"),
        (axes[1], "Tags with the most messages", tags, "#2ca02c"),
    ):
        axis.set_title(title)
        if not found:
            _empty(figure, [axis])
            continue
        first = found[:_BARS_MAX]
        places = range(len(first))
        bars = axis.barh(places, [count for _, count in first], color=colour, height=0.7)
        axis.set_yticks(places, [_short(name, 44) for name, _ in first], fontsize=9)
        axis.invert_yaxis()
        axis.set_ylim(most - 0.5, -0.5)
        axis.bar_label(bars, [f"{count:,}" for _, count in first], padding=4, fontsize=9)
        axis.set_xlim(0, 1.18 * max(count for _, count in first))
        axis.set_xlabel("messages")
        _number_axis(axis.xaxis, _count)
        axis.xaxis.set_major_locator(import_module("matplotlib.ticker").MaxNLocator(5, integer=True))
    return _plain(figure, axes, grid="x")


def _backlog(pyplot: Any, stats: Stats) -> Any:
    """What waits for groups, by the hour in which it came; without groups, what has been stored at all."""
    rows, of = stats.rows("backloghours"), ("group", "topic")
    figure, axis = pyplot.subplots(figsize=(11, 5.5), constrained_layout=True)
    title = "Backlog of consumer groups: what came since their offsets"
    if not stats.rows("backlog"):
        rows, of, title = stats.rows("hours"), ("topic",), "Messages stored, all hours added up"  # type: ignore[assignment]
    axis.set_title(title)
    if not rows:
        return _empty(figure, [axis], "nothing waits" if stats.rows("backlog") else "no messages")
    lines: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        lines[" / ".join(_short(row[name]) for name in of)].append(row)
    times = _all_hours(row["hour"] for row in rows)
    largest = sorted(lines, key=lambda name: (-lines[name][-1]["total"], name))[: len(_COLOURS) - 1]
    for name, colour in zip(largest, _COLOURS, strict=False):
        at, totals = _steps(lines[name], times[-1])
        axis.plot(at, totals, label=name, color=colour, linewidth=1.8)
        axis.fill_between(at, totals, color=colour, alpha=0.12)
    axis.set_ylabel("messages")
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False, loc="upper left")
    _number_axis(axis.yaxis, _count)
    _time_axis(axis, times)
    return _plain(figure, [axis])


def _steps(rows: Sequence[Row], last: datetime) -> tuple[list[datetime], list[int]]:
    """From nothing at the beginning of the first hour to the total at the end of the last one."""
    times, totals = [rows[0]["hour"]], [0]
    for row in rows:
        if row["hour"] > times[-1]:
            times.append(row["hour"])
            totals.append(totals[-1])
        times.append(row["hour"] + _HOUR)
        totals.append(row["total"])
    if times[-1] < last + _HOUR:
        times.append(last + _HOUR)
        totals.append(totals[-1])
    return times, totals


# What all pictures have in common.


def _all_hours(hours: Iterable[datetime]) -> list[datetime]:
    """From the first to the last, those without messages too, unless that would be years of nothing."""
    found = sorted(set(hours))
    count = round((found[-1] - found[0]) / _HOUR) + 1
    return [found[0] + at * _HOUR for at in range(count)] if count <= 24 * 366 else found


def _time_axis(axis: Any, times: Sequence[datetime]) -> None:
    dates = import_module("matplotlib.dates")
    locator = dates.AutoDateLocator(minticks=3, maxticks=9)
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    # A few hours would be drawn as wide as a week.
    room = max(_HOUR / 2, (12 * _HOUR - (times[-1] - times[0])) / 2)
    axis.set_xlim(times[0] - room, times[-1] + _HOUR + room)
    axis.set_xlabel("hour (UTC)")


def _number_axis(axis: Any, text: Callable[[float], str]) -> None:
    axis.set_major_formatter(import_module("matplotlib.ticker").FuncFormatter(lambda value, _: text(value)))


def _count(value: float) -> str:
    for unit, length in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if abs(value) >= length:
            return f"{value / (1e3 if unit == 'k' else length):,.4g} {unit}"
    return f"{value:,.0f}" if value == int(value) else ""


def _short(name: str, most: int = _NAME_MAX) -> str:
    # A dollar would begin a formula.
    text = name if len(name) <= most else f"{name[: most - 1]}…"
    return text.replace("$", r"\$")


def _plain(figure: Any, axes: Iterable[Any], grid: str = "y") -> Any:
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis=grid, alpha=0.25, linewidth=0.7)
        axis.set_axisbelow(True)
    return figure


def _empty(figure: Any, axes: Iterable[Any], what: str = "no messages") -> Any:
    for axis in axes:
        axis.text(0.5, 0.5, what, ha="center", va="center", transform=axis.transAxes, color="#777777")
        axis.set_xticks([])
        axis.set_yticks([])
    return _plain(figure, axes)
