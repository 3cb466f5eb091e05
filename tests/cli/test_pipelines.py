"""`flaremq pipeline`: what a person sees, before Spark is started and after."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.conftest import java  # noqa: F401 - A fixture.
from tests.spark.test_rebuild import written
from typer.testing import CliRunner

from flaremq.cli.main import app
from flaremq.spark.java import Java

COMMANDS = ("archive", "compact", "replay", "rebuild", "audit", "stats", "run")
SHAPE = ("--index-slots", "50", "--index-entries", "200")


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["pipeline", *words])
    return done.exit_code, done.output


def in_process(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "flaremq"), "pipeline", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(command: str) -> None:
    status, output = run(command, "--help")
    assert status == 0
    assert "--json" in output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("audit", "/no/such/store"), "/no/such/store: no such folder: wanted is a store"),
        (("rebuild", "/no/such/store", "--yes"), "/no/such/store: no such folder: wanted is a store"),
        (("archive", "--to", "x", "-n", "127.0.0.1:1"), "give topics or a pattern, one of both"),
        (("archive", "--to", "x", "-t", "A", "--format", "csv", "-n", "127.0.0.1:1"), "csv"),
        (("archive", "--to", "x", "-t", "A", "-o", "tagz=a", "-n", "127.0.0.1:1"), "did you mean tags"),
        (("replay", "--from", "x", "-t", "a b", "-n", "127.0.0.1:1"), "a b"),
        (("compact", "/no/such/archive"), "/no/such/archive"),
        (("audit", ".", "--master", "sparc://x"), "no such folder"),
        (("stats",), "nothing to count is named"),
        (("stats", ".", "--archive", "x"), "one of them at a time"),
        (("run", "/no/such/file.yaml"), "/no/such/file.yaml"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_before_spark_is_started(words: tuple[str, ...], told: str) -> None:
    status, output = run(*words)
    assert status == 1
    assert told in output
    assert output.startswith("flaremq: ") and output.count("\n") == 1


def test_a_plan_tells_what_would_be_done_and_starts_nothing() -> None:
    status, output = run("plan", str(Path(__file__).parents[2] / "examples" / "pipeline.yaml"))
    assert status == 0
    assert "sources" in output.lower() and "sinks" in output.lower()


def test_a_rebuild_in_place_asks_first(tmp_path: Path) -> None:
    status, output = run("rebuild", str(tmp_path))
    assert status == 1
    assert "add --yes if you mean it" in output


@pytest.mark.slow
def test_a_rebuild_as_an_operator_runs_it(java: Java, tmp_path: Path) -> None:  # noqa: F811
    store = tmp_path / "store"
    written(store, 200)
    done = in_process(
        "rebuild", str(store), "--to", str(tmp_path / "made"), *SHAPE, "--master", "local[2]", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == 200
    assert done.stderr == ""


def test_an_audit_as_an_operator_runs_it(java: Java, tmp_path: Path) -> None:  # noqa: F811
    store = tmp_path / "store"
    written(store, 200)
    next((store / "consumequeue" / "A" / "0").iterdir()).unlink()
    done = in_process("audit", str(store), *SHAPE, "--master", "local[2]")
    assert done.returncode == 1
    assert "is not there, and" in done.stdout
    assert done.stderr == ""
