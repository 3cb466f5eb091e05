"""`flaremq send`: messages from the command line, from a file, or from the lines of stdin."""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from flaremq.admin.documents import receipt_document
from flaremq.base.errors import ConfigError, FlareError, ManyFailed, UsageError
from flaremq.base.text import count
from flaremq.base.units import parse_span_ms
from flaremq.cli.connect import client_settings, pairs_of
from flaremq.cli.options import Namesrv, Profile, TopicName
from flaremq.cli.render import BadValue, dumps, note
from flaremq.cli.times import parse_time_ms
from flaremq.client.client import Client
from flaremq.client.message import Receipt
from flaremq.client.producer.pipeline import SendPipeline
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ClientSettings, ProducerSettings
from flaremq.model.message import Message, MessageQueue

_BATCH: Final = 256
_READ: Final = 64 * 1024
_READ_AHEAD: Final = 4  # Chunks of stdin that wait to be sent.


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """The messages to send, and how to send them."""

    topic: str
    body: bytes | None
    """None: each line of stdin is a message."""
    count: int = 1
    rate: float | None = None
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    delay_s: float | None = None
    deliver_at: float | None = None
    delay_level: int = 0
    sharding_key: str | None = None
    to: MessageQueue | None = None

    def message(self, body: bytes) -> Message:
        return Message(
            self.topic,
            body,
            tags=self.tags,
            keys=self.keys,
            properties=self.properties,
            delay_s=self.delay_s,
            deliver_at=self.deliver_at,
            delay_level=self.delay_level,
            sharding_key=self.sharding_key,
        )


class SendBatch(SendPipeline):
    """A `send_many` whose receipts are available even if it ends early."""

    @property
    def receipts(self) -> list[Receipt]:
        return [each for each in self._results if isinstance(each, Receipt)]

    @property
    def unanswered(self) -> int:
        return sum(each is None for each in self._results)


class SendRun:
    """Sends mail, prints a receipt for each message, and counts what was stored, however it ends.

    After the first Ctrl-C, messages in flight still get their answers; the second one ends that wait.
    """

    def __init__(self, mail: Mail, *, json: bool, quiet: bool) -> None:
        self._mail = mail
        self._json = json
        self._quiet = quiet
        self.stored = 0
        self.failed = 0
        self.unanswered = 0
        """Messages that were in flight when it was interrupted: they may be stored."""
        self.is_interrupted = False
        self._is_sending = False
        self._task: asyncio.Task[None] | None = None

    async def run(self, group: str, settings: ClientSettings, timeout_s: float) -> None:
        """Run until everything is sent, a message fails (FlareError), or Ctrl-C (`is_interrupted`)."""
        self._task = asyncio.current_task()
        with _interrupts_call(self._interrupt):
            try:
                await self._run(group, settings, timeout_s)
            except asyncio.CancelledError:
                if not self.is_interrupted:
                    raise
        if self.is_interrupted:  # End now, even if Ctrl-C is pressed again.
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def _run(self, group: str, settings: ClientSettings, timeout_s: float) -> None:
        async with Client(settings=settings) as client:
            wanted = ProducerSettings(timeout_s=timeout_s)
            async with Producer(group, settings=wanted, client=client) as producer:
                async for batch in _paced(_bodies(self._mail), self._mail.rate):
                    messages = [self._mail.message(body) for body in batch]
                    self._is_sending = True
                    try:
                        await self._send(producer, messages)
                    finally:
                        self._is_sending = False
                    if self.is_interrupted:
                        return

    def _interrupt(self) -> None:
        if self._task is not None and (self.is_interrupted or not self._is_sending):
            self._task.cancel()
        self.is_interrupted = True

    async def _send(self, producer: Producer, messages: list[Message]) -> None:
        if len(messages) == 1:
            await self._send_one(producer, messages[0])
            return
        batch = SendBatch(producer, producer.settings.window, producer.settings.timeout_s)
        try:
            await batch.run(messages, self._mail.to)
        except ManyFailed as error:
            failures = [each for each in error.results if isinstance(each, FlareError)]
            self.failed += len(failures)
            raise failures[0] from None
        finally:
            self.unanswered += batch.unanswered
            for receipt in batch.receipts:
                self._show(receipt)

    async def _send_one(self, producer: Producer, message: Message) -> None:
        try:
            self._show(await producer.send(message, to=self._mail.to))
        except FlareError:
            self.failed += 1
            raise
        except asyncio.CancelledError:
            self.unanswered += 1
            raise

    @property
    def summary(self) -> str:
        """How many messages were stored, failed and are unanswered, in a few words."""
        words = [f"{count(self.stored, 'message')} stored"]
        if self.failed:
            words.append(f"{self.failed:,} failed")
        if self.unanswered:
            words.append(f"{self.unanswered:,} sent without an answer, which may be stored")
        return ", ".join(words)

    def _show(self, receipt: Receipt) -> None:
        self.stored += 1
        queue = receipt.queue
        if self._json:
            typer.echo(dumps(receipt_document(receipt)))
        elif not self._quiet:
            where = f"{queue.broker_name}:{queue.queue_id}/{receipt.queue_offset}"
            typer.echo(f"{receipt.message_id}  {where}  {receipt.status.name}")


