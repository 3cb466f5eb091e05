"""Messages that wait before they come to their queue, many at once.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

import os
from typing import TYPE_CHECKING

from flaremq.broker.send._redirect_py import WaitingPlace

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.broker.send._redirect_py import redirect
else:
    try:
        from flaremq.broker.send._redirect_c import redirect
    except ImportError:
        from flaremq.broker.send._redirect_py import redirect

__all__ = ["WaitingPlace", "redirect"]
