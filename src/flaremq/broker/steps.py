"""How a broker comes up, one line for each step with the time that it took."""

from __future__ import annotations

import logging

from flaremq.base.clock import Clock
from flaremq.base.logs import fields

_FOLLOWED_BY = {
    "abort check": "delay offsets",  # There are none yet; the step keeps its place.
    "commit log flush": "statistics",
}


class Steps:
    """Steps come one after the other, whichever thread does them."""

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._since_s = clock.monotonic_s()

    def done(self, step: str) -> None:
        now_s = self._clock.monotonic_s()
        self._log.info("started: %s", step, extra=fields(took_ms=round((now_s - self._since_s) * 1000, 1)))
        self._since_s = now_s
        following = _FOLLOWED_BY.get(step.partition(":")[0])
        if following is not None:
            self.done(following)
