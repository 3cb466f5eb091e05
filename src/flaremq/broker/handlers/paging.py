"""Large tables page by page, as slaves and tools read topics and groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from flaremq.base.errors import InvalidParameter
from flaremq.model.topic import DataVersion
from flaremq.protocol import fastjson

V = TypeVar("V")

PAGE_MAX: Final = 2000
"""splitMetadataSize."""


def page(
    table: Mapping[str, V], version: DataVersion, known: str | None, begin: int, count: int | None
) -> dict[str, V]:
    """Up to `count` entries from number `begin` on, ordered by name; one more if it were the only one left.
    RocketMQ's slaves take pages until all entries but one are there, and would never ask for that one.

    `known` is the version of the previous pages, as JSON: if the table has changed since, pages no longer
    fit together, and the first one is returned.
    """
    if begin < 0 or (count is not None and count < 1):
        raise InvalidParameter(
            f"{count} entries from {begin} on: expected a start of 0 or more and a count of 1 or more"
        )
    if not known or DataVersion.from_dict(fastjson.load_object(known)) != version:
        begin = 0
    end = begin + min(PAGE_MAX, count or PAGE_MAX)
    names = sorted(table)[begin : end + 1 if end + 1 == len(table) else end]
    return {name: table[name] for name in names}
