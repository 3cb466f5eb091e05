"""Benches are run once, with few messages and no look at the clock, so that they cannot rot."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from benches import clients, dedup, durability, failover, measure, replicas, wire

from flaremq.testing.embedded import Embedded

SMALL: list[tuple[str, dict[str, Any]]] = [
    ("append", {"messages": 256, "body_size": 128, "batch": 64}),
    ("append", {"messages": 64, "body_size": 1024, "batch": 1}),
    ("turn", {"messages": 256, "body_size": 128, "batch": 64}),
    ("compiled", {"messages": 1024, "body_size": 128}),
    ("dispatch", {"messages": 256, "body_size": 128}),
    ("recovery", {"messages": 256, "body_size": 128}),
    ("open_clean", {"messages": 256, "body_size": 128}),
    ("read", {"messages": 256, "body_size": 128, "order": "random"}),
    ("sync_flush", {"messages": 20, "writers": 4}),
    ("many_queues", {"queues": 30, "messages_each": 2}),
]


@pytest.mark.parametrize(("name", "given"), SMALL, ids=[name for name, _ in SMALL])
def test_a_bench_runs_and_counts_its_messages(
    name: str, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_FOLDER", str(tmp_path))
    answer = measure.BENCHES[name](**given)
    assert answer["messages"] == given.get("messages", given.get("queues"))
    assert answer["rate"] > 0
    assert list(tmp_path.iterdir()) == []


async def test_deduplication_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_FOLDER", str(tmp_path))
    figures = await dedup.measure(2)
    assert figures["numbered_us"] > 0
    messages = 2 * dedup.CONNECTIONS * dedup.MESSAGES * dedup.ROUNDS
    assert figures["rebuild_records"] == messages * len(dedup.KINDS)


def test_a_broker_is_measured_over_the_wire(tmp_path: Path) -> None:
    """Java is measured only where somebody wants the figures."""
    options = {
        "mappedFileSizeCommitLog": 8 << 20,
        "mappedFileSizeConsumeQueue": 1000 * 20,
        "maxIndexNum": 100_000,
    }
    plan = wire.Plan(seconds=0.1, warm_s=0.1, folder=tmp_path, options=options)
    (side,) = wire.sides(flare_only=True)
    try:
        with wire.generator() as load:
            measured = wire.measure(side, "ASYNC_FLUSH", load, plan)
    except wire.NoCompiler as missing:
        pytest.skip(str(missing))
    assert list(measured.runs) == list(wire.RUNS)
    for figures in measured.runs.values():
        assert figures["rate"] > 0
        assert figures["errors"] == 0
    assert measured.memory_mib > 0 < measured.start_s
    assert len(list(wire.table("ASYNC_FLUSH", {"FlareMQ": measured}))) == len(wire.RUNS) + 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_a_slave_costs_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = {
        "mappedFileSizeCommitLog": 8 << 20,
        "mappedFileSizeConsumeQueue": 1000 * 20,
        "maxIndexNum": 100_000,
    }
    both = wire.sides(flare_only=True)
    given = argparse.Namespace(seconds=0.1, warm_up=0.1, turns=2)
    try:
        with wire.generator() as load:
            results = replicas.measure(both, load, given, options=options, tell=lambda _line: None)
    except wire.NoCompiler as missing:
        pytest.skip(str(missing))
    (measured,) = results.values()
    assert list(measured) == [*replicas.RUNS[:4], replicas.CATCH_UP, *replicas.RUNS[4:8]]
    assert all(figures["rate"] > 0 and figures["errors"] == 0 for figures in measured.values())
    assert len(list(replicas.table(results))) == len(replicas.RUNS) + 1


@pytest.mark.slow
def test_how_soon_a_consumer_reads_on_at_the_slave_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (side,) = wire.sides(flare_only=True)
    took_s = failover.measure(side, failover.ours, 1, {"mappedFileSizeCommitLog": 8 << 20}, 0.0)
    assert len(took_s) == 1 and took_s[0] > 0
    assert len(list(failover.table({"FlareMQ": took_s}))) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_each_setting_costs_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = argparse.Namespace(seconds=0.1, warm_up=0.1, turns=1)
    try:
        with wire.generator() as load:
            found = durability.measure(load, given, {"mappedFileSizeCommitLog": 8 << 20})
    except wire.NoCompiler as missing:
        pytest.skip(str(missing))
    assert list(found) == list(durability.SETTINGS)
    assert all(each.figures(run)["errors"] == 0 for each in found.values() for run in replicas.SENDS)
    assert len(list(durability.table(found))) == len(durability.SETTINGS) + 1
    assert list(tmp_path.iterdir()) == []


def test_every_bench_is_tried_here() -> None:
    assert {name for name, _ in SMALL} == set(measure.BENCHES)


async def test_our_clients_are_measured_in_every_way(tmp_path: Path) -> None:
    async with Embedded(tmp_path) as servers:
        for mode, size in (("one", 1), ("many", 64), ("batch", 8), ("push", 0), ("pull", 0)):
            work = clients.Work(mode, servers.namesrv, "Backlog", 0.02, 0.1, 20, size)
            assert clients.Work.of(work.words()) == work
            assert await clients.ours(work) > 0
