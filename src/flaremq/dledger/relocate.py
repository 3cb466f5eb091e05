"""Copies of records in another log, many a call.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.dledger._relocate_py import differing_row, linked_rows, relocate
else:
    try:
        from flaremq.dledger._relocate_c import differing_row, linked_rows, relocate
    except ImportError:
        from flaremq.dledger._relocate_py import differing_row, linked_rows, relocate

__all__ = ["differing_row", "linked_rows", "relocate"]
