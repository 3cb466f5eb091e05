"""Many pulls on one connection: frames say what plain requests say, and every answer finds its taker."""

from __future__ import annotations

from pathlib import Path

from flaremq.base.errors import CallTimeout, ConnectionLost, FlareError, Malformed, TopicNotFound
from flaremq.client.api import PullResult
from flaremq.client.client import Client
from flaremq.client.consumer.bulkpull import PullFrames, PullLine
from flaremq.client.producer.producer import Producer
from flaremq.model.message import Message
from flaremq.protocol import fields
from flaremq.protocol.codes import RESPONSE, RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.protocol.frame import decode_frame
from flaremq.protocol.headers.pull import SUBSCRIPTION, PullMessageRequestHeader
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import Embedded


def header(topic: str, *, group: str = "G", **changes: int) -> PullMessageRequestHeader:
    return PullMessageRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=changes.get("queue_id", 0),
        queue_offset=changes.get("offset", 0),
        max_msg_nums=changes.get("count", 0),
        sys_flag=SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )


class Basket:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.pulls: dict[str, PullResult] = {}
        self.failures: dict[str, FlareError] = {}

    def pulled(self, what: str, pulled: PullResult) -> None:
        self.pulls[what] = pulled

    def failed(self, what: str, error: FlareError) -> None:
        self.failures[what] = error

    async def holds(self, count: int) -> None:
        async def is_so() -> bool:
            return len(self.pulls) + len(self.failures) >= count

        await eventually(f"{count} answers", is_so)


def test_a_frame_says_what_a_plain_request_says() -> None:
    odd = '100% "quoted"'
    command = decode_frame(PullFrames(header("T%", group=odd)).frame(77, 32, -5))
    assert command.opaque == -5
    assert command.code == RequestCode.PULL_MESSAGE
    assert command.fields == fields.encode(header("T%", group=odd, offset=77, count=32))
    assert command.wants_answer


async def test_answers_come_to_who_asked_whatever_they_are(tmp_path: Path) -> None:
    async with Embedded(tmp_path) as servers, Client(servers.namesrv) as client:
        async with Producer("PID", client=client) as producer:
            receipts = [await producer.send(Message("T", b"x")) for _ in range(8)]
        queue, (address,) = receipts[0].queue, servers.addresses
        basket = Basket()
        line = PullLine(await client.caller.connected(address, 3), address, basket)
        frames = PullFrames(header("T", queue_id=queue.queue_id))
        line.ask("first", frames, 0, 1)
        line.ask("end", frames, 99, 1)
        line.ask("absent", PullFrames(header("Absent")), 0, 1)
        assert len(line) == 3
        line.write()
        await basket.holds(3)
        assert basket.pulls["first"].next_offset == 1 and len(basket.pulls["first"].body) > 91
        assert basket.pulls["end"].code == ResponseCode.PULL_OFFSET_MOVED
        assert isinstance(basket.failures["absent"], TopicNotFound)
        assert len(line) == 0


async def test_a_connection_that_is_lost_or_given_up_is_told_to_all(tmp_path: Path) -> None:
    async with Embedded(tmp_path) as servers, Client(servers.namesrv) as client:
        (address,) = servers.addresses
        for error in (ConnectionLost, CallTimeout):
            basket = Basket()
            line = PullLine(await client.caller.connected(address, 3), address, basket)
            line.ask("one", PullFrames(header("T")), 0, 1)  # Never written, so never answered.
            if error is ConnectionLost:
                line.connection.abort()
            else:
                line.give_up(CallTimeout("late"))
            await basket.holds(1)
            assert isinstance(basket.failures["one"], error)


async def test_an_answer_that_makes_no_sense_is_a_failure_and_a_late_one_is_nothing(tmp_path: Path) -> None:
    async with Embedded(tmp_path) as servers, Client(servers.namesrv) as client:
        (address,) = servers.addresses
        basket = Basket()
        line = PullLine(await client.caller.connected(address, 3), address, basket)
        for what in ("bare", "stored", "forgotten"):
            line.ask(what, PullFrames(header("T")), 0, 1)
        bare, stored, forgotten = line.connection.pending.taken_by
        line.answered(bare, Command(code=ResponseCode.SUCCESS, opaque=bare, flag=RESPONSE))
        line.stored(stored, 0, 0, "id", None)
        line.forget()
        line.answered(forgotten, Command(code=ResponseCode.SUCCESS, opaque=forgotten, flag=RESPONSE))
        line.lost(forgotten, ConnectionLost("gone"))
        assert basket.failures.keys() == {"bare", "stored"}
        assert all(isinstance(error, Malformed) for error in basket.failures.values())
        assert not basket.pulls
