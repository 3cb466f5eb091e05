"""The names that programs import from `flaremq` and `flaremq.client.sync`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import flaremq
from flaremq.client import sync


@pytest.mark.parametrize("name", flaremq.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(flaremq, name).__name__ == name or name == "PullConsumer"
    assert set(dir(flaremq)) == set(flaremq.__all__)


def test_the_blocking_clients_have_the_names_of_the_async_ones() -> None:
    only_async = {"Admin", "ConsumeFromWhere", "FlareError"}
    assert set(flaremq.__all__) - only_async <= {*sync.__all__}


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Produser'"):
        getattr(flaremq, "Produser")  # noqa: B009 - So that no type checker sees it.


def test_importing_the_package_loads_nothing_of_it() -> None:
    code = "import sys, flaremq; print([name for name in sys.modules if name.startswith('flaremq.')])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_client_loads_no_broker_and_no_store() -> None:
    heavy = "('flaremq.broker', 'flaremq.store', 'rich', 'typer')"
    code = (
        "import sys, flaremq.client.sync, flaremq.admin.sync\n"
        f"print([name for name in sys.modules if name.startswith({heavy})])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_type_checkers_are_told_the_same_names() -> None:
    stub = Path(flaremq.__file__ or "").with_suffix(".pyi").read_text()
    told = set(re.findall(r"(\w+) as \1", stub))
    assert told == set(flaremq.__all__) == set(vars(flaremq)["_PLACES"])
