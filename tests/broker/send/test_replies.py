"""Replies, many at once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.broker.desks import DeskBench, Line, a_desk
from tests.broker.nobody import Nobody
from tests.protocol.samples import a_send

from flaremq.base.errors import ConnectionLost
from flaremq.broker.send import replies
from flaremq.broker.tables.producers import ClientMember
from flaremq.protocol.codes import ONE_WAY, RequestCode, ResponseCode, SerializeType
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers.send import decode_send, encode_send
from flaremq.remoting.pending import Pending
from flaremq.store.flags import Flag
from flaremq.testing.clock import ManualClock

TOPIC = "DefaultCluster_REPLY_TOPIC"
ASKED = "CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01me@1\x02MSG_TYPE\x01reply\x02UNIQ_KEY\x01U1\x02"


class Client(Line):
    """A connection that can also be called."""

    def __init__(self) -> None:
        super().__init__(7000)
        self.pending = Pending()

    def send(self, command: Command) -> None: ...

    def close(self) -> None: ...

    async def call(self, request: Command, timeout_s: float) -> Command:
        raise ConnectionLost(f"nothing answers {request} within {timeout_s:g} s")

    def received(self, command: Command) -> None:
        if not self.pending.answer(command):
            super().received(command)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[DeskBench]:
    async with a_desk(tmp_path, clock=ManualClock()) as desk:
        yield desk


@pytest.fixture
def requester(desk: DeskBench) -> Client:
    line = Client()
    desk.tables.producers.register("askers", ClientMember(peer=line, client_id="me@1"))
    return line


def a_reply(number: int = 0, by_names: bool = False, /, **changes: str | None) -> Command:
    send = a_send(**{"b": TOPIC, "e": "0", "i": ASKED, **changes})
    if by_names:
        fields = encode_send(RequestCode.SEND_MESSAGE, decode_send(RequestCode.SEND_MESSAGE_V2, send.fields))
        send = replace(send, ext_fields=fields)
    code = RequestCode.SEND_REPLY_MESSAGE if by_names else RequestCode.SEND_REPLY_MESSAGE_V2
    return replace(send, code=code, body=b"yes %d" % number, opaque=number)


async def acknowledge(desk: DeskBench, requester: Client, code: int = ResponseCode.SUCCESS) -> list[Command]:
    """The replies that a requester was given; it answers each."""
    pushed = requester.read()
    desk.deliver(requester, *(response_to(each, code) for each in pushed))
    await desk.run()
    return pushed


async def test_the_replies_of_a_turn_are_pushed_and_kept_together(desk: DeskBench, requester: Client) -> None:
    repliers = Line(1), Line(2)
    for half, line in enumerate(repliers):
        desk.deliver(line, *map(a_reply, range(half * 10, half * 10 + 10)))
    await desk.run()
    assert requester.writes == 1
    assert [line.read() for line in repliers] == [[], []]
    pushed = await acknowledge(desk, requester)
    assert sorted(bytes(each.body or b"") for each in pushed) == sorted(b"yes %d" % n for n in range(20))
    assert [line.writes for line in repliers] == [1, 1]
    answers = [answer for line in repliers for answer in line.read()]
    assert sorted((answer.opaque, answer.code) for answer in answers) == [(n, 0) for n in range(20)]
    ids = {answer.fields["msgId"]: b"yes %d" % answer.opaque for answer in answers}
    assert {kept.message_id: kept.body for kept in desk.messages()} == ids
    assert [line.under_way for line in repliers] == [0, 0]


class At(Nobody):
    """A peer with the address of a line."""

    def __init__(self, line: Line) -> None:
        self.address = line.address


class Asker(Nobody):
    """A requester that only the plain lane knows how to call."""

    def __init__(self) -> None:
        self.calls: list[Command] = []

    async def call(self, request: Command, timeout_s: float) -> Command:
        self.calls.append(request)
        return response_to(request)


@pytest.mark.parametrize("by_names", [True, False])
@pytest.mark.parametrize("properties", [ASKED, ASKED.removesuffix("\x02"), ASKED + "TAGS\x01t\x02"])
@pytest.mark.parametrize("keeps", [True, False])
async def test_a_reply_is_served_as_if_it_came_alone(
    tmp_path: Path, by_names: bool, properties: str, keeps: bool
) -> None:
    request = a_reply(3, by_names, i=properties, f="1")
    seen = []
    for name, requester in (("lane", Client()), ("alone", Asker())):
        async with a_desk(tmp_path / name, clock=ManualClock(), broker={"store_replies": keeps}) as desk:
            desk.tables.producers.register("askers", ClientMember(peer=requester, client_id="me@1"))
            replier = Line()
            if isinstance(requester, Client):
                desk.deliver(replier, request)
                await desk.run()
                (pushed,) = await acknowledge(desk, requester)
                (answer,) = replier.read()
                assert not replier.commands
            else:
                served = await desk.router().answer(At(replier), request)
                (pushed,), answer = requester.calls, served or request
            told = {key: value for key, value in pushed.fields.items() if key != "storeHost"}
            seen.append((told, pushed.body, answer.code, dict(answer.fields), desk.log()))
    lane, alone = seen
    assert lane == alone


@pytest.mark.parametrize("why", ["it refuses", "it is gone", "it is silent"])
async def test_a_reply_that_does_not_get_there_is_told_and_kept(
    desk: DeskBench, requester: Client, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "it is silent":
        monkeypatch.setattr(replies, "FORWARD_TIMEOUT_S", 0.001)
    replier = Line()
    desk.deliver(replier, a_reply(3))
    await desk.run()
    if why == "it refuses":
        await acknowledge(desk, requester, ResponseCode.SYSTEM_ERROR)
    elif why == "it is gone":
        requester.pending.fail(ConnectionLost("the connection is gone"))
        await desk.run()
    async with asyncio.timeout(60):
        while not replier.written:
            await asyncio.sleep(0)
    (answer,) = replier.read()
    assert (answer.opaque, answer.code) == (3, ResponseCode.SYSTEM_ERROR)
    assert "push reply message to <me@1>fail" in (answer.remark or "")
    assert [kept.body for kept in desk.messages()] == [b"yes 3"]
    assert len(requester.pending) == 0
    assert replier.under_way == 0


async def test_a_late_answer_of_a_requester_does_no_harm(
    desk: DeskBench, requester: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "FORWARD_TIMEOUT_S", 0.001)
    replier = Line()
    desk.deliver(replier, a_reply(3))
    await desk.run()
    async with asyncio.timeout(60):
        while not replier.written:
            await asyncio.sleep(0)
    await acknowledge(desk, requester)
    assert len(replier.read()) == 1
    assert len(desk.messages()) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"i": ASKED.replace("UNIQ_KEY", "OTHER")}, {"i": ASKED + "DELAY\x013\x02"},
        {"i": ASKED + "TIMER_X\x011\x02"}, {"i": ASKED.replace("me@1", "other")},
        {"i": ASKED + "MSG_TYPE\x01twice\x02"}, {"i": ASKED + 'q\x01"\x02'}, {"i": ASKED + "x\x02"},
        {"i": "UNIQ_KEY\x01U1\x02"}, {"b": "Unknown"}, {"e": "99"}, {"e": "-1"}, {"m": "true"},
        {"k": "true"}, {"j": "1"}, {"b": "%RETRY%g"}, {"AccessKey": "key"}, {"g": "x"},
    ],
)  # fmt: skip
async def test_replies_that_are_not_ordinary_are_left_to_be_served_alone(
    desk: DeskBench, requester: Client, changes: dict[str, str | None]
) -> None:
    replier = Line()
    assert await desk.ask(a_reply(1, **changes), line=replier) == []
    assert [command.opaque for command in replier.commands] == [1]
    assert not requester.written


async def test_a_reply_in_the_compact_form_or_to_a_full_requester_is_left_to_be_served_alone(
    desk: DeskBench, requester: Client
) -> None:
    replier = Line()
    await desk.ask(replace(a_reply(1), serialize_type=SerializeType.ROCKETMQ), line=replier)
    requester.is_full = True
    await desk.ask(a_reply(2), line=replier)
    assert [command.opaque for command in replier.commands] == [1, 2]


async def test_a_one_way_reply_has_no_answer(desk: DeskBench, requester: Client) -> None:
    replier = Line()
    desk.deliver(replier, replace(a_reply(1), flag=ONE_WAY))
    await desk.run()
    await acknowledge(desk, requester)
    assert (replier.read(), len(desk.messages())) == ([], 1)


@pytest.mark.parametrize("letter", ["d", "e", "f", "g", "h"])
@pytest.mark.parametrize("digits", [19, 5_000])
async def test_a_number_that_is_too_long_harms_no_other_reply(
    desk: DeskBench, requester: Client, letter: str, digits: int
) -> None:
    strange, replier = Line(1), Line(2)
    desk.deliver(strange, a_reply(1, **{letter: "9" * digits}))
    desk.deliver(replier, a_reply(2))
    await desk.run()
    await acknowledge(desk, requester)
    assert [answer.code for answer in replier.read()] == [ResponseCode.SUCCESS]
    assert [command.opaque for command in strange.commands] == [1]
    assert (strange.errors, replier.errors) == ([], [])


async def test_replies_that_have_ended_are_not_kept_in_memory(desk: DeskBench, requester: Client) -> None:
    (lane,) = (each for each in desk.made.lanes if isinstance(each, replies.ReplyLane))
    replier, silent = Line(), Client()
    desk.tables.producers.register("askers", ClientMember(peer=silent, client_id="silent@1"))
    desk.deliver(replier, a_reply(0, i=ASKED.replace("me@1", "silent@1")))
    await desk.run()
    for number in range(1, 20):
        desk.deliver(replier, a_reply(number))
        await desk.run()
        await acknowledge(desk, requester)
    assert len(replier.read()) == 19
    found = (each for each in gc.get_objects() if type(each).__name__ == "_Reply")
    kept = [each for each in found if each.source is replier]
    assert len(kept) == 1  # The one that is not answered yet.
    assert lane.under_way == 1


@pytest.mark.parametrize("alone", [True, False])
async def test_a_reply_that_cannot_be_kept_has_arrived_all_the_same(tmp_path: Path, alone: bool) -> None:
    async with a_desk(tmp_path) as desk:
        desk.store.flags.set(Flag.DISK_FULL, "no space")
        requester: Client | Asker = Asker() if alone else Client()
        desk.tables.producers.register("askers", ClientMember(peer=requester, client_id="me@1"))
        replier = Line()
        if isinstance(requester, Client):
            desk.deliver(replier, a_reply(1))
            await desk.run()
            await acknowledge(desk, requester)
            (answer,) = replier.read()
        else:
            served = await desk.router().answer(At(replier), a_reply(1))
            assert served is not None
            answer = served
    assert (answer.code, answer.fields["msgId"]) == (ResponseCode.SUCCESS, "0")
