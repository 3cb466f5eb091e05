"""`flaremq pipeline`: what a person sees, before Spark is started and after."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.commands import flaremq
from tests.spark.conftest import java  # noqa: F401 - A fixture.
from tests.spark.pipelines.test_rebuild import written
from typer.testing import CliRunner

from flaremq.cli.main import app
from flaremq.spark.launch.java import Java
from flaremq.testing.patience import load_factor

COMMANDS = ("archive", "compact", "replay", "rebuild", "audit", "stats", "run")
SHAPE = ("--index-slots", "50", "--index-entries", "200")


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["pipeline", *words])
    return done.exit_code, done.output


def in_process(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "flaremq"), "pipeline", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300 * load_factor())


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(command: str) -> None:
    status, output = run(command, "--help")
    assert status == 0
    assert "--json" in output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("audit", "/no/such/store"), "/no/such/store does not exist: expected a store"),
        (("rebuild", "/no/such/store", "--yes"), "/no/such/store does not exist: expected a store"),
        (("archive", "--to", "x", "-n", "127.0.0.1:1"), "expected either topics or pattern"),
        (("archive", "--to", "x", "-t", "A", "--format", "csv", "-n", "127.0.0.1:1"), "csv"),
        (("archive", "--to", "x", "-t", "A", "-o", "tagz=a", "-n", "127.0.0.1:1"), "did you mean tags"),
        (("replay", "--from", "x", "-t", "a b", "-n", "127.0.0.1:1"), "a b"),
        (("compact", "/no/such/archive"), "/no/such/archive"),
        (("audit", ".", "--master", "sparc://x"), "does not exist: expected a store"),
        (("stats",), "nothing to count: expected"),
        (("stats", ".", "--archive", "x"), "exclude each other: give one of them"),
        (("run", "/no/such/file.yaml"), "/no/such/file.yaml"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_before_spark_is_started(words: tuple[str, ...], told: str) -> None:
    status, output = run(*words)
    assert status == (2 if told == "a b" else 1)  # A name that cannot be is wrong usage.
    assert told in output
    assert output.startswith("flaremq: ") and output.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("archive", "--to", "s3a://bucket/x", "-t", "A", "-n", "127.0.0.1:1"),
        ("archive", "--to", "x", "--checkpoint", "s3a://bucket/x", "-t", "A", "-n", "127.0.0.1:1"),
        ("compact", "s3a://bucket/x"),
        ("replay", "--from", "s3a://bucket/x", "-n", "127.0.0.1:1"),
        ("rebuild", "s3a://bucket/x", "--yes"),
        ("rebuild", "STORE", "--to", "s3a://bucket/x"),
        ("audit", "s3a://bucket/x"),
        ("audit", "STORE", "s3a://bucket/x"),
        ("audit", "STORE", "--archive", "s3a://bucket/x"),
        ("audit", "STORE", "--log-path", "s3a://bucket/x"),
        ("stats", "s3a://bucket/x"),
        ("stats", "--archive", "s3a://bucket/x"),
        ("stats", "STORE", "--to", "s3a://bucket/x"),
    ],
)
def test_an_address_that_is_no_folder_is_refused_wherever_one_is_named(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    status, output = run(*(str(tmp_path / "store") if word == "STORE" else word for word in words))
    assert status == 1
    assert output.startswith("flaremq: s3a://bucket/x is not a folder of this machine: expected a local or")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("command", ["inspect", "verify", "export"])
def test_commands_on_stores_refuse_such_an_address_and_take_a_file_url(command: str, tmp_path: Path) -> None:
    ended = flaremq("store", command, "hdfs://host/store")
    assert "hdfs://host/store is not a folder of this machine" in ended.complaint
    (tmp_path / "commitlog").mkdir()
    assert flaremq("store", command, f"file://{tmp_path}").status == 0


def test_a_plan_tells_what_would_be_done_and_starts_nothing() -> None:
    status, output = run("plan", str(Path(__file__).parents[3] / "examples" / "pipeline.yaml"))
    assert status == 0
    assert "sources" in output.lower() and "sinks" in output.lower()


def test_a_rebuild_in_place_asks_first(tmp_path: Path) -> None:
    status, output = run("rebuild", str(tmp_path))
    assert status == 1
    assert "add --yes to confirm" in output


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


@pytest.mark.slow  # Half a minute of processor time: tests/spark has the same audit in a session that runs.
def test_an_audit_as_an_operator_runs_it(java: Java, tmp_path: Path) -> None:  # noqa: F811
    store = tmp_path / "store"
    written(store, 200)
    next((store / "consumequeue" / "A" / "0").iterdir()).unlink()
    done = in_process("audit", str(store), *SHAPE, "--master", "local[2]")
    assert done.returncode == 1
    assert "is missing: expected the entries of" in done.stdout
    assert done.stderr == ""
