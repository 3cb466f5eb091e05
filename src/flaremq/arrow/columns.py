"""Walked records turned into the buffers of Arrow columns: one call per column, never one per message.

A call takes the bytes, a table of facts (model.columns.Fact) that a walk over them has filled, and the number
of its rows. It returns `bytes` that an Arrow array uses as they are. Texts are returned as they are on disk:
the caller checks whether they are UTF-8.

The compiled twin is used if it is built; FLAREMQ_PURE=1 forces the Python one.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.arrow._columns_py import gather, hosts, ids, numbers, pairs, sift
else:
    try:
        from flaremq.arrow._columns_c import gather, hosts, ids, numbers, pairs, sift
    except ImportError:
        from flaremq.arrow._columns_py import gather, hosts, ids, numbers, pairs, sift

__all__ = ["gather", "hosts", "ids", "numbers", "pairs", "sift"]
