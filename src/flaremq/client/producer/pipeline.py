"""Many messages in flight at a time: frames are made and written in runs, receipts arrive in any order.

A run costs one write per broker and no task or future per message. Exceptional cases (a failed attempt, a
broker that is gone) are left to the producer's ordinary path, one message at a time.

Nothing waits for a broker for longer than the timeout: neither for an answer, nor for the broker to read. The
connection of a broker that has done neither for that long is closed, and further attempts have what is left
of each message's time.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol, TypeAlias

from flaremq.base.errors import CallTimeout, FlareError, ManyFailed
from flaremq.client.hooks import SendContext, SendHooks
from flaremq.client.message import Receipt
from flaremq.client.producer.balance import QueueSelector
from flaremq.client.producer.packing import FrameMaker, PackedMessage, as_message
from flaremq.model.message import Message, MessageQueue
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command
from flaremq.remoting.connection import Connection

_RUN: Final = 64
"""How many messages are made and written at a time."""
_AGAIN_AT_ONCE: Final = 64
"""How many failed messages are retried at a time."""


class InFlight(NamedTuple):
    """A message in flight."""

    place: int
    """Its index in the results."""
    message: Message | PackedMessage
    message_id: str
    queue: MessageQueue
    sent_s: float
    """When it was written, by the loop's clock."""
    number: str = ""
    """PRODUCER_SEQ; empty if it is not numbered."""


class PipelineSender(Protocol):
    """The producer, as a pipeline needs it."""

    frames: FrameMaker
    hooks: SendHooks | None
    is_numbered: bool
    """Whether its messages are numbered, so that each is stored once."""

    def number(self, message: Message | PackedMessage) -> str: ...
    def next_ids(self, count: int) -> list[str]: ...
    def now_ms(self) -> int: ...
    def placed_nowait(
        self, message: Message | PackedMessage, to: MessageQueue | QueueSelector | None
    ) -> tuple[MessageQueue, Connection] | None:
        """The queue and connection for a message, if known and connected."""

    async def placed(
        self, message: Message | PackedMessage, to: MessageQueue | QueueSelector | None
    ) -> tuple[MessageQueue, Connection]: ...
    async def placed_late(
        self, message: Message | PackedMessage, to: MessageQueue | QueueSelector | None
    ) -> tuple[MessageQueue, Connection]:
        """The same, but waits for a broker that is away for a moment."""

    def receipt(
        self, answer: Command, queue: MessageQueue, address: str, code: int, message_id: str
    ) -> Receipt: ...
    def has_other(self, topic: str) -> bool:
        """Whether more than one broker accepts messages of a topic."""

    async def again(
        self,
        in_flight: InFlight,
        to: MessageQueue | QueueSelector | None,
        error: FlareError,
        timeout_s: float,
    ) -> Receipt:
        """Make another attempt within the time that is left. Raises the error if there is none."""


