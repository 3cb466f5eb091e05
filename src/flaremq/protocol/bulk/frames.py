"""The frame of a send: its header is the same for all messages to a queue, except for a few values.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.protocol.bulk._frames_py import send_frame
else:
    try:
        from flaremq.protocol.bulk._frames_c import send_frame
    except ImportError:
        from flaremq.protocol.bulk._frames_py import send_frame

__all__ = ["send_frame"]
