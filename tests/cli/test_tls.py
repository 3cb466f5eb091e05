"""TLS between real processes: a NameServer, a broker, clients and commands, set up as an operator does it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import flaremq

from flaremq.base.errors import FlareError, SendFailed
from flaremq.base.settings import environment_name
from flaremq.cli.profiles import load_profiles
from flaremq.cli.tls import Tls
from flaremq.client.client import Client
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ClientSettings, ProducerSettings
from flaremq.model.message import Message
from flaremq.remoting.tls import TlsClientSettings
from flaremq.testing.cluster import Cluster, Process
from flaremq.testing.patience import load_factor

CERTS = Path(__file__).parents[1] / "remoting" / "certs"
CERT, KEY, ENCRYPTED_KEY, OTHER_KEY = (
    str(CERTS / name) for name in ("cert.pem", "key.pem", "key-encrypted.pem", "other-key.pem")
)
SERVER = {"tls.server.certPath": CERT, "tls.server.keyPath": KEY}
CALLER: dict[str, Any] = {"tls.client.trustCertPath": CERT}
FLAREMQ = [sys.executable, "-m", "flaremq.cli.main"]


def started(cluster: Cluster, options: dict[str, Any]) -> tuple[Process, Process]:
    namesrv = cluster.namesrv(**options)
    return namesrv, cluster.broker(namesrv=namesrv.address, **options, **CALLER)


@pytest.fixture(scope="module")
def enforcing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, Process]]:
    """The broker speaks TLS to the NameServer because its own port does."""
    with Cluster(tmp_path_factory.mktemp("enforcing")) as cluster:
        yield started(cluster, {"tls.server.mode": "enforcing", **SERVER})


def command(
    *words: str, home: Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAREMQ_TLS")}
    return subprocess.run(
        [*FLAREMQ, *words],
        env={**kept, "XDG_CONFIG_HOME": str(home), **(environ or {})},
        capture_output=True,
        text=True,
        timeout=60 * load_factor(),
        check=False,
    )


async def sends(namesrv: str, tls: TlsClientSettings | None) -> str:
    settings = ClientSettings(namesrv=namesrv, tls=tls.context() if tls else None)
    async with (
        Client(settings=settings) as client,
        Producer("PID", client=client, settings=ProducerSettings(timeout_s=10)) as producer,
    ):
        await producer.send_many([Message("T", b"small")] * 10)
        return (await producer.send(Message("T", os.urandom(1 << 20)))).queue.broker_name


async def test_where_tls_is_enforced_a_client_with_tls_is_served_and_one_without_is_not(
    enforcing: tuple[Process, Process],
) -> None:
    namesrv, _ = enforcing
    assert await sends(namesrv.address, TlsClientSettings(trusted=CERT)) == "broker-a"
    assert await sends(namesrv.address, TlsClientSettings()) == "broker-a"
    with pytest.raises(FlareError, match="no NameServer answers"):
        await sends(namesrv.address, None)


async def test_a_client_does_not_talk_to_a_server_that_it_does_not_trust(
    enforcing: tuple[Process, Process],
) -> None:
    namesrv, _ = enforcing
    with pytest.raises(FlareError, match=r"(?i)certificate.verify.failed"):
        await sends(namesrv.address, TlsClientSettings(auth_server=True))


async def test_a_permissive_port_serves_both(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv, _ = started(cluster, {"tls.server.mode": "permissive", **SERVER})
        assert await sends(namesrv.address, TlsClientSettings(trusted=CERT)) == "broker-a"
        assert await sends(namesrv.address, None) == "broker-a"


async def test_clients_show_certificates_where_servers_require_them(tmp_path: Path) -> None:
    files = tmp_path / "tls.properties"
    files.write_text(
        f"tls.server.need.client.auth=require\ntls.server.trustCertPath={CERT}\n"
        f"tls.server.certPath={CERT}\ntls.server.keyPath={ENCRYPTED_KEY}\ntls.server.keyPassword=opensesame\n"
        f"tls.client.certPath={CERT}\ntls.client.keyPath={KEY}\n"
    )
    with Cluster(tmp_path) as cluster:
        namesrv, broker = started(cluster, {"tls.server.mode": "enforcing", "tls.config.file": files})
        known = TlsClientSettings(
            trusted=CERT, certificate=CERT, key=ENCRYPTED_KEY, key_password="opensesame"
        )
        assert await sends(namesrv.address, known) == "broker-a"
        with pytest.raises((FlareError, SendFailed)):
            await sends(namesrv.address, TlsClientSettings(trusted=CERT))
        assert "opensesame" not in "\n".join(namesrv.lines + broker.lines)


# Commands.


def test_commands_are_told_about_tls_by_flags_variables_or_a_profile(
    enforcing: tuple[Process, Process], tmp_path: Path
) -> None:
    address = enforcing[0].address
    plain = command("cluster", "brokers", "-n", address, home=tmp_path)
    assert plain.returncode == 1
    assert "no NameServer answers" in plain.stderr
    flags = command("--tls-ca", CERT, "cluster", "brokers", "-n", address, home=tmp_path)
    assert "broker-a" in flags.stdout
    variables = {"FLAREMQ_TLS_ENABLE": "true", "FLAREMQ_TLS_CLIENT_TRUST_CERT_PATH": CERT}
    by_variables = command("cluster", "brokers", "-n", address, home=tmp_path, environ=variables)
    assert "broker-a" in by_variables.stdout
    made = command("profile", "set", "safe", "-n", address, "--tls-ca", CERT, "--use", home=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "broker-a" in command("cluster", "brokers", home=tmp_path).stdout
    sent = command("send", "T", "hello", home=tmp_path)
    assert sent.returncode == 0, sent.stderr
    assert command("--no-tls", "cluster", "brokers", home=tmp_path).returncode == 1


def test_a_profile_keeps_what_was_said_about_tls(tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    tls = Tls(True, '/with "quotes"/ca.pem', "/c.pem", "/k.pem")
    load_profiles(file).set("a", "x:1", tls).set("b", "y:1").save()
    found = load_profiles(file)
    assert (found.tls["a"], found.tls["b"]) == (tls, Tls())


@pytest.mark.parametrize(
    ("line", "complaint"),
    [("tls = 1", "line 3: tls of profile 'a': expected true or false"), ("tls_ca = true", "line 3: tls_ca")],
)
def test_a_profile_that_says_nonsense_about_tls_is_refused(tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(f'[profiles.a]\nnamesrv = "x:1"\n{line}\n')
    with pytest.raises(FlareError, match=complaint):
        load_profiles(file)


def test_flags_are_the_variables_of_the_options_that_they_stand_for() -> None:
    options = ("tls.enable", "tls.client.trustCertPath", "tls.client.certPath", "tls.client.keyPath")
    assert list(Tls(True, "a", "b", "c").variables()) == [environment_name(name) for name in options]


# What is wrong is told at the start.


def serving(what: str, folder: Path, options: Mapping[str, str]) -> list[str]:
    """The words that start a server with these options."""
    flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    root = ["-o", f"storePathRootDir={folder}"] if what == "broker" else []
    return [what, "-o", "listenPort=0", "-o", "bindAddress=127.0.0.1", *root, *flags]


@pytest.mark.parametrize("what", ["broker", "namesrv"])
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"tls.server.mode": "enforcing"}, "needs tls.server.keyPath and tls.server.certPath"),
        ({"tls.server.mode": "strict"}, "expected one of disabled, enforcing, permissive"),
        ({**SERVER, "tls.server.certPath": "/nowhere.pem"}, "certPath=/nowhere.pem cannot be read: No such"),
        ({**SERVER, "tls.server.keyPath": CERT}, "does not contain a private key"),
        ({**SERVER, "tls.server.keyPath": OTHER_KEY}, "expected the key of that certificate"),
        ({**SERVER, "tls.server.keyPath": ENCRYPTED_KEY}, "is encrypted: set tls.server.keyPassword"),
        (
            {**SERVER, "tls.server.keyPath": ENCRYPTED_KEY, "tls.server.keyPassword": "sesame"},
            "cannot be opened with tls.server.keyPassword",
        ),
        ({**SERVER, "tls.server.need.client.auth": "require"}, "needs tls.server.trustCertPath"),
        ({**SERVER, "tls.server.need.client.auth": "maybe"}, "expected one of none, optional, require"),
        ({"tls.test.mode.enable": "true"}, "FlareMQ makes none"),
        ({"tls.config.file": "/nowhere.properties"}, "tls.config.file=/nowhere.properties"),
    ],
    ids=str,
)
def test_keys_that_cannot_work_are_named_at_the_start(
    tmp_path: Path, what: str, options: Mapping[str, str], complaint: str
) -> None:
    ended = flaremq(*serving(what, tmp_path, options))
    assert ended.status == 1
    assert complaint in ended.err
    assert "sesame" not in ended.err


@pytest.mark.parametrize("what", ["broker", "namesrv"])
def test_a_process_whose_key_cannot_work_ends_with_its_complaint(tmp_path: Path, what: str) -> None:
    ended = command(*serving(what, tmp_path, {**SERVER, "tls.server.keyPath": OTHER_KEY}), home=tmp_path)
    assert ended.returncode == 1
    assert "expected the key of that certificate" in ended.stderr


def test_a_password_is_not_printed_with_the_settings(tmp_path: Path) -> None:
    given = {**SERVER, "tls.server.keyPath": ENCRYPTED_KEY, "tls.server.keyPassword": "opensesame"}
    flags = [word for name, value in given.items() for word in ("-o", f"{name}={value}")]
    ended = command("namesrv", "-p", *flags, home=tmp_path)
    assert "tls.server.keyPassword=***" in ended.stdout
    assert "tls.server.mode=permissive" in ended.stdout
    assert "opensesame" not in ended.stdout
