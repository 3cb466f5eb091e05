"""Two brokers and a NameServer in the loop of each test, and an admin: all tests run async and blocking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from tests.admin.faces import Unblocked
from tests.admin.member import Member

from flaremq.admin import sync
from flaremq.admin.admin import Admin
from flaremq.testing.embedded import Embedded
from flaremq.testing.fakes.wireclient import WireClient


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with Embedded(tmp_path, brokers=2) as found:
        yield found


@pytest.fixture(params=["async", "blocking"])
async def admin(request: pytest.FixtureRequest, servers: Embedded) -> AsyncIterator[Admin]:
    if request.param == "async":
        async with Admin(servers.namesrv) as plain:
            yield plain
    else:
        blocking = sync.Admin(servers.namesrv)
        yield cast(Admin, Unblocked(blocking))
        await asyncio.to_thread(blocking.stop)  # This loop serves it until then.


@pytest.fixture
async def wire() -> AsyncIterator[WireClient]:
    async with WireClient() as client:
        yield client


@pytest.fixture
async def member() -> AsyncIterator[Member]:
    async with Member() as found:
        yield found
