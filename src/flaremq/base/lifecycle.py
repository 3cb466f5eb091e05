"""Threads and tasks that have an owner, a name, an end, and somebody who hears of a crash."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeAlias, TypeVar

from flaremq.base.errors import FlareError

log = logging.getLogger(__name__)

T = TypeVar("T")
OnCrash: TypeAlias = Callable[[Exception], None]


class Part(Protocol):
    """What a composition root can start and stop."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Worker:
    """One daemon thread that repeats a step until it is stopped.

    The step does what there is to do and then calls `pause`, so that the thread sleeps
    until `wake`, `stop` or a deadline. An exception that leaves the step ends the thread
    and goes to `on_crash`, once: a half-dead thread that goes on is worse than a dead one.
    """

    def __init__(self, name: str, step: Callable[["Worker"], None], *, on_crash: OnCrash) -> None:
        self._step = step
        self._on_crash = on_crash
        self._stopping = False
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def name(self) -> str:
        return self._thread.name

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        assert not self._stopping, f"worker {self.name} was stopped and cannot start again"
        self._thread.start()

    def wake(self) -> None:
        """End the pause of the step, or its next one. Nearly free if that is already so."""
        # Skipping is safe: whoever consumes the flag clears it before it looks for work,
        # and our work was there before this line.
        if not self._woken.is_set():
            self._woken.set()

    def pause(self, timeout_s: float | None) -> bool:
        """Called by the step: sleep until woken (True), or until timeout or stop (False)."""
        if self._stopping:
            return False
        woken = self._woken.wait(timeout_s)
        self._woken.clear()
        return woken and not self._stopping

    def stop(self, timeout_s: float = 10.0) -> None:
        """Ask the thread to end and wait until it has. Again, or before `start`, is harmless.

        From inside the step it only asks, as nobody can wait for himself.
        """
        self._stopping = True
        self._woken.set()
        if self._thread.ident is None or self._thread is threading.current_thread():
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise FlareError(
                f"thread {self.name} did not end within {timeout_s:g} s: its step is stuck; "
                "see where with py-spy or faulthandler, or end the process"
            )

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._step(self)
        except Exception as error:
            log.exception("thread %s crashed", self.name)
            self._on_crash(error)


class Owned:
    """Tasks of one owner: none is lost to the garbage collector, none crashes unheard."""

    def __init__(self, *, on_crash: OnCrash) -> None:
        self._on_crash = on_crash
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, name: str, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        if self._closed:
            coro.close()  # Else Python warns that it was never awaited.
            raise FlareError(f"task {name} came after its owner had closed: spawn before aclose")
        task = asyncio.create_task(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def aclose(self, timeout_s: float) -> None:
        """Cancel all tasks and wait for their end. One of them may call it: it is spared."""
        self._closed = True
        others = self._tasks - {asyncio.current_task()}
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
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):  # SystemExit and the like have left through the loop.
            log.error("task %s crashed", task.get_name(), exc_info=error)
            self._on_crash(error)


class Stack:
    """Parts that stand on each other: started upwards, stopped downwards.

    A part that fails to start takes down those below it. A part that fails to stop is
    logged and hinders no other.
    """

    def __init__(self) -> None:
        self._started: list[tuple[str, Part]] = []

    def start(self, name: str, part: Part) -> None:
        try:
            part.start()
        except BaseException:
            log.error("%s did not start: stopping what had started before it", name)
            self._unwind()
            raise
        self._started.append((name, part))

    def stop(self) -> None:
        """Raises one FlareError, after all had their turn, if any part failed to stop."""
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
