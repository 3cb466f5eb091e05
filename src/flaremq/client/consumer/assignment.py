"""The queues assigned to this consumer: acquired, pulled, moved and given up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from flaremq.base.errors import FlareError
from flaremq.base.lifecycle import Owned, repeat
from flaremq.client.consumer.locks import RENEW_S, LockClient
from flaremq.client.consumer.member import GroupMember, Warnings
from flaremq.client.consumer.offsets import OffsetStore
from flaremq.client.consumer.processqueue import ProcessQueue
from flaremq.client.consumer.pull import PUSH, Puller, PullKind
from flaremq.model.message import MessageQueue

log = logging.getLogger(__name__)

STALE_S: Final = 120.0
"""A queue that was not pulled for this long is started again."""
_LEAVE_LIMIT_S: Final = 20.0
"""How long giving up an orderly queue waits for its running handler."""

_CLOSE_LIMIT_S: Final = 5.0


class Consumption(Protocol):
    """Consumes pulled messages."""

    def arrived(self, held: ProcessQueue) -> None:
        """The queue has messages to consume."""

    async def ended(self, queue: MessageQueue, limit_s: float) -> None:
        """Wait until no handler has a message of the queue."""


@dataclass(slots=True)
class _Held:
    state: ProcessQueue
    puller: Puller
    task: asyncio.Task[None]


class Assignment:
    def __init__(
        self, member: GroupMember, offsets: OffsetStore, consumption: Consumption, kind: PullKind = PUSH
    ) -> None:
        self._member = member
        self._clock = member.client.clock
        self.offsets = offsets
        self._consumption = consumption
        self._kind = kind
        self.warnings = Warnings(member.group)
        self.locks = LockClient(member, self.warnings)
        self._held: dict[MessageQueue, _Held] = {}
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}
        self._tasks = Owned()
        self._is_suspended = self._closed = False
        self.on_left: Callable[[], None] = lambda: None
        """Called when a queue has been given up."""

    @property
    def queues(self) -> Mapping[MessageQueue, ProcessQueue]:
        return {queue: held.state for queue, held in self._held.items()}

    def get(self, queue: MessageQueue) -> ProcessQueue | None:
        held = self._held.get(queue)
        return None if held is None else held.state

    @property
    def _locks_queues(self) -> bool:
        return self._member.settings.orderly and self._member.is_clustering

    # Changing the assignment.

    async def change(self, mine: Collection[MessageQueue], topic: str | None = None) -> bool:
        """Hold exactly these queues (of one topic). Returns False if some could not be acquired yet."""
        wanted = set(mine)
        ours = [queue for queue in self._held if topic is None or queue.topic == topic]
        gone = [queue for queue in ours if queue not in wanted]
        stale = [queue for queue in ours if queue in wanted and self._is_stale(self._held[queue])]
        for queue in stale:
            log.warning(
                "group %s: no pull from %s for a long time: starting it again", self._member.group, queue
            )
        await self.drop([*gone, *stale])
        fresh = [queue for queue in mine if queue not in self._held]
        ready = [queue for queue in fresh if queue not in self._leaving]
        locked_s = self._clock.monotonic_s()
        if ready and self._locks_queues:
            locked = await self.locks.ask(ready)
            ready = [queue for queue in ready if queue in locked]
        begun = await asyncio.gather(*(self._begin(queue, locked_s) for queue in ready))
        if gone or any(begun):
            where = "" if topic is None else f" of {topic}"
            log.info(
                "group %s now has %d queue%s%s: %d new, %d given up",
                *(
                    self._member.group,
                    len(wanted),
                    "" if len(wanted) == 1 else "s",
                    where,
                    sum(begun),
                    len(gone),
                ),
            )
        return sum(begun) == len(fresh)

    def _is_stale(self, held: _Held) -> bool:
        if held.task.done():
            return not held.state.dropped
        quiet_s = self._clock.monotonic_s() - held.state.pulled_s
        return not held.puller.is_resting and quiet_s > STALE_S

    async def _begin(self, queue: MessageQueue, locked_s: float) -> bool:
        try:
            offset = await self.offsets.start(queue)
        except FlareError as error:
            self.warnings.note(queue.broker_name, f"the start of {queue}", error)
            return False
        if self._closed:
            return False
        if queue in self._held:
            return True  # Another round was faster: two pullers would deliver everything twice.
        state = ProcessQueue(queue, offset)
        if self._locks_queues:
            state.lock(locked_s, self._clock.now_ms())
        self._hold(state)
        return True

    def _hold(self, state: ProcessQueue) -> None:
        state.paused = state.paused or self._is_suspended
        state.pulled_s = self._clock.monotonic_s()
        puller = Puller(self._member, state, self, self._kind)
        queue = state.queue
        task = self._tasks.spawn(f"pull-{queue.topic}-{queue.broker_name}-{queue.queue_id}", puller.run())
        self._held[queue] = _Held(state, puller, task)

    async def drop(self, queues: Iterable[MessageQueue]) -> None:
        """Give up these queues: offsets of consumed messages are stored, the rest is for other members."""
        dropped = [held for queue in queues if (held := self._held.pop(queue, None)) is not None]
        for held in dropped:
            held.state.dropped = True
            held.task.cancel()
        if self._locks_queues:
            for held in dropped:
                self._leaving[held.state.queue] = self._tasks.spawn("leave", self._leave(held.state))
        elif dropped and self._member.settings.auto_commit:
            await self.offsets.store(self._positions([held.state for held in dropped]))
        for held in dropped:
            self.offsets.forget(held.state.queue)

    async def _leave(self, state: ProcessQueue) -> None:
        """In this order: the handler ends, the offset is stored, the lock is released for other members."""
        queue = state.queue
        try:
            await self._consumption.ended(queue, _LEAVE_LIMIT_S)
            await self._lock_again(state)
            await self.offsets.store(self._positions([state]), sure=True)
            await self.locks.give_up([queue])
        finally:
            self.offsets.forget(queue)
            self._leaving.pop(queue, None)
            self.on_left()

    async def _lock_again(self, state: ProcessQueue) -> None:
        """The lock of a queue that is given up is not renewed, so a slow handler may outlast it."""
        now_s = self._clock.monotonic_s()
        if state.locked and not state.is_locked(now_s) and state.queue in await self.locks.ask([state.queue]):
            state.lock(now_s, self._clock.now_ms())

    # Reports of pullers.

    def arrived(self, held: ProcessQueue) -> None:
        self._consumption.arrived(held)

    def pulled(self, topic: str, took_s: float, count: int) -> None:
        self._member.figures.pulled(topic, took_s, count)

    def may_commit(self, held: ProcessQueue) -> bool:
        if not held.is_answered or not self._member.is_clustering:
            return False
        return not self._locks_queues or held.is_locked(self._clock.monotonic_s())

    def moved(self, held: ProcessQueue, offset: int) -> None:
        log.info(
            "group %s: %s continues at offset %d instead of %d",
            self._member.group,
            held.queue,
            offset,
            held.next_offset,
        )
        held.dropped = True  # At once: its puller must not ask again before the move.
        stores = self._member.settings.auto_commit
        self._tasks.spawn("move", self.move(held.queue, offset, sure=stores))

    async def move(self, queue: MessageQueue, offset: int, *, sure: bool) -> None:
        """Drop what was pulled of a queue and continue at this offset; `sure` also stores it."""
        held = self._held.pop(queue, None)
        if held is None:
            return
        before = held.state
        before.dropped = True
        state = ProcessQueue(queue, offset)
        state.locked, state.locked_s, state.locked_ms = before.locked, before.locked_s, before.locked_ms
        state.paused, state.is_answered = before.paused, sure
        if held.task is not asyncio.current_task():
            held.task.cancel()
        self._hold(state)
        if sure:
            await self.offsets.store({queue: offset}, sure=True)

    # Pausing.

    def suspend(self, is_suspended: bool) -> None:
        self._is_suspended = is_suspended
        self.pause(list(self._held), is_suspended)

    def pause(self, queues: Iterable[MessageQueue], is_paused: bool) -> None:
        for queue in queues:
            held = self._held.get(queue)
            if held is not None:
                held.state.paused = is_paused
                held.puller.stir()

    # Offsets.

    def _positions(self, states: Iterable[ProcessQueue]) -> dict[MessageQueue, int]:
        """Offsets of the queues that a broker has confirmed and that no other member can have yet."""
        now_s, locks = self._clock.monotonic_s(), self._locks_queues
        return {
            each.queue: each.commit_offset
            for each in states
            if each.is_answered and (not locks or each.is_locked(now_s))
        }

    def positions(self) -> dict[MessageQueue, int]:
        return {queue: held.state.commit_offset for queue, held in self._held.items()}

    async def commit(self, *, sure: bool = False) -> None:
        await self.offsets.store(self._positions(held.state for held in self._held.values()), sure=sure)

    # Life.

    def start(self) -> None:
        period_s, sleep = self._member.settings.commit_s, self._member.client.sleep
        committing = repeat("committing offsets", self._commit_due, period_s, sleep=sleep)
        self._tasks.spawn("commit-offsets", committing)
        if self._locks_queues:
            renewing = repeat("renewing locks of queues", self._renew, RENEW_S, sleep=sleep)
            self._tasks.spawn("renew-locks", renewing)

    async def _commit_due(self) -> None:
        if self._member.settings.auto_commit:
            await self.commit()
        self._member.figures.sample()

    async def _renew(self) -> None:
        for state in await self.locks.renew(self.queues):
            self._consumption.arrived(state)

    def rest(self) -> None:
        """No more pulls."""
        self._closed = True
        for held in self._held.values():
            held.task.cancel()

    async def close(self) -> None:
        """Store the offsets of what was consumed, and give up all queues."""
        self.rest()
        held = [each.state for each in self._held.values()]
        try:
            if self._leaving:
                await asyncio.wait(self._leaving.values(), timeout=_CLOSE_LIMIT_S)
            if self._member.settings.auto_commit:
                await self.commit(sure=True)
            if self._locks_queues:
                await self.locks.give_up([each.queue for each in held])
        finally:
            for state in held:
                state.dropped = True
            self._held.clear()
            await self._tasks.aclose(timeout_s=_CLOSE_LIMIT_S)
