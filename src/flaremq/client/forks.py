"""A process that forks: the child lets go of the parent's connections, and nothing else.

The sockets of the parent are open in the child too. As long as they are, a broker does not notice
that the parent has closed one. Nothing may be sent or told to the event loop: both belong to the parent.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress

from flaremq.remoting.caller import Caller

_callers: weakref.WeakSet[Caller] = weakref.WeakSet()


def note(caller: Caller) -> None:
    """Close its sockets in every child of this process."""
    _callers.add(caller)


def _let_go() -> None:
    for caller in list(_callers):
        for number in caller.descriptors():
            with suppress(OSError):
                os.close(number)
    _callers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
