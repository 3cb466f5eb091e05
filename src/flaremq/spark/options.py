"""Options as Spark hands them over: names in any case, values as text. Read once, and nothing is guessed.

A name that no option has is an error that says which one is near, and a wrong value is one that says
what is wanted. Reading and writing have options of their own, and share this way of reading them.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final, TypeVar

from flaremq.arrow.schema import COLUMNS, type_of
from flaremq.base.errors import ConfigError, UsageError
from flaremq.base.units import parse_size, parse_span_ms
from flaremq.client.settings import ENVIRONMENT, ClientSettings, named_by_environment

T = TypeVar("T")

_KAFKAS: Final[Mapping[str, tuple[str, ...]]] = {
    "subscribe": ("topic",),
    "subscribePattern": ("topicPattern",),
    "assign": ("queues",),
    "kafka.bootstrap.servers": ("nameServer",),
    "bootstrap.servers": ("nameServer",),
    "kafka.group.id": ("group", "producerGroup"),
    "startingOffsetsByTimestamp": ("startingTimestamp",),
    "endingOffsetsByTimestamp": ("endingTimestamp",),
    "maxRecordsPerPartition": ("maxRowsPerPartition",),
    "includeHeaders": ("includeProperties",),
}
"""Options of Spark's format "kafka" and ours for the same thing: users of Kafka type theirs first."""
_BY_KAFKA: Final = {name.casefold(): own for name, own in _KAFKAS.items()}


class Given:
    """What somebody has said. Each value is read by the kind that it has."""

    def __init__(self, options: Mapping[str, str], names: Iterable[str]) -> None:
        """`names` are all that there are; ConfigError for any other."""
        self._names = {name.casefold(): name for name in names}
        self._values: dict[str, str] = {}
        for given, value in options.items():
            name = self._names.get(given.casefold())
            if name is None:
                raise self._unknown(given, value)
            self._values[name] = str(value).strip()

    def _unknown(self, given: str, value: str) -> ConfigError:
        if given.casefold() in ("path", "paths"):
            return ConfigError(
                f"path={value!r}: this format reads no files; name topics, as in .option('topic', 'Orders'), "
                "and call load() without a path"
            )
        own = [name for name in _BY_KAFKA.get(given.casefold(), ()) if name in self._names.values()]
        if own:
            return ConfigError(f"unknown option {given!r}: did you mean {own[0]}? (That name is Kafka's.)")
        near = get_close_matches(given.casefold(), self._names, 1, 0.6)
        hint = f"did you mean {self._names[near[0]]}?" if near else f"there are {', '.join(self.names)}"
        return ConfigError(f"unknown option {given!r}: {hint}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._names.values()))

    def has(self, name: str) -> bool:
        assert name in self._names.values(), name
        return name in self._values

    def first_of(self, names: Iterable[str]) -> str | None:
        """The first of these that somebody has set."""
        return next((name for name in names if self.has(name)), None)

    def one_of(self, *names: str) -> str | None:
        """Which of these is set; ConfigError if it is more than one."""
        found = [name for name in names if self.has(name)]
        if len(found) > 1:
            raise ConfigError(f"{' and '.join(found)} are both set, and only one can be: remove the others")
        return found[0] if found else None

    # Values.

    def text(self, name: str) -> str | None:
        """None if it is not set. An empty text is an error: nobody sets an option to nothing on purpose."""
        if not self.has(name):
            return None
        if not self._values[name]:
            raise ConfigError(f"{name} is set, but empty: give it a value, or remove it")
        return self._values[name]

    def words(self, name: str) -> tuple[str, ...]:
        """Of a list with commas, each once, in the order given."""
        text = self.text(name)
        return tuple(dict.fromkeys(part.strip() for part in (text or "").split(",") if part.strip()))

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise wrong(name, text, "true or false", "true")
        return text.lower() == "true"

    def number(self, name: str, minimum: int = 1) -> int | None:
        wanted = f"a whole number from {minimum} on"
        text = self.text(name)
        if text is None:
            return None
        if not text.removeprefix("-").isdecimal() or not text.isascii() or not minimum <= int(text) < 1 << 63:
            raise wrong(name, text, wanted, str(max(minimum, 1000)))
        return int(text)

    def size(self, name: str) -> int | None:
        return self._positive(name, parse_size, "a size above 0", "64MiB")

    def span_ms(self, name: str) -> int | None:
        return self._positive(name, parse_span_ms, "a span of time above 0", "15m")

    def _positive(self, name: str, parse: Callable[[str], int], wanted: str, example: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            value = parse(text)
        except ConfigError:
            raise wrong(name, text, wanted, example) from None
        if value <= 0:
            raise wrong(name, text, wanted, example)
        return value

    def time_ms(self, name: str) -> int | None:
        """Milliseconds since 1970, or ISO-8601. Without a zone it is UTC, on whichever machine it is read."""
        text = self.text(name)
        if text is None or (text.isdecimal() and text.isascii() and int(text) < 1 << 62):
            return None if text is None else int(text)
        try:
            said = datetime.fromisoformat(text)
            seconds = (said if said.tzinfo else said.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            raise wrong(name, text, "milliseconds or ISO-8601", "2026-05-01T12:30:00Z") from None
        if seconds < 0:
            raise wrong(name, text, "a time after 1970", "2026-05-01T12:30:00Z")
        return math.ceil(seconds * 1000)

    def json(self, name: str, example: str) -> object:
        """The value that a JSON text stands for."""
        text = self.text(name)
        assert text is not None
        try:
            return json.loads(text)
        except ValueError as error:
            raise wrong(name, text, f"JSON (it is none: {error})", example) from None


def wrong(name: str, value: object, wanted: str, example: str) -> ConfigError:
    """Raise it: a value that cannot be, with what is allowed and an example."""
    return ConfigError(f"{name}={str(value)[:200]!r}: wanted is {wanted}, as in {name}={example}")


def wanted_columns(given: Given) -> tuple[str, ...]:
    """The wanted columns, in the order in which they are named."""
    named = given.words("columns")
    with_properties = given.flag("includeProperties", True)
    try:
        for name in named:
            type_of(name)
    except UsageError as error:
        raise ConfigError(f"columns={','.join(named)}: {error}") from None
    if "properties" in named and not with_properties:
        raise ConfigError("columns names properties and includeProperties=false leaves them out: remove one")
    return named or tuple(name for name in COLUMNS if with_properties or name != "properties")


def cores() -> int:
    """Of this machine, which is the driver's; a cluster's are not known to a Python source."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


DEFAULT_GROUP: Final = "flaremq-spark"
"""Group used for reading and writing when the option is not set. No offset is ever committed for it."""
BROKER_TIMEOUT_MS: Final = 60_000


def name_server_of(given: Given) -> str:
    address = given.text("nameServer") or named_by_environment()
    if not address:
        raise ConfigError(
            "nameServer is not set: give host:port, as in nameServer=127.0.0.1:9876, or set "
            f"{' or '.join(ENVIRONMENT)} in the environment of the driver"
        )
    return ClientSettings(namesrv=address).namesrv
