"""A command's connection to its cluster, and notes about servers that do not answer."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from flaremq.admin.sync import Admin
from flaremq.admin.values.outcome import Failed
from flaremq.base.logs import ROOT
from flaremq.cli.profiles import choose
from flaremq.cli.render import BadValue, note, worded_error
from flaremq.client.settings import ClientSettings

_SILENT: Final = logging.NullHandler()


def client_settings(namesrv: str | None, profile: str | None) -> ClientSettings:
    """Client settings for the chosen cluster. Commands report errors, so clients do not log them."""
    logging.getLogger(ROOT).addHandler(_SILENT)
    target = choose(namesrv, profile)
    target.tls.say()
    return ClientSettings(namesrv=target.namesrv, timeout_s=5.0)


@contextmanager
def connected(namesrv: str | None, profile: str | None) -> Iterator[Admin]:
    """An Admin for that cluster."""
    with Admin(settings=client_settings(namesrv, profile)) as admin:
        yield admin


def note_failures(failed: Failed) -> None:
    """For people: the result is incomplete."""
    for name, error in sorted(failed.items()):
        note(f"incomplete: {name} did not answer: {worded_error(error)}")


def pairs_of(words: list[str] | None, what: str) -> dict[str, str]:
    """`key=value` words as a table."""
    found: dict[str, str] = {}
    for word in words or []:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise BadValue(f"{what} {word!r}: expected key=value")
        found[name.strip()] = value
    return found


def text_of(pairs: Mapping[str, object]) -> str:
    """A table in one cell."""
    return " ".join(f"{name}={value}" for name, value in sorted(pairs.items()))
