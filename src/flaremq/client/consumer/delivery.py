"""Delivery: pulled messages go to handlers, and end as consumed, retried or dead letters.

    arrived > queues in turn > [run: as many messages as take about a millisecond] > handler > report

The problem
-----------
A handler may take a microsecond or a minute, raise, or never return. Handing work to a thread or a task and
getting its outcome back costs the same for one message as for thirty. So a fast handler should get many
messages at a time; but behind a slow one, messages would wait for their worker while others are idle.

Outcomes come in any order, but a group has one offset per queue: everything below it counts as consumed. A
failed message must not hold that offset back until it succeeds, and must not get lost.

How it works
------------
1. `arrived` lists a queue that has messages. Queues take turns: each gives one run, and goes to the end of
   the line if it has more. Workers have at most `concurrency` runs at a time.
2. A run is neighbouring messages of one queue: as many as take a millisecond at the measured pace of the
   topic's handler, at most RUN_MAX, and at least one batch. A topic begins with one batch. A run of a retry
   queue is a single message, because the next one may be for another handler.
3. A worker (a task if the handler is async, else a thread) handles the run and reports once. `settle` notes
   the outcomes: consumed messages leave the queue, and the first one left is the offset that may be stored.
4. Concurrent delivery sends failed messages back to a broker, which redelivers them through the retry topic
   or makes them dead letters. They leave the queue once a broker has accepted them; if none does, they are
   delivered here again after AGAIN_S. (Broadcast ones are dropped.) Orderly delivery retries a failed
   message here, before any other of its queue, and makes it a dead letter after `attempts_max`.
5. `_watch` finds handlers that take long. Concurrent delivery then gives messages that their worker has not
   begun to others, and sends back a message that was held for longer than `consume_timeout_s`.

Topics without a handler are read by iterators, which borrow messages (`lend`) and report their outcomes.

An example
----------
A concurrent consumer with two workers has pulled offsets 100 to 107 of a queue. Its handler has taken 0.25
ms per message so far, so runs have 4 messages.

    worker 1       100 returns, 101 raises, 102 takes 3 s; 103 is not begun
    worker 2       104 to 107 return: reported, consumed. The offset stays 100

    0.2 to 0.4 s   103 is taken from worker 1 and handled by worker 2. The offset stays 100
    3 s            102 returns and worker 1 reports: 100 and 102 are consumed, 101 is sent back.
                   The offset is 101
    then           the broker accepts 101. The offset is 108, where the next pull begins

The report of worker 1 (3 messages in 3 s) moves the pace to 0.2 s per message, so the next runs have one
message, until the handler has been fast for a while. A crash while the offset is 101 repeats 101 to 107,
though most of them were consumed, and skips none.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from flaremq.base.lifecycle import Owned, repeat
from flaremq.client.consumer.member import GroupMember
from flaremq.client.consumer.outcome import Later, Verdict
from flaremq.client.consumer.processqueue import MessageRun, ProcessQueue
from flaremq.client.consumer.sendback import Returns
from flaremq.client.consumer.workers import (
    Callee,
    Crew,
    HandlerBatch,
    HandlerReport,
    Manner,
    MessageHandler,
    perform,
    perform_async,
)
from flaremq.client.message import ReceivedMessage
from flaremq.model.message import MessageQueue

log = logging.getLogger(__name__)

AGAIN_S: Final = 5.0
"""Delay before a message that no broker has accepted is delivered here again."""
RUN_MAX: Final = 32
_RUN_S: Final = 0.001
_STUCK_S: Final = 0.2


HandlerFailures = list[tuple[HandlerBatch, BaseException]]


class Discipline(Protocol):
    """What may be delivered when, and what follows from a failure: `Concurrent` or `Orderly`."""

    keeps_order: bool
    """A failure ends its run, and `may_go_on` is asked before each message."""

    def may_begin(self, held: ProcessQueue) -> bool:
        """Whether a run of this queue may begin now."""

    def may_go_on(self, run: MessageRun) -> bool:
        """Whether the next message of a run may be handled. Asked by threads too."""

    def begun(self, run: MessageRun) -> None:
        """A worker or an iterator has got the run."""

    def settle(self, run: MessageRun, failures: HandlerFailures) -> None:
        """Note the outcome of a run in its queue."""

    def returned(self, run: MessageRun) -> None:
        """The messages of a run are back in their queue."""

    def stuck(self, run: MessageRun) -> None:
        """A handler has held a message for a while."""

    def too_long(self, run: MessageRun) -> None:
        """A handler has held a message for longer than `consume_timeout_s`."""


class Delivery:
    """Hands messages to handlers and iterators. What a failure means is left to its discipline."""

    def __init__(
        self,
        member: GroupMember,
        handlers: Mapping[str, Callee | None],
        returns: Returns,
        discipline: Callable[[Delivery, GroupMember], Discipline],
    ) -> None:
        """Topics whose handler is None are read by iterators."""
        self._member = member
        self._settings = member.settings
        self._now_s = member.client.clock.monotonic_s
        self._handlers = handlers
        self._returns = returns
        self._crew = Crew(f"flaremq-{member.group}", self._settings.concurrency, member.client.run_job)
        self._tasks = Owned()
        self._ready: deque[ProcessQueue] = deque()
        self._unread: deque[ProcessQueue] = deque()
        self._running: set[MessageRun] = set()
        self._lent: dict[ReceivedMessage, MessageRun] = {}
        self._pace_s: dict[str, float] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._waiters: list[asyncio.Future[None]] = []
        self._returning = 0
        self._discipline = discipline(self, member)
        may_go_on = self._discipline.may_go_on if self._discipline.keeps_order else None
        self._manner = Manner(self._now_s, self._settings.batch_max, may_go_on)
        self.is_resting = True
        """While True, no handler is started."""
        self._closing = self._closed = False

    # Life.

    def start(self) -> None:
        self.is_resting = False
        sleep = self._member.client.sleep
        watching = repeat("the watch over handlers", self._watch, _STUCK_S, sleep=sleep)
        self._tasks.spawn("watch-handlers", watching)

    def rest(self, is_resting: bool) -> None:
        self.is_resting = is_resting
        self._change()
        self._pump()

    async def close(self, limit_s: float) -> None:
        """Start no more handlers, and wait for the running ones."""
        self.is_resting = self._closing = True
        self._change()
        try:
            async with asyncio.timeout(limit_s):
                while self._running or self._returning:
                    await self._changes()
        except TimeoutError:
            log.warning(
                "group %s: handlers still running after %g s: %d; their messages will be redelivered",
                *(self._member.group, limit_s, len(self._running)),
            )
        finally:
            self._closed = True
            for timer in self._timers:
                timer.cancel()
            self._crew.close()
            await self._tasks.aclose(timeout_s=5)

    def _change(self) -> None:
        """Wake every waiter."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _changes(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def is_running(self, queue: MessageQueue) -> bool:
        return any(run.queue.queue == queue for run in (*self._running, *self._lent.values()))

    async def ended(self, queue: MessageQueue, limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                while self.is_running(queue):
                    await self._changes()
        except TimeoutError:
            log.warning(
                "group %s: a handler still has a message of %s, which is given up",
                self._member.group,
                queue,
            )

    # From queues to handlers.

    def arrived(self, held: ProcessQueue) -> None:
        if not held.is_listed and held.is_waiting:
            held.is_listed = True
            self._ready.append(held)
        self._pump()

    def _pump(self) -> None:
        """Give work to idle workers."""
        while self._ready and not self.is_resting and len(self._running) < self._settings.concurrency:
            held = self._ready.popleft()
            held.is_listed = False
            self._serve(held)

    def reconsider(self) -> None:
        """Look again at queues without a handler: subscriptions have changed."""
        unread, self._unread = self._unread, deque()
        for held in unread:
            held.is_listed = False
            self.arrived(held)

    def _serve(self, held: ProcessQueue) -> None:
        first = held.peek()
        if first is None or not self._discipline.may_begin(held):
            return
        topic = first.topic if held.is_retry else held.queue.topic
        if topic in self._handlers and self._handlers[topic] is None:
            held.is_listed = True
            self._unread.append(held)
            self._change()
            return
        run = held.take(1 if held.is_retry else self._length(topic))
        assert run is not None
        self._begin(run, topic)
        if held.is_waiting and self._discipline.may_begin(held):
            held.is_listed = True
            self._ready.append(held)

    def _length(self, topic: str) -> int:
        """How many messages take about a millisecond, in whole batches of `batch_max`."""
        batch_max = self._settings.batch_max
        count = int(_RUN_S / max(self._pace_s.get(topic, 1.0), 1e-9))
        return max(min(count, RUN_MAX) // batch_max * batch_max, batch_max)

    def _begin(self, run: MessageRun, topic: str) -> None:
        callee = self._handlers.get(topic)
        self._running.add(run)
        self._discipline.begun(run)
        if callee is None:  # A retry of a topic that is no longer subscribed to.
            run.todo.clear()
            why = Later(f"no longer subscribed to {topic}")
            self._finished(HandlerReport(run, failures=[(run.left, why)]), topic)
        elif callee.is_async:
            self._tasks.spawn("handle", self._handle(run, callee.handler, topic))
        else:
            handler, manner = callee.handler, self._manner
            self._crew.submit(
                lambda: perform(run, handler, manner), lambda report: self._finished(report, topic)
            )

    async def _handle(self, run: MessageRun, handler: MessageHandler, topic: str) -> None:
        try:
            report = await perform_async(run, handler, self._manner)
        except asyncio.CancelledError:
            self._running.discard(run)
            raise
        self._finished(report, topic)

    def _finished(self, report: HandlerReport, topic: str) -> None:
        run, held = report.run, report.run.queue
        self._running.discard(run)
        if self._closed:
            return  # `close` no longer waits for it: the next owner of the queue gets it again.
        if report.handled:
            pace_s = self._pace_s.get(topic, 1.0)
            self._pace_s[topic] = pace_s + 0.2 * (report.took_s / report.handled - pace_s)
            failed = sum(len(batch) for batch, _ in report.failures)
            self._member.figures.consumed(topic, report.took_s, report.handled - failed, failed)
            held.consumed_ms = self._member.client.clock.now_ms()
        for batch, error in report.failures:
            self._told(batch, error)
        self._discipline.settle(run, report.failures)
        self._change()
        self.arrived(held)

    def _told(self, batch: HandlerBatch, error: BaseException) -> None:
        """One line for a failure; its traceback at DEBUG."""
        first, group = batch[0], self._member.group
        if isinstance(error, Later):
            log.info("group %s: message %s will be redelivered: %s", group, first.message_id, error)
            return
        more = f" and {len(batch) - 1} more" if len(batch) > 1 else ""
        log.warning(
            "group %s: the handler of %s failed for message %s%s: %s: %s",
            *(group, first.topic, first.message_id, more, type(error).__name__, error),
        )
        log.debug("traceback of message %s", first.message_id, exc_info=error)

    async def call_once(self, message: ReceivedMessage) -> BaseException | None:
        """Call the handler for this message alone. Returns the failure, if any."""
        callee = self._handlers.get(message.topic)
        if callee is None:
            return Later(f"this consumer has no handler for {message.topic}")
        run = MessageRun(ProcessQueue(message.queue, message.queue_offset), [message])
        manner = Manner(self._now_s, self._settings.batch_max)
        if callee.is_async:
            report = await perform_async(run, callee.handler, manner)
        else:
            report = await self._crew.result(functools.partial(perform, run, callee.handler, manner))
        return report.failures[0][1] if report.failures else None

    # Giving back.

    def give_back(self, run: MessageRun, verdicts: Mapping[ReceivedMessage, Verdict]) -> None:
        """Send the run back to a broker; messages that none accepts are delivered here again."""
        self._spawn("give-back", lambda: self._give_back(run, verdicts))

    async def _give_back(self, run: MessageRun, verdicts: Mapping[ReceivedMessage, Verdict]) -> None:
        held = run.queue
        for message in run.left:
            if held.dropped:
                return  # The new owner of the queue gets them again.
            if await self._returns.give_back(message, verdicts[message]):
                held.done(run, [message])
        if len(run):
            self.later(AGAIN_S, run)

    def bury(self, run: MessageRun, dead: list[ReceivedMessage], reason: str) -> None:
        """Make dead letters of these messages, then deliver what is left of their run."""
        self._spawn("bury", lambda: self._bury(run, dead, reason))

    async def _bury(self, run: MessageRun, dead: list[ReceivedMessage], reason: str) -> None:
        """The queue continues after them, but not before the broker has them."""
        delay_s = 0.0
        for message in dead:
            if await self._returns.bury(message, reason):
                run.queue.done(run, [message])
            else:
                delay_s = AGAIN_S
        self.later(delay_s, run)

    def _spawn(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do it in a task that `close` waits for."""
        self._returning += 1
        self._tasks.spawn(name, self._counted(work))

    async def _counted(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        finally:
            self._returning -= 1
            self._change()

    def later(self, delay_s: float, run: MessageRun) -> None:
        """Deliver the run again after a delay."""
        if self._closed:
            return

        def now() -> None:
            self._timers.discard(timer)
            self.returned(run)

        timer = asyncio.get_running_loop().call_later(delay_s, now)
        self._timers.add(timer)

    # Messages that are read without a handler.

    def lend_nowait(self) -> ReceivedMessage | None:
        """The next message for an iterator, which must report its outcome by `ended_by`."""
        for _ in range(len(self._unread)):
            if self.is_resting:
                return None
            held = self._unread.popleft()
            held.is_listed = False
            if held.peek() is None or not self._discipline.may_begin(held):
                continue
            run = held.take(1)
            assert run is not None
            message = run.todo.popleft()
            run.now, run.began_s = (message,), self._now_s()
            self._lent[message] = run
            self._discipline.begun(run)
            self.arrived(held)
            return message
        return None

    async def lend(self) -> ReceivedMessage | None:
        """Like `lend_nowait`, but waits for a message; None once delivery is closing."""
        while (message := self.lend_nowait()) is None:
            if self._closing:
                return None
            await self._changes()
        return message

    def is_lent(self, message: ReceivedMessage) -> bool:
        return message in self._lent

    def ended_by(self, message: ReceivedMessage, error: BaseException | None = None) -> None:
        """The message is consumed, or failed with this error. Idempotent."""
        run = self._lent.pop(message, None)
        if run is None:
            return
        took_s = self._now_s() - run.began_s
        failures: HandlerFailures = [] if error is None else [((message,), error)]
        run.now = ()
        self._finished(HandlerReport(run, 1, took_s, failures), message.topic)

    def take_back(self, message: ReceivedMessage) -> None:
        """The message was neither consumed nor failed: the next iterator gets it."""
        run = self._lent.pop(message, None)
        if run is not None:
            self.returned(run)

    def returned(self, run: MessageRun) -> None:
        """Put the messages of a run back into their queue, to be delivered again."""
        run.queue.hand_back(run)
        self._discipline.returned(run)
        self.arrived(run.queue)

    # Handlers that take long.

    def _watch(self) -> None:
        now_s = self._now_s()
        for run in list(self._running):
            if run.now and now_s - run.began_s > _STUCK_S:
                self._discipline.stuck(run)
        for run in [*self._running, *self._lent.values()]:
            if run.now and now_s - run.began_s > self._settings.consume_timeout_s:
                self._discipline.too_long(run)
