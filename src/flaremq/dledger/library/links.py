"""Connections of a member that speaks the library's protocol: remoting frames, questions with deadlines.

    ask > [link to the member: is it one of this group?] > frame > answered, or lost after 3 s
    frame > [door] > asked > reply, on the same connection

The first question on every connection that is made here is who belongs to the group (METADATA). A member that
counts its majority over another list is not spoken to. What comes in from a member is heard once that is
known of it, or it could not be asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, cast

from flaremq.base.clock import Clock
from flaremq.base.errors import ConfigError, FlareError, Malformed
from flaremq.base.lifecycle import Owned, repeat
from flaremq.base.logs import Seldom, fields
from flaremq.base.units import MiB
from flaremq.dledger.frames import MAGIC, Hello, Refusal, decode, encode
from flaremq.dledger.library.messages import (
    Addressed,
    LibraryCall,
    LibraryReply,
    MetadataCall,
    MetadataReply,
    Result,
    code_of,
    decode_call,
    decode_reply,
    encode_call,
    encode_refusal,
    encode_reply,
)
from flaremq.dledger.links import CONNECT_S, MemberLink
from flaremq.dledger.types import MemberId
from flaremq.protocol.codes import RESPONSE
from flaremq.protocol.command import Command
from flaremq.protocol.frame import FrameDecoder, encode_frame
from flaremq.remoting.network import Listening, Network
from flaremq.remoting.settings import ServerSettings

log = logging.getLogger(__name__)

_ANSWER_S: Final = 3.0  # As the library's own limit.
_SWEEP_S: Final = 0.25
_SILENT_S: Final = 6.0  # A connection on which nothing was answered for so long is made anew.
_QUIET_S: Final = 30.0  # The library's servers close a connection on which nothing was said for 120 s.
_IDLE_S: Final = 180.0  # The library's clients leave after 120 s.
_UNREAD_MAX: Final = 64 * MiB
_CONNECTIONS_MAX: Final = 64
_WAITING_MAX: Final = 1_000
_TOLD_S: Final = 60.0


class LibraryHall(Protocol):
    """The node, as its links know it."""

    def between(self, receiver: MemberId) -> Addressed: ...
    def refusal(self, call: LibraryCall, between: Addressed) -> Result | None:
        """What stands against somebody who asks."""

    def asked(self, sender: MemberId, call: LibraryCall, ticket: LibraryTicket) -> None: ...
    def answered(self, member: MemberId, call: LibraryCall, reply: LibraryReply | None) -> None:
        """None: it has not been, in time."""

    def why_not(self, member: MemberId, reply: MetadataReply) -> str:
        """What stands against a member, by what it says of its group; empty if nothing does."""

    def protocol_refusal(self, hello: Hello | None) -> str:
        """What to say to a member that follows our own rules."""


@dataclass(frozen=True, slots=True, eq=False)
class LibraryTicket:
    """Where the answer to a question goes."""

    door: LibraryDoor
    opaque: int
    between: Addressed

    def reply(self, reply: LibraryReply) -> None:
        self.door.say(self.opaque, encode_reply(reply, self.between))

    def refuse(self, code: Result) -> None:
        self.door.say(self.opaque, encode_refusal(code, self.between))


class LibraryLinks:
    """All connections of one member."""

    def __init__(self, hall: LibraryHall, network: Network, clock: Clock) -> None:
        self.hall = hall
        self.clock = clock
        self._network = network
        self._links: dict[MemberId, LibraryLink] = {}
        self._doors: dict[LibraryDoor, None] = {}
        self._listening: Listening | None = None
        self._tasks = Owned()
        self._told = Seldom(_TOLD_S)
        self.refused = ""
        """Who was refused last, and why."""

    async def start(self, server: ServerSettings, others: Mapping[MemberId, str]) -> None:
        try:
            self._listening = await self._network.listen(server, lambda: LibraryDoor(self))
        except OSError as error:
            raise ConfigError(
                f"dLegerPeers: {error.strerror} on {server.bind_address}:{server.listen_port}: stop the "
                "process that has this port, or choose another one for this member"
            ) from error
        for member, address in others.items():
            self._links[member] = LibraryLink(self, member, address, self._network)
        self._tasks.spawn("sweep-links", repeat("looking after links", self._sweep, _SWEEP_S))

    async def stop(self) -> None:
        if self._listening is not None:
            await self._listening.let_in()
            self._listening.close()
            self._listening = None
        await self._tasks.aclose(timeout_s=5)
        for door in list(self._doors):
            door.close()
        for link in self._links.values():
            await link.stop()
        self._links.clear()
        for _ in range(2):  # What was aborted is closed in a later turn of the loop.
            await asyncio.sleep(0)

    def ask(self, to: MemberId, call: LibraryCall) -> None:
        link = self._links.get(to)
        if link is not None:  # Else this member is stopping.
            link.ask(call)

    def complaint(self, member: MemberId) -> str:
        """Why this member cannot be reached; empty if it can."""
        link = self._links.get(member)
        return "" if link is None else link.complaint

    def _sweep(self) -> None:
        now_s = self.clock.monotonic_s()
        for link in self._links.values():
            link.sweep(now_s)
        for door in [each for each in self._doors if now_s - each.heard_s > _IDLE_S]:
            door.close()

    # Called by the doors.

    def joined(self, door: LibraryDoor) -> bool:
        """Whether it may stay."""
        if self._listening is None or len(self._doors) >= _CONNECTIONS_MAX:
            return False
        self._doors[door] = None
        return True

    def left(self, door: LibraryDoor) -> None:
        self._doors.pop(door, None)

    def turned_away(self, who: str, why: str) -> None:
        self.refused = f"{who}: {why}"
        if self._told.due() is not None:
            log.error("a member is refused: %s", why, extra=fields(member=who))

    def asked(self, call: LibraryCall, ticket: LibraryTicket) -> None:
        refusal = self.hall.refusal(call, ticket.between)
        if refusal is not None:
            ticket.refuse(refusal)
            return
        link = self._links.get(ticket.between.sender)
        if link is None or isinstance(call, MetadataCall):  # Two members that meet would wait for each other.
            self.hall.asked(ticket.between.sender, call, ticket)
        else:
            link.asked(call, ticket)


class _End(asyncio.Protocol):
    """Our end of a connection."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def write(self, frame: bytes) -> None:
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size() > _UNREAD_MAX:
            self.close()  # It reads nothing.
        else:
            self._transport.write(frame)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class LibraryDoor(_End):
    """A connection that another member has made: it asks, and we answer."""

    def __init__(self, links: LibraryLinks) -> None:
        super().__init__()
        self._links = links
        self._begun: bytes | None = b""
        """What has come so far, until it is clear which protocol is spoken."""
        self._address = ""
        self.heard_s = links.clock.monotonic_s()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self._address = f"{host}:{port}"
        if not self._links.joined(self):
            self.close()

    def data_received(self, data: bytes) -> None:
        self.heard_s = self._links.clock.monotonic_s()
        try:
            if self._begun is not None:
                self._begun += data
                if MAGIC.startswith(self._begun[: len(MAGIC)]):
                    self._not_ours(self._begun)
                    return
                data, self._begun = self._begun, None
            for command in self._decoder.feed(data):
                if not command.flag & RESPONSE:
                    call, between = decode_call(command.code, command.body)
                    self._links.asked(call, LibraryTicket(self, command.opaque, between))
        except FlareError as error:
            self._links.turned_away(self._address, str(error))
            self.close()

    def _not_ours(self, begun: bytes) -> None:
        """A member that follows our own rules introduces itself, and hears why it is not let in."""
        at = len(MAGIC) + 4
        size = int.from_bytes(begun[len(MAGIC) : at], "big") if len(begun) >= at else _UNREAD_MAX
        if len(begun) < at + size:
            if len(begun) > 64 * 1024:
                raise Malformed("a member of FlareMQ's own rules does not say who it is: expected its name")
            return
        said = decode(memoryview(begun)[at : at + size]) if size else None
        hello = said if isinstance(said, Hello) else None
        why = self._links.hall.protocol_refusal(hello)
        who = self._address if hello is None else f"{hello.sender} at {self._address}"
        self._links.turned_away(who, why)
        if self._transport is not None:
            for piece in encode(Refusal(why)):
                self._transport.write(piece)
            self._transport.close()  # Once it was told.
            self._transport = None

    def say(self, opaque: int, body: bytes) -> None:
        self.write(encode_frame(Command(code=Result.SUCCESS, opaque=opaque, flag=RESPONSE, body=body)))

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self._links.left(self)


