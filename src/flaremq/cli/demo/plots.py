"""Plots of the demo's counts over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from flaremq.cli.demo.orders import Sample

_PAUSE_S: Final = 5.0
"""There are four samples a second."""


def plot(samples: Sequence[Sample], marks: Sequence[tuple[float, str]], path: Path) -> bool:
    """Rates above, the backlog below. Returns False if matplotlib is not installed."""
    try:
        matplotlib = import_module("matplotlib")
    except ImportError:
        return False
    samples, marks = _story(samples, marks)
    matplotlib.use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    figure, (rates, backlog) = pyplot.subplots(2, 1, figsize=(10, 7), sharex=True, constrained_layout=True)
    lines: list[tuple[str, str, Callable[[Sample], int]]] = [
        ("sent", "#1f77b4", lambda each: each.sold),
        ("billing, both consumers", "#2ca02c", lambda each: sum(each.billed)),
        ("audit, broadcasting", "#ff7f0e", lambda each: each.audited),
    ]
    for label, colour, of in lines:
        times, values = _rates(samples, of)
        rates.plot(times, values, label=label, color=colour, linewidth=1.6)
    rates.set_ylabel("messages per second")
    rates.legend(loc="upper right", facecolor="white", edgecolor="none", framealpha=1.0).set_zorder(3)
    rates.set_title("FlareMQ demo: two brokers, one of them killed and started again")
    backlog.fill_between(
        [each.at_s for each in samples], [each.backlog for each in samples], color="#d62728", alpha=0.35
    )
    backlog.set_ylabel("backlog of billing, messages")
    backlog.set_xlabel("seconds")
    for axis in (rates, backlog):
        axis.set_ylim(bottom=0, top=1.08 * axis.get_ylim()[1])
        axis.set_xlim(0, 1.02 * max([samples[-1].at_s if samples else 1.0, *(at_s for at_s, _ in marks)]))
        axis.yaxis.set_major_formatter("{x:,.0f}")
        axis.spines[["top", "right"]].set_visible(False)
        for at_s, what in marks:
            axis.axvline(at_s, color="#555555", linestyle="--", linewidth=0.9)
            if axis is backlog:
                paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.0}
                place = {"xytext": (-4, -2), "textcoords": "offset points", "ha": "right", "va": "top"}
                top = (at_s, axis.get_ylim()[1])
                axis.annotate(what, top, rotation=90, fontsize=8, bbox=paper, **place)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True


def _story(
    samples: Sequence[Sample], marks: Sequence[tuple[float, str]]
) -> tuple[Sequence[Sample], Sequence[tuple[float, str]]]:
    """The samples up to the first pause: after that pipelines run, and a last sample is taken."""
    ends = (
        n for n, (before, after) in enumerate(pairwise(samples), 1) if after.at_s - before.at_s > _PAUSE_S
    )
    found = samples[: next(ends, len(samples))]
    end_s = found[-1].at_s if found else 0.0
    return found, [mark for mark in marks if mark[0] <= end_s]


def _rates(samples: Sequence[Sample], of: Callable[[Sample], int]) -> tuple[list[float], list[float]]:
    """The rates of a count, each over about a second so that the line is smooth."""
    wide = samples[::4]
    pairs = [(before, after) for before, after in pairwise(wide) if after.at_s > before.at_s]
    times = [(before.at_s + after.at_s) / 2 for before, after in pairs]
    return times, [(of(after) - of(before)) / (after.at_s - before.at_s) for before, after in pairs]
