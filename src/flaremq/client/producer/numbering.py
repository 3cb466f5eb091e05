"""Numbered messages, which FlareMQ's brokers store once however often they are sent (PRODUCER_SEQ).

attempt > receipt
        > refused: nothing is stored, so another broker may take it
        > no answer, or SYSTEM_ERROR: it may be stored. From here on only the same queue: its broker
          recognises it

SYSTEM_ERROR is what a broker answers whose sync has failed: the message is in its log, and may be found there
after a restart.
"""

from __future__ import annotations

from typing import Final, Protocol

from flaremq.base.backoff import Backoff
from flaremq.base.clock import Clock
from flaremq.base.errors import (
    CallTimeout,
    ConnectionLost,
    FlareError,
    OutcomeUnknown,
    Unreachable,
    UsageError,
)
from flaremq.client.client import Client
from flaremq.client.errors import all_failed
from flaremq.client.message import Receipt, SendStatus
from flaremq.client.producer.balance import QueueSelector
from flaremq.client.producer.packing import PackedMessage, Parcel
from flaremq.model.message import Message, MessageQueue
from flaremq.model.names import check_producer_id
from flaremq.protocol.codes import ResponseCode

_RUN_BITS: Final = 20
"""A run of a producer has this many bits of numbers for each millisecond until the next run begins."""
_PAUSE_S: Final = 0.02
_PAUSE_MAX_S: Final = 0.5
_SHARE_MIN_S: Final = 0.2


class Numbering:
    """The numbers of one producer: those of its messages, or else its own. The latter are greater in a later
    run, unless the clock goes back. Both at once would be far apart, and push each other out of the window.
    """

    def __init__(self, producer_id: str, clock: Clock) -> None:
        check_producer_id(producer_id)
        self._id = producer_id
        self._first = self._next = clock.now_ms() << _RUN_BITS
        self._is_given = False

    def text(self, message: Message | PackedMessage | None) -> str:
        """The value of PRODUCER_SEQ for a message."""
        if isinstance(message, Message) and message.sequence is not None:
            number = message.sequence
            if not self._first <= number < self._next:  # Else it is sent again.
                if self._first < self._next:
                    raise UsageError(
                        f"a message has sequence={number}, but producer {self._id!r} has numbered others "
                        "itself: give all messages a sequence, or none"
                    )
                self._is_given = True
        elif self._is_given:
            raise UsageError(
                f"a message has no sequence, but others of producer {self._id!r} have one: give all messages "
                "a sequence, or none"
            )
        else:
            number, self._next = self._next, self._next + 1
        return f"{self._id}:{number}"


def number_of(numbering: Numbering | None, message: Message | PackedMessage | None) -> str:
    """The value of PRODUCER_SEQ for a message; empty if its producer does not number messages."""
    if numbering is not None:
        return numbering.text(message)
    if isinstance(message, Message) and message.sequence is not None:
        raise UsageError(
            f"a message has sequence={message.sequence}, but its producer has no id: give the producer one, "
            'for example producer_id="billing-1"'
        )
    return ""


def pauses(client: Client, limit_s: float) -> Backoff:
    """Pauses between attempts for a numbered message."""
    return Backoff(_PAUSE_S, _PAUSE_MAX_S, timeout_s=limit_s, now_s=client.clock.monotonic_s)


class NumberedSender(Protocol):
    """The producer, as the attempts for a numbered message need it."""

    async def find(
        self,
        parcel: Parcel,
        to: MessageQueue | QueueSelector | None,
        message: Message | PackedMessage | None,
        deadline_s: float,
        not_at: str | None = None,
    ) -> tuple[MessageQueue, str]: ...
    async def attempt(self, parcel: Parcel, queue: MessageQueue, address: str, limit_s: float) -> Receipt: ...
    def may_go_on(self, error: FlareError, queue: MessageQueue, topic: str) -> bool: ...


class Attempts:
    """All attempts for one numbered message."""

    def __init__(
        self,
        sends: NumberedSender,
        parcel: Parcel,
        limit_s: float,
        client: Client,
        *,
        at: MessageQueue | None = None,
        until_safe: bool = False,
    ) -> None:
        """`at`: it may be in this queue already. `until_safe`: go on while its flush or replica is late."""
        self._sends = sends
        self._parcel = parcel
        self._limit_s = limit_s
        self._now_s, self._sleep = client.clock.monotonic_s, client.sleep
        self._deadline_s = self._now_s() + limit_s
        self._backoff = pauses(client, limit_s)
        self._at = at
        self._until_safe = until_safe
        self._failures: list[FlareError] = []

    async def run(
        self,
        to: MessageQueue | QueueSelector | None,
        message: Message | PackedMessage | None,
        attempts_max: int,
    ) -> Receipt:
        """`attempts_max` is for refusals, as long as it is stored nowhere for sure; a broker that is away is
        waited for. Raises OutcomeUnknown if it may be stored, and otherwise the error for which it is not."""
        not_at: str | None = None
        while True:
            queue: MessageQueue | None = self._at
            try:
                queue, address = await self._sends.find(
                    self._parcel, self._at or to, message, self._deadline_s, not_at
                )
                receipt = await self._sends.attempt(self._parcel, queue, address, self._share_s())
            except FlareError as error:
                if queue is None:
                    raise  # There is no queue to send it to.
                self._note(error, queue)
                not_at = queue.broker_name
                may_go_on = self._sends.may_go_on(error, queue, self._parcel.topic)
                is_last = not may_go_on or (self._at is None and self._refusals >= attempts_max)
                pause_s = None if is_last else self._backoff.pause_s()
                if pause_s is None:
                    raise self._error() from None
            else:
                self._at = queue
                is_done = receipt.status is SendStatus.OK or not self._until_safe
                pause_s = None if is_done else self._backoff.pause_s()
                if pause_s is None:
                    return receipt
            await self._sleep(pause_s)

    @property
    def _refusals(self) -> int:
        return sum(not isinstance(error, Unreachable) for error in self._failures)

    def _note(self, error: FlareError, queue: MessageQueue) -> None:
        self._failures.append(error)
        is_answer = not isinstance(error, Unreachable)
        is_unsure = is_answer and error.response_code == ResponseCode.SYSTEM_ERROR
        if is_unsure or isinstance(error, ConnectionLost | CallTimeout):
            self._at = queue

    def _share_s(self) -> float:
        """The time for an attempt: one lost answer must not take all of it."""
        left_s = self._deadline_s - self._now_s()
        return min(left_s, max(left_s / 2, _SHARE_MIN_S))

    def _error(self) -> FlareError:
        if self._at is None:
            return all_failed(self._parcel, self._failures, self._limit_s)
        reasons = "; ".join(dict.fromkeys(map(str, self._failures)))
        number = self._parcel.number
        return OutcomeUnknown(
            f"{self._parcel}: no receipt within {self._limit_s:g} s, and it may be stored: {reasons}. To be "
            f"sure, send it again with sequence={number.rpartition(':')[2]} to {self._at}: if it is stored, "
            "it is not stored again",
            self._failures,
            sequence=int(number.rpartition(":")[2]),
            queue=self._at,
        )
