"""No test reads or writes what belongs to the user who runs it; and a cluster for those that need one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.commands import Ended, flaremq

from flaremq.testing.embedded import EmbeddedThread

Ask = Callable[..., Ended]


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home: Path = tmp_path_factory.mktemp("home")
    for name in ("FLAREMQ_NAMESRV", "NAMESRV_ADDR", "FLAREMQ_PROFILE", "FLAREMQ_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedThread]:
    """Two brokers. Tests of a module share them, so each has topics of its own."""
    with EmbeddedThread(tmp_path_factory.mktemp("servers"), brokers=2) as found:
        yield found


@pytest.fixture
def ask(servers: EmbeddedThread) -> Ask:
    """`flaremq` for this cluster."""

    def asked(*words: object, given: str | None = None) -> Ended:
        return flaremq(*words, "-n", servers.namesrv, given=given)

    return asked