class LibraryLink(MemberLink):
    """By which we ask, and which knows whether what the member asks may be answered."""

    def __init__(self, links: LibraryLinks, member: MemberId, address: str, network: Network) -> None:
        super().__init__(member, address, network)
        self._links = links
        self._connection: LibraryAsker | None = None
        self._is_strange = False
        """It counts its majority over another list."""
        self._is_tried = False
        self._held: list[tuple[LibraryCall, LibraryTicket]] = []
        """What it has asked before it was known which group it belongs to."""

    async def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        await self._tasks.aclose(timeout_s=5)

    # What we ask.

    def ask(self, call: LibraryCall) -> None:
        if self._connection is None:
            asyncio.get_running_loop().call_soon(self._links.hall.answered, self._member, call, None)
        else:
            self._connection.ask(call)

    def answered(self, call: LibraryCall, reply: LibraryReply | None) -> None:
        self._links.hall.answered(self._member, call, reply)

    def sweep(self, now_s: float) -> None:
        if self._connection is not None:
            self._connection.sweep(now_s)

    # What it asks.

    def asked(self, call: LibraryCall, ticket: LibraryTicket) -> None:
        if self._is_strange:
            ticket.refuse(Result.UNKNOWN_MEMBER)
        elif self._is_tried:
            self._links.hall.asked(self._member, call, ticket)
        elif len(self._held) < _WAITING_MAX:
            self._held.append((call, ticket))

    def _is_known(self, is_strange: bool) -> None:
        self._is_strange, self._is_tried = is_strange, True
        held, self._held = self._held, []
        for call, ticket in held:
            self.asked(call, ticket)

    # The connection.

    def _not_reached(self) -> None:
        self._is_known(False)

    async def _once(self) -> bool:
        """Connect, find out who is there, and ask until the connection ends; whether it was a member."""
        between = self._links.hall.between(self._member)
        made = await self._connected(lambda: LibraryAsker(self, between, self._links.clock))
        try:
            made.ask(MetadataCall())
            async with asyncio.timeout(CONNECT_S):
                told = await made.told
            why = _NO_ANSWER if told is None else self._links.hall.why_not(self._member, told)
            self._is_known(bool(why) and told is not None)
            if why:
                self._complain(f"{self.address}: {why}")
                return False
            self._connection, self.complaint = made, ""
            await made.ended
            self._complain(f"the connection to {self.address} has ended")
            return True
        finally:
            self._connection = None
            made.close()