class SendPipeline:
    """One call of `send_many`, or a stream of messages that are fed to it."""

    def __init__(self, sends: PipelineSender, window: int, timeout_s: float, *, keeps: bool = True) -> None:
        """Without `keeps` no receipts are kept, so that it can be fed endlessly; `check` raises failures."""
        self._sends = sends
        self._hooks = sends.hooks
        self._is_quick = sends.hooks is not None and sends.hooks.outcome is not None
        self._observed: dict[int, SendContext] = {}  # By place; empty without hooks.
        self._window = window
        self._timeout_s = timeout_s
        self._keeps = keeps
        self._results: list[Receipt | FlareError | None] = []
        self._fed = 0
        self._errors: list[FlareError] = []  # Of messages that failed for good.
        self._lines: dict[Connection, Line] = {}
        self._failed: list[tuple[InFlight, FlareError, float]] = []  # And how long it had been in flight.
        self._outstanding = 0
        self._progress = asyncio.Event()
        self._now_s = asyncio.get_running_loop().time

    async def run(
        self, messages: Iterable[Message], to: MessageQueue | QueueSelector | None
    ) -> list[Receipt]:
        """Send all messages and return their receipts: the whole of `send_many`."""
        pending = iter(messages)
        try:
            while part := list(itertools.islice(pending, min(_RUN, self._window))):
                await self.feed(part, to)
            await self.finish(to)
        finally:
            self.close()
        return self._receipts()

    async def feed(
        self, part: Sequence[Message | PackedMessage], to: MessageQueue | QueueSelector | None = None
    ) -> None:
        """Write these messages once the window has room; it must be large enough for all of them."""
        await self._until(self._window - len(part))
        if self._failed and self._sends.is_numbered:
            # At once: they keep their order, and the broker's window does not move on without them.
            await self._until(0)
            await self._again(to)
        await self._write(part, to)

    async def finish(self, to: MessageQueue | QueueSelector | None = None) -> None:
        """Wait for outstanding messages, and retry those that failed."""
        await self._until(0)
        await self._again(to)

    async def check(self, to: MessageQueue | QueueSelector | None = None) -> None:
        """Retry what has failed so far. Raises ManyFailed if a message failed for good."""
        if self._failed:
            await self._again(to)
        if self._errors:
            raise self._many_failed(self._errors)

    def close(self) -> None:
        """Forget outstanding messages. Needed after `finish` failed, and safe otherwise."""
        for line in self._lines.values():
            line.forget()
        for place in list(self._observed):
            self._observe_end(place, asyncio.CancelledError("the program stopped waiting for the answer"))

    # Out.

    async def _write(
        self, part: Sequence[Message | PackedMessage], to: MessageQueue | QueueSelector | None
    ) -> None:
        sends, lines, place, hooks = self._sends, self._lines, self._fed, self._hooks
        if hooks is not None and not self._is_quick:
            part = [hooks.injected(each) if isinstance(each, Message) else each for each in part]
        born_ms, ids, sent_s = sends.now_ms(), self._ids(part), self._now_s()
        self._fed += len(part)
        if self._keeps:
            self._results += [None] * len(part)
        for message, message_id in zip(part, ids, strict=True):
            try:
                queue, connection = sends.placed_nowait(message, to) or await self._placed(
                    message, to, message_id
                )
                line = lines.get(connection) or self._line(connection)
                number = sends.number(message)
                line.add(InFlight(place, message, message_id, queue, sent_s, number), sends.frames, born_ms)
            except FlareError as error:
                self._gave_up(place, error)  # It was never sent, so there is nothing to retry.
            place += 1
        for line in self._lines.values():
            if line.frames:
                line.write()
            while line.connection.is_full and len(line):
                await self._something_comes(line)

    async def _placed(
        self, message: Message | PackedMessage, to: MessageQueue | QueueSelector | None, message_id: str
    ) -> tuple[MessageQueue, Connection]:
        # A stream of numbered messages waits for a broker that restarts; once only, if it does not come back.
        is_patient = self._sends.is_numbered and not self._errors
        try:
            return await (self._sends.placed_late if is_patient else self._sends.placed)(message, to)
        except FlareError as error:
            hooks = self._hooks
            if hooks is not None and self._is_quick:
                hooks.end_quickly(as_message(message), message_id, None, 0.0, error)
            elif hooks is not None:
                hooks.end(hooks.begin([as_message(message)], [message_id], None, None), error)
            raise

    def _ids(self, part: Sequence[Message | PackedMessage]) -> list[str]:
        own = [each.message_id for each in part if isinstance(each, PackedMessage)]
        return own or self._sends.next_ids(len(part))

    def _line(self, connection: Connection) -> Line:
        line = self._lines[connection] = Line(self, connection)
        return line

    # In.

    def sent(self, in_flight: InFlight, address: str) -> None:
        """A message will be written with the next run."""
        self._outstanding += 1
        if self._hooks is not None and not self._is_quick:
            self._observed[in_flight.place] = self._hooks.begin(
                [as_message(in_flight.message)], [in_flight.message_id], in_flight.queue, address
            )

    def _observe(self, in_flight: InFlight, address: str, outcome: Receipt | BaseException) -> None:
        if not self._is_quick:
            self._observe_end(in_flight.place, outcome)
        elif self._hooks is not None:
            message, took_s = as_message(in_flight.message), self._now_s() - in_flight.sent_s
            self._hooks.end_quickly(message, in_flight.message_id, address, took_s, outcome)

    def _observe_end(self, place: int, outcome: Receipt | BaseException) -> None:
        send = self._observed.pop(place, None)
        if send is not None and self._hooks is not None:
            self._hooks.end(send, outcome)

    def stored(self, in_flight: InFlight, address: str, receipt: Receipt) -> None:
        self._outstanding -= 1
        if self._hooks is not None:
            self._observe(in_flight, address, receipt)
        if self._keeps:
            self._results[in_flight.place] = receipt
        self._progress.set()

    def answered(self, in_flight: InFlight, address: str, answer: Command) -> None:
        self._outstanding -= 1
        self._progress.set()
        code = RequestCode.SEND_MESSAGE_V2
        try:
            receipt = self._sends.receipt(answer, in_flight.queue, address, code, in_flight.message_id)
        except FlareError as error:
            self._observe(in_flight, address, error)
            self._failed.append((in_flight, error, self._now_s() - in_flight.sent_s))
        else:
            self._observe(in_flight, address, receipt)
            if self._keeps:
                self._results[in_flight.place] = receipt

    def lost(self, in_flight: InFlight, address: str, error: FlareError) -> None:
        self._outstanding -= 1
        self._progress.set()
        self._observe(in_flight, address, error)
        self._failed.append((in_flight, error, self._now_s() - in_flight.sent_s))

    async def _until(self, at_most: int) -> None:
        """Wait until at most this many are outstanding. Without an answer in time they fail."""
        while self._outstanding > at_most:
            await self._something_comes(*self._lines.values())

    async def _something_comes(self, *lines: Line) -> None:
        """Wait until a message is answered or a connection can be written to again. Lines on which neither
        has happened for too long are given up."""
        self._progress.clear()
        for line in lines:
            if line.connection.is_full:
                line.connection.when_writable(self._progress.set)
        now_s = self._now_s()
        waiting = [line.quiet_since_s + self._limit_s(line) for line in lines if len(line)]
        try:
            async with asyncio.timeout(max(0.0, min(waiting, default=now_s) - now_s)):
                await self._progress.wait()
        except TimeoutError:
            now_s = self._now_s()
            for line in lines:
                limit_s = self._limit_s(line)
                if len(line) and line.quiet_since_s + limit_s <= now_s:
                    line.give_up(limit_s)

    def _limit_s(self, line: Line) -> float:
        """How long a line may be silent: not the whole time of its messages, if another broker could still
        take them, or this one would recognise them."""
        may_repeat = self._sends.is_numbered or self._sends.has_other(line.topic)
        return self._timeout_s / 2 if may_repeat else self._timeout_s

    # What failed.

    def _gave_up(self, place: int, error: FlareError) -> None:
        self._errors.append(error)
        if self._keeps:
            self._results[place] = error

    async def _again(self, to: MessageQueue | QueueSelector | None) -> None:
        failed, self._failed = self._failed, []
        slots = asyncio.Semaphore(_AGAIN_AT_ONCE)

        async def again(in_flight: InFlight, error: FlareError, spent_s: float) -> None:
            async with slots:
                try:
                    receipt = await self._sends.again(in_flight, to, error, self._timeout_s - spent_s)
                except FlareError as last:
                    self._gave_up(in_flight.place, last)
                else:
                    if self._keeps:
                        self._results[in_flight.place] = receipt

        await asyncio.gather(*(again(*each) for each in failed))

    def _receipts(self) -> list[Receipt]:
        receipts = [result for result in self._results if isinstance(result, Receipt)]
        if len(receipts) == len(self._results):
            return receipts
        raise self._many_failed([each for each in self._results if isinstance(each, FlareError)])

    def _many_failed(self, failures: Sequence[FlareError]) -> ManyFailed:
        reasons = "; ".join(list(dict.fromkeys(map(str, failures)))[:3])
        were = "was" if len(failures) == 1 else "were"
        return ManyFailed(
            f"{len(failures)} of {self._fed} messages {were} not stored: {reasons}", self._results
        )


