"""Where sockets are read to: one buffer for all connections of a port, served in turns.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.remoting._inlet_py import Inlet, Reads
else:
    try:
        from flaremq.remoting._inlet_c import Inlet, Reads
    except ImportError:
        from flaremq.remoting._inlet_py import Inlet, Reads

__all__ = ["Inlet", "Reads"]
