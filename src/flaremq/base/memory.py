"""Memory that was freed, given back to the system.

The C library keeps what a process has freed, in case it is wanted again. After a burst of large answers to
peers that never read them that is some hundred megabytes, scattered such that they are not given back by
themselves: free, but not for anyone else on the machine.
"""

import ctypes
from collections.abc import Callable
from functools import cache


def trim() -> None:
    """Takes some milliseconds for each hundred megabytes. Does nothing where there is no glibc."""
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
