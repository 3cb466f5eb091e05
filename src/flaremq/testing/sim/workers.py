"""Workers without threads: each step is a callback of its node, and its rest is a timer."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from typing import Final

from flaremq.base.lifecycle import Listener, Step, Worker
from flaremq.testing.sim.loop import DISK_LOOK_S, HERE, SimLoop

_SYNCING: Final = frozenset({"flaremq-flush", "flaremq-flush-queues", "flaremq-ledger"})
"""Workers that wait for the disk."""
_FLUSHER: Final = "flaremq-flush"


class StepWorker(Worker):
    """Runs its steps in the loop of the simulation, between all else that its node does.

    It is never `alive`: no thread works while another waits, so whoever needs a file makes it. A step
    takes no time, except that of a flusher: it comes as much later as a sync takes.
    """

    def __init__(
        self,
        loop: SimLoop,
        rng: random.Random,
        name: str,
        step: Step,
        listener: Listener | None = None,
        *,
        first_s: float = 0.0,
        sync_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`sync_s` is how long a sync takes at the moment."""
        super().__init__(name, step, listener, first_s=first_s)
        self._loop = loop
        self._rng = rng
        self._started = False
        self._next: asyncio.TimerHandle | None = None
        self._may_be_woken = True
        self._sync_s = sync_s if name.startswith(_FLUSHER) else lambda: 0.0
        self._is_syncing = False

    @property
    def alive(self) -> bool:
        return False

    def start(self) -> None:
        assert not self.stopping, f"worker {self.name} was stopped and cannot start again"
        self._started = True
        self._rest(self._first_s, True)

    def wake(self) -> None:
        if self._woken.is_set():
            return
        self._woken.set()
        if self._started and self._may_be_woken and not self.stopping:
            self._come(self._rng.random() * 0.001)  # As long as a thread takes to wake.

    def pause(self, timeout_s: float | None) -> bool:  # noqa: ARG002
        """A pause within a step takes no time."""
        return False

    def ask_to_stop(self) -> None:
        super().ask_to_stop()
        if self._next is not None:
            self._next.cancel()

    def stop(self, timeout_s: float = 10.0) -> None:  # noqa: ARG002
        self.ask_to_stop()

    def _come(self, in_s: float) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = self._loop.call_later(in_s, self._run_step)

    def _run_step(self) -> None:
        if self.stopping:
            return
        if self.name in _SYNCING and HERE.get(self._loop.root).disk_hangs:
            self._next = self._loop.call_later(DISK_LOOK_S, self._run_step)
            return
        sync_s = 0.0 if self._is_syncing else self._sync_s()
        self._is_syncing = sync_s > 0
        if self._is_syncing:
            self._may_be_woken = False
            self._come(sync_s)
            return
        self._woken.clear()
        self._rest(*self.once())

    def _rest(self, rest_s: float, may_be_woken: bool) -> None:
        self._may_be_woken = may_be_woken
        if self.stopping:
            return
        if may_be_woken and self._woken.is_set():
            self._come(self._rng.random() * 0.001)
        elif rest_s != math.inf:
            self._come(rest_s or self._rng.random() * 0.0005)
