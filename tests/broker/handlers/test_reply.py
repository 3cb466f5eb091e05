"""Replies: passed on to the client that asked, and kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.broker.desks import DeskBench, a_desk
from tests.broker.nobody import Nobody
from tests.protocol.samples import a_send

from flaremq.broker.tables.producers import ClientMember
from flaremq.model.properties import decode_properties
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
ASKED = "CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01me@1\x02MSG_TYPE\x01reply\x02UNIQ_KEY\x01U1\x02"


class Requester(Nobody):
    """A client that takes replies, or refuses them."""

    def __init__(self, code: int = ResponseCode.SUCCESS) -> None:
        self.calls: list[Command] = []
        self._code = code

    async def call(self, request: Command, timeout_s: float) -> Command:
        self.calls.append(request)
        return response_to(request, self._code)


def joins(desk: DeskBench, peer: Nobody) -> None:
    desk.tables.producers.register("askers", ClientMember(peer=peer, client_id="me@1"))


async def reply(desk: DeskBench, properties: str = ASKED, body: bytes | None = b"yes") -> Command:
    send = a_send(b=REPLY_TOPIC, e="0", i=properties)
    request = replace(send, code=RequestCode.SEND_REPLY_MESSAGE_V2, body=body)
    answer = await desk.router().answer(Nobody(), request)
    assert answer is not None
    return answer


async def test_a_reply_goes_to_the_client_that_asked(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as desk:
        requester = Requester()
        joins(desk, requester)
        answer = await reply(desk)
        (pushed,) = requester.calls
        (kept,) = desk.messages()
    assert answer.code == ResponseCode.SUCCESS
    assert answer.fields["msgId"] == kept.message_id
    assert (pushed.code, pushed.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"yes")
    assert pushed.fields["topic"] == REPLY_TOPIC
    assert pushed.fields["properties"].startswith(ASKED + "PUSH_REPLY_TIME\x01")
    assert pushed.fields["bornHost"] == "127.0.0.1:1"
    assert pushed.fields["storeHost"] == f"127.0.0.1:{desk.broker.port}"
    assert (kept.topic, kept.body, kept.get("CORRELATION_ID")) == (REPLY_TOPIC, b"yes", "c1")
    assert kept.get("PUSH_REPLY_TIME") is None


async def test_properties_of_older_clients_end_without_a_separator(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as desk:
        requester = Requester()
        joins(desk, requester)
        await reply(desk, "REPLY_TO_CLIENT\x01me@1\x02CORRELATION_ID\x01c1")
        (pushed,) = requester.calls
    text = pushed.fields["properties"]
    assert decode_properties(text.encode())["CORRELATION_ID"] == "c1"


@pytest.mark.parametrize("peer", [None, Nobody(), Requester(ResponseCode.SYSTEM_ERROR)])
async def test_a_reply_that_does_not_get_there_is_told_and_kept(tmp_path: Path, peer: Nobody | None) -> None:
    async with a_desk(tmp_path) as desk:
        if peer is not None:
            joins(desk, peer)
        answer = await reply(desk)
        assert [each.body for each in desk.messages()] == [b"yes"]
    assert answer.code == ResponseCode.SYSTEM_ERROR
    words = "channel of <me@1> not found" if peer is None else "push reply message to <me@1>fail"
    assert words in (answer.remark or "")


async def test_a_reply_to_nobody_is_refused(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as desk:
        answer = await reply(desk, "UNIQ_KEY\x01U1\x02")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "REPLY_TO_CLIENT" in (answer.remark or "")
        assert (await reply(desk, body=None)).code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("keeps", [True, False])
async def test_replies_are_kept_unless_that_is_switched_off(tmp_path: Path, keeps: bool) -> None:
    async with a_desk(tmp_path, broker={"store_replies": keeps}) as desk:
        joins(desk, Requester())
        answer = await reply(desk)
        assert (answer.code, len(desk.messages())) == (ResponseCode.SUCCESS, int(keeps))
        assert keeps or answer.fields["msgId"] == "0"
