"""Windows of producers: which numbered messages are stored already.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flaremq.broker.send._windows_py import WAITING

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.broker.send._windows_py import Windows
else:
    try:
        from flaremq.broker.send._windows_c import Windows
    except ImportError:
        from flaremq.broker.send._windows_py import Windows

__all__ = ["WAITING", "Windows"]
