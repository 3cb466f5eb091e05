"""Concurrent delivery: messages of a queue are handled in parallel, and failed ones are sent back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from flaremq.client.consumer.delivery import Delivery
from flaremq.client.consumer.outcome import level_of
from flaremq.client.consumer.processqueue import MessageRun
from flaremq.client.consumer.workers import HandlerBatch
from flaremq.client.message import ReceivedMessage

log = logging.getLogger(__name__)

_TIMEOUT_LEVEL: Final = 3  # 10 s.


class Concurrent(Delivery):
    def settle(self, run: MessageRun, failures: list[tuple[HandlerBatch, BaseException]]) -> None:
        if failures:
            self._failed(run, {each: level_of(error) for batch, error in failures for each in batch})
        run.queue.done(run)

    def _failed(self, run: MessageRun, levels: Mapping[ReceivedMessage, int]) -> None:
        held = run.queue
        if held.dropped:
            return
        if not self._member.is_clustering:
            log.warning(
                "group %s: %d failed message%s dropped: broadcast messages are not redelivered",
                *(self._member.group, len(levels), "" if len(levels) == 1 else "s"),
            )
            held.done(run, list(levels))
            return
        parted = held.part(run, levels)
        if parted is not None:
            self.give_back(parted, levels)

    def stuck(self, run: MessageRun) -> None:
        parted = run.queue.part(run, run.unbegun())
        if parted is not None:
            self.returned(parted)

    def too_long(self, run: MessageRun) -> None:
        late = [message for message in run.now if run.has(message)]
        if not late or run.queue.dropped:
            return
        log.warning(
            "group %s: the handler of %s has held message %s for more than %g s: sending it back",
            *(self._member.group, late[0].topic, late[0].message_id, self._settings.consume_timeout_s),
        )
        self._failed(run, dict.fromkeys(late, _TIMEOUT_LEVEL))
