"""From walked records to the buffers of Arrow columns: a call per column, never one per message.

A call takes the bytes, a table of facts (model.columns.Fact) that a walk over them has filled, and the
number of its rows; it gives `bytes` that an Arrow array takes as they are. Texts come as they lie on
disk: whether they are UTF-8 is for whoever makes arrays of them.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
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
