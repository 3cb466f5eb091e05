"""Orders for the demo: a shop that sends them, their consumers, and a ledger that counts everything."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Final

from flaremq.base.errors import ManyFailed
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.message import Receipt, ReceivedMessage, SendStatus
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ClientSettings, ConsumerSettings
from flaremq.model.message import Message
from flaremq.protocol.bodies.group import ConsumeFromWhere

TOPIC: Final = "Orders"
STATES: Final = ("created", "paid", "shipped", "refunded")
_WEIGHTS: Final = (50, 35, 12, 3)
_GOODS: Final = ("book", "lamp", "chair", "kettle", "scarf", "globe")
_REGIONS: Final = ("eu", "us", "asia")
_WORK_S: Final = 0.002  # How long a consumer works on an order.


@dataclass(frozen=True, slots=True)
class Sample:
    """The counts of one moment."""

    at_s: float
    sold: int
    billed: tuple[int, int]
    audited: int
    backlog: int


@dataclass(slots=True)
class Ledger:
    """Everything that happened, by order number."""

    sold: dict[str, Receipt] = field(default_factory=dict)
    """Orders that a broker has acknowledged."""
    failed: int = 0
    billed: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    """Orders billed by each of the two consumers that share the work."""
    audited: Counter[str] = field(default_factory=Counter)
    from_slave: set[str] = field(default_factory=set)
    """Orders that were read from a slave, while its master was dead."""
    not_at_slave: int = 0
    """Orders that the dead master had acknowledged, and that were not read from its slave."""
    samples: list[Sample] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)
    began_s: float = field(default_factory=perf_counter)

    def now_s(self) -> float:
        return perf_counter() - self.began_s

    def mark(self, what: str) -> None:
        self.marks.append((self.now_s(), what))

    def safe_at(self, broker: str) -> set[str]:
        """Orders that this broker has acknowledged as stored by its slave too."""
        return {
            number
            for number, receipt in self.sold.items()
            if receipt.queue.broker_name == broker and receipt.status is SendStatus.OK
        }

    def is_billed(self, number: str) -> bool:
        return number in self.billed[0] or number in self.billed[1]

    @property
    def backlog(self) -> int:
        first, second = self.billed
        return max(len(self.sold) - len(first.keys() | second.keys()), 0)

    def sample(self) -> Sample:
        counts = (sum(self.billed[0].values()), sum(self.billed[1].values()))
        taken = Sample(self.now_s(), len(self.sold), counts, sum(self.audited.values()), self.backlog)
        self.samples.append(taken)
        return taken

    @property
    def lost(self) -> list[str]:
        """Acknowledged orders that were not both billed and audited."""
        return [n for n in self.sold if not self.is_billed(n) or n not in self.audited]

    @property
    def repeated(self) -> int:
        """How many deliveries were repeated: delivery is at least once."""
        first, second = self.billed
        return sum((first + second).values()) - len(first.keys() | second.keys())


class Shop:
    """Sends orders."""

    def __init__(self, producer: Producer, ledger: Ledger, seed: int = 17) -> None:
        self._producer = producer
        self._ledger = ledger
        self._random = random.Random(seed)
        self._next = 1

    async def sell(self, count: int) -> None:
        orders = [self._order() for _ in range(count)]
        try:
            receipts: list[object] = [*await self._producer.send_many(orders)]
        except ManyFailed as error:
            receipts = list(error.results)
        for order, receipt in zip(orders, receipts, strict=True):
            if isinstance(receipt, Receipt):
                self._ledger.sold[order.keys[0]] = receipt
            else:
                self._ledger.failed += 1

    async def sell_steadily(self, rate: int, seconds: float) -> None:
        """Send orders at this rate, whatever happens to the brokers."""
        began_s, sold = perf_counter(), 0
        while (elapsed_s := perf_counter() - began_s) < seconds:
            due = int(elapsed_s * rate) - sold
            if due > 0:
                await self.sell(due)
                sold += due
            await asyncio.sleep(0.02)

    def _order(self) -> Message:
        number, chance = f"o-{self._next:06d}", self._random
        self._next += 1
        order = {
            "order": number,
            "item": chance.choice(_GOODS),
            "amount": chance.randint(1, 5),
            "price": round(chance.uniform(5, 400), 2),
        }
        return Message(
            TOPIC,
            json.dumps(order).encode(),
            tags=chance.choices(STATES, _WEIGHTS)[0],
            keys=[number, f"c-{chance.randint(1, 2000):04d}"],
            properties={"region": chance.choice(_REGIONS)},
        )


def consumers(settings: ClientSettings, ledger: Ledger, folder: Path) -> list[PushConsumer]:
    """Two consumers that share the billing, and an audit that gets everything."""
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    sharing = ConsumerSettings(start_from=first, rebalance_s=5, error_delay_s=0.5, commit_s=0.5)
    all_of_it = ConsumerSettings(
        start_from=first, broadcasting=True, concurrency=50, offsets_folder=folder / "offsets"
    )
    made = [
        PushConsumer("billing", settings=sharing, client=settings),
        PushConsumer("billing", settings=sharing, client=settings),
        PushConsumer("audit", settings=all_of_it, client=settings),
    ]
    for consumer, counter in zip(made, (*ledger.billed, ledger.audited), strict=True):
        consumer.subscribe(TOPIC, handler=_counting(counter))
    return made


def report(settings: ClientSettings, ledger: Ledger, broker: str) -> PushConsumer:
    """A consumer that joins while this broker is dead, so that all it gets from there is from a slave."""
    first = ConsumerSettings(start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, error_delay_s=0.5)
    consumer = PushConsumer("report", settings=first, client=settings)

    async def handle(message: ReceivedMessage) -> None:
        if message.queue.broker_name == broker:
            ledger.from_slave.add(message.keys[0])

    consumer.subscribe(TOPIC, handler=handle)
    return consumer


def _counting(counter: Counter[str]) -> Callable[[ReceivedMessage], object]:
    async def handle(message: ReceivedMessage) -> None:
        await asyncio.sleep(_WORK_S)
        counter[message.keys[0]] += 1

    return handle
