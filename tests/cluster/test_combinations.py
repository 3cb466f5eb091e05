"""Every pair of the kinds of message: it works, or is refused with a reason, as docs/combinations.md says."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from tests.client.consumer.tools import QUICK

from flaremq.admin.admin import Admin
from flaremq.admin.values.deadletters import LetterFilter
from flaremq.admin.values.topics import TopicSettings
from flaremq.base.errors import FlareError, NoReply, NoRequester
from flaremq.client.client import Client
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.message import ReceivedMessage
from flaremq.client.producer.producer import Producer
from flaremq.client.producer.transaction import Transaction, TransactionProducer
from flaremq.client.settings import ClientSettings
from flaremq.model import sysflag
from flaremq.model.message import Message
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import Embedded
from flaremq.testing.patience import load_factor

PAGE: Final = Path(__file__).parents[2] / "docs" / "combinations.md"
ORDERED, GLOBAL, LEVEL, TIMER = "ordered by key", "global order", "delay level", "timer"
TRANSACTION, BATCH, REQUEST, BROADCAST = "transaction", "batch", "request and reply", "broadcast"
RETRY, SQL, ONCE, COMPRESSED = "retry, then dead letter", "SQL filter", "deduplicated", "compressed"
KINDS: Final = (
    *(ORDERED, GLOBAL, LEVEL, TIMER, TRANSACTION, BATCH),
    *(REQUEST, BROADCAST, RETRY, SQL, ONCE, COMPRESSED),
)
PAIRS: Final = list(itertools.combinations(KINDS, 2))
WAIT_S: Final = 1.0
COUNT: Final = 3
OPTIONS: Final = {
    "messageDelayLevel": " ".join(["1s"] * 18),
    "timerPrecisionMs": 100,
    "enablePropertyFilter": "true",
    "transactionCheckInterval": 60_000,
}
AT_ONCE: Final = 11


class Cell:
    """A topic, a group and their messages, of two kinds at once."""

    def __init__(self, number: int, kinds: Sequence[str], servers: Embedded, folder: Path) -> None:
        self.kinds = frozenset(kinds)
        self.topic, self.group = f"Topic{number}", f"group{number}"
        self._servers = servers
        self._folder = folder / str(number)
        self.arrived: list[list[tuple[float, ReceivedMessage]]] = []
        """For each consumer."""
        self.sent_s = 0.0
        self.bodies = [self._body(number) for number in range(COUNT)]

    def _body(self, number: int) -> bytes:
        return b"%d" % number + (b"x" * 20_000 if COMPRESSED in self.kinds else b"")

    def _message(self, number: int) -> Message:
        kinds = self.kinds
        message = Message(self.topic, self.bodies[number], properties={"price": str(10 + number)})
        if ORDERED in kinds:
            message = replace(message, sharding_key="k")
        if LEVEL in kinds and TIMER in kinds:
            return replace(message, delay_level=1, delay_s=WAIT_S)
        if LEVEL in kinds:
            message = replace(message, delay_level=1)
        if TIMER in kinds:
            message = replace(message, delay_s=WAIT_S)
        if ONCE in kinds and REQUEST not in kinds:
            message = replace(message, sequence=number)
        return message

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(Client(self._servers.namesrv))
            admin = await stack.enter_async_context(Admin(self._servers.namesrv))
            queues = 1 if GLOBAL in self.kinds else 4
            await admin.topics.create(self.topic, TopicSettings(read_queues=queues, write_queues=queues))
            replier = await stack.enter_async_context(Producer(f"replier-{self.group}", client=client))
            for number in range(2 if BROADCAST in self.kinds else 1):
                await stack.enter_async_context(self._consumer(number, replier))
            producer = self._producer(client)
            await stack.enter_async_context(producer)
            self.sent_s = time.monotonic()
            await self._send(producer)
            if SQL in self.kinds:
                plain = await stack.enter_async_context(Producer("others", client=client))
                await plain.send(Message(self.topic, b"cheap", properties={"price": "1"}))
            await self._check(admin)

    def _producer(self, client: Client) -> TransactionProducer | Producer:
        number = f"producer-{self.topic}" if ONCE in self.kinds else None
        if TRANSACTION in self.kinds:
            return TransactionProducer(
                f"senders-{self.group}", checker=lambda _message: True, client=client, producer_id=number
            )
        return Producer(f"senders-{self.group}", client=client, producer_id=number)

    def _consumer(self, number: int, replier: Producer) -> PushConsumer:
        kinds, mine = self.kinds, list[tuple[float, ReceivedMessage]]()
        settings = replace(
            QUICK,
            orderly=bool(kinds & {ORDERED, GLOBAL}),
            broadcasting=BROADCAST in kinds,
            attempts_max=2 if RETRY in kinds else -1,
            offsets_folder=self._folder,
        )
        consumer = PushConsumer(
            self.group,
            settings=settings,
            client=ClientSettings(namesrv=self._servers.namesrv, instance_name=f"{self.group}-{number}"),
        )
        self.arrived.append(mine)

        async def handle(message: ReceivedMessage) -> None:
            mine.append((time.monotonic(), message))
            if RETRY in kinds:
                raise ValueError("out of stock")
            if REQUEST in kinds:
                try:
                    await replier.reply(message, b"re:" + message.body)
                except NoRequester:
                    assert BROADCAST in kinds  # Another was faster.

        consumer.subscribe(self.topic, handle, sql="price >= 5" if SQL in kinds else None)
        return consumer

    # Sending.

    async def _send(self, producer: TransactionProducer | Producer) -> None:
        messages = [self._message(number) for number in range(COUNT)]
        if REQUEST in self.kinds:
            await self._ask(producer, messages)
            return
        for again in range(2 if ONCE in self.kinds else 1):
            if isinstance(producer, TransactionProducer):
                if BATCH in self.kinds:
                    await producer.send_batch(messages, lambda _transactions: True)
                    continue
                for message in messages:
                    await producer.send(message, _step)
            elif BATCH in self.kinds:
                receipt = await producer.send_batch(messages)
                assert receipt.offset_id.count(",") == COUNT - 1
                assert receipt.is_repeated == bool(again)
            else:
                receipts = [await producer.send(message) for message in messages]
                assert [each.is_repeated for each in receipts] == [bool(again)] * COUNT

    async def _ask(self, producer: TransactionProducer | Producer, messages: Sequence[Message]) -> None:
        if BATCH in self.kinds:
            await producer.request(messages)  # type: ignore[arg-type, call-arg]
        for message in messages:
            timeout_s = 1.0 * load_factor() if RETRY in self.kinds else 20.0  # It must be sent by then.
            try:
                if isinstance(producer, TransactionProducer):
                    reply = await producer.request(message, _step, timeout_s)
                else:
                    reply = await producer.request(message, timeout_s)
                assert reply is not None
                assert reply.body == b"re:" + message.body
            except NoReply:
                assert RETRY in self.kinds

    # What must be so.

    async def _check(self, admin: Admin) -> None:
        async def all_came() -> bool:
            return all({each.body for _, each in mine} >= set(self.bodies) for mine in self.arrived)

        await eventually(f"{sorted(self.kinds)}: all messages came", all_came, 40)
        if RETRY in self.kinds:
            await self._check_dead(admin)
        for mine in self.arrived:
            self._check_consumer(mine)

    def _check_consumer(self, mine: Sequence[tuple[float, ReceivedMessage]]) -> None:
        kinds, first = self.kinds, dict[bytes, ReceivedMessage]()
        for at_s, message in mine:
            if kinds & {LEVEL, TIMER}:
                assert at_s - self.sent_s >= WAIT_S, f"{at_s - self.sent_s:.3f} s"
            if COMPRESSED in kinds and BATCH not in kinds:
                assert message.stored.sys_flag & sysflag.COMPRESSED
            first.setdefault(message.body, message)
        assert set(first) == set(self.bodies)  # Nothing else, such as what the filter leaves out.
        if kinds & {ORDERED, GLOBAL}:
            assert list(first) == self.bodies
            assert len({each.queue for each in first.values()}) == 1
        if RETRY not in kinds:
            assert len(mine) == COUNT

    async def _check_dead(self, admin: Admin) -> None:
        found: dict[bytes, str] = {}

        async def all_dead() -> bool:
            async for letter in admin.dead_letters.scan(LetterFilter(group=self.group)):
                found[letter.message.body] = letter.failure.reason if letter.failure else ""
            return set(found) >= set(self.bodies)

        await eventually(f"{sorted(self.kinds)}: all are dead letters", all_dead, 40)
        assert all("out of stock" in reason for reason in found.values())


def _step(_transaction: Transaction) -> bool:
    return True


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Exception | None]:
    """What became of each pair: None if it worked. They run side by side, because many of them wait."""
    folder = tmp_path_factory.mktemp("combinations")

    async def run_all() -> dict[tuple[str, str], Exception | None]:
        found: dict[tuple[str, str], Exception | None] = {}
        some = asyncio.Semaphore(AT_ONCE)
        async with Embedded(folder / "servers", options=OPTIONS) as servers:

            async def run(number: int, pair: tuple[str, str]) -> None:
                async with some:
                    try:
                        await Cell(number, pair, servers, folder).run()
                        found[pair] = None
                    except Exception as error:  # noqa: BLE001 - Each is looked at by its own test.
                        found[pair] = error

            await asyncio.gather(*(run(number, pair) for number, pair in enumerate(PAIRS)))
        return found

    return asyncio.run(run_all())


def documented() -> dict[tuple[str, str], str]:
    """The cells of the page: "yes", or the number of a note."""
    rows = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("| **")]
    cells: dict[tuple[str, str], str] = {}
    for name, row in zip(KINDS, rows, strict=True):
        assert row[0].strip(" *") == name
        for other, cell in zip(KINDS, row[1:], strict=True):
            if KINDS.index(name) < KINDS.index(other):
                cells[name, other] = cell.strip()
    return cells


def notes() -> dict[str, str]:
    return dict(re.findall(r"^(\d+)\. (.+)$", PAGE.read_text(), re.MULTILINE))


def test_the_page_has_a_cell_for_every_pair_and_at_least_sixty_work() -> None:
    cells = documented()
    assert list(cells) == PAIRS
    assert sum(cell == "yes" for cell in cells.values()) >= 60
    assert {cell for cell in cells.values() if cell != "yes"} == set(notes())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("pair", PAIRS, ids=" x ".join)
def test_a_pair_works_or_is_refused_as_the_page_says(
    pair: tuple[str, str], outcomes: dict[tuple[str, str], Exception | None]
) -> None:
    outcome, cell = outcomes[pair], documented()[pair]
    if cell == "yes" or not notes()[cell].startswith("`"):
        if outcome is not None:
            raise outcome
        return
    assert isinstance(outcome, FlareError), outcome
    (said,) = re.findall(r"`([^`]+)`", notes()[cell])[:1]
    assert said in str(outcome), str(outcome)
