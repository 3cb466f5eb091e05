"""Writing records: rows of drafts become the bytes of a log file.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.model._encode_py import Encoder, check_rows
else:
    try:
        from flaremq.model._encode_c import Encoder, check_rows
    except ImportError:
        from flaremq.model._encode_py import Encoder, check_rows

__all__ = ["Encoder", "check_rows"]
