"""Records of messages that wait, many a call.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

import os
from typing import TYPE_CHECKING

from flaremq.broker.delay._waiting_py import Due, Enterable, Tally

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.broker.delay._waiting_py import tally, to_deliver, to_enter
else:
    try:
        from flaremq.broker.delay._waiting_c import tally, to_deliver, to_enter
    except ImportError:
        from flaremq.broker.delay._waiting_py import tally, to_deliver, to_enter

__all__ = ["Due", "Enterable", "Tally", "tally", "to_deliver", "to_enter"]
