"""The systemd units: systemd reads them, and the servers that they start run and stop as they say."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flaremq.remoting.ports import BROKER, free_port
from flaremq.remoting.settings import ServerSettings
from flaremq.servers.config import NamesrvConfig, load_broker

UNITS = Path(__file__).parent.parent.parent / "deploy" / "systemd"
FLAREMQ = Path(sys.executable).parent / "flaremq"
SERVERS = {"flaremq-namesrv@.service": "namesrv-a", "flaremq-broker@.service": "broker-a"}
STARTED = {
    "flaremq-namesrv@.service": r"address 0\.0\.0\.0:(\d+)",
    "flaremq-broker@.service": r":(\d+)\] boot",
}


class Unit:
    """The settings of one unit, by section, with its specifiers filled in for one instance."""

    def __init__(self, path: Path, instance: str, state: Path, config: Path) -> None:
        self._lines: list[tuple[str, str, str]] = []
        section = ""
        for line in path.read_text().splitlines():
            if heading := re.fullmatch(r"\[(\w+)\]", line):
                section = heading[1]
            elif line and not line.startswith("#"):
                name, _, value = line.partition("=")
                value = value.replace("%i", instance).replace("%S", str(state))
                value = value.replace("/etc/flaremq", str(config)).replace(
                    "/opt/flaremq/bin", str(FLAREMQ.parent)
                )
                self._lines.append((section, name, value))

    def all(self, name: str) -> list[str]:
        return [value for _, each, value in self._lines if each == name]

    def one(self, name: str) -> str:
        (value,) = self.all(name)
        return value

    def seconds(self, name: str) -> float:
        return float(self.one(name).removesuffix("s"))


@pytest.fixture(params=SERVERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def unit(name: str, tmp_path: Path) -> Unit:
    """As on a machine whose /etc and /var/lib are folders of this test, with free ports in its settings."""
    config, instance = tmp_path / "etc", SERVERS[name]
    config.mkdir()
    text = (UNITS / f"{instance}.properties").read_text()
    text = text.replace("9876", str(free_port())).replace("10911", str(free_port(steps=BROKER)))
    text = text.replace("5557", str(free_port()))
    (config / f"{instance}.properties").write_text(text + "brokerIP1=127.0.0.1\n" * ("broker" in name))
    return Unit(UNITS / name, instance, tmp_path / "lib", config)


@contextmanager
def started(unit: Unit) -> Iterator[subprocess.Popen[str]]:
    """The unit's command, with the unit's environment, in the unit's folder."""
    folder = Path(unit.one("WorkingDirectory"))
    folder.mkdir(parents=True)
    environ = {"PATH": os.environ["PATH"], **dict(each.split("=", 1) for each in unit.all("Environment"))}
    with subprocess.Popen(
        unit.one("ExecStart").split(), cwd=folder, env=environ, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_server_starts_by_its_unit_and_stops_cleanly_by_its_signal(unit: Unit, name: str) -> None:
    with started(unit) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert re.search(STARTED[name], line), line
        process.send_signal(getattr(signal, unit.one("KillSignal")))
        assert process.wait(unit.seconds("TimeoutStopSec")) == 0
    home = Path(unit.one("WorkingDirectory"))
    if "broker" in name:
        assert (home / "store" / "commitlog").is_dir()
        assert not (home / "store" / "abort").exists(), "the stop was not clean"


def test_a_stop_has_the_time_that_its_settings_give_it(unit: Unit, name: str) -> None:
    waits = 2 if "broker" in name else 1  # A broker waits for flushes first, then for requests.
    assert unit.seconds("TimeoutStopSec") >= waits * ServerSettings().drain_s + 30


def test_what_a_server_writes_lies_where_its_unit_lets_it_write(
    unit: Unit, name: str, tmp_path: Path
) -> None:
    home = dict(each.split("=", 1) for each in unit.all("Environment"))["HOME"]
    assert unit.one("StateDirectory") == f"flaremq/{SERVERS[name]}"
    assert home == unit.one("WorkingDirectory") == str(tmp_path / "lib" / unit.one("StateDirectory"))
    assert unit.one("ReadWritePaths") == str(tmp_path / "etc")
    assert unit.one("ProtectSystem") == "strict"


def test_settings_beside_the_units_are_settings_of_ours() -> None:
    """Each is known, has an effect, and says what a default would not."""
    broker = load_broker(UNITS / "broker-a.properties", {}, [])
    assert (broker.broker.broker_name, broker.server.listen_port) == ("broker-a", 10911)
    assert broker.broker.metrics_exporter.name == "PROM"
    assert NamesrvConfig.load(UNITS / "namesrv-a.properties", {}, []).server.listen_port == 9876


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_finds_nothing_wrong_with_a_unit(name: str, tmp_path: Path) -> None:
    text = (UNITS / name).read_text().replace("/opt/flaremq/bin/flaremq", str(FLAREMQ))
    path = tmp_path / name.replace("@", f"@{SERVERS[name]}")
    path.write_text(text)
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in ran.stderr.splitlines() if path.name in line or "flaremq" in line]
    assert complaints == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_would_tell_of_a_mistake_in_a_unit(tmp_path: Path) -> None:
    text = (UNITS / "flaremq-broker@.service").read_text().replace("KillMode=mixed", "KillMode=maybe")
    path = tmp_path / "flaremq-broker@broker-a.service"
    path.write_text(text.replace("/opt/flaremq/bin/flaremq", str(FLAREMQ)))
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
    )
    assert "maybe" in ran.stderr
