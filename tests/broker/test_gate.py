"""A gate at a broker's port: it sees every request, also those that lanes serve by the hundred."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.broker.desks import DeskBench, Line, a_desk
from tests.protocol.samples import a_pull, a_send

from flaremq.base.errors import NoPermission
from flaremq.model.topic import TopicConfig
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.remoting.gate import Origin, Right
from flaremq.remoting.turn import Turn

OPEN, SHUT = b"Open", b"Shut"


class Guard:
    """Lets everything of one topic pass, and nothing of another."""

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, bytes, Right]] = []
        self.checked: list[int] = []

    def check(self, source: Origin, request: Command) -> None:
        self.checked.append(request.code)
        topic = request.fields.get("b") or request.fields.get("topic", "")
        if topic == SHUT.decode():
            raise NoPermission(f"no access to topic {topic}")

    def admits(self, source: Origin, topic: bytes, right: Right) -> bool:
        self.asked.append((source.host, topic, right))
        return topic == OPEN


def send(topic: bytes, opaque: int = 0) -> Command:
    return replace(a_send(b=topic.decode(), e="0"), body=b"hello", opaque=opaque)


def pull(topic: bytes, opaque: int = 0) -> Command:
    asked = a_pull(topic=topic.decode(), queueId="0", queueOffset="0", sysFlag="4", subscription="*")
    return replace(asked, opaque=opaque)


def guarded(desk: DeskBench) -> Guard:
    guard = Guard()
    desk.turn = Turn((desk.sends, desk.pulls), gate=guard)
    for topic in (OPEN, SHUT):
        desk.tables.topics.put(TopicConfig(topic.decode(), 4, 4))
    return guard


async def codes(desk: DeskBench, *commands: Command, line: Line | None = None) -> dict[int, int]:
    return {answer.opaque: answer.code for answer in await desk.ask(*commands, line=line)}


@pytest.mark.parametrize("make", [send, pull])
async def test_a_refused_request_is_answered_and_no_work_is_done_for_it(
    tmp_path: Path, make: Callable[[bytes], Command]
) -> None:
    async with a_desk(tmp_path) as desk:
        guarded(desk)
        (answer,) = await desk.ask(make(SHUT))
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "no access to topic Shut")
        assert desk.log() == b""


async def test_lanes_ask_once_for_each_connection_topic_and_right_of_a_turn(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as desk:
        guard = guarded(desk)
        line = Line()
        many = [send(OPEN, n) for n in range(50)] + [pull(OPEN, 50 + n) for n in range(5)]
        desk.deliver(line, *many)
        await desk.run()
        async with asyncio.timeout(60):
            while len(line.read_all()) < 55:  # Some pulls are read in a thread.
                await asyncio.sleep(0)
        assert {answer.opaque for answer in line.read()} == set(range(55))
        assert guard.asked == [(line.host, OPEN, Right.SEND), (line.host, OPEN, Right.PULL)]
        assert guard.checked == [], "what was admitted is not looked at one by one"


async def test_what_is_admitted_is_served_beside_what_is_refused(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as desk:
        guard = guarded(desk)
        found = await codes(desk, *(send(OPEN if n % 2 else SHUT, n) for n in range(20)))
        assert found == {n: ResponseCode.SUCCESS if n % 2 else ResponseCode.NO_PERMISSION for n in range(20)}
        assert len(desk.messages()) == 10
        assert guard.checked == [RequestCode.SEND_MESSAGE_V2] * 10


async def test_requests_that_are_not_ordinary_are_checked_one_by_one(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as desk:
        guard = guarded(desk)
        line, other = Line(), Command(code=RequestCode.GET_BROKER_RUNTIME_INFO)
        desk.deliver(line, other, replace(other, ext_fields={"topic": SHUT.decode()}, opaque=7))
        await desk.run()
        assert guard.checked == [other.code, other.code]
        assert [command.code for command in line.commands] == [other.code]
        assert [answer.opaque for answer in line.read()] == [7]


async def test_a_gate_that_fails_lets_nobody_pass(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as desk:
        guard = guarded(desk)
        guard.check = None  # type: ignore[method-assign,assignment]
        (answer,) = await desk.ask(send(SHUT))
        assert answer.code == ResponseCode.SYSTEM_ERROR and desk.log() == b""


async def test_a_refused_one_way_send_is_dropped_in_silence(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as desk:
        guarded(desk)
        assert await desk.ask(replace(send(SHUT), flag=2)) == []
        assert desk.log() == b""
