"""`flaremq up` as a real process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import flaremq

from flaremq.cli.servers.up import data_folder
from flaremq.remoting.ports import BROKER, free_port
from flaremq.store.settings import StoreSettings
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.wireclient import WireClient

FLAREMQ = [sys.executable, "-m", "flaremq.cli.main"]


class Running:
    """An `up` that has said that it is ready."""

    def __init__(self, process: subprocess.Popen[str], told: dict[str, Any]) -> None:
        self.process = process
        self.told = told

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)

    def complaints(self) -> list[str]:
        """What it has said on stderr, without turns that took long: so they do on a busy machine."""
        assert self.process.stderr is not None
        return [line for line in self.process.stderr if "remoting.turn: a turn of " not in line]


@contextmanager
def up(data: Path, *words: object) -> Iterator[Running]:
    given = [*FLAREMQ, "up", "--json", "--data", str(data), *map(str, words)]
    with subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            if not line:
                raise AssertionError(process.stderr.read())
            yield Running(process, json.loads(line))
        finally:
            process.kill()


def ports() -> tuple[object, ...]:
    return "--port", free_port(), "--broker-port", free_port(steps=BROKER)


async def sent_and_read(address: str, body: bytes) -> list[bytes]:
    async with WireClient() as client:
        await client.send(address, "TopicUp", 0, body)
        return [message.body for message in await client.read_all(address, "TopicUp", 0)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_takes_messages_stops_cleanly_and_has_them_again(tmp_path: Path, number: int) -> None:
    with up(tmp_path / "data", *ports()) as first:
        assert first.told["data"] == str(tmp_path / "data")
        assert asyncio.run(sent_and_read(first.told["broker"], b"one")) == [b"one"]
        assert (tmp_path / "data" / "store" / "abort").exists()
        assert first.end(number) == 0
        assert first.complaints() == []
    assert not (tmp_path / "data" / "store" / "abort").exists()
    with up(tmp_path / "data", *ports()) as second:
        assert asyncio.run(sent_and_read(second.told["broker"], b"two")) == [b"one", b"two"]


def test_its_name_server_knows_its_broker(tmp_path: Path) -> None:
    async def asked(told: dict[str, Any]) -> None:
        async with WireClient() as client:
            route = await client.route(told["namesrv"], "DefaultCluster")
            assert route is not None
            assert route.broker_datas[0].broker_addrs == {0: told["broker"]}

    with up(tmp_path, *ports()) as running:
        asyncio.run(asked(running.told))


def test_tls_holds_for_its_name_server_and_its_broker(tmp_path: Path) -> None:
    certificates = Path(__file__).parents[2] / "remoting" / "certs"
    tls = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": certificates / "cert.pem",
        "tls.server.keyPath": certificates / "key.pem",
        "tls.client.trustCertPath": certificates / "cert.pem",
    }
    words = [word for name, value in tls.items() for word in ("-o", f"{name}={value}")]
    with up(tmp_path, *ports(), *words) as running:
        namesrv = ("-n", running.told["namesrv"])
        ca = ("--tls-ca", certificates / "cert.pem")
        assert "broker-a" in flaremq(*ca, "cluster", "brokers", *namesrv).out
        assert flaremq("cluster", "brokers", *namesrv).status == 1


def test_it_fits_on_a_laptop(tmp_path: Path) -> None:
    with up(tmp_path, *ports()) as running:
        asyncio.run(sent_and_read(running.told["broker"], b"x" * 100_000))
        status = Path(f"/proc/{running.told['pid']}/status")
        if not status.exists():
            pytest.skip("no /proc here")
        resident = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
        assert int(resident.split()[1]) < 150_000
        assert sum(path.stat().st_blocks * 512 for path in tmp_path.rglob("*")) < 100 << 20


def test_a_usual_port_that_is_taken_is_told_and_another_is_found(tmp_path: Path) -> None:
    taken = []
    for port in (9876, 10911):
        try:
            taken.append(socket.create_server(("127.0.0.1", port)))
        except OSError:  # Somebody has it already, which is as good.
            continue
    try:
        with up(tmp_path) as running:
            assert running.told["namesrv"] != "127.0.0.1:9876"
            assert running.told["broker"] != "127.0.0.1:10911"
            assert asyncio.run(sent_and_read(running.told["broker"], b"one")) == [b"one"]
            assert running.end(signal.SIGINT) == 0
            assert running.process.stderr is not None
            notes = running.process.stderr.read().splitlines()
        assert [line[: len("flaremq: port 9876")] for line in notes] == [
            "flaremq: port 9876",
            "flaremq: port 1091",
        ]
    finally:
        for each in taken:
            each.close()


def test_port_0_is_any_free_port_and_nothing_is_said_of_the_usual_one(tmp_path: Path) -> None:
    with up(tmp_path, "--port", 0, "--broker-port", 0) as running:
        assert asyncio.run(sent_and_read(running.told["broker"], b"one")) == [b"one"]
        assert running.end(signal.SIGINT) == 0
        assert running.complaints() == []


@pytest.mark.parametrize("step", [0, -2, 1])
def test_a_port_that_was_asked_for_and_is_taken_is_an_error(tmp_path: Path, step: int) -> None:
    port = free_port(steps=BROKER)
    with closing(socket.create_server(("127.0.0.1", port + step))):
        complaint = flaremq("up", "--data", tmp_path, "--broker-port", port).complaint
        assert f"port {port + step}" in complaint
        if step == 0:
            assert f"--port {port}" in flaremq("up", "--data", tmp_path, "--port", port).complaint


def test_a_second_one_in_the_same_folder_is_one_line(tmp_path: Path) -> None:
    with up(tmp_path, *ports()) as running:
        complaint = flaremq("up", "--data", tmp_path).complaint
        assert str(tmp_path) in complaint and f"process {running.told['pid']}" in complaint
        assert asyncio.run(sent_and_read(running.told["broker"], b"one")) == [b"one"]


def test_a_folder_that_a_broker_made_keeps_its_sizes(tmp_path: Path) -> None:
    settings = StoreSettings(
        root=tmp_path / "store",
        commitlog_file_size=8 << 20,
        consumequeue_file_size=20_000,
        index_slots=500,
        index_entries=2000,
    )
    store = MessageStore(settings)
    store.open()
    store.close()
    (tmp_path / "store" / "commitlog" / f"{0:020d}").write_bytes(bytes(8 << 20))
    with up(tmp_path, *ports()) as running:
        assert asyncio.run(sent_and_read(running.told["broker"], b"one")) == [b"one"]
    assert "mappedFileSizeCommitLog=8388608" in (tmp_path / "up.conf").read_text()


def test_options_reach_the_broker_and_a_wrong_one_is_one_line(tmp_path: Path) -> None:
    with up(tmp_path, *ports(), "-o", "brokerClusterName=Mine") as running:

        async def cluster() -> bool:
            async with WireClient() as client:
                return await client.route(running.told["namesrv"], "Mine") is not None

        assert asyncio.run(cluster())
        assert running.end(signal.SIGTERM) == 0
    done = subprocess.run(
        [*FLAREMQ, "up", "--data", str(tmp_path), *map(str, ports()), "-o", "brokerNam=x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "brokerName" in done.stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("-o", "listenPort=1"), "--broker-port"),
        (("-o", "storePathRootDir=/x"), "--data"),
        (("--host", "192.0.2.77"), "--host"),
        (("--host", "nowhere.invalid"), "--host"),
    ],
)
def test_what_cannot_be_is_told_before_anything_starts(words: tuple[str, ...], hint: str) -> None:
    assert hint in flaremq("up", *words).misuse
    assert not data_folder().exists()


def test_a_folder_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [*FLAREMQ, "up", "--data", str(tmp_path / "file" / "in"), *map(str, ports())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "--data" in done.stderr


def test_people_see_how_to_go_on(tmp_path: Path) -> None:
    given = [*FLAREMQ, "up", "--data", str(tmp_path), *map(str, ports())]
    environ = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(given, stdout=subprocess.PIPE, text=True, env=environ, encoding="utf-8") as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(12)]
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:
            process.kill()
    shown = "".join(lines)
    assert len({len(line) for line in lines}) == 1
    assert str(tmp_path) in shown and "Ctrl-C" in shown and "compiled modules: " in shown
    assert f"flaremq send -n 127.0.0.1:{given[-3]}" in shown


def test_a_folder_of_the_kernel_is_one_line() -> None:
    done = subprocess.run(
        [*FLAREMQ, "up", "--data", "/proc/flaremq", *map(str, ports())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "/proc/flaremq cannot be used" in done.stderr


def test_a_member_that_dies_is_told_and_can_be_started_again(tmp_path: Path) -> None:
    with up(tmp_path, "--replicas", 3, "--port", free_port()) as running:
        dead = running.told["members"][0]
        os.kill(dead["pid"], signal.SIGKILL)
        assert running.process.stderr is not None
        told = next(line for line in running.process.stderr if "has ended" in line)
        assert f"member {dead['member']}, process {dead['pid']}, has ended" in told
        again = re.search(r"flaremq (broker -c \S+)`", told)
        assert again is not None
        with subprocess.Popen([*FLAREMQ, *again[1].split()], stdout=subprocess.PIPE, text=True) as member:
            assert member.stdout is not None
            assert next(line for line in member.stdout if "boot success" in line)
            member.terminate()
        assert running.end(signal.SIGTERM) == 0
