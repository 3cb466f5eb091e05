"""`flaremq bench`: what it measures is true, and it ends as one expects."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from time import perf_counter

import pytest
from tests.cli.commands import AT_A_TERMINAL
from tests.cli.conftest import Ask

from flaremq.base.errors import Unreachable
from flaremq.cli.bench import load
from flaremq.cli.bench.histogram import LatencyHistogram
from flaremq.testing.embedded import EmbeddedThread
from flaremq.testing.patience import load_factor

# Times, counted.


def test_an_empty_histogram_has_no_times() -> None:
    assert (LatencyHistogram().percentile(0.99), LatencyHistogram().most_s) == (0.0, 0.0)


def test_percentiles_are_right_to_one_part_in_a_hundred() -> None:
    times = LatencyHistogram()
    times.extend(n / 1000 for n in range(1, 1001))
    for share, wanted_s in ((0.5, 0.5), (0.99, 0.99), (0.999, 0.999), (1.0, 1.0)):
        assert times.percentile(share) == pytest.approx(wanted_s, rel=0.01)
    assert (times.count, times.most_s) == (1000, 1.0)


def test_no_percentile_is_above_the_longest_time() -> None:
    times = LatencyHistogram()
    times.add(0.0301, times=3)
    assert times.percentile(0.999) == times.most_s == 0.0301
    assert times.count == 3


def test_a_time_of_nothing_can_be_counted() -> None:
    times = LatencyHistogram()
    times.extend([0.0, -1e-9])
    assert times.percentile(0.5) == 0.0


# When messages are due.


async def dues_of(plan: load.LoadPlan, outcome: load.Outcome, most: int = 64) -> list[Sequence[float]]:
    pace, given = load.LoadPace(plan, 0, outcome), []
    while dues := await pace.next(most):
        given.append(dues)
    return given


async def test_without_a_rate_messages_are_due_at_once_until_there_are_enough() -> None:
    given = await dues_of(load.LoadPlan(topic="t", count=150), load.Outcome())
    assert [len(each) for each in given] == [64, 64, 22]


async def test_connections_share_what_is_to_be_sent() -> None:
    plan = load.LoadPlan(topic="t", count=11, connections=3)
    counts = [len(await load.LoadPace(plan, number, load.Outcome()).next(64)) for number in range(3)]
    assert counts == [4, 4, 3]


async def test_by_a_plan_messages_are_due_one_after_the_other() -> None:
    outcome = load.Outcome()
    given = await dues_of(load.LoadPlan(topic="t", rate=1000, count=50), outcome)
    dues = [due_s for each in given for due_s in each]
    assert len(dues) == 50 == outcome.lateness.count
    gaps = [after - before for before, after in pairwise(dues)]
    assert gaps == [pytest.approx(0.001)] * 49


async def test_a_stall_counts_from_when_messages_were_due() -> None:
    plan, outcome = load.LoadPlan(topic="t", rate=100, count=20), load.Outcome()
    pace = load.LoadPace(plan, 0, outcome)
    await pace.next(1)
    until_s = perf_counter() + 0.1
    while perf_counter() < until_s:
        pass  # The whole loop stands still.
    dues = await pace.next(64)
    assert len(dues) >= 9
    assert perf_counter() - dues[0] > 0.08
    assert outcome.lateness.most_s > 0.08


async def test_what_a_slow_broker_left_unsent_is_told() -> None:
    plan, outcome = load.LoadPlan(topic="t", rate=1000, seconds=0.1), load.Outcome()
    pace = load.LoadPace(plan, 0, outcome)
    got = len(await pace.next(10))
    until_s = perf_counter() + 0.15
    while perf_counter() < until_s:
        pass
    assert await pace.next(64) == ()
    assert outcome.unsent == 100 - got
    assert await pace.next(64) == ()
    assert outcome.unsent == 100 - got


@pytest.mark.parametrize("began_s", [0.0, 0.3, 1234.7, 98765.4321, 1e6 + 1 / 3])
async def test_a_plan_has_as_many_messages_whenever_it_begins(
    began_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "perf_counter", lambda: began_s)
    outcome = load.Outcome()
    pace = load.LoadPace(load.LoadPlan(topic="t", rate=1000, seconds=0.1), 0, outcome)
    monkeypatch.setattr(load, "perf_counter", lambda: began_s + 1)
    assert await pace.next(64) == ()
    assert outcome.unsent == 100


async def test_batches_are_whole_and_due_together() -> None:
    plan = load.LoadPlan(topic="t", rate=2000, count=35, batch=10)
    given = await dues_of(plan, load.Outcome(), most=10)
    assert [len(each) for each in given] == [10, 10, 10, 5]
    assert all(len(set(each)) == 1 for each in given)


async def test_many_who_ask_at_a_time_never_get_the_same_message() -> None:
    plan, outcome = load.LoadPlan(topic="t", rate=1000, count=60, batch=2), load.Outcome()
    pace = load.LoadPace(plan, 0, outcome)

    async def worker() -> list[float]:
        found: list[float] = []
        while dues := await pace.next(2):
            found.append(dues[0])
        return found

    found = [due for each in await asyncio.gather(*(worker() for _ in range(8))) for due in each]
    assert len(found) == len(set(found)) == 30


def test_what_was_measured_can_be_looked_at_before_it_began() -> None:
    outcome = load.Outcome()
    assert (outcome.elapsed_s, outcome.rate) == (0.0, 0.0)
    outcome.note_failure(Unreachable("gone"), 3)
    assert (outcome.failed, outcome.last_error) == (3, "gone")


# The commands.


def stored(ask: Ask, topic: str) -> int:
    found: int = ask("topic", "stats", topic, "--json").document["messages"]
    return found


@pytest.mark.parametrize("extra", [(), ("--batch", 7), ("--connections", 3), ("--window", 1)])
def test_as_many_are_stored_as_it_says(
    ask: Ask, extra: tuple[object, ...], request: pytest.FixtureRequest
) -> None:
    topic = f"sent-{request.node.callspec.indices['extra']}"
    ended = ask("bench", "send", "-t", topic, "--count", 500, *extra, "--json")
    found = ended.document
    assert (found["messages"], found["failed"]) == (500, 0)
    assert found["rate"] == pytest.approx(500 / found["seconds"], rel=0.05)
    assert 0 < found["latency_p50_ms"] <= found["latency_p999_ms"] <= found["latency_max_ms"]
    assert "late_p50_ms" not in found and ended.err == ""
    connections = 3 if "--connections" in extra else 1
    assert stored(ask, topic) == 500 + connections  # One of each is sent before the clock starts.


def test_a_rate_is_kept(ask: Ask) -> None:
    found = ask("bench", "send", "-t", "paced", "--rate", 200, "--seconds", 1, "--json").document
    assert found["messages"] + found["unsent"] == 200
    assert found["seconds"] > 0.9
    assert "late_p99_ms" in found


def test_for_people_there_is_a_table(ask: Ask) -> None:
    out = ask("bench", "send", "-t", "table", "--seconds", 0.2).out
    assert "latency p99.9, ms" in out and out.startswith("MEASURED")


def test_everything_that_lies_there_is_consumed_once(ask: Ask) -> None:
    assert ask("topic", "create", "eaten").status == 0
    assert ask("bench", "send", "-t", "eaten", "--count", 300).status == 0
    words = ("bench", "consume", "-t", "eaten", "-g", "eaters", "--seconds", 1)
    found = ask(*words, "--json").document
    assert found["messages"] == 301
    assert found["bytes"] > 301 * 128 and found["rate"] > 0
    ended = ask(*words, "--json")
    assert ended.document["messages"] == 0
    assert "flaremq group reset eaters eaten" in ended.err


def test_consumers_that_share_the_queues_miss_nothing(ask: Ask) -> None:
    assert ask("topic", "create", "shared").status == 0
    assert ask("bench", "send", "-t", "shared", "--count", 300).status == 0
    words = ("bench", "consume", "-t", "shared", "-g", "sharers", "-C", 3, "--seconds", 1)
    # What one of them has when the next one comes may be delivered to that one too.
    assert ask(*words, "--json").document["messages"] >= 301


def test_latency_delivers_what_it_sent(ask: Ask) -> None:
    ask("send", "pinged", "short")
    for _ in range(2):  # The second finds what the first has left, and counts none of it.
        found = ask("bench", "latency", "-t", "pinged", "--rate", 100, "--seconds", 1, "--json").document
        assert found["messages"] == found["received"] == 100 - found["unsent"]
        assert found["answer_p50_ms"] > 0 and 0 < found["delivery_p50_ms"] <= found["delivery_max_ms"]


@pytest.mark.parametrize(
    ("status", "words", "hint"),
    [
        (2, ("send", "-t", "a b"), "' '"),
        (2, ("send", "--batch", 100, "--size", 100_000), "4 MiB"),
        (1, ("consume", "-t", "nowhere"), "flaremq topic list"),
        (2, ("latency", "--size", 3), "at least 16 bytes"),
    ],
)
def test_what_cannot_be_is_one_line(ask: Ask, status: int, words: tuple[object, ...], hint: str) -> None:
    assert hint in ask("bench", *words).complaint_with(status)


def test_a_refused_send_is_one_line(ask: Ask) -> None:
    assert ask("topic", "create", "closed").status == 0
    assert ask("topic", "update", "closed", "--perm", "r").status == 0
    assert "closed" in ask("bench", "send", "-t", "closed", "--count", 10).complaint


def test_sends_that_fail_on_the_way_are_counted_and_end_with_status_1(
    ask: Ask, servers: EmbeddedThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load.Timed.timed
    calls = 0

    async def timed(pipeline: load.Timed, part: Sequence[object], dues: Sequence[float]) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            words = ("topic", "update", "narrow", "-q", "1", "-n", servers.namesrv)
            closing = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "flaremq.cli.main", *words, stdout=subprocess.DEVNULL
            )
            assert await closing.wait() == 0
        await first(pipeline, part, dues)  # type: ignore[arg-type]

    monkeypatch.setattr(load.Timed, "timed", timed)
    assert ask("topic", "create", "narrow", "-q", 8).status == 0
    ended = ask("bench", "send", "-t", "narrow", "--count", 640, "--json")
    assert ended.status == 1
    found = json.loads(ended.out)
    assert found["messages"] + found["failed"] == 640 and found["failed"] > 0
    assert f"{found['failed']} messages failed" in ended.err and ended.err.count("\n") == 1


@pytest.mark.parametrize("what", ["send", "consume", "latency"])
def test_ctrl_c_shows_what_was_measured_until_then(ask: Ask, servers: EmbeddedThread, what: str) -> None:
    topic = f"cut-{what}"
    assert ask("topic", "create", topic).status == 0
    words = ["bench", what, "-t", topic, "--seconds", "60", "-n", servers.namesrv, "--json"]
    process = subprocess.Popen(
        [*AT_A_TERMINAL, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    group = {"consume": "GID_flaremq_bench", "latency": "GID_flaremq_bench_latency"}.get(what)
    deadline_s = perf_counter() + 30 * load_factor()
    while perf_counter() < deadline_s:
        if ask("group", "clients", group).status == 0 if group else stored(ask, topic) > 100:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30 * load_factor())
    assert (process.returncode, err) == (130, "flaremq: interrupted\n")
    found = json.loads(out)
    assert found["messages"] > 100 if what == "send" else found["messages"] >= 0
