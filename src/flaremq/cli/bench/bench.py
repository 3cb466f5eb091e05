"""`flaremq bench`: measures the speed of a RocketMQ cluster, ours or Apache's."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Annotated, Any, Final

import typer

from flaremq.base.errors import FlareError
from flaremq.base.lifecycle import new_loop
from flaremq.base.text import count as counted
from flaremq.cli.bench import load
from flaremq.cli.bench.consume import STAMP_SIZE, Following, Received, follow, ping
from flaremq.cli.bench.histogram import LatencyHistogram
from flaremq.cli.connect import client_settings
from flaremq.cli.options import Json, Namesrv, Profile
from flaremq.cli.render import BadValue, Output, note

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Measure the speed of a RocketMQ cluster, FlareMQ or Apache.",
)

TOPIC: Final = "FlareBench"
_LOOK_S: Final = 0.5
_SHARES: Final = (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))

Facts = dict[str, object]

Topic = Annotated[
    str,
    typer.Option("-t", "--topic", metavar="TOPIC", help="Topic; created where brokers allow it."),
]
Seconds = Annotated[float, typer.Option("-s", "--seconds", metavar="N", min=0.1, help="Duration.")]
Size = Annotated[
    int, typer.Option("--size", metavar="BYTES", min=1, max=4 << 20, help="Body size of a message.")
]


@app.command("send")
def send(
    topic: Topic = TOPIC,
    connections: Annotated[
        int,
        typer.Option("-C", "--connections", min=1, metavar="N", max=1000, help="Connections to each broker."),
    ] = 1,
    window: Annotated[
        int,
        typer.Option(
            "-w", "--window", min=1, metavar="N", max=65535, help="Unanswered requests per connection."
        ),
    ] = 256,
    size: Size = 128,
    batch: Annotated[
        int, typer.Option("--batch", min=1, metavar="N", max=10_000, help="Messages per request.")
    ] = 1,
    rate: Annotated[
        float,
        typer.Option("-r", "--rate", metavar="N", min=0, help="Messages per second; 0: as fast as possible."),
    ] = 0,
    seconds: Seconds = 10,
    count: Annotated[
        int,
        typer.Option("--count", metavar="N", min=0, help="Total number of messages, instead of a duration."),
    ] = 0,
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Send messages and measure rate and latency."""
    plan = load.LoadPlan(
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
        raise BadValue(
            f"--batch {batch} with --size {size}: a request takes at most 4 MiB; use smaller numbers"
        )
    outcome = load.Outcome()

    def facts() -> Facts:
        return {
            "messages": outcome.stored,
            "seconds": round(outcome.elapsed_s, 3),
            "rate": round(outcome.rate, 1),
            "failed": outcome.failed,
            **_times("latency", outcome.latency),
            **({"unsent": outcome.unsent, **_times("late", outcome.lateness)} if rate else {}),
        }

    work = load.run(plan, client_settings(namesrv, profile), outcome)
    _measured(work, lambda: _sent_line(outcome), facts, json)
    _check(outcome)


@app.command("consume")
def consume(
    topic: Topic = TOPIC,
    group: Annotated[
        str, typer.Option("-g", "--group", metavar="GROUP", help="Consumer group; it resumes at its offsets.")
    ] = "GID_flaremq_bench",
    consumers: Annotated[
        int,
        typer.Option(
            "-C", "--consumers", min=1, metavar="N", max=1000, help="Consumers that share the queues."
        ),
    ] = 1,
    begin: Annotated[bool, typer.Option("--from-begin/--from-end", help="Where a new group starts.")] = True,
    seconds: Seconds = 10,
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Consume messages and measure rate and message age."""
    received = Received()
    wanted = Following(topic=topic, group=group, consumers=consumers, seconds=seconds, begin=begin)

    def facts() -> Facts:
        # If all arrived at one moment, the rate is over the whole time.
        rate = received.count / (received.elapsed_s or seconds)
        return {
            "messages": received.count,
            "bytes": received.size,
            "seconds": round(received.elapsed_s, 3),
            "rate": round(rate, 1),
            **_times("age", received.age),
        }

    work = follow(wanted, client_settings(namesrv, profile), received)
    _measured(work, lambda: f"{counted(received.count, 'message')}, {received.rate():,.0f}/s", facts, json)
    if not received.count:
        note(
            f"no messages arrived: group {group} has consumed all of {topic}, or other members took them; "
            f"`flaremq group reset {group} {topic} --to beginning` starts over"
        )


@app.command("latency")
def latency(
    topic: Topic = TOPIC,
    rate: Annotated[
        float, typer.Option("-r", "--rate", min=0.1, metavar="N", max=100_000, help="Messages per second.")
    ] = 100,
    size: Size = 128,
    seconds: Seconds = 10,
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Send at a fixed rate and consume at once: measure the time to the answer and to the consumer."""
    outcome, received = load.Outcome(), Received()
    if size < STAMP_SIZE:
        raise BadValue(
            f"--size {size}: expected at least {STAMP_SIZE} bytes, because each message carries its time"
        )
    plan = load.LoadPlan(topic=topic, size=size, rate=rate, seconds=seconds)

    def facts() -> Facts:
        return {
            "messages": outcome.stored,
            "received": received.count,
            "seconds": round(outcome.elapsed_s, 3),
            "failed": outcome.failed,
            "unsent": outcome.unsent,
            **_times("answer", outcome.latency),
            **_times("delivery", received.age),
            **_times("late", outcome.lateness),
        }

    work = ping(plan, client_settings(namesrv, profile), outcome, received)
    _measured(work, lambda: f"{_sent_line(outcome)}, {received.count:,} received", facts, json)
    _check(outcome)
    if received.count < outcome.stored:
        late = counted(outcome.stored - received.count, "message")
        raise FlareError(f"{late} of {outcome.stored:,} stored did not reach the consumer in time")


def _check(outcome: load.Outcome) -> None:
    if outcome.failed:
        raise FlareError(f"{counted(outcome.failed, 'message')} failed, the last one: {outcome.last_error}")


def _sent_line(outcome: load.Outcome) -> str:
    p99_ms = outcome.latency.percentile(0.99) * 1e3
    failed = f", {outcome.failed:,} failed" if outcome.failed else ""
    return f"{counted(outcome.stored, 'message')}, {outcome.rate:,.0f}/s, p99 {p99_ms:.2f} ms{failed}"


def _times(name: str, times: LatencyHistogram) -> Facts:
    found: Facts = {f"{name}_{label}_ms": round(times.percentile(share) * 1e3, 3) for label, share in _SHARES}
    found[f"{name}_max_ms"] = round(times.most_s * 1e3, 3)
    return found


def _measured(
    work: Coroutine[Any, Any, None], line: Callable[[], str], facts: Callable[[], Facts], json: bool
) -> None:
    """Run it and show the measurements. Ctrl-C ends it early; what was measured by then is still shown."""
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_with_line(work, line, shown=not json and sys.stderr.isatty()))
    except KeyboardInterrupt:
        _show(facts(), json)
        raise
    _show(facts(), json)


async def _with_line(work: Coroutine[Any, Any, None], line: Callable[[], str], *, shown: bool) -> None:
    """Run it with a status line that changes every half second, if a person is watching."""
    task = asyncio.ensure_future(work)
    began_s = perf_counter()
    try:
        while not (await asyncio.wait({task}, timeout=_LOOK_S))[0]:
            if shown:
                text = f"{perf_counter() - began_s:5.1f} s  {line()}"
                # A line that the terminal wraps could not be erased.
                _draw(text[: shutil.get_terminal_size().columns - 1])
        task.result()
    finally:
        task.cancel()
        if shown:
            _draw("")
        await asyncio.wait({task})  # It leaves its brokers properly.


def _draw(text: str) -> None:
    print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)


def _show(facts: Facts, json: bool) -> None:
    out = Output(json)
    out.show(
        facts,
        lambda: out.table(
            ("measured", ">value"), [(_label(name), _value(value)) for name, value in facts.items()]
        ),
    )


def _label(name: str) -> str:
    return name.replace("_ms", ", ms").replace("p999", "p99.9").replace("_", " ")


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)
