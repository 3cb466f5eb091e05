"""Requests of one code, many at once: where their fields lie.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.protocol.bulk._requests_py import parse_requests
else:
    try:
        from flaremq.protocol.bulk._requests_c import parse_requests
    except ImportError:
        from flaremq.protocol.bulk._requests_py import parse_requests

__all__ = ["parse_requests"]
