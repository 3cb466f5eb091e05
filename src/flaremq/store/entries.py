"""Queue entries: made from records by the batch, and followed back to records by the batch.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

import os
from typing import TYPE_CHECKING

from flaremq.store._entries_py import Key, Limit, Run

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.store._entries_py import choose, gather, group, take, valid
else:
    try:
        from flaremq.store._entries_c import choose, gather, group, take, valid
    except ImportError:
        from flaremq.store._entries_py import choose, gather, group, take, valid

__all__ = ["Key", "Limit", "Run", "choose", "gather", "group", "take", "valid"]
