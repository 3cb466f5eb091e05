"""What holds for all tests."""

import pytest
from hypothesis import settings

# No deadline: a machine that is busy with something else says nothing about the code.
settings.register_profile("house", deadline=None)
settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ignored-option", help="Run as if nobody read this option; see tests/ignored.py.")


def pytest_configure(config: pytest.Config) -> None:
    option = config.getoption("--ignored-option")
    if option:
        from tests.ignored import ignore

        ignore(option)
