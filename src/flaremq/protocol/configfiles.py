"""The JSON files that brokers and NameServers keep next to their data, and the one way to read them.

topics.json, subscriptionGroup.json, consumerOffset.json, delayOffset.json, deletedTopics.json and
kvConfig.json are in fastjson's dialect, whether Java or we wrote them: a queue number is a bare integer key,
which Python's own parsers refuse. A writer first renames the old file to .bak and then puts the new one in
its place, so for a moment only the .bak is there: a reader must expect that while the server runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from flaremq.base.errors import Malformed
from flaremq.base.files import BackedFile
from flaremq.protocol import fastjson

T = TypeVar("T")
FOLDER: Final = "config"
"""Below the root of a broker's store."""
DELETED_TOPICS: Final = "deletedTopics"


def load(path: Path, parse: Callable[[bytes], T]) -> T | None:
    """What `parse` makes of the file, or of its .bak if the file is missing or unreadable.

    None if neither is there. ConfigError if one is there, or both, and none can be read.
    """
    return BackedFile(path).load_as(parse)


def parse_deleted_topics(text: bytes) -> dict[str, int]:
    """By name, where the log ended when the topic was deleted. Java has no such file, and ignores ours."""
    table = fastjson.load_object(text).get(DELETED_TOPICS)
    if not isinstance(table, Mapping) or not all(type(end) is int for end in table.values()):
        raise Malformed(f"{DELETED_TOPICS}: expected a table of topics and offsets")
    return {str(topic): end for topic, end in table.items()}


def deleted_topics(root: Path) -> dict[str, int]:
    """The deleted topics of the store at `root`: their records below these offsets belong to no queue."""
    return load(root / FOLDER / f"{DELETED_TOPICS}.json", parse_deleted_topics) or {}
