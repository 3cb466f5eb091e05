"""Messages that are more than a send, beside Apache RocketMQ on the same machine.

`python -m benches kinds`: delayed sends, transactions (prepared, then committed) and replies a second, and
how late messages are of which very many are due at the same moment, and how sends fare meanwhile. Each side
gets a NameServer and a broker with RocketMQ's default settings, is warmed up, and is loaded by the same
generators in C.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

from benches.wire import TOPIC, Figures, Generator, NotMeasured, Side, generator, sides
from tests.java.peers import Peers

SOURCE = Path(__file__).with_name("kinds.c")
REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
DUE = 100_000
AHEAD_S = 15
BESIDE_TOPIC = "Beside"
BESIDE_S = 5.0
QUEUES = 4
LEVEL = r"DELAY\u000118\u0002"
TIMER = r"TIMER_DELAY_SEC\u00013600\u0002"

Run = Callable[[Generator, Generator, int, float], Figures]
"""The two generators, port, seconds."""


def delayed(
    load: Generator, _kinds: Generator, port: int, seconds: float, *, conns: int, window: int, by: str
) -> Figures:
    return load("send", port, conns, window, seconds, 128, TOPIC, 1, QUEUES, by)


def transactions(
    _load: Generator, kinds: Generator, port: int, seconds: float, *, conns: int, window: int
) -> Figures:
    return kinds("transactions", port, conns, window, seconds, 128, TOPIC, QUEUES)


def replies(
    _load: Generator, kinds: Generator, port: int, seconds: float, *, conns: int, window: int
) -> Figures:
    return kinds("replies", port, conns, window, seconds, 128, REPLY_TOPIC)


def due(_load: Generator, kinds: Generator, port: int, _seconds: float, *, count: int) -> Figures:
    figures = kinds("due", port, 16, 32, count, AHEAD_S, TOPIC, QUEUES)
    if figures["messages"] != figures["sent"]:
        raise NotMeasured(f"of {figures['sent']} messages {figures['messages']} arrived within two minutes")
    return figures


def sends(load: Generator, _kinds: Generator, port: int, seconds: float) -> Figures:
    return load("send", port, 8, 1, seconds, 128, BESIDE_TOPIC, 1, QUEUES)


def beside(load: Generator, kinds: Generator, port: int, _seconds: float, *, count: int) -> Figures:
    """Sends from two seconds before the moment at which very many messages are due until three behind it."""
    with ThreadPoolExecutor(1) as other:
        firing = other.submit(due, load, kinds, port, 0, count=count)
        wait([firing], AHEAD_S - 1.5)  # The moment is the next whole second after AHEAD_S.
        figures = sends(load, kinds, port, BESIDE_S)
        firing.result()
    return figures


LATE = f"{DUE:,} due at one moment"
BESIDE = f"sends while {DUE:,} are due"
RUNS: dict[str, Run] = {
    "by delay level, 16 x 32": partial(delayed, conns=16, window=32, by=LEVEL),
    "by delay level, 64 x 1": partial(delayed, conns=64, window=1, by=LEVEL),
    "by timer, 16 x 32": partial(delayed, conns=16, window=32, by=TIMER),
    "by timer, 64 x 1": partial(delayed, conns=64, window=1, by=TIMER),
    "transactions, 16 x 32": partial(transactions, conns=16, window=32),
    "transactions, 64 x 1": partial(transactions, conns=64, window=1),
    "replies, 16 x 32": partial(replies, conns=16, window=32),
    "replies, 64 x 1": partial(replies, conns=64, window=1),
    LATE: partial(due, count=DUE),
    "sends, 8 x 1": sends,
    BESIDE: partial(beside, count=DUE),
}
"""Named by their connections and how many requests each keeps under way."""


def measure(
    side: Side,
    load: Generator,
    kinds: Generator,
    *,
    seconds: float,
    warm_s: float,
    chosen: list[str],
    tell: Callable[[str], None],
) -> dict[str, Figures]:
    root = Path(tempfile.mkdtemp(prefix="flaremq-bench-", dir=Path())).resolve()
    measured: dict[str, Figures] = {}
    try:
        with Peers(root) as peers:
            namesrv = peers.namesrv(side.namesrv)
            broker = peers.broker(side.broker, namesrv.address, "broker-a", {"timerWheelEnable": "true"})
            for name in chosen:
                if name not in (LATE, BESIDE):
                    RUNS[name](load, kinds, broker.port, warm_s)
            for name in chosen:
                measured[name] = figures = RUNS[name](load, kinds, broker.port, seconds)
                tell(f"{side.name}, {name}: {json.dumps(figures)}")
    finally:
        shutil.rmtree(root)
    return measured


def table(results: dict[str, dict[str, Figures]], chosen: list[str]) -> Iterator[str]:
    """A line per run; a ratio above 1 says that FlareMQ does more, or is less late."""
    names = list(results)
    titles = "".join(f"{name:>14}/s{'p50 ms':>10}{'p99 ms':>10}" for name in names)
    yield f"{'':<30}{titles}{'ratio':>8}"
    for run in chosen:
        figures = [results[name][run] for name in names]
        what = "p99_us" if run == LATE else "rate"
        cells = "".join(
            (f"{'':>16}" if run == LATE else f"{each['rate']:>16,.0f}")
            + f"{each['p50_us'] / 1000:>10,.1f}{each['p99_us'] / 1000:>10,.1f}"
            for each in figures
        )
        yield f"{run:<30}{cells}{_ratio(figures, what)}{_notes(figures)}"


def _ratio(figures: list[Figures], what: str) -> str:
    if len(figures) < 2:
        return ""
    ours, theirs = figures[0][what], figures[1][what]
    if not ours or not theirs:
        return f"{'none':>8}"  # A side that did nothing: the notes say why.
    return f"{(theirs / ours if what == 'p99_us' else ours / theirs):>8.2f}"


def _notes(figures: list[Figures]) -> str:
    notes = [f"the first after {each['earliest_s']:.3f} s" for each in figures if "earliest_s" in each]
    notes += [
        f"{each['errors']} refused with {each.get('last_code')}, {each['messages']} not"
        for each in figures
        if each["errors"]
    ]
    return "  " + ", ".join(notes) if notes else ""


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benches kinds", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run")
    parser.add_argument("--warm-up", type=float, default=5.0, help="seconds of each run that does not count")
    parser.add_argument("--flare-only", action="store_true", help="leave Apache RocketMQ out")
    parser.add_argument("--only", default="", help="runs whose name has this text")
    parser.add_argument("--verbose", action="store_true", help="all figures of each run, as JSON")
    options = parser.parse_args(words)
    chosen = [name for name in RUNS if options.only in name]
    tell = print if options.verbose else lambda _: None
    print(f"{options.seconds:g} s per run, after {options.warm_up:g} s of warming up; Java's heap is 4 GiB")
    try:
        with generator() as load, generator(SOURCE) as kinds:
            once = partial(measure, seconds=options.seconds, warm_s=options.warm_up, chosen=chosen, tell=tell)
            results = {side.name: once(side, load, kinds) for side in sides(options.flare_only)}
            print("\n" + "\n".join(table(results, chosen)), flush=True)
    except NotMeasured as missing:
        print(f"not measured: {missing}")
        raise SystemExit(1) from None