# Message bodies, and the rate.


async def _bodies(mail: Mail) -> AsyncIterator[list[bytes]]:
    """Bodies, as many at a time as are available without waiting."""
    if mail.body is None:
        async for lines in _lines():
            yield lines
        return
    for batch in _batches(itertools.repeat(mail.body, mail.count)):
        yield batch


def _batches(bodies: Iterator[bytes]) -> Iterator[list[bytes]]:
    while batch := list(itertools.islice(bodies, _BATCH)):
        yield batch


async def _lines() -> AsyncIterator[list[bytes]]:
    """Lines of stdin as they arrive. A thread waits for them, and is abandoned on an interrupt."""
    loop, ready = asyncio.get_running_loop(), asyncio.Queue[list[bytes] | OSError | None]()
    room = threading.Semaphore(_READ_AHEAD)

    def hand_over(what: list[bytes] | OSError | None) -> None:
        room.acquire()
        loop.call_soon_threadsafe(ready.put_nowait, what)

    def read() -> None:
        rest, source = b"", _stdin()
        with suppress(RuntimeError):  # The loop is closed.
            try:
                while data := source.read(_READ):
                    *lines, rest = (rest + data).split(b"\n")
                    hand_over(lines)
            except OSError as error:
                hand_over(error)
                return
            hand_over([rest])
            hand_over(None)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while (lines := await ready.get()) is not None:
        room.release()
        if isinstance(lines, OSError):
            raise BadValue(f"stdin cannot be read: {lines.strerror or lines}")
        bodies = (line.removesuffix(b"\r") for line in lines)
        for batch in _batches(body for body in bodies if body):
            yield batch


def _stdin() -> Any:
    """stdin without Python's buffer: a waiting thread would hold the buffer's lock when the program ends."""
    try:
        return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    except (OSError, ValueError):  # stdin was replaced by something else.
        return sys.stdin.buffer


