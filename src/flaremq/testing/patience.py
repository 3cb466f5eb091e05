"""How long a test may wait: its own limit on an idle machine, and longer on a busy one.

A limit says how long something that works may take. On a busy machine everything takes longer, by about the
number of running programs per processor; a test that fails because of that says nothing about the code.
"""

from __future__ import annotations

import os
from typing import Final

FACTOR_MAX: Final = 12.0
"""Low enough that a hanging test is still found within the hour."""


def load_factor() -> float:
    """The factor for limits now: 1.0 unless more programs run than there are processors."""
    processors = os.cpu_count() or 1
    return min(FACTOR_MAX, max(1.0, os.getloadavg()[0] / processors))
