"""Units of the timer log, many a call.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

import os
from typing import TYPE_CHECKING

from flaremq.store.timer._units_py import Entrant, SlotRow, Waiting

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.store.timer._units_py import pack_units, read_units, walk_back
else:
    try:
        from flaremq.store.timer._units_c import pack_units, read_units, walk_back
    except ImportError:
        from flaremq.store.timer._units_py import pack_units, read_units, walk_back

__all__ = ["Entrant", "SlotRow", "Waiting", "pack_units", "read_units", "walk_back"]
