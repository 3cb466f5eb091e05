"""One event loop for all nodes of a simulation, with virtual time and an order drawn from the seed.

A node is a process: its callbacks run in their order, as in a loop of its own. Which node runs next is drawn.
Time stands still while any node has something to do, and then jumps to the next timer. A `ContextVar` that is
set when a node starts is copied by asyncio into every callback, timer and task it makes, so the loop knows
whose each of them is. So a node is killed by dropping its callbacks, and paused by keeping them.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
import random
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, ContextVar
from typing import Any, Final, TypeVar, cast

from flaremq.testing.sim.events import EventStream

T = TypeVar("T")

EPOCH_MS: Final = 1_700_000_000_000
"""When every simulation begins: 14 November 2023, 22:13:20 UTC."""
_STUCK_ROUNDS: Final = 200_000
"""So many rounds without a moment passing are an endless loop, not work."""
_UNWIND_MAX: Final = 100
DISK_LOOK_S: Final = 0.05
"""So often whoever waits for a disk that hangs looks again."""


class NodeKilled(BaseException):
    """Raised inside a node that has just been killed, so that what it was doing ends there."""


class Stuck(AssertionError):
    """The simulation cannot go on: a deadlock, or an endless loop. Either is a finding."""


class SimNode:
    """A process of the simulation, as the loop sees it: what it has to do, and how its clock runs."""

    def __init__(self, name: str, drift: float = 0.0) -> None:
        self.name = name
        self.ready: deque[asyncio.Handle] = deque()
        self.drift = drift
        """By how much its monotonic clock is fast: 0.001 is a millisecond a second."""
        self.skew_ms = 0
        """By how much its wall clock is ahead."""
        self.dead = self.paused = False
        self.disk_hangs = False
        """Whether a thread that asks for the disk waits."""
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.on_death: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<node {self.name}>"


HERE: ContextVar[SimNode] = ContextVar("node")


class _NoSelector:
    """What asyncio needs of a selector when it closes a loop."""

    def close(self) -> None: ...


def _nothing() -> None: ...


class SimHandle(asyncio.TimerHandle):
    """asyncio's handle without its debugging, because a run makes tens of thousands of them."""

    __slots__ = ()

    def __init__(
        self,
        when_s: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: asyncio.AbstractEventLoop,
        context: Context,
    ) -> None:
        self._when = when_s
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = self._scheduled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        """Left where it is: it is dropped when its time comes."""
        self._cancelled = True
        self._callback, self._args = _nothing, ()


