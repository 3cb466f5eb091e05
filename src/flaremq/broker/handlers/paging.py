"""A large table, page by page: how slaves and tools read topics and groups."""

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
    """Entries from the one with number `begin` on, by name.

    `known` is the version, as JSON, that the pages before were of: if it is another one now, pages no
    longer fit together, and the first is given instead.
    """
    if begin < 0 or (count is not None and count < 1):
        raise InvalidParameter(
            f"{count} entries from {begin} on cannot be had: begin at 0, ask for 1 or more"
        )
    if not known or DataVersion.from_dict(fastjson.load_object(known)) != version:
        begin = 0
    names = sorted(table)[begin : begin + min(PAGE_MAX, count or PAGE_MAX)]
    return {name: table[name] for name in names}
