"""`flaremq send`: messages from the command line, from a file, or from the lines of stdin."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from flaremq.base.errors import FlareError, InvalidParameter, ManyFailed
from flaremq.cli.connect import client_settings, pairs_of
from flaremq.cli.options import Namesrv, Profile, TopicName
from flaremq.cli.render import dumps, note
from flaremq.client.instance import Client
from flaremq.client.message import Receipt
from flaremq.client.producer import Producer
from flaremq.client.settings import ClientSettings, ProducerSettings
from flaremq.model.message import Message, MessageQueue

_BATCH: Final = 256
_READ: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """What is to be sent, and how."""

    topic: str
    body: bytes | None
    """None: each line of stdin is one."""
    count: int = 1
    rate: float | None = None
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
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
            delay_level=self.delay_level,
            sharding_key=self.sharding_key,
        )


class Sending:
    """Sends mail and shows a receipt for each message."""

    def __init__(self, mail: Mail, *, json: bool, quiet: bool) -> None:
        self._mail = mail
        self._json = json
        self._quiet = quiet
        self.stored = 0

    async def run(self, group: str, settings: ClientSettings, timeout_s: float) -> None:
        async with Client(settings=settings) as client:
            wanted = ProducerSettings(timeout_s=timeout_s)
            async with Producer(group, settings=wanted, client=client) as producer:
                async for batch in _paced(_bodies(self._mail), self._mail.rate):
                    await self._send(producer, [self._mail.message(body) for body in batch])

    async def _send(self, producer: Producer, batch: list[Message]) -> None:
        if len(batch) == 1:
            self._show(await producer.send(batch[0], to=self._mail.to))
            return
        try:
            receipts = await producer.send_many(batch, to=self._mail.to)
        except ManyFailed as error:
            for result in error.results:
                if isinstance(result, Receipt):
                    self._show(result)
            reason = next(each for each in error.results if isinstance(each, FlareError))
            lost = sum(isinstance(each, FlareError) for each in error.results)
            raise type(error)(
                f"{self.stored} messages are stored, {lost} are not, and no more were sent: {reason}", ()
            ) from None
        for receipt in receipts:
            self._show(receipt)

    def _show(self, receipt: Receipt) -> None:
        self.stored += 1
        queue = receipt.queue
        if self._json:
            document = {
                "message_id": receipt.message_id,
                "offset_id": receipt.offset_id,
                "topic": queue.topic,
                "broker": queue.broker_name,
                "queue_id": queue.queue_id,
                "queue_offset": receipt.queue_offset,
                "status": receipt.status.name,
            }
            typer.echo(dumps(document))
        elif not self._quiet:
            where = f"{queue.broker_name}:{queue.queue_id}/{receipt.queue_offset}"
            typer.echo(f"{receipt.message_id}  {where}  {receipt.status.name}")


# Where bodies come from, and how fast.


async def _bodies(mail: Mail) -> AsyncIterator[list[bytes]]:
    """As many as can be had without waiting."""
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
    """Lines of stdin as they come. A thread waits for them, and is left behind if we are interrupted."""
    loop, ready = asyncio.get_running_loop(), asyncio.Queue[list[bytes] | None](4)

    def read() -> None:
        rest = b""
        while data := sys.stdin.buffer.read1(_READ):  # type: ignore[union-attr]
            *lines, rest = (rest + data).split(b"\n")
            asyncio.run_coroutine_threadsafe(ready.put(lines), loop).result()
        for last in ([rest], None):
            asyncio.run_coroutine_threadsafe(ready.put(last), loop).result()

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while (lines := await ready.get()) is not None:
        bodies = (line.removesuffix(b"\r") for line in lines)
        for batch in _batches(body for body in bodies if body):
            yield batch


async def _paced(batches: AsyncIterator[list[bytes]], rate: float | None) -> AsyncIterator[list[bytes]]:
    """So many a second: what is due at one time goes together."""
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
        raise InvalidParameter(f"--queue {text}: wanted is BROKER:NUMBER, as in broker-a:3")
    return MessageQueue(topic, broker, int(number))


def body_of(body: str | None, file: Path | None) -> bytes | None:
    if body is not None and file is not None:
        raise InvalidParameter("a body and --file: give one of them")
    if file is None:
        return None if body is None else body.encode("utf-8", "surrogateescape")
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidParameter(f"--file {file}: {error.strerror or error}") from None


def command(
    topic: TopicName,
    body: Annotated[
        str | None,
        typer.Argument(metavar="[BODY]", help="Text; without it, each line of stdin is a message."),
    ] = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    file: Annotated[Path | None, typer.Option("-f", "--file", help="One message: all that is in it.")] = None,
    tags: Annotated[str | None, typer.Option("-t", "--tags", help="One tag.")] = None,
    key: Annotated[list[str] | None, typer.Option("-k", "--key", help="May come several times.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("-p", "--property", metavar="NAME=VALUE", help="The same.")
    ] = None,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="How often it is sent.")] = 1,
    rate: Annotated[float | None, typer.Option("--rate", help="Messages a second, at most.")] = None,
    delay_level: Annotated[
        int, typer.Option("--delay-level", min=0, help="1 to 18: 1s 5s 10s 30s 1m ... 2h.")
    ] = 0,
    sharding_key: Annotated[
        str | None, typer.Option("--sharding-key", help="Messages of one key go to one queue.")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="BROKER:NUMBER")] = None,
    group: Annotated[str, typer.Option("--group", help="Of the producer.")] = "flaremq_send",
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds, for each message.")] = 5.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only say how many.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="A JSON document for each receipt, one a line.")
    ] = False,
) -> None:
    """Send messages, and print where they are stored.

    flaremq send orders 'Hello'            one message

    seq 100 | flaremq send orders          a message for each line
    """
    content = body_of(body, file)
    if content is None and count > 1:
        raise InvalidParameter(f"--count {count} needs a body: lines of stdin are sent once each")
    if rate is not None and rate <= 0:
        raise InvalidParameter(f"--rate {rate}: wanted is more than 0 a second")
    if content is None and sys.stdin.isatty():
        note("type messages, one a line; Ctrl-D ends")
    mail = Mail(
        topic=topic,
        body=content,
        count=count,
        rate=rate,
        tags=tags,
        keys=tuple(key or ()),
        properties=pairs_of(properties, "--property"),
        delay_level=delay_level,
        sharding_key=sharding_key,
        to=None if queue is None else queue_of(topic, queue),
    )
    sending = Sending(mail, json=json, quiet=quiet)
    asyncio.run(sending.run(group, client_settings(namesrv, profile), timeout_s))
    if quiet and not json:
        typer.echo(f"{sending.stored:,} messages are stored.")
    if not sending.stored:
        note("there was nothing to send")
