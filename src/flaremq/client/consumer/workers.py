"""Calling handlers: a run of messages at a time, in a task or in a thread."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from flaremq.client.consumer.outcome import Later
from flaremq.client.consumer.processqueue import MessageRun
from flaremq.client.hooks import ConsumeHooks
from flaremq.client.message import ReceivedMessage

T = TypeVar("T")
MessageHandler: TypeAlias = Callable[[Any], Any]
"""Takes a message, or a list if `batch_max` is above 1; async or not."""
HandlerBatch: TypeAlias = Sequence[ReceivedMessage]

_numbers = itertools.count(1)


def is_async(handler: MessageHandler) -> bool:
    call = getattr(handler, "__call__", None)  # noqa: B004 - An object may have an async one.
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


class Callee:
    """A handler, and how it is called."""

    __slots__ = ("handler", "is_async")

    def __init__(self, handler: MessageHandler, hooks: ConsumeHooks | None = None) -> None:
        self.is_async = is_async(handler)
        if hooks is not None:
            handler = (_observed_async if self.is_async else _observed)(handler, hooks)
        self.handler = handler


def _observed(handler: MessageHandler, hooks: ConsumeHooks) -> MessageHandler:
    """A plain handler with hooks called around it."""

    def call(given: ReceivedMessage | HandlerBatch) -> Any:
        consume = hooks.begin((given,) if isinstance(given, ReceivedMessage) else tuple(given))
        try:
            result = handler(given)
        except BaseException as error:
            hooks.end(consume, error)
            raise
        hooks.end(consume, result if isinstance(result, Later) else None)
        return result

    return call


def _observed_async(handler: MessageHandler, hooks: ConsumeHooks) -> MessageHandler:
    """The same for an async handler."""

    async def call(given: ReceivedMessage | HandlerBatch) -> Any:
        consume = hooks.begin((given,) if isinstance(given, ReceivedMessage) else tuple(given))
        try:
            result = await handler(given)
        except BaseException as error:
            hooks.end(consume, error)
            raise
        hooks.end(consume, result if isinstance(result, Later) else None)
        return result

    return call


@dataclass(slots=True)
class HandlerReport:
    """The outcome of a run."""

    run: MessageRun
    handled: int = 0
    took_s: float = 0.0
    failures: list[tuple[HandlerBatch, BaseException]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Manner:
    """How a handler gets its messages."""

    now_s: Callable[[], float]
    """The monotonic clock that handlers are timed by."""
    batch_max: int = 1
    may_go_on: Callable[[MessageRun], bool] | None = None
    """Set where order matters: called before each message, and then a failure also ends the run."""

    def next(self, run: MessageRun) -> HandlerBatch:
        """The next messages for the handler; empty if it should get no more."""
        if self.may_go_on is not None and not self.may_go_on(run):
            return ()
        todo, found = run.todo, []
        try:
            found.append(todo.popleft())
            while len(found) < self.batch_max:
                found.append(todo.popleft())
        except IndexError:  # No check beforehand: the rest may be taken away at any time.
            pass
        run.began_s = self.now_s()
        run.now = found
        return found


def perform(run: MessageRun, handler: MessageHandler, manner: Manner) -> HandlerReport:
    """Call a plain handler for each message of a run. An exception is the message's outcome."""
    report, began_s = HandlerReport(run), manner.now_s()
    is_single = manner.batch_max == 1
    while batch := manner.next(run):
        report.handled += len(batch)
        failure: BaseException | None = None
        try:
            result = handler(batch[0] if is_single else batch)
            if isinstance(result, Later):
                failure = result
        except BaseException as error:  # noqa: BLE001 - It must not end the worker thread.
            failure = error
        if failure is not None:
            report.failures.append((batch, failure))
            if manner.may_go_on is not None:
                break
    run.now = ()
    report.took_s = manner.now_s() - began_s
    return report


async def perform_async(run: MessageRun, handler: MessageHandler, manner: Manner) -> HandlerReport:
    """The same for an async handler. If this task is cancelled, the run has no report."""
    report, began_s = HandlerReport(run), manner.now_s()
    is_single = manner.batch_max == 1
    task = asyncio.current_task()
    while batch := manner.next(run):
        report.handled += len(batch)
        failure: BaseException | None = None
        try:
            result = await handler(batch[0] if is_single else batch)
            if isinstance(result, Later):
                failure = result
        except asyncio.CancelledError as error:
            if task is not None and task.cancelling():
                raise
            failure = error  # Something within the handler was cancelled, not this task.
        except Exception as error:  # noqa: BLE001 - The handler's outcome.
            failure = error
        if failure is not None:
            report.failures.append((batch, failure))
            if manner.may_go_on is not None:
                break
    run.now = ()
    report.took_s = manner.now_s() - began_s
    return report


class Crew:
    """Threads for plain handlers, started on demand. They do not keep the process alive.

    With `run`, jobs are given to that function instead.
    """

    def __init__(
        self, name: str, size_max: int, run: Callable[[Callable[[], None]], None] | None = None
    ) -> None:
        self._run = run
        self._name = name
        self._size_max = size_max
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._under_way = 0

    def submit(self, job: Callable[[], T], then: Callable[[T], None]) -> None:
        """Run the job in a thread, then call `then` with its result in the loop."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        self._under_way += 1

        def ended(result: T) -> None:
            self._under_way -= 1
            then(result)

        def work() -> None:
            result = job()
            with suppress(RuntimeError):  # The loop is closed: the result is no longer needed.
                loop.call_soon_threadsafe(ended, result)

        if self._run is not None:
            self._run(work)
            return
        self._jobs.put(work)
        if self._under_way > len(self._threads) < self._size_max:
            thread = threading.Thread(target=self._work, name=f"{self._name}-{next(_numbers)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    async def result(self, job: Callable[[], T]) -> T:
        """Run a job in a thread and wait for its result."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def ended(result: T) -> None:
            if not future.done():
                future.set_result(result)

        self.submit(job, ended)
        return await future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def close(self) -> None:
        """Threads end when their handlers return."""
        for _ in self._threads:
            self._jobs.put(None)
        self._threads = []
