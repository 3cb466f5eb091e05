"""Messages that are more than a message, for the demo: a reminder, a payment and an order that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from flaremq.admin.admin import Admin
from flaremq.admin.values.deadletters import LetterFilter
from flaremq.admin.values.topics import TopicSettings
from flaremq.base.errors import FlareError
from flaremq.client.client import Client
from flaremq.client.consumer.outcome import reject
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.message import ReceivedMessage
from flaremq.client.producer.producer import Producer
from flaremq.client.producer.transaction import Transaction, TransactionProducer
from flaremq.client.settings import ClientSettings, ConsumerSettings
from flaremq.model.message import Message
from flaremq.protocol.bodies.group import ConsumeFromWhere

TOPIC: Final = "Specials"
GROUP: Final = "desk"
_REMIND_S: Final = 2.0
_LIMIT_S: Final = 20.0
_REMINDER, _PAID, _UNPAID, _BROKEN = b"remind o-17", b"o-18 is paid", b"o-19 is paid", b"o-20 of a unicorn"


@dataclass(slots=True)
class Specials:
    """What happened."""

    reminder_s: float = 0.0
    """How long after its sending the reminder came."""
    committed: int = 0
    rolled_back: int = 0
    dead_letters: int = 0
    reason: str = ""
    seen: dict[bytes, float] = field(default_factory=dict)

    async def run(self, settings: ClientSettings, say: Callable[[str], None]) -> None:
        async with Admin(settings=settings) as admin, Client(settings=settings) as client:
            await admin.topics.create(TOPIC, TopicSettings(read_queues=1, write_queues=1))
            first = ConsumerSettings(start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
            consumer = PushConsumer(GROUP, client=client, settings=first)
            consumer.subscribe(TOPIC, self._handle)
            async with consumer:
                reminded = asyncio.create_task(self._remind(client))
                await self._pay(client)
                say("  [green]✓[/] a payment is seen once it is committed, and never if it is rolled back")
                await self._fail(client, admin)
                say(f"  [green]✓[/] an order that cannot be handled is a dead letter: {self.reason}")
                await reminded
                say(f"  [green]✓[/] a reminder for {_REMIND_S:g} s later came after {self.reminder_s:.1f} s")

    def _handle(self, message: ReceivedMessage) -> None:
        self.seen[message.body] = perf_counter()
        if message.body == _BROKEN:
            raise reject("no unicorns in stock")

    async def _came(self, body: bytes) -> float:
        deadline_s = perf_counter() + _LIMIT_S
        while body not in self.seen:
            if perf_counter() > deadline_s:
                raise FlareError(f"{body.decode()!r} did not come within {_LIMIT_S:g} s: this is a bug")
            await asyncio.sleep(0.02)
        return self.seen[body]

    async def _remind(self, client: Client) -> None:
        async with Producer("reminders", client=client) as producer:
            sent_s = perf_counter()
            await producer.send(Message(TOPIC, _REMINDER, delay_s=_REMIND_S))
            self.reminder_s = await self._came(_REMINDER) - sent_s

    async def _pay(self, client: Client) -> None:
        def step(transaction: Transaction) -> bool:
            """Here a program would change its own database."""
            if transaction.message.body in self.seen:
                raise FlareError("a prepared message was seen before its commit: this is a bug")
            return transaction.message.body == _PAID

        async with TransactionProducer("tills", client=client, checker=lambda _message: None) as producer:
            await producer.send(Message(TOPIC, _UNPAID), step)
            await producer.send(Message(TOPIC, _PAID), step)
            await self._came(_PAID)
        self.committed, self.rolled_back = int(_PAID in self.seen), int(_UNPAID not in self.seen)

    async def _fail(self, client: Client, admin: Admin) -> None:
        async with Producer("shop", client=client) as producer:
            await producer.send(Message(TOPIC, _BROKEN))
        deadline_s = perf_counter() + _LIMIT_S
        while not self.dead_letters:
            if perf_counter() > deadline_s:
                raise FlareError(f"no dead letter within {_LIMIT_S:g} s: this is a bug")
            await asyncio.sleep(0.05)
            async for letter in admin.dead_letters.scan(LetterFilter(group=GROUP)):
                self.dead_letters += 1
                self.reason = letter.failure.reason if letter.failure is not None else ""
