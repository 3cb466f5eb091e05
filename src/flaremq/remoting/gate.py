"""The gate: may refuse any request, before any work is done for it.

    turn > lanes: [admits] once for each connection, topic and right of a turn
         > plain: [check] for each Command

A port without a gate pays nothing for it. With one, the lanes ask it once per turn for all ordinary requests
of a connection to a topic; those that it does not admit are left to the plain way, where each is checked
alone, and refused with the reason.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from flaremq.protocol.command import Command


class Right(Enum):
    """What a request does with its topic."""

    SEND = "send"
    PULL = "pull"


class Origin(Protocol):
    """The connection that a request came from."""

    host: bytes


class Gate(Protocol):
    """What a port may be guarded with: access control, a read-only mode, a quota."""

    def check(self, source: Origin, request: Command) -> None:
        """Raise to refuse. Called once for every request that becomes a Command."""

    def admits(self, source: Origin, topic: bytes, right: Right) -> bool:
        """Whether all ordinary requests of this connection to this topic may pass in this turn.

        False refuses nothing: they are then checked one by one."""
