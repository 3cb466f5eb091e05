"""What `make` tells a person while it works, and what it ends with."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RUNS = ("spark", "servers", "main", "cli", "house", "sim", "store", "java", "python")
FAKE_PYTEST = """#!/bin/sh
case "$*" in
  *tests/java*) run=java ;;
  *tests/remoting/test_turn*) run=python ;;
  *--ignore=tests/spark*) run=main ;;
  *tests/spark*) run=spark ;;
  *tests/deploy*) run=house ;;
  *tests/testing*) run=sim ;;
  *tests/dledger*) run=store ;;
  *tests/cluster*) run=servers ;;
  *tests/cli*) run=cli ;;
esac
echo "$run has begun"
[ -z "$PYTHONDONTWRITEBYTECODE" ] || echo "$run compiles every module in every process"
[ ! -p gate ] || [ $run != main ] || read -r word < gate  # Goes on once the test has seen that line.
echo "===== 7 passed in $run ====="
cache=$(echo "$*" | sed 's/.*cache_dir=\\([^ ]*\\).*/\\1/')/v/cache
case "$*" in *--last-failed*) fails=alone-$run ;; *) fails=fails-$run ;; esac
mkdir -p $cache
sed 's/.*/  "&": true,/' "$fails" > $cache/lastfailed 2> /dev/null || exit 0
[ ! -s status ] || exit $(cat status)
exit 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A clone that is set up, with a pytest that only says what it would do."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    for name in ("pyproject.toml", "setup.py"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "pytest").write_text(FAKE_PYTEST)
    (programs / "pytest").chmod(0o755)
    for name in (".tools", ".ready", ".built"):
        (tmp_path / ".venv" / name).touch()
    return tmp_path


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environ["TMPDIR"] = str(folder)  # Where the folders of runs that failed stay.
    return subprocess.run(
        ["make", *words], cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60
    )


def test_modules_are_compiled_while_the_rest_is_installed(folder: Path) -> None:
    os.mkfifo(folder / "gate")  # Each end waits for the other.
    for name, does in {
        "pip": "*--editable*) read -r word < gate",
        "python": "*build_ext*) echo on > gate",
    }.items():
        (folder / ".venv" / "bin" / name).write_text(f'#!/bin/sh\ncase "$*" in {does} ;; esac\n')
        (folder / ".venv" / "bin" / name).chmod(0o755)
    made = [folder / ".venv" / name for name in (".tools", ".ready", ".built")]
    for each in made:
        each.unlink()
    ran = make(folder, "build")
    assert ran.returncode == 0, ran.stderr
    steps = sorted(line[:5] for line in ran.stdout.splitlines() if line.startswith("["))
    assert steps == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    assert all(each.exists() for each in made)
    assert make(folder, "build").stdout == "", "what is built is built again"


def test_runs_share_the_number_of_jobs_that_was_said(folder: Path) -> None:
    ran = make(folder, "--jobs=5", "test")
    assert ran.returncode == 0, ran.stderr
    assert "warning" not in ran.stderr
    assert len([line for line in ran.stdout.splitlines() if line.endswith("has begun")]) == len(RUNS)


def test_each_line_of_the_tests_says_which_run_it_is_from(folder: Path) -> None:
    ran = make(folder, "test")
    assert ran.returncode == 0, ran.stderr
    for run in RUNS:
        assert f"{run:<7} | {run} has begun" in ran.stdout.splitlines()


def test_closing_lines_of_all_runs_stand_at_the_end(folder: Path) -> None:
    last = make(folder, "test").stdout.splitlines()[-len(RUNS) :]
    assert last == [f"===== 7 passed in {run} =====" for run in RUNS]


def test_processes_of_a_run_keep_bytecode_whatever_the_shell_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    ran = make(folder, "test")
    assert ran.returncode == 0, ran.stderr
    assert "compiles every module" not in ran.stdout


@pytest.mark.parametrize("run", RUNS)
def test_a_run_that_fails_fails_the_whole_after_all_others_have_run_too(folder: Path, run: str) -> None:
    (folder / f"fails-{run}").touch()
    ran = make(folder, "test")
    assert ran.returncode != 0
    for each in RUNS:
        assert f"===== 7 passed in {each} =====" in ran.stdout.splitlines()