class Line:
    """The messages that a pipeline has in flight on one connection."""

    def __init__(self, pipeline: SendPipeline, connection: Connection) -> None:
        self._pipeline = pipeline
        self.connection = connection
        host, port = connection.address
        self._address = f"{host}:{port}"
        self._in_flight: dict[int, InFlight] = {}
        self.frames: list[bytes] = []
        self.topic = ""
        """The topic of the last message."""
        self._time = asyncio.get_running_loop().time
        self.quiet_since_s = self._time()
        """When the last answer arrived, or else when the first message in flight was written."""

    def __len__(self) -> int:
        """How many messages are not answered yet."""
        return len(self._in_flight)

    def add(self, in_flight: InFlight, frames: FrameMaker, born_ms: int) -> None:
        pending = self.connection.pending
        opaque = pending.next_opaque()
        self.frames.append(
            frames.frame(
                in_flight.message, in_flight.queue, in_flight.message_id, born_ms, opaque, in_flight.number
            )
        )
        if not self._in_flight:
            self.quiet_since_s, self.topic = in_flight.sent_s, in_flight.message.topic
        self._in_flight[opaque] = in_flight
        pending.taken_by[opaque] = self
        self._pipeline.sent(in_flight, self._address)

    def write(self) -> None:
        self.connection.send_bytes(b"".join(self.frames))
        self.frames.clear()

    def stored(
        self, opaque: int, queue_id: int, queue_offset: int, offset_id: str, region: str | None
    ) -> None:
        in_flight = self._in_flight.pop(opaque, None)
        if in_flight is not None:
            self.quiet_since_s = self._time()
            queue = in_flight.queue
            if queue.queue_id != queue_id:
                queue = replace(queue, queue_id=queue_id)
            receipt = Receipt(in_flight.message_id, queue, queue_offset, offset_id, region=region)
            self._pipeline.stored(in_flight, self._address, receipt)

    def answered(self, opaque: int, response: Command) -> None:
        in_flight = self._in_flight.pop(opaque, None)
        if in_flight is not None:
            self.quiet_since_s = self._time()
            self._pipeline.answered(in_flight, self._address, response)

    def lost(self, opaque: int, error: Exception) -> None:
        in_flight = self._in_flight.pop(opaque, None)
        if in_flight is not None:
            assert isinstance(error, FlareError)
            self._pipeline.lost(in_flight, self._address, error)

    def give_up(self, timeout_s: float) -> None:
        """No answer has arrived for too long. Everything else that waits on this connection fails too."""
        error = CallTimeout(
            f"{self._address} did not answer {len(self._in_flight)} sends within {timeout_s:g} s: "
            "some may have been stored"
        )
        for opaque in list(self._in_flight):
            self.connection.pending.forget(opaque)
            self.lost(opaque, error)
        self.connection.abort()

    def forget(self) -> None:
        for opaque in self._in_flight:
            self.connection.pending.forget(opaque)


