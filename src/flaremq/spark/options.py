"""Options as Spark passes them: names in any case, values as text.

An unknown name raises an error with a suggestion, an invalid value one that says what was expected. Reading
and writing have different options, and both parse them here.
"""

from __future__ import annotations

import json
import math
import re
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
"""Options of Spark's format "kafka", which Kafka users try first, and ours for the same thing."""
_BY_KAFKA: Final = {name.casefold(): own for name, own in _KAFKAS.items()}


class OptionReader:
    """The options of one read or write; a method for each kind of value."""

    def __init__(self, options: Mapping[str, str], names: Iterable[str]) -> None:
        """ConfigError for an option that is not among `names`."""
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
                f"path={value!r}: this format reads topics, not files; name them with .option('topic', "
                "'Orders') and call load() without a path"
            )
        own = [name for name in _BY_KAFKA.get(given.casefold(), ()) if name in self._names.values()]
        if own:
            return ConfigError(f"unknown option {given!r}: did you mean {own[0]}? (That name is Kafka's.)")
        near = get_close_matches(given.casefold(), self._names, 1, 0.6)
        hint = f"did you mean {self._names[near[0]]}?" if near else f"expected one of {', '.join(self.names)}"
        return ConfigError(f"unknown option {given!r}: {hint}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._names.values()))

    def has(self, name: str) -> bool:
        assert name in self._names.values(), name
        return name in self._values

    def first_of(self, names: Iterable[str]) -> str | None:
        """The first of these that is set."""
        return next((name for name in names if self.has(name)), None)

    def one_of(self, *names: str) -> str | None:
        """Which of these is set; ConfigError if it is more than one."""
        found = [name for name in names if self.has(name)]
        if len(found) > 1:
            raise ConfigError(f"{' and '.join(found)} are set, and they exclude each other: keep one of them")
        return found[0] if found else None

    # Values.

    def text(self, name: str) -> str | None:
        """None if it is not set. An empty text is an error: it is never meant."""
        if not self.has(name):
            return None
        if not self._values[name]:
            raise ConfigError(f"{name} is empty: give it a value, or remove it")
        return self._values[name]

    def words(self, name: str) -> tuple[str, ...]:
        """A list separated by commas, without duplicates, in the given order."""
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
        wanted = f"a whole number of at least {minimum}"
        text = self.text(name)
        if text is None:
            return None
        if not text.removeprefix("-").isdecimal() or not text.isascii() or not minimum <= int(text) < 1 << 63:
            raise wrong(name, text, wanted, str(max(minimum, 1000)))
        return int(text)

    def size(self, name: str) -> int | None:
        return self._positive(name, parse_size, "a size greater than 0", "64MiB")

    def span_ms(self, name: str) -> int | None:
        return self._positive(name, parse_span_ms, "a duration greater than 0", "15m")

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
        """Milliseconds since 1970, or ISO-8601. Without a zone it is UTC, whatever the machine's zone."""
        text = self.text(name)
        if text is None or (text.isdecimal() and text.isascii() and int(text) < 1 << 62):
            return None if text is None else int(text)
        try:
            said = datetime.fromisoformat(text)
            seconds = (said if said.tzinfo else said.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            raise wrong(name, text, "milliseconds since 1970 or ISO-8601", "2026-05-01T12:30:00Z") from None
        if seconds < 0:
            raise wrong(name, text, "a time after 1970", "2026-05-01T12:30:00Z")
        return math.ceil(seconds * 1000)

    def pattern(self, name: str) -> str | None:
        """A regular expression, as text."""
        text = self.text(name)
        if text is None:
            return None
        try:
            re.compile(text)
        except re.error as error:
            raise wrong(name, text, f"a regular expression ({error})", "order-.*") from None
        return text

    def json(self, name: str, example: str) -> object:
        """The parsed value of a JSON text."""
        text = self.text(name)
        assert text is not None
        try:
            return json.loads(text)
        except ValueError as error:
            raise wrong(name, text, f"JSON ({error})", example) from None


def wrong(name: str, value: object, wanted: str, example: str) -> ConfigError:
    """The error for an invalid value: what was expected, with an example."""
    return ConfigError(f"{name}={str(value)[:200]!r}: expected {wanted}, for example {name}={example}")


def wanted_columns(given: OptionReader) -> tuple[str, ...]:
    """The columns to read, in the order in which they are named."""
    named = given.words("columns")
    with_properties = given.flag("includeProperties", True)
    try:
        for name in named:
            type_of(name)
    except UsageError as error:
        raise ConfigError(f"columns={','.join(named)}: {error}") from None
    if "properties" in named and not with_properties:
        raise ConfigError(
            "columns names properties, and includeProperties=false leaves them out: remove one of the two"
        )
    return named or tuple(name for name in COLUMNS if with_properties or name != "properties")


DEFAULT_GROUP: Final = "flaremq-spark"
"""Group used for reading and writing when the option is not set. Offsets are never committed for it."""
BROKER_TIMEOUT_MS: Final = 60_000


def name_server_of(given: OptionReader) -> str:
    address = given.text("nameServer") or named_by_environment()
    if not address:
        raise ConfigError(
            "nameServer is not set: expected host:port, for example nameServer=127.0.0.1:9876; or set "
            f"{' or '.join(ENVIRONMENT)} in the driver's environment"
        )
    return ClientSettings(namesrv=address).namesrv
