"""The Containerfile: what it copies, sets and runs exists, and its health checks can pass and fail."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copy2, copytree

import pytest

from flaremq.base.settings import dump
from flaremq.base.sources import environment_name
from flaremq.remoting.ports import BROKER, free_port
from flaremq.servers.config import load_broker

ROOT = Path(__file__).parent.parent.parent
TEXT = re.sub(r"\\\n\s*", "", (ROOT / "deploy" / "Containerfile").read_text())
BIN = Path(sys.executable).parent


def steps(stage: str, keyword: str) -> list[str]:
    """What follows a keyword in one stage."""
    (body,) = re.findall(rf"^FROM \S+ AS {stage}\n(.*?)(?=^FROM |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    return re.findall(rf"^{keyword} (.*)$", body, re.MULTILINE)


def environ(stage: str) -> dict[str, str]:
    words = [word for line in steps("runtime", "ENV") + steps(stage, "ENV") for word in line.split()]
    return dict(word.split("=", 1) for word in words)


@contextmanager
def served(stage: str, home: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """The stage's command with its environment, in a home of this test; ready when it is given."""
    ours = {name: value for name, value in environ(stage).items() if name.startswith("FLAREMQ_")}
    (entry,), (command,) = steps("runtime", "ENTRYPOINT"), steps(stage, "CMD")
    given = [str(BIN / json.loads(entry)[0]), *json.loads(command), *more]
    with subprocess.Popen(
        given, env={"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(home), **ours}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert "boot success" in process.stdout.readline()
            yield process
        finally:
            process.kill()


def healthy(stage: str, usual: int, port: int) -> bool:
    (check,) = steps(stage, "HEALTHCHECK")
    command = check.partition("CMD ")[2].replace(str(usual), str(port))
    path = {"PATH": f"{BIN}:{os.environ['PATH']}"}
    ran = subprocess.run(["sh", "-c", command], env={**os.environ, **path}, capture_output=True, check=False)
    return ran.returncode == 0


def test_the_builder_copies_what_there_is() -> None:
    sources = [word for line in steps("builder", "COPY") for word in line.split()[:-1]]
    assert set(sources) == {"pyproject.toml", "setup.py", "README.md", "LICENSE", "src"}
    assert all((ROOT / source).exists() for source in sources)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == set(sources)


def test_variables_of_the_broker_are_options_of_ours() -> None:
    given = {name: value for name, value in environ("broker").items() if name.startswith("FLAREMQ_")}
    names = {environment_name(name) for each in load_broker(None, {}, []).sections for name, _ in dump(each)}
    assert given.keys() <= names
    assert load_broker(None, given, []).broker.metrics_exporter.name == "PROM"


def test_ports_are_those_that_servers_listen_at() -> None:
    broker = load_broker(None, {}, [])
    port = broker.server.listen_port
    assert steps("namesrv", "EXPOSE") == ["9876"]
    exposed = {int(word) for word in steps("broker", "EXPOSE")[0].split()}
    assert exposed == {port - 2, port, port + 1, broker.broker.metrics_port}


def test_nothing_runs_as_root_and_data_outlives_a_container() -> None:
    assert steps("runtime", "USER") == ["flaremq"]
    home = environ("runtime")["HOME"]
    assert steps("runtime", "VOLUME") == steps("runtime", "WORKDIR") == [home]
    assert any(f"--home-dir {home} " in line for line in steps("runtime", "RUN"))
    assert steps("runtime", "STOPSIGNAL") == ["SIGTERM"]


def test_the_health_check_of_a_broker_passes_while_it_serves_and_fails_when_it_is_gone(
    tmp_path: Path,
) -> None:
    port, metrics = free_port(steps=BROKER), free_port()
    words = ("-o", f"listenPort={port}", "-o", f"metricsPromExporterPort={metrics}")
    with served("broker", tmp_path, *words) as process:
        assert healthy("broker", 5557, metrics)
        process.terminate()
        assert process.wait(60) == 0
        assert not healthy("broker", 5557, metrics)
    assert (tmp_path / "store" / "commitlog").is_dir()


def test_the_health_check_of_a_name_server_passes_while_it_serves_and_fails_when_it_is_gone(
    tmp_path: Path,
) -> None:
    port = free_port()
    with served("namesrv", tmp_path, "-o", f"listenPort={port}") as process:
        assert healthy("namesrv", 9876, port)
        process.terminate()
        assert process.wait(60) == 0
        assert not healthy("namesrv", 9876, port)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_the_builder_copies_is_enough_to_compile_every_module(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for each in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        copy2(ROOT / each, source)
    copytree(ROOT / "src", source / "src", ignore=lambda _, names: [n for n in names if n.endswith(".so")])
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "."]
    subprocess.run([*build, "--wheel-dir", str(tmp_path)], cwd=source, check=True, timeout=800)
    (wheel,) = tmp_path.glob("*.whl")
    modules = {path.stem for path in (ROOT / "src").rglob("_*_c.pyx")}
    built = {
        Path(name).name.partition(".")[0]
        for name in zipfile.ZipFile(wheel).namelist()
        if name.endswith(".so")
    }
    assert built == modules
