"""Limits of tests follow the load of the machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from flaremq.testing import patience
from flaremq.testing.cluster import eventually

ROOT = Path(__file__).parents[2]


def busy(monkeypatch: pytest.MonkeyPatch, load: float, processors: int = 2) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    monkeypatch.setattr(os, "cpu_count", lambda: processors)


@pytest.mark.parametrize(
    ("load", "factor"), [(0.0, 1.0), (2.0, 1.0), (8.0, 4.0), (400.0, patience.FACTOR_MAX)]
)
def test_a_limit_grows_with_the_programs_for_each_processor(
    monkeypatch: pytest.MonkeyPatch, load: float, factor: float
) -> None:
    busy(monkeypatch, load)
    assert patience.load_factor() == factor


async def test_waiting_goes_on_beyond_its_limit_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    begun_s = asyncio.get_running_loop().time()

    async def after_the_limit() -> bool:
        return asyncio.get_running_loop().time() > begun_s + 0.15

    busy(monkeypatch, 24.0)
    await eventually("late", after_the_limit, limit_s=0.05)


async def test_on_a_free_machine_the_limit_is_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never() -> bool:
        return False

    busy(monkeypatch, 0.5)
    with pytest.raises(TimeoutError, match=r"not within 0\.05 s: never"):
        await eventually("never", never, limit_s=0.05)


def test_the_time_of_a_whole_test_follows_the_load_too(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest(
        "import os\n"
        "os.getloadavg = lambda: (40.0, 40.0, 40.0)\n"
        "os.cpu_count = lambda: 2\n"
        "from tests.conftest import pytest_timeout_set_timer\n"
    )
    pytester.makepyfile(
        "import threading\n"
        "import pytest\n"
        "@pytest.mark.timeout(0.3)\n"
        "def test_slow():\n"
        "    threading.Event().wait(0.6)\n"
    )
    assert pytester.runpytest_subprocess("-p", "no:cacheprovider").ret == 0
