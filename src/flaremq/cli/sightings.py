"""Brokers that earlier commands have seen, to notice when one is missing.

NameServers forget a broker as soon as its connection ends: nothing in the cluster names it any more, and sums
over brokers silently become smaller. So commands note which brokers a cluster has, and on which of them the
topics that they look at have queues, in a small file of the user:

    ~/.local/state/flaremq/sightings.json       (below XDG_STATE_HOME if that is set)

It holds only what commands of this user have seen. `flaremq cluster health --forget BROKER` removes a broker
that was taken away on purpose. If the file cannot be read or written, commands do without it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flaremq.admin.sync import Admin
from flaremq.base.errors import FlareError, StoreError, TopicNotFound
from flaremq.base.files import replace_whole
from flaremq.base.text import both, count
from flaremq.cli.render import note
from flaremq.cli.times import local

_TOPICS_MAX: Final = 500
_CLUSTERS_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class Missing:
    """A broker that was seen earlier and is not registered now."""

    broker: str
    address: str
    seen_ms: int
    queues: int | None = None
    """Its queues of the topic in question; None if unknown."""

    @property
    def text(self) -> str:
        return f"{self.address} was registered when a command of yours last saw it, at {local(self.seen_ms)}"

    def document(self) -> dict[str, object]:
        known = {} if self.queues is None else {"queues": self.queues}
        return {"broker": self.broker, "address": self.address, **known, **both("seen", self.seen_ms)}


class Sightings:
    """The brokers seen in one cluster."""

    def __init__(self, addresses: Iterable[str], path: Path | None = None) -> None:
        self._path = path or sightings_path()
        self._key = ";".join(sorted(addresses))
        self._file = _read(self._path)
        self._cluster = self._file.setdefault(self._key, {"brokers": {}, "topics": {}})

    def note_brokers(self, addresses: Mapping[str, str]) -> None:
        """Note the brokers that are registered now, slaves as `name:id`, with their addresses."""
        now_ms = time.time_ns() // 1_000_000
        for name, address in addresses.items():
            self._cluster["brokers"][name] = {"address": address, "seen_ms": now_ms}
        self._cluster["seen_ms"] = now_ms

    def note_topic(self, topic: str, queues: Mapping[str, int]) -> None:
        """Note the queues of a topic on each broker. Brokers that are away keep theirs."""
        known = self._cluster["topics"].pop(topic, {})
        self._cluster["topics"][topic] = {**known, **queues}

    def forget(self, broker: str) -> bool:
        for queues in self._cluster["topics"].values():
            queues.pop(broker, None)
        return self._cluster["brokers"].pop(broker, None) is not None

    def missing(self, registered: Iterable[str], topic: str | None = None) -> list[Missing]:
        """Brokers that are not registered any more; for a known topic, only those that had queues of it."""
        queues = self._cluster["topics"].get(topic, {}) if topic is not None else {}
        return [
            Missing(name, str(each["address"]), int(each["seen_ms"]), queues.get(name))
            for name, each in sorted(self._cluster["brokers"].items())
            if name not in set(registered) and (not queues or name in queues)
        ]

    def save(self) -> None:
        topics = self._cluster["topics"]
        for topic in list(topics)[: max(0, len(topics) - _TOPICS_MAX)]:
            del topics[topic]
        newest = sorted(self._file, key=lambda key: self._file[key].get("seen_ms", 0))[-_CLUSTERS_MAX:]
        text = json.dumps({key: self._file[key] for key in newest}, indent=1)
        with suppress(StoreError):  # A command works without it.
            replace_whole(self._path, text.encode())


def sightings_path(environ: Mapping[str, str] = os.environ) -> Path:
    home = environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "flaremq" / "sightings.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
        return {
            str(key): {
                "brokers": {
                    str(name): {"address": str(each["address"]), "seen_ms": int(each["seen_ms"])}
                    for name, each in cluster["brokers"].items()
                },
                "topics": {
                    str(topic): {str(name): int(count) for name, count in queues.items()}
                    for topic, queues in cluster["topics"].items()
                },
                "seen_ms": int(cluster.get("seen_ms", 0)),
            }
            for key, cluster in found.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


# Used by commands.


def look_around(admin: Admin, topic: str | None = None, *, slaves: bool = False) -> list[Missing]:
    """Note which brokers there are now, and where the topic is. Returns known brokers that are missing:
    without `slaves`, those of which nobody is there, so that what a command shows lacks their part.

    The command already has its result, so no failure here is an error.
    """
    sightings = Sightings(admin.settings.addresses)
    try:
        found = admin.brokers.list(runtime=False)
        route = None if topic is None else admin.topics.route(topic)
    except FlareError:
        return []
    sightings.note_brokers({each.title: each.address for each in found})
    registered = {each.name for each in found} | {each.title for each in found}
    if topic is not None and route is not None:
        sightings.note_topic(topic, {each.broker: each.read_queues for each in route.queues})
    sightings.save()
    return [each for each in sightings.missing(registered, topic) if slaves or ":" not in each.broker]


@contextmanager
def missed(admin: Admin, topic: str) -> Iterator[None]:
    """If an unknown topic was seen on brokers that are missing now, report the brokers instead."""
    try:
        yield
    except TopicNotFound as error:
        sightings = Sightings(admin.settings.addresses)
        registered = [each.name for each in admin.brokers.list(runtime=False)]
        away = [each for each in sightings.missing(registered, topic) if each.queues is not None]
        if not away:
            raise
        where = "; ".join(f"{each.broker}: {each.text}" for each in away)
        raise TopicNotFound(
            f"topic {topic!r} is on no broker that is registered now. It was on {where}; start it again"
        ) from error


def note_missing(missing: Iterable[Missing], what: str = "") -> None:
    """For people: the result is incomplete."""
    for each in missing:
        queues = "" if each.queues is None else f"; it held {count(each.queues, 'queue')}{what}"
        note(f"incomplete: {each.broker} is not registered now: {each.text}{queues}")


def missing_documents(missing: Iterable[Missing]) -> list[dict[str, object]]:
    return [each.document() for each in missing]