StoredPosition: TypeAlias = tuple[int, int, str, str | None]
"""Where a message was stored: queue, offset, offset id, and the region if it is to be traced."""


class Single:
    """One send that waits for its answer, in whichever form it comes."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: asyncio.Future[StoredPosition | Command] = asyncio.get_running_loop().create_future()

    def stored(
        self, _opaque: int, queue_id: int, queue_offset: int, offset_id: str, region: str | None
    ) -> None:
        if not self.answer.done():
            self.answer.set_result((queue_id, queue_offset, offset_id, region))

    def answered(self, _opaque: int, response: Command) -> None:
        if not self.answer.done():
            self.answer.set_result(response)

    def lost(self, _opaque: int, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


async def ask(
    connection: Connection, frame: Callable[[int], bytes], limit_s: float
) -> StoredPosition | Command:
    """Write a frame and wait for its answer. Raises ConnectionLost or CallTimeout.

    The limit covers both, because nothing can be written to a peer that does not read. A connection on which
    a send timed out is aborted: other sends that wait on it can go elsewhere.
    """
    pending, single = connection.pending, Single()
    opaque = pending.next_opaque()
    pending.taken_by[opaque] = single
    timer = asyncio.get_running_loop().call_later(max(0.0, limit_s), _expire, connection, single, limit_s)
    try:
        if connection.is_full:
            await connection.writable()
        if not single.answer.done():  # It is done if the connection was lost or time ran out.
            connection.send_bytes(frame(opaque))
        return await single.answer
    finally:
        timer.cancel()
        pending.forget(opaque)


def _expire(connection: Connection, single: Single, limit_s: float) -> None:
    host, port = connection.address
    late = CallTimeout(f"{host}:{port} did not answer a send within {limit_s:.2g} s: it may have been stored")
    single.lost(0, late)
    connection.abort()
