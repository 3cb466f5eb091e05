"""Copies of stored records as rows of drafts: many in one append, without a value for each.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.store._copyrows_py import CopyRows, Glance, glance
else:
    try:
        from flaremq.store._copyrows_c import CopyRows, Glance, glance
    except ImportError:
        from flaremq.store._copyrows_py import CopyRows, Glance, glance

__all__ = ["CopyRows", "Glance", "glance"]
