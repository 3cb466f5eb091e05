"""A broker with transactions, whose time is moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.broker.desks import DeskBench, Line, a_desk
from tests.broker.nobody import Nobody
from tests.protocol.samples import a_send

from flaremq.base.units import MiB
from flaremq.broker.tables.producers import ClientMember
from flaremq.broker.transactions.transactions import Transactions
from flaremq.model.message import StoredMessage
from flaremq.model.topic import TopicConfig
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command
from flaremq.testing.clock import ManualClock

TOPIC, HALF, OP = "Orders", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
PARKED = "TRANS_CHECK_MAX_TIME_TOPIC"
PRODUCERS = "buyers"
COMMIT, ROLLBACK, UNKNOWN = "8", "12", "0"
SECOND = 1_000


class Asked(Nobody):
    """A producer that notes what it is asked."""

    def __init__(self) -> None:
        self.sent: list[Command] = []

    def send(self, command: Command) -> None:
        self.sent.append(command)


class Scene:
    """A broker whose time is moved by hand, and a producer that it can ask."""

    by_lane = True

    def __init__(self, desk: DeskBench, clock: ManualClock) -> None:
        self.desk = desk
        self.clock = clock
        self.producer = Asked()
        self.taken_by_lane = 0
        (self.transactions,) = (each for each in desk.made.inner if isinstance(each, Transactions))

    async def prepare(self, number: int = 0, **more: object) -> Command:
        pairs = {"UNIQ_KEY": f"U{number}", "TRAN_MSG": "true", "PGROUP": PRODUCERS, **more}
        text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items() if value is not None)
        request = replace(a_send(b=TOPIC, e="2", f="4", i=text), body=b"%d" % number, opaque=9)
        (answer,) = await self.desk.ask(request)
        return answer

    async def end(self, number: int, how: str, *, which: str = HALF, **changes: str) -> Command | None:
        return await self.ask(self.an_end(number, how, 3, which=which, **changes))

    def an_end(self, number: int, how: str, opaque: int = 3, *, which: str = HALF, **changes: str) -> Command:
        half = next(each for each in self.of(which) if each.unique_key == f"U{number}")
        fields = {
            "producerGroup": PRODUCERS,
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(half.physical_offset),
            "commitOrRollback": how,
            "msgId": f"U{number}",
            **changes,
        }
        return Command(code=RequestCode.END_TRANSACTION, opaque=opaque, ext_fields=fields)

    async def ask(self, request: Command) -> Command | None:
        """By the lane if it takes the request, as a broker does; otherwise, or without lanes, one by one."""
        line = Line()
        if self.by_lane:
            answers = await self.desk.ask(request, line=line)
            if not line.commands:
                self.taken_by_lane += 1
                return answers[0] if answers else None
        return await self.desk.router().answer(Nobody(), request)

    async def check(self, after_ms: int = 0) -> list[Command]:
        """Let time pass, and say what the producer is asked then."""
        self.clock.advance_ms(after_ms)
        self.desk.store.dispatch()  # Also what waits for a new queue's file.
        before = len(self.producer.sent)
        await self.transactions.check()
        return self.producer.sent[before:]

    def joins(self) -> None:
        self.desk.tables.producers.register(PRODUCERS, ClientMember(peer=self.producer, client_id="p"))

    def of(self, topic: str) -> list[StoredMessage]:
        return [each for each in self.desk.messages() if each.topic == topic]

    def bodies(self, topic: str = TOPIC) -> list[bytes]:
        return [each.body for each in self.of(topic)]

    async def resume(self, message_id: str) -> Command:
        request = Command(
            code=RequestCode.RESUME_CHECK_HALF_MESSAGE, opaque=3, ext_fields={"msgId": message_id}
        )
        answer = await self.desk.router().answer(Nobody(), request)
        assert answer is not None
        return answer


@asynccontextmanager
async def a_scene(
    folder: Path, clock: ManualClock | None = None, broker: dict[str, Any] | None = None, **store: Any
) -> AsyncIterator[Scene]:
    clock = clock or ManualClock()
    async with a_desk(folder, clock=clock, broker=broker, commitlog_file_size=MiB, **store) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        yield Scene(desk, clock)
