"""Pulls, many at once: from frames to rows.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.protocol.bulk._pulls_py import parse_pulls
else:
    try:
        from flaremq.protocol.bulk._pulls_c import parse_pulls
    except ImportError:
        from flaremq.protocol.bulk._pulls_py import parse_pulls

__all__ = ["parse_pulls"]
