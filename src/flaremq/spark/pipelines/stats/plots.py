"""Statistics as plots: when messages came, how large and how late, which keys and tags, and the backlog."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from flaremq.base.errors import StoreError, UsageError
from flaremq.base.localpath import local_path
from flaremq.base.text import size, span
from flaremq.spark.pipelines.stats.tables import Row, StatsTables

_UNITS: Final = (("hour", 3600), ("minute", 60), ("second", 1))
_COLOURS: Final = (
    *("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#17becf", "#e377c2", "#bcbd22"),
    "#b0b0b0",
)
_LINES_MAX: Final = 5
_BARS_MAX: Final = 15
_NAME_MAX: Final = 32
_DPI: Final = 120

Draw = Callable[[Any, StatsTables], Any]


def plot_stats(stats: StatsTables, folder: Path, fine: StatsTables | None = None) -> list[Path]:
    """Write hours.png, latency.png, top.png and backlog.png. UsageError if matplotlib is not installed.

    With `fine` (`stats.finer`), plots over time are by minutes or seconds.
    """
    try:
        matplotlib = import_module("matplotlib")
    except ImportError:
        raise UsageError(
            "plots need matplotlib, which is not installed: "
            "run pip install '.[spark]' in FlareMQ's source folder"
        ) from None
    matplotlib.use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    drawn: dict[str, Draw] = {"hours": _hours, "latency": _latency, "top": _top, "backlog": _backlog}
    written, folder = [], local_path(folder)
    for name, draw in drawn.items():
        figure = draw(pyplot, stats if fine is None or name == "top" else fine)
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


def _hours(pyplot: Any, stats: StatsTables) -> Any:
    """Messages of each hour, with topics stacked."""
    figure, axis = pyplot.subplots(figsize=(11, 5.5), constrained_layout=True)
    axis.set_title(f"Messages per {_unit(stats)}, by topic")
    rows = stats.rows("hours")
    if not rows:
        return _empty(figure, [axis])
    times, step = _all_times((row["hour"] for row in rows), _step(stats)), _step(stats)
    kept = [row["topic"] for row in stats.rows("topics")][: len(_COLOURS) - 1]
    counts: dict[str, dict[datetime, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        counts[row["topic"] if row["topic"] in kept else "others"][row["hour"]] += row["messages"]
    base = [0] * len(times)
    for label, colour in zip((*kept, "others"), (*_COLOURS[: len(kept)], _COLOURS[-1]), strict=True):
        if label not in counts:
            continue
        values = [counts[label][at] for at in times]
        axis.bar(times, values, step * 0.92, base, align="edge", label=_short(label), color=colour)
        base = [low + value for low, value in zip(base, values, strict=True)]
    axis.set_ylabel(f"messages per {_unit(stats)}")
    axis.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    _number_axis(axis.yaxis, _count)
    _time_axis(axis, times, step)
    return _plain(figure, [axis])


def _latency(pyplot: Any, stats: StatsTables) -> Any:
    """Above, the size of messages; below, their latency until stored."""
    figure, (above, below) = pyplot.subplots(2, 1, figsize=(11, 7.5), sharex=True, constrained_layout=True)
    above.set_title(f"Mean size of messages, per {_unit(stats)}")
    below.set_title(f"From born to stored, per {_unit(stats)}: 99th percentile, dotted the median")
    rows = stats.rows("hours")
    if not rows:
        return _empty(figure, [above, below])
    topics = [row["topic"] for row in stats.rows("topics")][:_LINES_MAX]
    for topic, colour in zip(topics, _COLOURS, strict=False):
        own = [row for row in rows if row["topic"] == topic]
        times = [row["hour"] + _step(stats) / 2 for row in own]
        line = {"color": colour, "linewidth": 1.6, "marker": "o", "markersize": 3}
        above.plot(times, [row["sizeMean"] for row in own], label=_short(topic), **line)
        below.plot(times, [max(1.0, row["latencyP99Ms"]) for row in own], **line)
        below.plot(times, [max(1.0, row["latencyP50Ms"]) for row in own], color=colour, linestyle=":")
    above.set_ylabel("size")
    above.set_ylim(bottom=0)
    _number_axis(above.yaxis, size)
    below.set_ylabel("latency (below 1 ms as 1 ms)")
    # Some messages are delayed by hours, others take a millisecond.
    below.set_yscale("log")
    below.set_ylim(bottom=0.8, top=2 * max(10.0, below.get_ylim()[1]))
    _number_axis(below.yaxis, span)
    above.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    _time_axis(below, _all_times((row["hour"] for row in rows), _step(stats)), _step(stats))
    return _plain(figure, [above, below])


def _top(pyplot: Any, stats: StatsTables) -> Any:
    """Bars of the most frequent keys and tags."""
    keys = [(f"{row['key']}  ({row['topic']})", row["messages"]) for row in stats.rows("keys")]
    tags = [(f"{row['tag'] or '(no tag)'}  ({row['topic']})", row["messages"]) for row in stats.rows("tags")]
    most = max(3, min(_BARS_MAX, max(len(keys), len(tags))))
    figure, axes = pyplot.subplots(1, 2, figsize=(13, 1.6 + 0.34 * most), constrained_layout=True)
    for axis, what, found, colour in (
        (axes[0], "keys", keys, "#1f77b4"),
        (axes[1], "tags", tags, "#2ca02c"),
    ):
        axis.set_title(f"{what.capitalize()} with the most messages")
        if not found:
            _empty(figure, [axis], f"no {what}")
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


def _backlog(pyplot: Any, stats: StatsTables) -> Any:
    """The backlog of groups, by the hour in which messages came; without groups, all stored messages."""
    rows, of = stats.rows("backloghours"), ("group", "topic")
    figure, axis = pyplot.subplots(figsize=(11, 5.5), constrained_layout=True)
    title = "Backlog of consumer groups: what came since their offsets"
    if not stats.rows("backlog"):
        rows, of, title = stats.rows("hours"), ("topic",), "Messages stored, added up"  # type: ignore[assignment]
    axis.set_title(title)
    if not rows:
        return _empty(figure, [axis], "nothing waits" if stats.rows("backlog") else "no messages")
    lines: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        lines[" / ".join(_short(row[name]) for name in of)].append(row)
    step = _step(stats)
    times = _all_times((row["hour"] for row in rows), step)
    largest = sorted(lines, key=lambda name: (-lines[name][-1]["total"], name))[: len(_COLOURS) - 1]
    for name, colour in zip(largest, _COLOURS, strict=False):
        at, totals = _steps(lines[name], times[-1], step)
        axis.plot(at, totals, label=name, color=colour, linewidth=1.8)
        axis.fill_between(at, totals, color=colour, alpha=0.12)
    axis.set_ylabel("messages")
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False, loc="upper left")
    _number_axis(axis.yaxis, _count)
    _time_axis(axis, times, step)
    return _plain(figure, [axis])


def _steps(rows: Sequence[Row], last: datetime, step: timedelta) -> tuple[list[datetime], list[int]]:
    """A line from 0 at the beginning of the first step to the total at the end of the last one."""
    times, totals = [rows[0]["hour"]], [0]
    for row in rows:
        if row["hour"] > times[-1]:
            times.append(row["hour"])
            totals.append(totals[-1])
        times.append(row["hour"] + step)
        totals.append(row["total"])
    if times[-1] < last + step:
        times.append(last + step)
        totals.append(totals[-1])
    return times, totals


# Common to all plots.


def _step(stats: StatsTables) -> timedelta:
    return timedelta(milliseconds=stats.step_ms)


def _unit(stats: StatsTables) -> str:
    seconds = stats.step_ms // 1000
    whole, number = next((name, seconds // length) for name, length in _UNITS if seconds % length == 0)
    return whole if number == 1 else f"{number} {whole}s"


def _all_times(hours: Iterable[datetime], step: timedelta) -> list[datetime]:
    """All times from the first to the last, including those without messages unless they span over a year."""
    found = sorted(set(hours))
    count = round((found[-1] - found[0]) / step) + 1
    return [found[0] + at * step for at in range(count)] if count <= 24 * 366 else found


def _time_axis(axis: Any, times: Sequence[datetime], step: timedelta) -> None:
    dates = import_module("matplotlib.dates")
    locator = dates.AutoDateLocator(minticks=3, maxticks=9)
    axis.xaxis.set_major_locator(locator)
    if step < timedelta(hours=1):  # Minutes and seconds without the hour would be ambiguous.
        clock = "%H:%M:%S" if step < timedelta(minutes=1) else "%H:%M"
        axis.xaxis.set_major_formatter(dates.DateFormatter(clock, tz=UTC))
        axis.set_xlabel(f"time (UTC), {times[0]:%Y-%m-%d}")
    else:
        axis.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
        axis.set_xlabel("time (UTC)")
    # Else a single bar would be as wide as the plot.
    room = max(step / 2, (12 * step - (times[-1] - times[0])) / 2)
    axis.set_xlim(times[0] - room, times[-1] + step + room)


def _number_axis(axis: Any, text: Callable[[float], str]) -> None:
    axis.set_major_formatter(import_module("matplotlib.ticker").FuncFormatter(lambda value, _: text(value)))


def _count(value: float) -> str:
    for unit, length in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= length:
            return f"{value / length:,.4g} {unit}"
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
