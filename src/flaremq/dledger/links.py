"""The links between the members of a group: one connection to each other member, and theirs to us.

    send > [link to the member: connected and welcomed?] > socket      else it is lost, and said again
    socket > [door: who connects?] > frames > heard

What is sent to a member that cannot be reached is lost, as the rules of the group expect of any network. A
member that is stopped but not gone leaves its connection open: what it does not read is kept in memory up to
a limit, and a link whose member has not been heard of for a while is made anew.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Protocol, TypeVar, cast

from flaremq.base.errors import ConfigError, FlareError, Malformed
from flaremq.base.lifecycle import Owned
from flaremq.base.logs import Seldom, fields
from flaremq.base.units import MiB
from flaremq.dledger.frames import MAGIC, FrameBuffer, Hello, Refusal, Said, Welcome, decode, encode
from flaremq.dledger.types import MemberId, Message, RepairMessage
from flaremq.remoting.network import Listening, Network
from flaremq.remoting.settings import ServerSettings

log = logging.getLogger(__name__)

CONNECT_S: Final = 3.0
_PAUSES_S: Final = (0.05, 1.0)
_UNREAD_MAX: Final = 32 * MiB  # More than all pushes that may be under way.
_CONNECTIONS_MAX: Final = 64
_TOLD_S: Final = 60.0


P = TypeVar("P", bound=asyncio.BaseProtocol)


class Hall(Protocol):
    """The node, as its links know it."""

    def hello(self, to: MemberId) -> Hello: ...
    def why_not(self, hello: Hello) -> str:
        """What stands against a member that connects; empty if nothing does."""

    def heard(self, sender: MemberId, message: Message | RepairMessage) -> None:
        """A member has said something. Entries in it are valid until this returns."""


class Links:
    """All connections of one member."""

    def __init__(self, hall: Hall, network: Network) -> None:
        self.hall = hall
        self._network = network
        self._links: dict[MemberId, Link] = {}
        self._doors: dict[Door, None] = {}
        self._listening: Listening | None = None
        self._told = Seldom(_TOLD_S)
        self.refused = ""
        """Who was refused last, and why."""

    async def start(self, server: ServerSettings) -> None:
        try:
            self._listening = await self._network.listen(server, lambda: Door(self))
        except OSError as error:
            raise ConfigError(
                f"dLegerPeers: {error.strerror} on {server.bind_address}:{server.listen_port}: stop the "
                "process that has this port, or choose another one for this member"
            ) from error

    async def stop(self) -> None:
        if self._listening is not None:
            await self._listening.let_in()
            self._listening.close()
            self._listening = None
        for door in list(self._doors):
            door.close()
        for link in self._links.values():
            await link.stop()
        self._links.clear()
        for _ in range(2):  # What was aborted is closed in a later turn of the loop.
            await asyncio.sleep(0)

    def reach(self, addresses: dict[MemberId, str]) -> None:
        """These are the other members from now on."""
        for member, link in list(self._links.items()):
            if addresses.get(member) != link.address:
                del self._links[member]
                link.leave()
        for member, address in addresses.items():
            if member not in self._links:
                self._links[member] = Link(self.hall, member, address, self._network)

    def send(self, to: MemberId, message: Message | RepairMessage) -> None:
        link = self._links.get(to)
        if link is not None:
            link.send(message)

    def renew(self, member: MemberId) -> None:
        """Nothing has come from this member for a while: its connection may be dead."""
        if member in self._links:
            self._links[member].renew()

    def complaint(self, member: MemberId) -> str:
        """Why this member cannot be reached; empty if it can."""
        link = self._links.get(member)
        return "" if link is None else link.complaint

    # Called by the doors.

    def joined(self, door: Door) -> bool:
        """Whether it may stay."""
        if self._listening is None or len(self._doors) >= _CONNECTIONS_MAX:
            return False  # It may have knocked just before the listening ended.
        self._doors[door] = None
        return True

    def left(self, door: Door) -> None:
        self._doors.pop(door, None)

    def let_in(self, member: MemberId) -> None:
        """Whatever stood against it before."""
        if self.refused.startswith(f"{member} at "):
            self.refused = ""

    def turned_away(self, who: str, why: str) -> None:
        self.refused = f"{who}: {why}"
        if self._told.due() is not None:
            log.error("a member is refused: %s", why, extra=fields(member=who))


class _End(asyncio.BufferedProtocol):
    """Our end of a connection to another member."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._frames = FrameBuffer()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, _hint: int) -> memoryview:
        return self._frames.room()

    def eof_received(self) -> bool:
        return False

    def say(self, said: Said) -> None:
        if self._transport is not None:
            for piece in encode(said):
                self._transport.write(piece)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Door(_End):
    """A connection that another member has made: it speaks, and we hear."""

    def __init__(self, links: Links) -> None:
        super().__init__()
        self._links = links
        self._is_member = False
        self._sender = self._address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self._address = f"{host}:{port}"
        if not self._links.joined(self):
            self.close()

    def buffer_updated(self, size: int) -> None:
        self._frames.filled(size)
        try:
            self._read()
        except FlareError as error:
            self._links.turned_away(self._sender or self._address, str(error))
            self.close()

    def _read(self) -> None:
        if not self._is_member:
            magic = self._frames.take(len(MAGIC))
            if magic is None:
                return
            if bytes(magic) != MAGIC:
                raise Malformed(
                    f"{bytes(magic)!r} came first, expected {MAGIC!r}: it follows no rules of FlareMQ's own. "
                    "Members of RocketMQ's groups, and those with dLegerProtocol=dledger, speak the DLedger "
                    "library's protocol: give all members of a group the same dLegerProtocol"
                )
            self._is_member = True
        while self._transport is not None and (frame := self._frames.frame()) is not None:
            self._said(decode(frame))

    def _said(self, said: Said) -> None:
        if isinstance(said, Hello):
            self._met(said)
        elif not self._sender or isinstance(said, Welcome | Refusal):
            raise Malformed(f"{type(said).__name__} came, and was not expected: it is no member")
        else:
            self._links.hall.heard(self._sender, said)

    def _met(self, hello: Hello) -> None:
        why = self._links.hall.why_not(hello)
        if not why:
            self._sender = hello.sender
            self._links.let_in(hello.sender)
            self.say(Welcome())
            return
        self._links.turned_away(f"{hello.sender} at {self._address}", why)
        self.say(Refusal(why))
        if self._transport is not None:
            self._transport.close()  # Once it was told.
            self._transport = None

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self._links.left(self)


