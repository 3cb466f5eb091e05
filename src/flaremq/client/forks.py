"""After a fork, the child closes its copies of the parent's sockets, and does nothing else.

While a socket is open in the child, a broker does not notice that the parent has closed it. The child must
not send anything or touch the event loop: both belong to the parent.
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
