"""Java's String.hashCode: the tags code of a queue entry, the key hash of an index.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one. Types are those
of the Python twin, so there is no stub to keep in sync.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.model._tags_py import java_hash
else:
    try:
        from flaremq.model._tags_c import java_hash
    except ImportError:
        from flaremq.model._tags_py import java_hash

__all__ = ["java_hash"]
