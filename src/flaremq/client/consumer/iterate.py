"""Messages read one by one, by `async for`."""

from __future__ import annotations

from flaremq.base.errors import UsageError
from flaremq.client.consumer.delivery import Delivery
from flaremq.client.consumer.outcome import Later
from flaremq.client.hooks import ConsumeContext, ConsumeHooks
from flaremq.client.message import ReceivedMessage


class MessageIterator:
    """An async iterator over messages of topics without a handler; it ends when the consumer stops."""

    def __init__(self, reader: MessageReader, *, acknowledges: bool) -> None:
        self._reader = reader
        self._acknowledges = acknowledges
        self._last: ReceivedMessage | None = None

    def __aiter__(self) -> MessageIterator:
        return self

    async def __anext__(self) -> ReceivedMessage:
        last, self._last = self._last, None
        if last is not None:
            self._reader.ended_by(last)
        message = await self._reader.next()
        if message is None:
            raise StopAsyncIteration
        if self._acknowledges:
            self._last = message
        return message

    def abandon(self) -> None:
        """The loop was left before its last message was acknowledged: deliver it again."""
        last, self._last = self._last, None
        if last is not None:
            self._reader.take_back(last)


class MessageReader:
    def __init__(self, delivery: Delivery, hooks: ConsumeHooks | None = None) -> None:
        self.delivery = delivery
        self._hooks = hooks
        self._observed: dict[ReceivedMessage, ConsumeContext] = {}
        self._current: MessageIterator | None = None

    def read(self) -> MessageIterator:
        """One loop at a time; the message that an earlier loop did not acknowledge is delivered again."""
        if self._current is not None:
            self._current.abandon()
        self._current = MessageIterator(self, acknowledges=True)
        return self._current

    def read_explicitly(self) -> MessageIterator:
        """Any number of loops; each message must be acknowledged or retried."""
        return MessageIterator(self, acknowledges=False)

    async def next(self) -> ReceivedMessage | None:
        """The next message; None when there will be no more."""
        message = await self.delivery.lend()
        if self._hooks is not None and message is not None:
            self._observed[message] = self._hooks.begin((message,))
        return message

    def end(self, message: ReceivedMessage, why: Later | None = None) -> None:
        if not self.delivery.is_lent(message):
            raise UsageError(
                f"message {message.message_id} cannot be acknowledged: it already was, or the loop that got "
                "it has ended"
            )
        self.ended_by(message, why)

    def ended_by(self, message: ReceivedMessage, why: Later | None = None) -> None:
        self._observe_end(message, why)
        self.delivery.ended_by(message, why)

    def take_back(self, message: ReceivedMessage) -> None:
        self._observe_end(message, Later("the loop was left before the message was acknowledged"))
        self.delivery.take_back(message)

    def close(self) -> None:
        """The consumer has stopped: what is not acknowledged by now will be delivered again."""
        for message in list(self._observed):
            self._observe_end(message, Later("the consumer stopped before the message was acknowledged"))

    def _observe_end(self, message: ReceivedMessage, error: Later | None) -> None:
        consume = self._observed.pop(message, None)
        if consume is not None and self._hooks is not None:
            self._hooks.end(consume, error)
