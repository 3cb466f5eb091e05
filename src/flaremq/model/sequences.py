"""Numbered messages of producers: what a broker remembers of them, to store each of them once.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from flaremq.base.errors import ConfigError

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.model._sequences_py import SEQUENCE_MAX, Windows, parse_sequence
else:
    from flaremq.model._sequences_py import SEQUENCE_MAX, parse_sequence

    try:
        from flaremq.model._sequences_c import Windows
    except ImportError:
        from flaremq.model._sequences_py import Windows

__all__ = ["SEQUENCE_MAX", "Windows", "check_producer_id", "parse_sequence"]

_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def check_producer_id(producer_id: object) -> None:
    """Raises ConfigError."""
    if not isinstance(producer_id, str) or not _ID.fullmatch(producer_id):
        raise ConfigError(
            f"producer_id {producer_id!r}: expected 1 to 64 letters, digits, dots, hyphens or underscores"
        )
