"""Heads of entries, written and examined, many a call.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.dledger.ledger._entries_py import examine, seal
else:
    try:
        from flaremq.dledger.ledger._entries_c import examine, seal
    except ImportError:
        from flaremq.dledger.ledger._entries_py import examine, seal

__all__ = ["examine", "seal"]
