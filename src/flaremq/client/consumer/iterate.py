"""Messages for programs that ask for them one by one: `async for`."""

from __future__ import annotations

from flaremq.base.errors import UsageError
from flaremq.client.consumer.delivery import Delivery
from flaremq.client.consumer.outcome import Later
from flaremq.client.message import ReceivedMessage


class Messages:
    """An async iterator over messages that have no handler; it ends when the consumer stops."""

    def __init__(self, inbox: Inbox, *, acknowledges: bool) -> None:
        self._inbox = inbox
        self._acknowledges = acknowledges
        self._last: ReceivedMessage | None = None

    def __aiter__(self) -> Messages:
        return self

    async def __anext__(self) -> ReceivedMessage:
        last, self._last = self._last, None
        if last is not None:
            self._inbox.delivery.ended_by(last)
        message = await self._inbox.next()
        if message is None:
            raise StopAsyncIteration
        if self._acknowledges:
            self._last = message
        return message

    def abandon(self) -> None:
        """The loop was left: its last message was not dealt with, so it is delivered again."""
        last, self._last = self._last, None
        if last is not None:
            self._inbox.delivery.take_back(last)


class Inbox:
    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self._current: Messages | None = None

    def read(self) -> Messages:
        """One loop at a time. What an earlier one was left with comes first."""
        if self._current is not None:
            self._current.abandon()
        self._current = Messages(self, acknowledges=True)
        return self._current

    def read_explicitly(self) -> Messages:
        """Any number of loops; every message is to be told of."""
        return Messages(self, acknowledges=False)

    async def next(self) -> ReceivedMessage | None:
        """The next one; None when there will be no more."""
        return await self.delivery.lend()

    def end(self, message: ReceivedMessage, why: Later | None = None) -> None:
        if not self.delivery.is_lent(message):
            raise UsageError(
                f"message {message.message_id} is not waited for: it was told of before, took longer than "
                "consume_timeout_s, or its queue has gone to another member"
            )
        self.delivery.ended_by(message, why)