class MemberLink(ABC):
    """A connection to one other member, made again and again, whatever is spoken on it."""

    def __init__(self, member: MemberId, address: str, network: Network) -> None:
        self.address = address
        self.complaint = "it was not reached yet"
        """Why it cannot be used; empty if it can."""
        self._member = member
        self._network = network
        self._tasks = Owned()
        self._told = Seldom(_TOLD_S)
        self._task = self._tasks.spawn(f"link-{member}", self._run())

    @abstractmethod
    async def _once(self) -> bool:
        """Connect and speak until the connection ends; whether we were welcome."""

    def _not_reached(self) -> None:  # noqa: B027 - Not every kind has something to do then.
        """Nobody was there, or nothing was answered in time."""

    async def _run(self) -> None:
        pause_s = _PAUSES_S[0]
        while True:
            was_welcome = False
            try:
                was_welcome = await self._once()
            except OSError as error:  # TimeoutError is one.
                why = str(error) or f"no answer within {CONNECT_S:g} s"
                self._complain(f"{self.address} cannot be reached: {why}")
                self._not_reached()
            except Exception as error:
                log.exception("the link to member %s failed and is made again", self._member)
                self.complaint = str(error)
            pause_s = _PAUSES_S[0] if was_welcome else min(2 * pause_s, _PAUSES_S[1])
            await asyncio.sleep(pause_s)

    async def _connected(self, make: Callable[[], P]) -> P:
        host, _, port = self.address.rpartition(":")
        async with asyncio.timeout(CONNECT_S):
            return await self._network.connect(host.strip("[]"), int(port), make, None)

    def _complain(self, why: str) -> None:
        self.complaint = why
        if self._told.due() is not None:
            log.warning("member %s: %s", self._member, why)


class Link(MemberLink):
    """By which we speak our own protocol."""

    def __init__(self, hall: Hall, member: MemberId, address: str, network: Network) -> None:
        super().__init__(member, address, network)
        self._hall = hall
        self._connection: Speaker | None = None

    async def stop(self) -> None:
        self.renew()
        await self._tasks.aclose(timeout_s=5)

    def leave(self) -> None:
        """It is no member any more."""
        self._task.cancel()
        self.renew()

    def renew(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def send(self, message: Message | RepairMessage) -> None:
        if self._connection is not None:
            self._connection.send(message)

    async def _once(self) -> bool:
        made = await self._connected(lambda: Speaker(self._hall.hello(self._member)))
        try:
            async with asyncio.timeout(CONNECT_S):
                why = await made.answered
            if why:
                self._complain(why)
                return False
            self._connection, self.complaint = made, ""
            await made.ended
            self._complain(f"the connection to {self.address} has ended")
            return True
        finally:
            self._connection = None
            made.close()


class Speaker(_End):
    """The connection of a link: we speak, and hear only whether we are welcome."""

    def __init__(self, hello: Hello) -> None:
        super().__init__()
        loop = asyncio.get_running_loop()
        self._hello = hello
        self.answered: asyncio.Future[str] = loop.create_future()
        """Why we are not welcome; empty if we are."""
        self.ended: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self._transport is not None
        self._transport.write(MAGIC)
        self.say(self._hello)

    def buffer_updated(self, size: int) -> None:
        self._frames.filled(size)
        try:
            while (frame := self._frames.frame()) is not None:
                said = decode(frame)
                self._answer(said.why if isinstance(said, Refusal) else "")
        except Malformed as error:
            self._answer(str(error))
            self.close()

    def _answer(self, why: str) -> None:
        if not self.answered.done():
            self.answered.set_result(why)

    def send(self, message: Message | RepairMessage) -> None:
        transport = self._transport
        if transport is not None and transport.get_write_buffer_size() < _UNREAD_MAX:
            self.say(message)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._answer(f"the connection was closed at once{f': {error}' if error else ''}")
        if not self.ended.done():
            self.ended.set_result(None)
