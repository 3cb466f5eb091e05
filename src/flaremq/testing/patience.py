"""How long a test may wait: its own limit on a machine that is free, and more on one that is busy.

A limit says how long something may take that works. Beside other programs everything takes longer, by about
as many times as there are programs for each processor; a test that fails then says nothing of the code.
"""

from __future__ import annotations

import os
from typing import Final

FACTOR_MAX: Final = 12.0
"""A test that hangs is still found within the hour."""


def load_factor() -> float:
    """By how much limits are longer now: 1.0 unless more programs run than there are processors."""
    processors = os.cpu_count() or 1
    return min(FACTOR_MAX, max(1.0, os.getloadavg()[0] / processors))
