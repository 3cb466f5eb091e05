"""Hooks: your own code around each send and around each handler call, for traces and metrics.

    class Slow:
        def before_send(self, send: SendContext) -> None: ...

        def after_send(self, send: SendContext) -> None:
            if send.took_s > 1:
                print(send.message_ids, send.queue, send.error)

    Producer("orders", "127.0.0.1:9876", hooks=[Slow()])

A hook observes: it cannot change a message or its outcome, except that an `InjectHook` adds properties.
Every call of a `before` method is followed by one of the `after` method with the same context, which is
hashable, so that a hook can use it as a key for what it needs in between. `before` methods are called in the
order in which the hooks are given, `after` methods in reverse. An exception that a hook raises is logged, at
most once a minute, and goes no further.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

from flaremq.base.clock import Clock
from flaremq.base.logs import Seldom
from flaremq.client.message import Decision, Recall, Receipt, ReceivedMessage
from flaremq.model.message import Message, MessageQueue

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOGGED_EVERY_S: Final = 60.0


@dataclass(slots=True, eq=False)
class SendContext:
    """One attempt to send: one request to one broker."""

    group: str
    messages: Sequence[Message]
    """One, or all messages of a batch."""
    message_ids: Sequence[str]
    """The id of each message; the same in all attempts to send it."""
    queue: MessageQueue | None
    """None if the attempt failed before a queue was found."""
    address: str | None
    """The broker's."""
    is_oneway: bool
    began_s: float
    """By the client's monotonic clock."""
    receipt: Receipt | None = None
    """The broker's answer; None before it arrives, after an error and for one-way sends."""
    error: BaseException | None = None
    """Why the attempt failed."""
    took_s: float = 0.0
    """From before the request was written until the answer or the error; set in `after_send`."""
    is_half: bool = False
    """Whether the message is prepared by a transaction."""


class SendHook(Protocol):
    """Observes what a producer sends. Called in the client's event loop, which it must not block.

    Called once per attempt: a send that is retried at another broker calls the hook again, with the same
    message ids. A batch is one attempt with many messages; `send_many` makes one attempt for each message.
    A message that is refused before it is sent (an illegal name, an empty body) is not an attempt.

    It may also have the methods of `InjectHook`, `TransactionHook` and `RecallHook`.
    """

    def before_send(self, send: SendContext) -> None:
        """The queue is chosen, and nothing is written yet."""

    def after_send(self, send: SendContext) -> None:
        """`receipt` or `error` is set; neither for a one-way send that was written."""


class OutcomeHook(Protocol):
    """Sees how each message of `send_many` ended, and nothing before. If it is the only hook, no context is
    made for each message, which would cost more than all else that it does."""

    def outcome(
        self,
        message: Message,
        message_id: str,
        address: str | None,
        took_s: float,
        outcome: Receipt | BaseException,
    ) -> None: ...


class InjectHook(Protocol):
    """Adds properties to messages on their way out. For a SendHook that lets consumers know of something."""

    def inject(self, message: Message) -> Mapping[str, str]:
        """Properties to add; those that the message has already win. Called once per message, before it is
        packed; `before_send` and `after_send` see the message with them."""


@dataclass(slots=True, eq=False)
class EndContext:
    """The end of a transaction, as the producer tells the broker."""

    group: str
    topic: str
    tags: str | None
    keys: Sequence[str]
    message_id: str
    decision: Decision
    from_check: bool
    """The broker had asked for it."""
    address: str | None
    """The broker's; None if it has no master at the moment."""
    region: str | None
    """The broker's region if the message is traced; None otherwise."""


class TransactionHook(Protocol):
    """Observes the transactions of a TransactionProducer. For a SendHook that wants to know of them."""

    def after_end(self, end: EndContext) -> None:
        """The step or the checker has decided, and the broker is told; not of UNKNOWN, unless it asked."""


@dataclass(slots=True, eq=False)
class RecallContext:
    """An attempt to cancel a message that waits for its moment, as the broker answered it."""

    group: str
    topic: str
    message_id: str
    outcome: Recall
    region: str | None
    """The broker's region if it says one."""


class RecallHook(Protocol):
    """Observes `producer.recall`. For a SendHook that wants to know of it."""

    def after_recall(self, recall: RecallContext) -> None:
        """The broker has answered."""


@dataclass(slots=True, eq=False)
class ConsumeContext:
    """One call of a handler."""

    group: str
    messages: Sequence[ReceivedMessage]
    """One, or up to `batch_max` messages of one queue."""
    began_s: float
    """By the client's monotonic clock."""
    error: BaseException | None = None
    """What the handler raised, or the `Later` that it returned; None if the messages were consumed."""
    took_s: float = 0.0
    """How long the handler ran; set in `after_consume`."""

    @property
    def queue(self) -> MessageQueue:
        return self.messages[0].queue