class SimLoop(asyncio.BaseEventLoop):
    """Runs every node. Its time is that of the node that asks."""

    def __init__(self, rng: random.Random, events: EventStream) -> None:
        super().__init__()
        self._selector = _NoSelector()
        self._rng = rng
        self.events = events
        self.now_s = 0.0
        """The true time since the simulation began, which no node sees."""
        self.root = SimNode("root")
        self.busy: dict[SimNode, None] = {}  # Nodes with something to do, in a known order.
        self._timers: list[tuple[float, int, asyncio.TimerHandle, SimNode]] = []
        self._count = 0
        self._rounds = 0
        self.failure: BaseException | None = None
        self.set_exception_handler(self._crashed)
        self.set_task_factory(_new_task)  # type: ignore[arg-type]
        events.now_s = lambda: self.now_s

    # Time.

    def time(self) -> float:
        return self.time_of(HERE.get(self.root))

    def time_of(self, node: SimNode) -> float:
        return self.now_s * (1 + node.drift)

    def wall_ms(self, node: SimNode) -> int:
        return EPOCH_MS + int(self.now_s * 1000 * (1 + node.drift)) + node.skew_ms

    # Scheduling.

    def _call_soon(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> asyncio.Handle:
        context = contextvars.copy_context() if context is None else context
        handle = SimHandle(0.0, callback, args, self, context)
        self.enqueue(context.get(HERE, self.root), handle)
        return handle

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self._call_soon(callback, args, context)

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def enqueue(self, node: SimNode, handle: asyncio.Handle) -> None:
        if not node.dead:
            node.ready.append(handle)
            if not node.paused:
                self.busy[node] = None

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        node = context.get(HERE, self.root)
        return self.call_at_true(self._true_s(when, node), node, callback, *args, context=context)

    def _true_s(self, when: float, node: SimNode) -> float:
        """The first true moment at which the clock of a node shows this time. A callback that comes earlier,
        because of rounding, and calls itself again would do so for ever: no time passes meanwhile."""
        if not node.drift:
            return when
        true_s = when / (1 + node.drift)
        while true_s * (1 + node.drift) < when:
            true_s = math.nextafter(true_s, math.inf)
        return true_s

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at_true(
        self,
        when_s: float,
        node: SimNode,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call something in a node at a moment of the true time."""
        if context is None:
            context = contextvars.copy_context()
            context.run(HERE.set, node)
        handle = SimHandle(when_s, callback, args, self, context)
        if not node.dead:
            self._count += 1
            heapq.heappush(self._timers, (when_s, self._count, handle, node))
        return handle

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]  # noqa: ARG002
        """Work for a thread is done at a random moment soon, or when the disk works again."""
        future: asyncio.Future[T] = self.create_future()
        node = HERE.get(self.root)

        def work() -> None:
            if future.cancelled():
                return
            if node.disk_hangs:
                self.call_later(DISK_LOOK_S, work)
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - Raised in the task that waits.
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self._rng.random() * 0.002, work)
        return future

    # Running.

    def _run_once(self) -> None:
        """Unlike a turn of other loops, this goes on until the loop is told to stop."""
        busy, random_ = self.busy, self._rng.random
        while not self._stopping:  # type: ignore[attr-defined]
            if not busy:
                self._pass_time()
                continue
            self._rounds += 1
            if self._rounds > _STUCK_ROUNDS:
                raise Stuck(f"{_STUCK_ROUNDS} rounds and no moment has passed: {', '.join(map(str, busy))}")
            if len(busy) == 1:
                (node,) = busy
            else:
                node = list(busy)[int(random_() * len(busy))]
            self._run_ready(node)
            if not node.ready or node.paused:
                busy.pop(node, None)

    def _run_ready(self, node: SimNode) -> None:
        """Run what a node has to do now, unless that kills or pauses it."""
        ready = node.ready
        for _ in range(len(ready)):
            if not ready:
                return
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()
                if self.failure is not None:
                    failure, self.failure = self.failure, None
                    raise failure
                if node.paused:
                    return

    def _pass_time(self) -> None:
        timers, pop = self._timers, heapq.heappop
        while timers and (timers[0][2]._cancelled or timers[0][3].dead):
            pop(timers)
        if not timers:
            raise Stuck("no node has anything to do, now or later: all of them wait for each other")
        now_s = timers[0][0]
        if now_s > self.now_s:
            self.now_s = now_s
            self._rounds = 0
        else:
            now_s = self.now_s
        while timers and timers[0][0] <= now_s:
            _, _, handle, node = pop(timers)
            if not handle._cancelled:
                self.enqueue(node, handle)

    def _process_events(self, event_list: Any) -> None: ...

    def _write_to_self(self) -> None: ...

    def _crashed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback raised, or a task died unheard. In a dead node that is no news."""
        error = context.get("exception")
        if isinstance(error, NodeKilled) or HERE.get(self.root).dead:
            return
        if error is not None and context["message"].startswith("Exception in callback"):
            self.failure = error

    # Nodes.

    def spawn(self, node: SimNode, work: Coroutine[Any, Any, T], name: str = "") -> asyncio.Task[T]:
        """Start a task in a node."""
        context = contextvars.copy_context()
        context.run(HERE.set, node)
        return self.create_task(work, name=name or node.name, context=context)

    def pause(self, node: SimNode) -> None:
        node.paused = True
        self.busy.pop(node, None)

    def resume(self, node: SimNode) -> None:
        node.paused = False
        if node.ready and not node.dead:
            self.busy[node] = None

    def kill(self, node: SimNode) -> None:
        """End a node at once. Its callbacks never run; `on_death` looks after its sockets and files."""
        if node.dead:
            return
        node.dead = True
        node.ready.clear()
        self.busy.pop(node, None)
        for work in node.on_death:
            work()

    def bury(self, node: SimNode) -> None:
        """Let go of the coroutines of a dead node. What they do when they end reaches nothing any more."""
        context = contextvars.copy_context()
        context.run(HERE.set, node)
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            self._end_tasks(node, context)
        finally:
            asyncio._set_running_loop(running)

    def _end_tasks(self, node: SimNode, context: Context) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # Coroutines that it will never await.
            for _ in range(_UNWIND_MAX):  # Ending one may begin others.
                tasks, node.tasks = node.tasks, {}
                for task in tasks:
                    coroutine = task.get_coro()
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    if not task.done() and not getattr(coroutine, "cr_running", False):
                        context.run(_unwind, cast(Coroutine[Any, Any, Any], coroutine))

    def close(self) -> None:
        self.busy.clear()
        self._timers.clear()
        super().close()


def _new_task(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T], context: Context | None = None
) -> asyncio.Task[T]:
    task = asyncio.Task(coro, loop=loop, context=context)
    node = HERE.get(None) if context is None else context.get(HERE)
    if node is not None:
        node.tasks[task] = None
        task.add_done_callback(lambda done: node.tasks.pop(done, None), context=Context())
    return task


def _unwind(coroutine: Coroutine[Any, Any, Any]) -> None:
    """End a coroutine of a dead node, also one that waits for something while it ends."""
    for _ in range(_UNWIND_MAX):
        try:
            coroutine.throw(NodeKilled())
        except BaseException:  # noqa: BLE001 - It has ended: nothing is left of it.
            return
