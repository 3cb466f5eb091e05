"""Concurrent delivery: messages of a queue are handled in parallel, and failed ones are sent back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from flaremq.client.consumer.delivery import Delivery, HandlerFailures
from flaremq.client.consumer.member import GroupMember
from flaremq.client.consumer.outcome import Verdict, verdict_of
from flaremq.client.consumer.processqueue import MessageRun, ProcessQueue
from flaremq.client.message import ReceivedMessage

log = logging.getLogger(__name__)

_TIMEOUT_LEVEL: Final = 3  # 10 s.


class Concurrent:
    keeps_order = False

    def __init__(self, delivery: Delivery, member: GroupMember) -> None:
        self._delivery = delivery
        self._member = member

    def may_begin(self, held: ProcessQueue) -> bool:
        return not held.dropped

    def may_go_on(self, run: MessageRun) -> bool:  # noqa: ARG002
        return True

    def begun(self, run: MessageRun) -> None: ...
    def returned(self, run: MessageRun) -> None: ...

    def settle(self, run: MessageRun, failures: HandlerFailures) -> None:
        if failures:
            self._failed(run, {each: verdict_of(error) for batch, error in failures for each in batch})
        run.queue.done(run)

    def _failed(self, run: MessageRun, verdicts: Mapping[ReceivedMessage, Verdict]) -> None:
        held = run.queue
        if held.dropped:
            return
        if not self._member.is_clustering:
            log.warning(
                "group %s: %d failed message%s dropped: broadcast messages are not redelivered",
                *(self._member.group, len(verdicts), "" if len(verdicts) == 1 else "s"),
            )
            held.done(run, list(verdicts))
            return
        parted = held.part(run, verdicts)
        if parted is not None:
            self._delivery.give_back(parted, verdicts)

    def stuck(self, run: MessageRun) -> None:
        parted = run.queue.part(run, run.unbegun())
        if parted is not None:
            self._delivery.returned(parted)

    def too_long(self, run: MessageRun) -> None:
        late = [message for message in run.now if run.has(message)]
        if not late or run.queue.dropped:
            return
        limit_s = self._member.settings.consume_timeout_s
        log.warning(
            "group %s: the handler of %s has held message %s for more than %g s: sending it back",
            *(self._member.group, late[0].topic, late[0].message_id, limit_s),
        )
        why = f"the handler held it for more than {limit_s:g} s"
        self._failed(run, dict.fromkeys(late, Verdict(_TIMEOUT_LEVEL, why)))