def test_a_test_that_passes_alone_fails_nothing_and_is_named(folder: Path) -> None:
    (folder / "fails-main").write_text("tests/a.py::test_one[x]\ntests/b.py::test_two\n")
    (folder / "fails-java").write_text("tests/c.py::test_three\n")
    ran = make(folder, "test")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    closing = ran.stdout.splitlines()[-4:]
    assert closing == [
        "========== Both results ==========",
        "passed alone, FAILED UNDER LOAD, to be mended: tests/a.py::test_one[x]",
        "passed alone, FAILED UNDER LOAD, to be mended: tests/b.py::test_two",
        "passed alone, FAILED UNDER LOAD, to be mended: tests/c.py::test_three",
    ]
    assert ran.stdout.count("main has begun") == 2
    assert ran.stdout.count("spark has begun") == 1, "a run without failures is not run again"


def test_a_test_that_fails_alone_as_well_fails_the_whole(folder: Path) -> None:
    (folder / "fails-main").write_text("tests/a.py::test_one\ntests/b.py::test_two\n")
    (folder / "alone-main").write_text("tests/b.py::test_two\n")
    ran = make(folder, "test")
    assert ran.returncode != 0
    assert "passed alone, FAILED UNDER LOAD, to be mended: tests/a.py::test_one" in ran.stdout.splitlines()
    assert "FAILED UNDER LOAD AND ALONE: tests/b.py::test_two" in ran.stdout.splitlines()


def test_many_tests_that_fail_are_not_run_again(folder: Path) -> None:
    (folder / "fails-cli").write_text("".join(f"tests/a.py::test_{number}\n" for number in range(13)))
    (folder / "fails-java").write_text("".join(f"tests/b.py::test_{number}\n" for number in range(13)))
    ran = make(folder, "test")
    assert ran.returncode != 0
    assert "Failed beside the other runs: 26" in ran.stdout
    assert ran.stdout.count("has begun") == len(RUNS)


@pytest.mark.parametrize("status", [2, 3, 4, 5, 137])
def test_a_run_that_did_not_come_to_its_end_is_not_run_again(folder: Path, status: int) -> None:
    (folder / "fails-main").write_text("tests/a.py::test_one\n")
    (folder / "status").write_text(str(status))
    ran = make(folder, "test")
    assert ran.returncode != 0
    assert "FAILED: the run main did not come to its end" in ran.stdout
    assert ran.stdout.count("has begun") == len(RUNS)


def test_lines_of_a_test_run_are_shown_while_it_runs(folder: Path) -> None:
    os.mkfifo(folder / "gate")
    gate = os.open(folder / "gate", os.O_RDWR)  # Opened for both, so that neither end waits for the other.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environ["TMPDIR"] = str(folder)  # Where the folders of runs that failed stay.
    process = subprocess.Popen(
        ["make", "test"], cwd=folder, env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        until = next(line for line in process.stdout if "main has begun" in line or "in java" in line)
        assert "main has begun" in until, "nothing was shown while the run waited"
        os.write(gate, b"go on\n")
        rest = process.stdout.read()
        assert process.wait(60) == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        os.close(gate)
    assert "main    | ===== 7 passed in main =====" in rest


def test_a_fresh_machine_is_told_each_step_of_the_set_up(folder: Path) -> None:
    shutil.rmtree(folder / ".venv")
    told = make(folder, "-n", "demo").stdout
    for step in ("1/4", "2/4", "3/4", "4/4"):
        assert f"[{step}]" in told
    assert told.count("minute") >= 1, "how long it takes is said"


def test_a_machine_that_is_set_up_is_told_nothing_of_it(folder: Path) -> None:
    assert "[1/4]" not in make(folder, "-n", "demo").stdout


def test_a_fresh_clone_begins_with_a_virtual_environment(folder: Path) -> None:
    shutil.rmtree(folder / ".venv")
    ran = make(folder, "--dry-run", "setup")
    assert ran.returncode == 0, ran.stderr
    assert "|| python3 -m venv .venv" in ran.stdout
