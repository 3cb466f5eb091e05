"""Returns freed memory to the system.

The C library keeps memory that a process has freed, in case it is needed again. After a burst of large
answers to peers that never read them, that is some hundred megabytes, too scattered to be returned
automatically: free, but not for other processes.
"""

import ctypes
from collections.abc import Callable
from functools import cache


def trim() -> None:
    """Return freed memory. Takes some milliseconds per hundred megabytes; does nothing without glibc."""
    release = _malloc_trim()
    if release is not None:
        release(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        found = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    return found
