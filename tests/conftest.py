"""What holds for all tests."""

from __future__ import annotations

import gc
import signal

import pytest
import pytest_timeout
from hypothesis import settings as hypothesis_settings

from flaremq.testing.patience import load_factor

pytest_plugins = ("pytester",)

# No deadline: a machine that is busy with something else says nothing about the code.
# `make slow` looks six times as long at all properties that do not say for how long.
hypothesis_settings.register_profile("house", deadline=None, max_examples=50)
hypothesis_settings.register_profile("slow", deadline=None, max_examples=300)
hypothesis_settings.load_profile("house")


# Started in the background, by `&` or nohup, a process ignores these, and so would all that tests start and
# then interrupt.
for _ignored in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_ignored) is signal.SIG_IGN:
        signal.signal(_ignored, signal.default_int_handler if _ignored is signal.SIGINT else signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> object:
    """The time that a test has, longer while the machine is busy with other things as well."""
    longer = settings._replace(timeout=settings.timeout * load_factor())
    return pytest_timeout.pytest_timeout_set_timer(item, longer)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests live as long as the run: collections need not visit them again and again."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ignored-option", help="Run as if nobody read this option; see tests/ignored.py.")


def pytest_configure(config: pytest.Config) -> None:
    option = config.getoption("--ignored-option")
    if option:
        from tests.ignored import ignore

        ignore(option)