@contextmanager
def _interrupts_call(handler: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C calls this instead of raising, if signals can be handled here."""
    loop = asyncio.get_running_loop()
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    loop.add_signal_handler(signal.SIGINT, handler)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _paced(batches: AsyncIterator[list[bytes]], rate: float | None) -> AsyncIterator[list[bytes]]:
    """Limit the rate; bodies that are due at the same time are sent together."""
    if rate is None:
        async for batch in batches:
            yield batch
        return
    loop = asyncio.get_running_loop()
    began_s, sent = loop.time(), 0
    async for batch in batches:
        while batch:
            await asyncio.sleep(max(0.0, began_s + sent / rate - loop.time()))
            due = max(1, int((loop.time() - began_s) * rate) + 1 - sent)
            now, batch = batch[:due], batch[due:]
            yield now
            sent += len(now)


def queue_of(topic: str, text: str) -> MessageQueue:
    broker, _, number = text.rpartition(":")
    if not broker or not number.isdecimal():
        raise BadValue(f"--queue {text}: expected BROKER:QUEUE, for example broker-a:3")
    return MessageQueue(topic, broker, int(number))


def body_of(body: str | None, file: Path | None) -> bytes | None:
    if body is not None and file is not None:
        raise BadValue("a body and --file exclude each other: give one of them")
    if file is None:
        return None if body is None else body.encode("utf-8", "surrogateescape")
    try:
        return file.read_bytes()
    except OSError as error:
        raise BadValue(f"--file {file} cannot be read: {error.strerror or error}") from None


def delay_s_of(text: str) -> float:
    try:
        return parse_span_ms(text) / 1000
    except ConfigError:
        raise BadValue(f"--delay {text!r}: expected a time span such as 90s, 10m, 2h or 3d") from None


Body = Annotated[
    str | None,
    typer.Argument(metavar="BODY", help="Message text. Without it, each line of stdin is a message."),
]
File = Annotated[
    Path | None,
    typer.Option("-f", "--file", metavar="FILE", help="Send the content of this file as one message."),
]
Tags = Annotated[str | None, typer.Option("--tags", metavar="TAG", help="Message tag.")]
Keys = Annotated[
    list[str] | None, typer.Option("-k", "--key", metavar="KEY", help="Message key; repeatable.")
]
Properties = Annotated[
    list[str] | None,
    typer.Option("-p", "--property", metavar="NAME=VALUE", help="User property; repeatable."),
]
Count = Annotated[int, typer.Option("-c", "--count", metavar="N", min=1, help="Send the message N times.")]
Rate = Annotated[
    float | None, typer.Option("--rate", metavar="N", help="Send at most N messages per second.")
]
Delay = Annotated[
    str | None,
    typer.Option("--delay", metavar="SPAN", help="Deliver it after this time: 90s, 10m, 2h, 3d."),
]
DeliverAt = Annotated[
    str | None,
    typer.Option("--deliver-at", metavar="TIME", help="Deliver it at this time: 18:30, 2030-05-01T12:00 ..."),
]
DelayLevel = Annotated[
    int,
    typer.Option(
        "--delay-level",
        metavar="LEVEL",
        min=0,
        help="Delay by one of the broker's levels, 1 to 18 (1s 5s 10s 30s 1m ... 2h).",
        show_default=False,
    ),
]
ShardingKey = Annotated[
    str | None,
    typer.Option("--sharding-key", metavar="KEY", help="Messages with the same key go to the same queue."),
]
Queue = Annotated[
    str | None, typer.Option("--queue", metavar="BROKER:QUEUE", help="Send to this queue only.")
]
Group = Annotated[str, typer.Option("--group", metavar="GROUP", help="Producer group.")]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="Time limit per message.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only the number of messages.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON document per message, one per line.")]


def command(
    topic: TopicName,
    body: Body = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    file: File = None,
    tags: Tags = None,
    key: Keys = None,
    properties: Properties = None,
    count: Count = 1,
    rate: Rate = None,
    delay: Delay = None,
    deliver_at: DeliverAt = None,
    delay_level: DelayLevel = 0,
    sharding_key: ShardingKey = None,
    queue: Queue = None,
    group: Group = "flaremq_send",
    timeout_s: Timeout = 5.0,
    quiet: Quiet = False,
    json: JsonLines = False,
) -> None:
    """Send messages and print where each one is stored.

    flaremq send orders 'Hello'        one message

    seq 100 | flaremq send orders      one message per line

    Ctrl-C stops; the number of messages stored by then is printed on stderr.
    """
    content = body_of(body, file)
    if content is None and count > 1:
        raise BadValue(f"--count {count} needs a body: lines of stdin are sent once each")
    if rate is not None and not rate > 0:
        raise BadValue(f"--rate {rate:g}: expected more than 0 messages per second")
    if not timeout_s > 0:
        raise BadValue(f"--timeout {timeout_s:g}: expected more than 0 seconds")
    mail = Mail(
        topic=topic,
        body=content,
        count=count,
        rate=rate,
        tags=tags,
        keys=tuple(key or ()),
        properties=pairs_of(properties, "--property"),
        delay_s=None if delay is None else delay_s_of(delay),
        deliver_at=None if deliver_at is None else parse_time_ms(deliver_at) / 1000,
        delay_level=delay_level,
        sharding_key=sharding_key,
        to=None if queue is None else queue_of(topic, queue),
    )
    settings = client_settings(namesrv, profile)
    if content is None and sys.stdin.isatty():
        note("type one message per line; Ctrl-D ends")
    sending = SendRun(mail, json=json, quiet=quiet)
    try:
        asyncio.run(sending.run(group, settings, timeout_s))
    except FlareError as error:
        if not sending.stored and isinstance(error, UsageError):
            raise
        raise FlareError(f"{sending.summary}: {error.fact}").with_hint(error.hint) from error
    if sending.is_interrupted:
        raise KeyboardInterrupt(sending.summary)
    if quiet and not json:
        typer.echo(f"{sending.summary}.")
    if not sending.stored:
        note("there was nothing to send")
