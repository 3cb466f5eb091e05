"""One session for all tests of Spark: it takes seconds to start, and a process has only one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flaremq.base.errors import NoJava
from flaremq.spark.launch.java import Java, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TIMEOUT_S = 400
"""The first test of a run pays for the start, on a machine that may be busy with something else."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def java() -> Java:
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install '.[spark]'")
    try:
        return find_java()
    except NoJava as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: Java) -> Iterator[SparkSession]:
    """Two cores, no page for the browser, and a JVM that is in a hurry: it compiles only once.

    Workers find the modules of these tests by the names under which pytest knows them.
    """
    from flaremq.spark.launch.plan import SessionPlan
    from flaremq.spark.launch.session import opened_session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
        plan = SessionPlan(
            master="local[2]", app_name="tests", jvm_options=("-XX:TieredStopAtLevel=1",), java=java
        )
        with opened_session(plan) as session:
            yield session
