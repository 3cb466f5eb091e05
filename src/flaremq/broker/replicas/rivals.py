"""Another master of our name: one of the two must not serve.

    start    ask NameServers who the master is > ask that one > it serves: we refuse to start
    running  the same every 3 s, and whoever starts asks us   > it outranks us: we are *displaced*

`mastership` says which of two yields. A start is refused before the ports are open. A broker that is
displaced while it runs keeps them open, so that operators can ask it why; but it serves no clients and no
slaves, registers no more, and delivers nothing. Only a start ends that.

An address at which nobody answers is nobody's: it is most often our own of an earlier start, and NameServers
forget it soon. NameServers that do not answer keep no broker from starting, as clients may know its address:
two masters can then serve until a NameServer answers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.errors import ConfigError, FlareError, Malformed, NotMaster, Refused, Unreachable
from flaremq.base.live import Live
from flaremq.base.logs import Seldom, logger
from flaremq.base.logs import fields as logged
from flaremq.base.settings import parse_properties
from flaremq.broker.features import Feature, Requests
from flaremq.broker.offload import Offload
from flaremq.broker.replicas.mastership import Claim, Mastership, yields
from flaremq.broker.replicas.members import MemberGroup, OneWayCalls
from flaremq.broker.role import Role
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tasks import Task
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.cluster import KVTable
from flaremq.protocol.codes import RequestCode, ResponseCode, response_name
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers.replicas import ClaimNameHeader
from flaremq.remoting.gate import Origin, Right
from flaremq.remoting.router import Peer

log = logger("broker.rivals")

_LOOK_S: Final = 3.0
_ASK_S: Final = 3.0
_SHOWN_S: Final = 60.0  # A rival that has not been heard of for so long is gone.
_TOLD_EVERY_S: Final = 60.0
_ANSWERED: Final = frozenset(
    {
        RequestCode.FLAREMQ_CLAIM_NAME,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.UPDATE_BROKER_CONFIG,
    }
)
"""What a displaced broker still answers."""


class DisplacedGate:
    """Lets only those requests pass that ask a displaced broker about itself."""

    def __init__(self, why: str) -> None:
        self._why = why

    def check(self, _source: Origin, request: Command) -> None:
        if request.code not in _ANSWERED:
            raise NotMaster(f"this broker serves no clients: {self._why}", ResponseCode.SYSTEM_BUSY)

    def admits(self, _source: Origin, _topic: bytes, _right: Right) -> bool:
        return False


class Rivals(Feature):
    """First of all that serves: it must be started before anything is delivered."""

    def __init__(
        self,
        settings: Live[BrokerSettings],
        mastership: Mastership,
        members: MemberGroup,
        caller: OneWayCalls,
        offload: Offload,
        *,
        role: Role,
        address: Callable[[], str],
        clock: Clock,
        rng: random.Random,
        in_group: bool = False,
    ) -> None:
        """`address` is our own, as NameServers have it. `in_group`: a Raft group decides who is the master,
        and this one only says so to whoever asks."""
        self._live = settings
        self._mastership = mastership
        self._members = members
        self._caller = caller
        self._offload = offload
        self._role = role
        self._address = address
        self._clock = clock
        self._started_ms, self._start_id = clock.now_ms(), rng.getrandbits(62)
        self._in_group = in_group
        self._is_master = settings.now.is_master and not role.is_slave and not in_group
        self._serves = in_group and not role.is_slave
        self._met: tuple[float, str] | None = None
        """When another one was heard of that has to yield, and what is to be said of it."""
        self._told, self._silent = Seldom(_TOLD_EVERY_S), Seldom(_TOLD_EVERY_S)
        self.displaced: list[Callable[[], None]] = []
        """Called when this broker must serve no more."""
        self.register: Callable[[], None] = lambda: None
        """Called when NameServers hold another one for the master that has to yield."""

    # Life.

    async def start(self) -> None:
        note = self._mastership
        await self._offload.run(note.load)
        if self._in_group:
            return
        if self._role.is_slave:
            await self._offload.run(note.begins_as_slave)
        if not self._is_master:
            return
        if note.is_outranked and not note.was_slave:
            raise ConfigError(
                f"a slave of {self._live.now.broker_name} was promoted in place of this broker (epoch "
                f"{note.newest}, ours is {note.epoch}): start this one as its slave, with brokerRole=SLAVE "
                "and brokerId=1. If the promoted one is gone for good, set that, and run `flaremq broker "
                "promote`"
            )
        await self._members.namesrvs.refresh()
        for other in await self._others():
            await self._refuse_beside(other)
        if note.was_slave:
            await self._offload.run(note.promote)
            log.warning("this broker was a slave and is the master now", extra=logged(epoch=note.epoch))
        self._serves = True

    async def _refuse_beside(self, other: Claim) -> None:
        if not yields(self._claim(), other):
            self._meet_lower(other)
            return
        is_outranked = other.is_flare and other.epoch > self._mastership.epoch
        await self._note_higher(other)
        raise ConfigError(
            f"{self._why(other)}. Start this broker as its slave, with brokerRole=SLAVE and brokerId=1"
            + ("" if is_outranked else ", or stop the other one first")
        )

    def tasks(self) -> Iterable[Task]:
        if self._is_master:
            yield Task("look-for-rivals", _LOOK_S, _LOOK_S, self.look)

    async def look(self) -> None:
        """Ask whoever NameServers hold for the master, if that is not us."""
        for other in await self._others():
            await self._meet(other, is_registered=True)

    # Meeting another one.

    async def _meet(self, other: Claim, *, is_registered: bool) -> None:
        if self._role.displaced or not self._is_master or self._is_us(other):
            return
        if not yields(self._claim(), other):
            self._meet_lower(other)
            if is_registered:
                self.register()
            return
        self._role.displaced = self._why(other)
        log.error("this broker serves no more: %s", self._role.displaced)
        for listener in self.displaced:
            listener()
        await self._note_higher(other)

    async def _note_higher(self, other: Claim) -> None:
        if other.is_flare and other.epoch > self._mastership.epoch:
            await self._offload.run(lambda: self._mastership.yields_to(other.epoch))

    def _meet_lower(self, other: Claim) -> None:
        text = (
            f"{other.address} wants to be the master of this name too, and yields: make it a slave"
            if other.is_flare
            else f"{other.address}, a broker of RocketMQ that began later than this one, is a master of this "
            "name too, and cannot be told to yield: stop it, both take messages"
        )
        self._met = self._clock.monotonic_s(), text
        if self._told.due() is not None:
            log.error("there is another master: %s", text)

    def _why(self, other: Claim) -> str:
        own, name = self._mastership.epoch, self._live.now.broker_name
        if not other.is_flare:
            return (
                f"a broker of RocketMQ is the master of {name} at {other.address}, and began before this one"
            )
        if other.epoch > own:
            return (
                f"a slave of {name} was promoted in place of this broker: it is at {other.address} (epoch "
                f"{other.epoch}, ours is {own})"
            )
        return f"another master of {name} is at {other.address}, and began before this one (both epoch {own})"

    def _is_us(self, other: Claim) -> bool:
        return other.is_flare and other.start_id == self._start_id

    # Asking, and being asked.

    def _claim(self) -> Claim:
        serves = self._serves and not self._role.displaced
        epoch = self._mastership.newest
        return Claim(self._address(), epoch, self._started_ms, self._start_id, serves)

    def _header(self) -> dict[str, str]:
        own = self._claim()
        return fields.encode(
            ClaimNameHeader(
                broker_name=self._live.now.broker_name,
                address=own.address,
                epoch=own.epoch,
                started=own.started_ms,
                start_id=own.start_id,
                serves=own.serves,
            )
        )

    def handlers(self) -> Iterable[Requests]:
        yield "adminBroker", {RequestCode.FLAREMQ_CLAIM_NAME: self.claimed}

    async def claimed(self, _peer: Peer, request: Command) -> Command:
        """Another broker asks who is the master of its name, and says what it is itself."""
        given = fields.decode(ClaimNameHeader, request.fields)
        if given.broker_name == self._live.now.broker_name:
            await self._meet(_claim_of(given), is_registered=given.serves)
        return response_to(request, ext_fields=self._header())

    async def _others(self) -> list[Claim]:
        """Those that NameServers hold for the master of our name, as far as they answer."""
        if not self._members.namesrvs.addresses:
            return []
        addresses = await self._members.masters()
        if addresses is None:
            if self._silent.due() is not None:
                log.warning(
                    "no NameServer answers: whether there is another master of this name is not known"
                )
            return []
        claims = await asyncio.gather(*(self._ask(each) for each in sorted(addresses - {self._address()})))
        return [claim for claim in claims if claim is not None and not self._is_us(claim)]

    async def _ask(self, address: str) -> Claim | None:
        """What the broker there says of itself; None if nobody is there, or one of another name."""
        request = Command(code=RequestCode.FLAREMQ_CLAIM_NAME, ext_fields=self._header())
        try:
            answer = await self._caller.call(address, request, _ASK_S)
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return await self._java_claim(address)
            _expect_success(answer, address)
            given = fields.decode(ClaimNameHeader, answer.fields)
        except Unreachable as error:
            log.info("nobody answers at the registered address of the master", extra=logged(why=error))
            return None
        except FlareError as error:
            log.warning(
                "who is the master of this name could not be asked", extra=logged(address=address, why=error)
            )
            return None
        return _claim_of(given, address) if given.broker_name == self._live.now.broker_name else None

    async def _java_claim(self, address: str) -> Claim | None:
        """That of a master of RocketMQ, which does not know the request."""
        answer = await self._caller.call(address, Command(code=RequestCode.GET_BROKER_CONFIG), _ASK_S)
        _expect_success(answer, address)
        given = parse_properties(bytes(answer.body or b"").decode("utf-8", "replace"))
        if given.get("brokerName") != self._live.now.broker_name or given.get("brokerId") != "0":
            return None
        answer = await self._caller.call(address, Command(code=RequestCode.GET_BROKER_RUNTIME_INFO), _ASK_S)
        _expect_success(answer, address)
        began = beans.decode(KVTable, bytes(answer.body or b"")).table.get("bootTimestamp", "")
        if not began.isascii() or not began.isdigit():
            raise Malformed(f"{address} does not say when it began: {began!r}")
        return Claim(address, 0, int(began), 0, serves=True, is_flare=False)

    # What is shown.

    @property
    def displaced_by(self) -> str:
        """Why this master serves no clients any more; empty if it does."""
        return self._role.displaced

    @property
    def rival(self) -> str:
        """Another master that has to yield, if it was heard of lately; empty if there is none."""
        if self._met is None or self._clock.monotonic_s() - self._met[0] > _SHOWN_S:
            return ""
        return self._met[1]

    def figures(self) -> dict[str, str]:
        """For the runtime information."""
        if not self._is_master:
            return {}
        return {
            "haEpoch": str(self._mastership.epoch),
            "haDisplaced": self._role.displaced,
            "haRival": self.rival,
        }


def _claim_of(given: ClaimNameHeader, address: str = "") -> Claim:
    return Claim(address or given.address, given.epoch, given.started, given.start_id, given.serves)


def _expect_success(answer: Command, address: str) -> None:
    if answer.code != ResponseCode.SUCCESS:
        raise Refused(f"{address} answers with {response_name(answer.code)}, {answer.remark}")
