"""The limit on this process's descriptors, and how many of them are reserved for files."""

import resource
from contextlib import suppress
from typing import Final

QUEUE_FILES_MAX: Final = 4096
"""Maps of queue files that a store keeps at a time, each with a descriptor."""
_LOG_FILES: Final = 4096  # Two for each file of a log of two terabytes.
_OTHERS: Final = 32  # The active index file, connections to NameServers, files opened briefly.


def limit() -> int:
    """The number of descriptors that this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else hard if hard != resource.RLIM_INFINITY else 1 << 30


def raise_limit() -> int:
    """Raise the soft limit to the hard limit, and return it.

    The soft limit is for programs that still use select(), and is 1024 nearly everywhere.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # Some systems report a hard limit that they do not grant.
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limit()


def queue_files(granted: int) -> int:
    """How many maps of queue files fit into this limit."""
    return max(64, min(QUEUE_FILES_MAX, granted // 4))


def for_sockets(granted: int) -> int:
    """Sockets may have descriptors below this number; the rest is reserved for files.

    A process gets the lowest free number. So a socket with this number or more means that this many are in
    use, and there is no need to count them.
    """
    return max(granted // 4, granted - queue_files(granted) - min(granted // 16, _LOG_FILES) - _OTHERS)
