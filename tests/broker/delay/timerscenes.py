"""A broker with timers, whose time is moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.broker.desks import DeskBench, a_desk
from tests.broker.nobody import Nobody
from tests.protocol.samples import a_send

from flaremq.base.units import MiB
from flaremq.broker.delay.timers import Timers
from flaremq.model import layout
from flaremq.model.message import StoredMessage
from flaremq.model.topic import TopicConfig
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command
from flaremq.testing.clock import ManualClock

TOPIC = "Orders"
WHEEL = "rmq_sys_wheel_timer"
SECOND = 1_000
# 30 units in each file of the timer log; all messages in one file of the log, as `messages` reads no more.
SIZES = {
    "timer_log_file_size": 30 * layout.TIMER_UNIT_SIZE + layout.TIMER_BLANK_SIZE,
    "commitlog_file_size": MiB,
}


class Scene:
    """A broker whose time is moved by hand."""

    def __init__(self, desk: DeskBench, clock: ManualClock) -> None:
        self.desk = desk
        self.clock = clock
        (self.timers,) = (each for each in desk.made.inner if isinstance(each, Timers))

    async def send(self, number: int = 0, *, topic: str = TOPIC, **asked: Any) -> Command:
        """`asked`: for example DELAY_SEC=5."""
        pairs = {"UNIQ_KEY": f"U{number}", **{f"TIMER_{name}": value for name, value in asked.items()}}
        text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
        return await self.send_with(text, b"%d" % number, topic=topic)

    async def send_with(self, properties: str, body: bytes = b"x", *, topic: str = TOPIC) -> Command:
        request = replace(a_send(b=topic, e="2", i=properties), body=body, opaque=9)
        (answer,) = await self.desk.ask(request)
        return answer

    async def after(self, span_ms: int = 0) -> list[bytes]:
        """Let time pass, and say which messages have come to the topic by then."""
        self.clock.advance_ms(span_ms)
        await self.timers.run()
        await self.desk.run()
        return [each.body for each in self.of(TOPIC)]

    def of(self, topic: str) -> list[StoredMessage]:
        return [each for each in self.desk.messages() if each.topic == topic]

    async def ask(self, code: int, **fields: str) -> Command:
        request = Command(code=code, opaque=4, ext_fields=fields)
        answer = await self.desk.router().answer(Nobody(), request)
        assert answer is not None
        return answer

    async def recall(self, handle: str | None, topic: str = TOPIC) -> Command:
        assert handle is not None
        return await self.ask(RequestCode.RECALL_MESSAGE, topic=topic, recallHandle=handle)


@asynccontextmanager
async def a_scene(
    folder: Path, clock: ManualClock | None = None, broker: dict[str, Any] | None = None, **store: Any
) -> AsyncIterator[Scene]:
    clock = clock or ManualClock()
    standing = {**SIZES, **store, "now_s": clock.monotonic_s}
    async with a_desk(folder, clock=clock, broker=broker, **standing) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        yield Scene(desk, clock)


def handle_of(answer: Command) -> str | None:
    return answer.fields.get("recallHandle")


def spoil(scene: Scene, part: bytes, to: bytes) -> None:
    """Change bytes of the log, as a failing disk does."""
    view = scene.desk.store.log.files.files[0].view
    at = bytes(view).index(part)
    view[at : at + len(to)] = to
