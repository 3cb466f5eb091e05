"""Answers to sends, many at once: from frames to rows.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.protocol.bulk._receipts_py import parse_receipts
else:
    try:
        from flaremq.protocol.bulk._receipts_c import parse_receipts
    except ImportError:
        from flaremq.protocol.bulk._receipts_py import parse_receipts

__all__ = ["parse_receipts"]
