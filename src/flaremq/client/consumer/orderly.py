"""Orderly delivery: one message of a queue at a time; a failed one is retried before the next."""

from __future__ import annotations

from flaremq.client.consumer.delivery import Delivery, HandlerFailures
from flaremq.client.consumer.member import GroupMember
from flaremq.client.consumer.outcome import DEAD, Verdict, verdict_of
from flaremq.client.consumer.processqueue import MessageRun, ProcessQueue
from flaremq.client.message import ReceivedMessage
from flaremq.model.message import MessageQueue


class Orderly:
    """A queue is busy from the start of a run to its end, including the pauses between attempts."""

    keeps_order = True

    def __init__(self, delivery: Delivery, member: GroupMember) -> None:
        self._delivery = delivery
        self._member = member
        self._busy: set[MessageQueue] = set()
        """Names, because a queue that was moved or came back is a new object while a handler has the old."""
        self._waiting: dict[MessageQueue, ProcessQueue] = {}

    # Whether a queue may be served.

    def may_go_on(self, run: MessageRun) -> bool:
        """A lost queue must be left alone at once."""
        held = run.queue
        return not held.dropped and not self._delivery.is_resting and self._is_ours(held)

    def _is_ours(self, held: ProcessQueue) -> bool:
        return not self._member.is_clustering or held.is_locked(self._member.client.clock.monotonic_s())

    def may_begin(self, held: ProcessQueue) -> bool:
        if held.queue in self._busy:
            self._waiting[held.queue] = held
            return False
        return not held.dropped and self._is_ours(held)

    def begun(self, run: MessageRun) -> None:
        self._busy.add(run.queue.queue)

    def returned(self, run: MessageRun) -> None:
        self._free(run.queue.queue)

    def _free(self, queue: MessageQueue) -> None:
        self._busy.discard(queue)
        held = self._waiting.pop(queue, None)
        if held is not None:
            self._delivery.arrived(held)

    # Outcomes.

    def settle(self, run: MessageRun, failures: HandlerFailures) -> None:
        held = run.queue
        failed = [message for batch, _ in failures for message in batch]
        unfinished = {message.queue_offset for message in (*failed, *run.todo)}
        held.done(
            run, [each for each in run.left if each.queue_offset not in unfinished] if unfinished else None
        )
        if failed and not held.dropped:
            self._failed(run, failed, verdict_of(failures[0][1]))
            return
        if unfinished:
            held.hand_back(run)
        self._free(held.queue)

    def _failed(self, run: MessageRun, failed: list[ReceivedMessage], verdict: Verdict) -> None:
        """Retry after a pause, or make dead letters after too many attempts or if the handler says so."""
        settings = self._member.settings
        most = settings.attempts_max
        dead = [each for each in failed if verdict.level == DEAD or 0 <= most <= each.reconsume_times + 1]
        for message in failed:
            message.tried_again()
        if dead and self._member.is_clustering:
            self._delivery.bury(run, dead, verdict.reason)
        else:
            self._delivery.later(settings.suspend_s, run)

    # Handlers that take long: the next message may not overtake theirs.

    def stuck(self, run: MessageRun) -> None: ...
    def too_long(self, run: MessageRun) -> None: ...
