"""Threads and tasks with an owner, a name and an end. Failures are logged, and work goes on."""

import asyncio
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Coroutine
from importlib import import_module
from inspect import isawaitable
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from flaremq.base.errors import FlareError
from flaremq.base.logs import Seldom

log = logging.getLogger(__name__)

T = TypeVar("T")
Work: TypeAlias = Callable[[], Awaitable[object] | object]
"""A function or coroutine function without arguments."""
Step: TypeAlias = Callable[["Worker"], float | None]
"""Returns for how long to rest, in seconds: math.inf until it is woken, None not at all."""
Sleep: TypeAlias = Callable[[float], Awaitable[None]]

BACK_OFF_S: Final = (0.05, 5.0)
"""The first and the longest pause after a failure: each is twice the one before."""
_TOLD_EVERY_S: Final = 60.0  # How often a persistent failure is logged.


class Part(Protocol):
    """Something that a composition root can start and stop."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Listener(Protocol):
    """Told how the steps of a worker end. Called in the worker's thread: must be quick and never raise."""

    def failed(self, error: Exception) -> None:
        """Called for every failure."""

    def recovered(self) -> None:
        """Called for the first success after a failure."""


class Worker:
    """One daemon thread that repeats a step until it is stopped.

    The step does its work and returns for how long the thread may rest: until `wake`, `stop` or that time.
    A step that must rest in its middle calls `pause`.

    A simulator derives a class of its own, which runs the same steps (`once`) without a thread: so owners are
    given a `WorkerFactory`.

    An exception from the step is a failure, not the end: descriptors run out and become free again, disks
    fill up and are cleaned, and a thread that ended would be missing until the next start. So the step is
    repeated, after growing pauses that no `wake` cuts short. It must be safe to repeat. The first failure is
    logged, then one a minute. A step that must not be repeated stops its own worker.
    """

    def __init__(
        self, name: str, step: Step, listener: Listener | None = None, *, first_s: float = 0.0
    ) -> None:
        """`first_s`: how long to rest before the first step."""
        self._step = step
        self._listener = listener
        self._first_s = first_s
        self._back_off_s = BACK_OFF_S[0]
        self._told = Seldom(_TOLD_EVERY_S)
        self._stop_asked = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.failure: Exception | None = None
        """The failure of the latest step; None if it succeeded, or is the first."""

    @property
    def name(self) -> str:
        return self._thread.name

    @property
    def stopping(self) -> bool:
        return self._stop_asked.is_set()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        assert not self.stopping, f"worker {self.name} was stopped and cannot start again"
        self._thread.start()

    def wake(self) -> None:
        """End the current pause of the step, or its next one. Nearly free if it is woken already."""
        # Skipping is safe: the thread clears the flag before it looks for work, and our work was there
        # before this line.
        if not self._woken.is_set():
            self._woken.set()

    def pause(self, timeout_s: float | None) -> bool:
        """Sleep until woken (True), or until timeout or stop (False)."""
        if self.stopping:
            return False
        woken = self._woken.wait(timeout_s)
        self._woken.clear()
        return woken and not self.stopping

    def ask_to_stop(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._stop_asked.set()
        self._woken.set()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Ask the thread to end and wait until it has. Idempotent; allowed before `start`.

        From inside the step it only asks, as a thread cannot wait for itself.
        """
        self.ask_to_stop()
        if self._thread.ident is None or self._thread is threading.current_thread():
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise FlareError(
                f"thread {self.name} did not end within {timeout_s:g} s: its step is stuck; "
                "see where with py-spy or faulthandler, or end the process"
            )

    def _run(self) -> None:
        if self._first_s:
            self.pause(self._first_s)
        while not self.stopping:
            rest_s, may_be_woken = self.once()
            if not may_be_woken:
                self._stop_asked.wait(rest_s)
            elif rest_s:
                self.pause(None if rest_s == math.inf else rest_s)

    def once(self) -> tuple[float, bool]:
        """Do one step. Returns for how long to rest after it, and whether `wake` ends this rest."""
        try:
            rest_s = self._step(self)
        except Exception as error:  # noqa: BLE001 - logged below, and repeated.
            pause_s, self._back_off_s = self._back_off_s, min(2 * self._back_off_s, BACK_OFF_S[1])
            self._failed(error, pause_s)
            return pause_s, False
        if self.failure is not None:
            self._recovered()
            self._back_off_s = BACK_OFF_S[0]
        return rest_s or 0.0, True

    def _failed(self, error: Exception, pause_s: float) -> None:
        self.failure = error
        kept_back = self._told.due()
        if kept_back is not None:
            goes_on = "stops" if self.stopping else f"tries again in {pause_s:g} s"
            log.error(
                "thread %s failed and %s (%d more failures since the last such line): %s",
                *(self.name, goes_on, kept_back, error),
                exc_info=error,
            )
        if self._listener is not None:
            self._listener.failed(error)

    def _recovered(self) -> None:
        self.failure = None
        self._told.reset()
        log.info("thread %s has recovered", self.name)
        if self._listener is not None:
            self._listener.recovered()


class WorkerFactory(Protocol):
    """Makes workers: threads, unless a composition root was given something else."""

    def __call__(
        self, name: str, step: Step, listener: Listener | None = None, *, first_s: float = 0.0
    ) -> Worker: ...


class Owned:
    """Tasks of one owner: none is lost to the garbage collector, none crashes silently.

    A crash is logged, and ends only that task. Work that must be repeated is given to `repeat`.
    """

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}  # In the order in which they came.
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, name: str, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        if self._closed:
            coro.close()  # Else Python warns that it was never awaited.
            raise FlareError(f"task {name} came after its owner had closed: spawn before aclose")
        task = asyncio.create_task(coro, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    async def aclose(self, timeout_s: float) -> None:
        """Cancel all tasks and wait until they end. If one of them calls this, it is not cancelled."""
        self._closed = True
        others = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        if not others:
            return
        _, pending = await asyncio.wait(others, timeout=timeout_s)
        if pending:
            names = ", ".join(sorted(task.get_name() for task in pending))
            raise FlareError(
                f"{len(pending)} tasks did not end within {timeout_s:g} s of being cancelled: {names}; "
                "they catch CancelledError, or wait in code that does not yield"
            )

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):  # SystemExit and the like are raised by the loop.
            log.error("task %s crashed", task.get_name(), exc_info=error)


async def repeat(
    name: str, work: Work, period_s: float | Callable[[], float], *, sleep: Sleep = asyncio.sleep
) -> None:
    """Repeat `work`, with a pause before each run; a function is called for the length of each pause.

    Work that raises is repeated too. The first failure is logged, then one a minute.
    """
    seldom, failed = Seldom(_TOLD_EVERY_S), False
    while True:
        await sleep(period_s() if callable(period_s) else period_s)
        try:
            result = work()
            if isawaitable(result):
                await result
        except Exception as error:
            failed, kept_back = True, seldom.due()
            if kept_back is not None:
                log.error(
                    "%s failed and will be repeated (%d more failures since the last such line): %s",
                    *(name, kept_back, error),
                    exc_info=error,
                )
        else:
            if failed:
                failed = False
                seldom.reset()
                log.info("%s succeeds again", name)


class Stack:
    """Parts that depend on each other: stopped in the reverse order of their start.

    If a part fails to start, those before it are stopped. A part that fails to stop is logged, and the
    others are stopped all the same.
    """

    def __init__(self) -> None:
        self._started: list[tuple[str, Part]] = []

    def start(self, name: str, part: Part) -> None:
        try:
            part.start()
        except BaseException:
            log.error("%s did not start: stopping the parts started before it", name)
            self._unwind()
            raise
        self._started.append((name, part))

    def stop(self) -> None:
        """Stop all parts. Raises one FlareError at the end if any of them failed to stop."""
        failed = self._unwind()
        if failed:
            names = ", ".join(name for name, _ in failed)
            raise FlareError(f"did not stop cleanly: {names}; the log has each reason") from failed[0][1]

    def _unwind(self) -> list[tuple[str, Exception]]:
        failed = []
        while self._started:
            name, part = self._started.pop()
            try:
                part.stop()
            except Exception as error:
                log.exception("%s did not stop cleanly", name)
                failed.append((name, error))
        return failed


def new_loop() -> asyncio.AbstractEventLoop:
    try:
        return import_module("uvloop").new_event_loop()  # type: ignore[no-any-return]
    except ImportError:  # Not available on this platform: asyncio's own loop works too, more slowly.
        return asyncio.new_event_loop()
