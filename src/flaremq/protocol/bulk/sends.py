"""Sends, many at once: from frames to drafts.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.protocol.bulk._sends_py import parse_sends
else:
    try:
        from flaremq.protocol.bulk._sends_c import parse_sends
    except ImportError:
        from flaremq.protocol.bulk._sends_py import parse_sends

__all__ = ["parse_sends"]
