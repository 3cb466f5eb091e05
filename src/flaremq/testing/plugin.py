"""Fixtures for tests of programs that use FlareMQ or RocketMQ: real servers, time, faults and assertions.

    # conftest.py
    pytest_plugins = ["flaremq.testing.plugin"]

They are loaded only on request, because their names are short and may clash with yours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from flaremq.admin.sync import Admin
from flaremq.base.errors import UsageError
from flaremq.testing.asserts import Asserts
from flaremq.testing.clock import MovableClock
from flaremq.testing.faults import Faults
from flaremq.testing.local import Clusters, LocalBroker


@pytest.fixture
def broker_options() -> Mapping[str, object]:
    """Options for the fixture `broker`, by RocketMQ's names. Define your own fixture of this name."""
    return {}


@pytest.fixture
def clock() -> MovableClock:
    """The clock of the fixture `broker` in a test that asks for both: `clock.advance(86_400)`."""
    return MovableClock()


@pytest.fixture
def broker(
    request: pytest.FixtureRequest, tmp_path: Path, broker_options: Mapping[str, object]
) -> Iterator[LocalBroker]:
    """A NameServer and a broker in this process, new for each test."""
    clock = request.getfixturevalue("clock") if "clock" in request.fixturenames else None
    with LocalBroker(tmp_path / "flaremq", options=broker_options, clock=clock) as broker:
        yield broker


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Clusters]:
    """Makes clusters of real processes: `cluster(3, namesrvs=2)`. They end with the test, however it ends."""
    with Clusters(tmp_path / "flaremq-clusters") as clusters:
        yield clusters


@pytest.fixture
def faults(request: pytest.FixtureRequest, cluster: Clusters) -> Iterator[Faults]:
    """Kills processes, cuts connections and damages files."""
    broker = request.getfixturevalue("broker") if "broker" in request.fixturenames else None
    faults = Faults(cluster.made, broker)
    yield faults
    faults.heal()


class _Asked(Asserts):
    """Assertions about a test's own servers: its broker, or the last cluster that it made."""

    def __init__(self, broker: LocalBroker | None, clusters: Clusters | None) -> None:
        super().__init__()
        self._broker = broker
        self._clusters = clusters

    @property
    def namesrv(self) -> str:
        return self._servers.namesrv

    @property
    def admin(self) -> Admin:
        return self._servers.admin

    @property
    def _servers(self) -> Asserts:
        if self._broker is not None:
            return self._broker
        if self._clusters is not None and self._clusters.made:
            return self._clusters.made[-1]
        raise UsageError(
            "no servers to ask: use the fixture `broker`, or make a `cluster` first; for "
            "other servers use the functions in flaremq.testing.asserts"
        )


@pytest.fixture
def _asked(request: pytest.FixtureRequest) -> Asserts:
    def fixture(name: str) -> Any:
        return request.getfixturevalue(name) if name in request.fixturenames else None

    return _Asked(fixture("broker"), fixture("cluster"))


@pytest.fixture
def assert_sent(_asked: Asserts) -> Callable[..., None]:
    """`assert_sent(topic, n)`: the topic has received n messages."""
    return _asked.assert_sent


@pytest.fixture
def assert_consumed(_asked: Asserts) -> Callable[..., None]:
    """`assert_consumed(topic, n, group)`: the group has committed n messages of the topic."""
    return _asked.assert_consumed


@pytest.fixture
def assert_no_backlog(_asked: Asserts) -> Callable[..., None]:
    """`assert_no_backlog(topic, group)`: the group has consumed the whole topic."""
    return _asked.assert_no_backlog


@pytest.fixture
def assert_dead_letters(_asked: Asserts) -> Callable[..., None]:
    """`assert_dead_letters(group, n)`: n messages of the group went to its dead-letter queue."""
    return _asked.assert_dead_letters
