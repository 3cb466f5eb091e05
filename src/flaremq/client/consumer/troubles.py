"""Troubles that many queues have at once are one trouble: told when it begins and when it is over."""

from __future__ import annotations

import logging

from flaremq.base.errors import FlareError

log = logging.getLogger(__name__)


class Troubles:
    def __init__(self, group: str) -> None:
        self._group = group
        self._known: dict[str, set[type[FlareError]]] = {}

    def note(self, where: str, what: str, error: FlareError) -> None:
        """Something failed there. Only the first of its kind is worth a line."""
        kinds = self._known.setdefault(where, set())
        if type(error) not in kinds:
            kinds.add(type(error))
            log.warning("group %s: %s at %s fails, and is tried again: %s", self._group, what, where, error)

    def over(self, where: str) -> None:
        """It works there."""
        if where in self._known:
            del self._known[where]
            log.info("group %s: %s works again", self._group, where)
