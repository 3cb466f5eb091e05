"""Ends of transactions as rows of drafts, all of a turn at once.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

import os
from typing import TYPE_CHECKING

from flaremq.broker.transactions._ends_py import FIELDS, WIDTH

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.broker.transactions._ends_py import Ends
else:
    try:
        from flaremq.broker.transactions._ends_c import Ends
    except ImportError:
        from flaremq.broker.transactions._ends_py import Ends

__all__ = ["FIELDS", "WIDTH", "Ends"]
