"""How blocking programs use the async core: one thread with one event loop, and calls into it.

Nothing of the core is written twice. A blocking class names the methods that it offers, one line each:

    class Producer(Blocking[core.Producer]):
        send = blocking(core.Producer.send)

so both have the same parameters, documentation and, to a type checker, types.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from flaremq.base.errors import UsageError
from flaremq.base.lifecycle import new_loop

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="Core")
_STOP_LIMIT_S = 30.0
SPELL_S = 0.5
"""The longest that a thread sleeps before it checks for signals."""


class Core(Protocol):
    """Can run behind a blocking class."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class LoopThread:
    """A thread with an event loop. It belongs to the process that made it: a fork does not have it."""

    def __init__(self, name: str) -> None:
        self.pid = os.getpid()
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:  # In this thread: the caller's may have its own loop, as in a notebook.
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    @property
    def is_here(self) -> bool:
        """Whether the caller runs in the thread of the loop, where a blocking call would never return."""
        return threading.current_thread() is self._thread

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run this in the loop and wait for it. An interrupted wait cancels the work."""
        if self.is_here:
            work.close()
            raise UsageError(
                "a blocking call from the client's own thread would never return: use the async client there"
            )
        future = self.submit(work)
        try:
            while True:
                # With a limit: a signal just before the thread sleeps is handled only when it wakes.
                try:
                    return future.result(SPELL_S)
                except TimeoutError:
                    if future.done():  # The timeout is the work's own.
                        raise
        except BaseException:
            future.cancel()  # Ctrl-C, or an exception from elsewhere: the result is no longer needed.
            raise

    def submit(self, work: Coroutine[Any, Any, R]) -> Future[R]:
        """Run this in the loop; do not wait."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        if self.pid != os.getpid() or not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_LIMIT_S)


class Blocking(Generic[C]):
    """A core that runs in the loop of a thread, its own or a shared one, from `start` to `stop`."""

    def __init__(self, make: Callable[[], C], name: str, shares: Blocking[Any] | None = None) -> None:
        """`make` only creates the core; its errors are raised here."""
        self._make = make
        self._name = name
        self._shares = shares
        self._core = make()
        self._thread: LoopThread | None = None
        self._spent = False

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.pid == os.getpid()

    def start(self) -> None:
        """Connect. Idempotent; `with` does it, and so does the first call."""
        if self.is_running:
            return
        if self._thread is not None or self._spent:
            _left_to_the_parent.append((self._thread, self._core))
            self._core = self._make()
        thread = LoopThread(self._name) if self._shares is None else inside(self._shares)[0]
        try:
            thread.run(self._core.start())
        except BaseException:
            self._leave(thread)
            raise
        self._thread, self._spent = thread, True

    def stop(self) -> None:
        """Finish what is in progress and disconnect. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is None or thread.pid != os.getpid():
            return
        try:
            thread.run(self._core.stop())
        finally:
            self._leave(thread)

    def _leave(self, thread: LoopThread) -> None:
        if self._shares is None:
            thread.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _inside(self) -> tuple[LoopThread, C]:
        """The thread and the core; started on first use, and again in a forked process."""
        self.start()
        assert self._thread is not None
        return self._thread, self._core

    def _apply(self, work: Callable[[C], R]) -> R:
        """Call a method of the core that does not wait: in the loop while the core runs there, else here."""
        if not self.is_running:
            return work(self._core)

        async def in_the_loop() -> R:
            return work(self._core)

        assert self._thread is not None
        return self._thread.run(in_the_loop())


_left_to_the_parent: list[object] = []
"""Inherited by a forked process and kept: collecting it would close what the parent still uses."""


def inside(face: Blocking[C]) -> tuple[LoopThread, C]:
    """The thread and the running core of a blocking object, for others that share them."""
    return face._inside()


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """The same method for a blocking class: it waits."""

    @functools.wraps(method)
    def call(self: Blocking[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        thread, core = self._inside()
        return thread.run(method(core, *args, **kwargs))

    return call
