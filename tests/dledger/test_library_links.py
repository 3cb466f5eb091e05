"""Links of a member that speaks the library's protocol: every question has its answer, or its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from flaremq.dledger.frames import Hello
from flaremq.dledger.library.links import LibraryLinks, LibraryTicket
from flaremq.dledger.library.messages import (
    Addressed,
    BeatCall,
    BeatReply,
    LibraryCall,
    LibraryReply,
    MetadataCall,
    MetadataReply,
    Result,
    encode_reply,
)
from flaremq.dledger.types import MemberId
from flaremq.protocol.codes import RESPONSE
from flaremq.protocol.command import Command
from flaremq.protocol.frame import FrameDecoder, encode_frame
from flaremq.remoting.network import Network
from flaremq.remoting.ports import free_port
from flaremq.remoting.settings import ServerSettings
from flaremq.testing.clock import ManualClock
from flaremq.testing.cluster import eventually

WHO = Addressed("g", "n0", "n1")


class Answers:
    """A member without rules: it notes what becomes of its questions."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.links = LibraryLinks(self, Network(), self.clock)
        self.found: list[tuple[LibraryCall, LibraryReply | None]] = []

    def between(self, receiver: MemberId) -> Addressed:
        return Addressed("g", "n0", receiver)

    def refusal(self, _call: LibraryCall, _between: Addressed) -> Result | None:
        return None

    def asked(self, _sender: MemberId, call: LibraryCall, ticket: LibraryTicket) -> None:
        if isinstance(call, BeatCall):
            ticket.reply(BeatReply(Result.SUCCESS))

    def answered(self, _member: MemberId, call: LibraryCall, reply: LibraryReply | None) -> None:
        self.found.append((call, reply))

    def why_not(self, _member: MemberId, _reply: MetadataReply) -> str:
        return ""

    def protocol_refusal(self, _hello: Hello | None) -> str:
        return "other rules"


class Silent:
    """A member that says who belongs to its group, and answers a heartbeat when it is told to."""

    def __init__(self) -> None:
        self.port = free_port("127.0.0.1")
        self.connections = 0
        self.asked: list[Command] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self) -> asyncio.Server:
        return await asyncio.start_server(self._met, "127.0.0.1", self.port)

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        decoder = FrameDecoder()
        while data := await reader.read(65536):
            for command in decoder.feed(data):
                if command.code == 50000:
                    self.answer(command, MetadataReply(Result.SUCCESS, "", {}, False))
                else:
                    self.asked.append(command)

    def answer(self, command: Command, reply: LibraryReply) -> None:
        body = encode_reply(reply, WHO)
        frame = Command(code=Result.SUCCESS, opaque=command.opaque, flag=RESPONSE, body=body)
        self._writers[-1].write(encode_frame(frame))

    def hang_up(self) -> None:
        self._writers[-1].close()

    async def leave(self) -> None:
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[Answers, Silent]]:
    own, other = Answers(), Silent()
    server = await other.serve()
    settings = ServerSettings(listen_port=free_port("127.0.0.1"), bind_address="127.0.0.1")
    try:
        await own.links.start(settings, {"n1": f"127.0.0.1:{other.port}"})
        await until("the link is made", lambda: not own.links.complaint("n1"))
        yield own, other
    finally:
        await own.links.stop()
        await other.leave()
        server.close()
        await server.wait_closed()


async def until(what: str, is_so: Callable[[], bool]) -> None:
    async def holds() -> bool:
        return is_so()

    await eventually(what, holds)


async def test_an_answer_finds_its_question_also_out_of_order() -> None:
    async with linked() as (own, other):
        calls = [BeatCall(term, "n0") for term in range(3)]
        for call in calls:
            own.links.ask("n1", call)
        await until("all have come", lambda: len(other.asked) == 3)
        for n in (2, 0, 1):
            other.answer(other.asked[n], BeatReply(Result.SUCCESS, n))
        await until("all are answered", lambda: len(own.found) == 3)
        assert own.found == [(calls[n], BeatReply(Result.SUCCESS, n)) for n in (2, 0, 1)]


async def test_a_question_that_nobody_answers_is_given_up_after_three_seconds() -> None:
    async with linked() as (own, other):
        call = BeatCall(1, "n0")
        own.links.ask("n1", call)
        await until("it has come", lambda: len(other.asked) == 1)
        own.clock.advance_ms(2_900)
        await asyncio.sleep(0)
        assert not own.found
        own.clock.advance_ms(200)
        await until("it is given up", lambda: own.found == [(call, None)])
        other.answer(other.asked[0], BeatReply(Result.SUCCESS))
        own.links.ask("n1", BeatCall(2, "n0"))
        await until("the next one has come", lambda: len(other.asked) == 2)
        assert len(own.found) == 1


async def test_a_connection_on_which_nothing_is_answered_is_made_anew() -> None:
    async with linked() as (own, other):
        for count in (1, 2):
            own.links.ask("n1", BeatCall(count, "n0"))
            await until("it has come", lambda count=count: len(other.asked) == count)  # type: ignore[misc]
            own.clock.advance_ms(3_100)
            await until("it is given up", lambda count=count: len(own.found) == count)  # type: ignore[misc]
        await until("there is another connection", lambda: other.connections == 2)


async def test_questions_on_a_connection_that_ends_are_given_up_at_once() -> None:
    async with linked() as (own, other):
        call = BeatCall(1, "n0")
        own.links.ask("n1", call)
        await until("it has come", lambda: len(other.asked) == 1)
        other.hang_up()
        await until("it is given up", lambda: own.found == [(call, None)])
        await until("it is reached again", lambda: other.connections == 2)


async def test_a_question_to_a_member_that_is_not_there_is_given_up_at_once() -> None:
    own = Answers()
    settings = ServerSettings(listen_port=free_port("127.0.0.1"), bind_address="127.0.0.1")
    await own.links.start(settings, {"n1": f"127.0.0.1:{free_port('127.0.0.1')}"})
    try:
        call = BeatCall(1, "n0")
        own.links.ask("n1", call)
        assert not own.found, "it is given up in a step of its own"
        await until("it is given up", lambda: own.found == [(call, None)])
        await until("it is known why", lambda: "cannot be reached" in own.links.complaint("n1"))
    finally:
        await own.links.stop()


async def test_a_quiet_connection_is_kept_by_questions_now_and_then() -> None:
    async with linked() as (own, other):
        metadata = MetadataCall()
        own.clock.advance_ms(31_000)
        own.links.ask("n1", BeatCall(1, "n0"))
        await until("it has come", lambda: len(other.asked) == 1)
        other.answer(other.asked[0], BeatReply(Result.SUCCESS))
        await until("it is answered", lambda: len(own.found) == 1)
        assert other.connections == 1
        assert all(call != metadata for call, _ in own.found)
