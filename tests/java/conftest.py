"""Fixtures of the tests against the real store: each runs on 5.x and 4.x, or is skipped in one clear line."""

from collections.abc import Iterator

import pytest
from tests.java.driver import JavaStores
from tests.java.toolchain import BUILD_LIMIT_S, MODULES, Toolchain, find_toolchain


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of a fresh checkout waits for the build, so the usual limit would be too short."""
    for item in items:
        if item.get_closest_marker("java") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(BUILD_LIMIT_S + 120))


@pytest.fixture(scope="session")
def java_toolchain() -> Toolchain:
    found = find_toolchain()
    if isinstance(found, str):
        pytest.skip(f"no Java store to test against: {found}")
    return found


@pytest.fixture(scope="session", params=list(MODULES))
def java_store(request: pytest.FixtureRequest, java_toolchain: Toolchain) -> Iterator[JavaStores]:
    """Starts JVMs: `with java_store() as java:`. Its version is `java_store.version`."""
    stores = JavaStores(java_toolchain, request.param)
    yield stores
    stores.kill_all()