_NO_ANSWER: Final = (
    "the connection was closed before anything was answered: it is no member that speaks the DLedger "
    "library's protocol. Perhaps it follows FlareMQ's own rules: give all members the same dLegerProtocol"
)


class LibraryAsker(_End):
    """The connection of a link: we ask, and it answers."""

    def __init__(self, link: LibraryLink, between: Addressed, clock: Clock) -> None:
        super().__init__()
        loop = asyncio.get_running_loop()
        self._link = link
        self._between = between
        self._clock = clock
        self._opaque = 0
        self._asked: dict[int, tuple[LibraryCall, float]] = {}
        """Questions and when each is given up, oldest first."""
        self._heard_s = self._asked_s = clock.monotonic_s()
        self.told: asyncio.Future[MetadataReply | None] = loop.create_future()
        """Which group it belongs to; None if it has not said so."""
        self.ended: asyncio.Future[None] = loop.create_future()

    def ask(self, call: LibraryCall) -> None:
        self._opaque += 1
        self._asked_s = self._clock.monotonic_s()
        self._asked[self._opaque] = call, self._asked_s + _ANSWER_S
        body = encode_call(call, self._between)
        self.write(encode_frame(Command(code=code_of(call), opaque=self._opaque, body=body)))

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._clock.monotonic_s()
        try:
            for command in self._decoder.feed(data):
                asked = self._asked.pop(command.opaque, None)
                if asked is not None:
                    self._answered(asked[0], decode_reply(asked[0], command.body))
        except FlareError as error:
            log.warning(
                "what a member answers cannot be read: %s", error, extra=fields(at=self._link.address)
            )
            self.close()

    def _answered(self, call: LibraryCall, reply: LibraryReply | None) -> None:
        if isinstance(call, MetadataCall):
            if not self.told.done():
                self.told.set_result(reply if isinstance(reply, MetadataReply) else None)
        else:
            self._link.answered(call, reply)

    def sweep(self, now_s: float) -> None:
        """Give up what was not answered in time."""
        late = [opaque for opaque, (_, until_s) in self._asked.items() if now_s >= until_s]
        for opaque in late:
            self._answered(self._asked.pop(opaque)[0], None)
        if late and now_s - self._heard_s > _SILENT_S:
            self.close()
        elif now_s - self._asked_s > _QUIET_S:
            self.ask(MetadataCall())

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        asked, self._asked = self._asked, {}
        for call, _ in asked.values():
            self._answered(call, None)
        if not self.told.done():
            self.told.set_result(None)
        if not self.ended.done():
            self.ended.set_result(None)