class ConsumeHook(Protocol):
    """Observes what the handlers of a push consumer do, once per handler call.

    Called where the handler runs: in its thread if it is a plain function, so in several threads at a time;
    in its task if it is async. So context variables that a hook sets are seen by the handler.

    A message that is read by iteration counts from the moment it is handed out until it is acknowledged or
    given back; its hooks are called in the client's event loop.
    """

    def before_consume(self, consume: ConsumeContext) -> None:
        """The handler is about to be called."""

    def after_consume(self, consume: ConsumeContext) -> None:
        """The handler has returned or raised; `error` tells which."""


class _Shield:
    """Calls hooks, whatever they raise."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seldom: dict[str, Seldom] = {}

    def call(self, method: Callable[[T], None], context: T) -> None:
        try:
            method(context)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - Hooks only observe.
            self.failed(getattr(method, "__qualname__", repr(method)), error)

    def result(self, function: Callable[[T], T], given: T, name: str) -> T:
        """What a function makes of a value; the value itself if it fails."""
        try:
            return function(given)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - A hook must not fail a send.
            self.failed(name, error)
            return given

    def failed(self, name: str, error: BaseException) -> None:
        seldom = self._seldom.get(name)
        if seldom is None:
            seldom = self._seldom[name] = Seldom(_LOGGED_EVERY_S, now_s=self._clock.monotonic_s)
        kept_back = seldom.due()
        if kept_back is not None:
            more = f" ({kept_back} more since it was last logged)" if kept_back else ""
            log.warning("hook %s failed: %s: %s%s", name, type(error).__name__, error, more, exc_info=error)


class SendHooks:
    """All hooks of one producer."""

    def __init__(self, hooks: Sequence[SendHook], group: str, clock: Clock) -> None:
        self._group = group
        self._clock = clock
        self._shield = _Shield(clock)
        self._before = [hook.before_send for hook in hooks]
        self._after = [hook.after_send for hook in reversed(hooks)]
        outcomes = _optional(hooks, "outcome")
        self.outcome: Callable[..., None] | None = outcomes[0] if len(hooks) == len(outcomes) == 1 else None
        """An OutcomeHook's method, if that is the only hook."""
        self._injecting: list[Callable[[Message], Mapping[str, str]]] = _optional(hooks, "inject")
        self._ended: list[Callable[[EndContext], None]] = _optional(hooks, "after_end")
        self._recalled: list[Callable[[RecallContext], None]] = _optional(hooks, "after_recall")

    def injected(self, message: Message) -> Message:
        """The message with what hooks add to it."""
        for method in self._injecting:

            def add(message: Message, method: Callable[[Message], Mapping[str, str]] = method) -> Message:
                added = method(message)
                return replace(message, properties={**added, **message.properties}) if added else message

            message = self._shield.result(add, message, getattr(method, "__qualname__", repr(method)))
        return message

    def begin(
        self,
        messages: Sequence[Message],
        message_ids: Sequence[str],
        queue: MessageQueue | None,
        address: str | None,
        *,
        is_oneway: bool = False,
        is_half: bool = False,
    ) -> SendContext:
        now_s = self._clock.monotonic_s()
        send = SendContext(self._group, messages, message_ids, queue, address, is_oneway, now_s)
        send.is_half = is_half
        for method in self._before:
            self._shield.call(method, send)
        return send

    def end(self, send: SendContext, outcome: Receipt | BaseException | None) -> None:
        send.took_s = self._clock.monotonic_s() - send.began_s
        if isinstance(outcome, Receipt):
            send.receipt = outcome
        else:
            send.error = outcome
        for method in self._after:
            self._shield.call(method, send)

    def end_quickly(
        self,
        message: Message,
        message_id: str,
        address: str | None,
        took_s: float,
        outcome: Receipt | BaseException,
    ) -> None:
        """Instead of `begin` and `end`, if there is only an OutcomeHook."""
        try:
            self.outcome(message, message_id, address, took_s, outcome)  # type: ignore[misc]
        except Exception as error:  # noqa: BLE001 - Hooks only observe.
            self._shield.failed(repr(self.outcome), error)

    def ended(self, end: EndContext) -> None:
        for method in self._ended:
            self._shield.call(method, end)

    def recalled(self, recall: RecallContext) -> None:
        for method in self._recalled:
            self._shield.call(method, recall)


def _optional(hooks: Sequence[object], name: str) -> list[Callable[..., Any]]:
    """A method that not every hook has."""
    found = [getattr(hook, name, None) for hook in reversed(hooks)]
    return [method for method in found if method is not None]


class ConsumeHooks:
    """All hooks of one consumer. Thread-safe."""

    def __init__(self, hooks: Sequence[ConsumeHook], group: str, clock: Clock) -> None:
        self._group = group
        self._clock = clock
        self._shield = _Shield(clock)
        self._before = [hook.before_consume for hook in hooks]
        self._after = [hook.after_consume for hook in reversed(hooks)]

    def begin(self, messages: Sequence[ReceivedMessage]) -> ConsumeContext:
        consume = ConsumeContext(self._group, messages, self._clock.monotonic_s())
        for method in self._before:
            self._shield.call(method, consume)
        return consume

    def end(self, consume: ConsumeContext, error: BaseException | None) -> None:
        consume.took_s, consume.error = self._clock.monotonic_s() - consume.began_s, error
        for method in self._after:
            self._shield.call(method, consume)
