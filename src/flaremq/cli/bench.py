"""`flaremq bench`: how fast any RocketMQ is, with a client that anybody can have."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Annotated, Any, Final

import typer

from flaremq.base.errors import InvalidParameter
from flaremq.cli import load
from flaremq.cli.connect import client_settings
from flaremq.cli.histogram import Histogram
from flaremq.cli.options import Json, Namesrv, Profile
from flaremq.cli.received import Received, follow, ping
from flaremq.cli.render import Output
from flaremq.client.portal import new_loop

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Measure a cluster, ours or another.")

TOPIC: Final = "FlareBench"
_SHARES: Final = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))

Topic = Annotated[str, typer.Option("-t", "--topic", help="Where to; created where brokers allow that.")]
Seconds = Annotated[float, typer.Option("-s", "--seconds", min=0.1, help="For how long.")]
Size = Annotated[int, typer.Option("--size", min=1, max=4 << 20, help="Bytes of a body.")]


@app.command("send")
def send(
    topic: Topic = TOPIC,
    connections: Annotated[int, typer.Option("-C", "--connections", min=1, max=1000)] = 1,
    window: Annotated[
        int, typer.Option("-w", "--window", min=1, max=65535, help="Outstanding on each connection.")
    ] = 256,
    size: Size = 128,
    batch: Annotated[int, typer.Option("--batch", min=1, max=10_000, help="Messages in a request.")] = 1,
    rate: Annotated[
        float, typer.Option("-r", "--rate", min=0, help="Messages a second; 0: all that goes.")
    ] = 0,
    seconds: Seconds = 10,
    count: Annotated[int, typer.Option("--count", min=0, help="Messages in all, instead of a time.")] = 0,
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Send, and measure how long answers take."""
    plan = load.Plan(
        topic=topic,
        size=size,
        connections=connections,
        window=window,
        batch=batch,
        rate=rate,
        seconds=seconds,
        count=count,
    )
    if batch * size > 4 << 20:
        raise InvalidParameter(f"{batch} messages of {size} bytes pass the 4 MiB of a request: make it less")
    outcome = load.Outcome()
    _watched(load.run(plan, client_settings(namesrv, profile), outcome), lambda: _sent_line(outcome), json)
    facts: dict[str, object] = {
        "messages": outcome.stored,
        "seconds": round(outcome.elapsed_s, 3),
        "rate": round(outcome.stored / outcome.elapsed_s, 1),
        "failed": outcome.failed,
        **_times("latency", outcome.latency),
        **(_times("late", outcome.lateness) if rate else {}),
    }
    _show(facts, json)
    if outcome.failed:
        typer.echo(f"flaremq: {outcome.failed} sends failed, the last one: {outcome.last_error}", err=True)
        raise typer.Exit(1)


@app.command("consume")
def consume(
    topic: Topic = TOPIC,
    group: Annotated[str, typer.Option("-g", "--group")] = "GID_flaremq_bench",
    consumers: Annotated[int, typer.Option("-C", "--consumers", min=1, max=1000)] = 1,
    begin: Annotated[bool, typer.Option("--from-begin/--from-end", help="Where a new group begins.")] = True,
    seconds: Seconds = 10,
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Consume, and measure how many messages come and how old they are."""
    received = Received()
    work = follow(received, client_settings(namesrv, profile), topic, group, consumers, seconds, begin=begin)
    _watched(work, lambda: f"{received.count:,} messages, {received.rate():,.0f}/s", json)
    facts: dict[str, object] = {
        "messages": received.count,
        "bytes": received.size,
        "seconds": round(received.elapsed_s, 3),
        "rate": round(received.count / max(received.elapsed_s, 1e-9), 1),
        **_times("age", received.age),
    }
    _show(facts, json)


@app.command("latency")
def latency(
    topic: Topic = TOPIC,
    rate: Annotated[
        float, typer.Option("-r", "--rate", min=0.1, max=100_000, help="Messages a second.")
    ] = 100,
    size: Size = 128,
    seconds: Seconds = 10,
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Send by a plan and consume at the same time: how long from send to answer, and to the consumer."""
    outcome, received = load.Outcome(), Received()
    plan = load.Plan(topic=topic, size=max(size, 32), rate=rate, seconds=seconds)
    work = ping(plan, client_settings(namesrv, profile), outcome, received)
    _watched(work, lambda: f"{_sent_line(outcome)}, {received.count:,} received", json)
    facts: dict[str, object] = {
        "messages": outcome.stored,
        "received": received.count,
        "seconds": round(outcome.elapsed_s, 3),
        "failed": outcome.failed,
        **_times("answer", outcome.latency),
        **_times("delivery", received.age),
        **_times("late", outcome.lateness),
    }
    _show(facts, json)


def _sent_line(outcome: load.Outcome) -> str:
    rate = outcome.stored / outcome.elapsed_s if outcome.began_s else 0
    p99_ms = outcome.latency.percentile(0.99) * 1e3
    return f"{outcome.stored:,} messages, {rate:,.0f}/s, p99 {p99_ms:.2f} ms"


def _times(name: str, times: Histogram) -> dict[str, object]:
    found: dict[str, object] = {
        f"{name}_{label}_ms": round(times.percentile(share) * 1e3, 3) for label, share in _SHARES
    }
    found[f"{name}_max_ms"] = round(times.most_s * 1e3, 3)
    return found


def _watched(work: Coroutine[Any, Any, None], line: Callable[[], str], json: bool) -> None:
    """Do it, with a line that changes every half second where a person looks."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_with_line(work, line, shown=not json and sys.stderr.isatty()))


async def _with_line(work: Coroutine[Any, Any, None], line: Callable[[], str], *, shown: bool) -> None:
    task = asyncio.ensure_future(work)
    began_s = perf_counter()
    try:
        while not (await asyncio.wait({task}, timeout=0.5))[0]:
            if shown:
                print(
                    f"\r{perf_counter() - began_s:5.1f} s  {line()}\x1b[K",
                    end="",
                    file=sys.stderr,
                    flush=True,
                )
        task.result()
    finally:
        task.cancel()
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _show(facts: dict[str, object], json: bool) -> None:
    out = Output(json)
    out.show(
        facts,
        lambda: out.table(
            ("measured", ">value"), [(_label(name), _value(value)) for name, value in facts.items()]
        ),
    )


def _label(name: str) -> str:
    return name.replace("_ms", ", ms").replace("_", " ")


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)
