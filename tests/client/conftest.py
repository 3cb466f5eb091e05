"""Servers that all tests of clients share, and topics of their own for each."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from flaremq.testing.embedded import EmbeddedThread

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedThread]:
    """A NameServer and two brokers, without a delay before retries. Tests that stop one start their own."""
    folder = tmp_path_factory.mktemp("servers")
    with EmbeddedThread(folder, brokers=2, options={"messageDelayLevel": "0s"}) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    wish = re.sub(r"[^a-zA-Z0-9]+", "_", request.node.name).removeprefix("test_")[:60]
    return f"{wish}-{next(_numbers)}"
