"""What replies say, and the frames that push them to their requesters, many at once.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

import os
from typing import TYPE_CHECKING

from flaremq.broker.send._pushes_py import LETTERS, NAMES, WIDTH

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.broker.send._pushes_py import ReplyDraft, read_replies
else:
    try:
        from flaremq.broker.send._pushes_c import ReplyDraft, read_replies
    except ImportError:
        from flaremq.broker.send._pushes_py import ReplyDraft, read_replies

__all__ = ["LETTERS", "NAMES", "WIDTH", "ReplyDraft", "read_replies"]
