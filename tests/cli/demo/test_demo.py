"""`flaremq demo`: it tells its story to the end, and leaves nothing running however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.cli.commands import AT_A_TERMINAL, flaremq

from flaremq.cli.demo.demo import Demo
from flaremq.cli.demo.orders import Ledger, Sample
from flaremq.cli.demo.plots import plot
from flaremq.client.message import Receipt, SendStatus
from flaremq.model.message import MessageQueue
from flaremq.servers.processes import ProcessFailed
from flaremq.testing.patience import load_factor

LIMIT_S = 90.0


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """The demo as a process of its own, with its output on a pipe."""
    return subprocess.Popen(
        [*AT_A_TERMINAL, "demo", "--no-spark", "--folder", str(folder), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "80"},
    )


def processes_of(folder: Path) -> list[str]:
    """Commands of all processes that were given something in this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # It has ended meanwhile.
        if str(folder) in command:
            found.append(command)
    return found


@pytest.mark.timeout(2 * LIMIT_S)
def test_nothing_is_lost_and_nothing_stays(tmp_path: Path) -> None:
    process = start(tmp_path, "--seconds", "6")
    out, err = process.communicate(timeout=LIMIT_S * load_factor())
    assert (process.returncode, err) == (0, ""), out
    (place,) = tmp_path.iterdir()
    summary = json.loads((place / "summary.json").read_text())
    assert summary["lost"] == 0 and summary["acknowledged"] > 1_000
    assert summary["acknowledged"] + summary["failed"] > 20_000, "a busy machine may refuse some"
    assert summary["billed_1"] > 0 and summary["billed_2"] > 0
    assert [event["what"] for event in summary["events"]] == [
        "consumers join", "broker-b killed", "its slave is read", "broker-b back", "all consumed"
    ]  # fmt: skip
    assert summary["read_from_slave"] > 5_000 and summary["not_at_slave"] == 0
    assert f"{summary['read_from_slave']:,} orders of broker-b were read from its slave" in out
    assert processes_of(tmp_path) == []
    assert "\x1b" not in out and "\r" not in out
    told = [line.split("(")[0].strip() for line in out.splitlines() if "✓" in line]
    assert len(told) == 15, out
    assert summary["receipts"] > 100 and summary["receipts_lost"] == 0 and summary["raft_pause_s"] < 10
    assert (summary["committed"], summary["rolled_back"], summary["dead_letters"]) == (1, 1, 1)
    assert summary["reminder_s"] >= 2
    assert "a dead letter: no unicorns in stock" in out
    assert max(map(len, out.splitlines())) <= max(80, len(f"  summary  {place}/summary.json"))
    assert f"  summary  {place}/summary.json" in out.splitlines()
    if find_spec("matplotlib") is not None:
        assert (place / "rates.png").read_bytes().startswith(b"\x89PNG")
    else:
        assert "'.[demo]'" in out


@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("after", ["FlareMQ demo", "topic Orders"])
def test_ctrl_c_stops_all_servers(tmp_path: Path, after: str) -> None:
    process = start(tmp_path, "--seconds", "60")
    assert process.stdout is not None and process.stderr is not None
    for line in process.stdout:
        if after in line:
            break
    process.send_signal(signal.SIGINT)
    process.stdout.read()
    assert process.stderr.read() == "flaremq: interrupted\n"
    assert process.wait(LIMIT_S * load_factor()) == 130
    assert processes_of(tmp_path) == []
    process.stdout.close()
    process.stderr.close()


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "--folder" in flaremq("demo", "--folder", tmp_path / "file" / "below").complaint


def test_a_server_that_does_not_start_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAREMQ_NONSENSE", "1")  # Servers refuse options that nobody knows.
    assert "namesrv-1 ended with status 1" in flaremq("demo", "--folder", tmp_path).complaint


def test_when_all_is_closed_no_server_begins(tmp_path: Path) -> None:
    demo = Demo(tmp_path, 6)
    demo.close()
    with pytest.raises(ProcessFailed, match="was stopped"):
        demo._start()
    assert processes_of(tmp_path) == []


# Who counts.


def test_an_order_is_lost_unless_billing_and_audit_have_it() -> None:
    ledger = Ledger()
    for number in ("o-1", "o-2", "o-3"):
        ledger.sold[number] = Receipt(number, MessageQueue("Orders", "broker-a", 0), 0, "")
    ledger.billed[0].update(["o-1", "o-2"])
    ledger.billed[1].update(["o-2"])
    ledger.audited.update(["o-1", "o-3"])
    assert ledger.lost == ["o-2", "o-3"]
    assert (ledger.repeated, ledger.backlog) == (1, 1)
    sample = ledger.sample()
    assert (sample.sold, sample.billed, sample.audited, sample.backlog) == (3, (2, 1), 2, 1)


def test_an_order_is_safe_at_a_broker_that_has_said_so_and_that_its_slave_has_it() -> None:
    ledger = Ledger()
    statuses = {"o-1": SendStatus.OK, "o-2": SendStatus.NO_SLAVE, "o-3": SendStatus.SLAVE_LATE}
    for number, status in statuses.items():
        ledger.sold[number] = Receipt(number, MessageQueue("Orders", "broker-b", 0), 0, "", status)
    ledger.sold["o-4"] = Receipt("o-4", MessageQueue("Orders", "broker-a", 0), 0, "")
    assert ledger.safe_at("broker-b") == {"o-1"}


def test_without_what_draws_there_is_no_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    samples = [Sample(n / 4, n, (n, 0), n, 0) for n in range(20)]
    assert not plot(samples, [(1.0, "something")], tmp_path / "rates.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_the_picture_ends_with_the_story_and_not_with_the_last_count(tmp_path: Path) -> None:
    samples = [Sample(n / 4, 10 * n, (5 * n, 5 * n), 10 * n, n % 7) for n in range(100)]
    late = [*samples, Sample(150.0, 1000, (500, 500), 1000, 0)]
    marks = [(8.0, "broker-b is killed"), (16.0, "it runs again"), (140.0, "later")]
    assert plot(samples, marks[:2], tmp_path / "story.png") and plot(late, marks, tmp_path / "late.png")
    assert (tmp_path / "late.png").read_bytes() == (tmp_path / "story.png").read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("pyspark") is None, reason="Spark is not installed: pip install '.[spark]'")
def test_the_orders_go_through_spark(tmp_path: Path) -> None:
    command = [*AT_A_TERMINAL, "demo", "--folder", str(tmp_path), "--seconds", "6"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    (place,) = tmp_path.iterdir()
    summary = json.loads((place / "summary.json").read_text())
    assert summary["archived"] == summary["acknowledged"]
    assert 0 < summary["replayed"] < summary["archived"] and summary["deviations"] == 0
    assert (place / "stats" / "top.png").exists() and list((place / "archive").rglob("*.parquet"))
