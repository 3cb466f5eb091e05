"""Transactions through an admin: which have not ended, and the end of those that are parked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.broker.nobody import Nobody

from flaremq.admin.admin import Admin
from flaremq.admin.values.messages import FoundMessage, Scan
from flaremq.admin.values.topics import TopicSettings
from flaremq.admin.values.transactions import HalfState
from flaremq.base.errors import IllegalOperation, InvalidParameter, MessageNotFound
from flaremq.broker.tables.producers import ClientMember
from flaremq.broker.transactions.transactions import Transactions
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.protocol.headers.transaction import ResumeCheckHalfMessageRequestHeader
from flaremq.testing.clock import MovableClock
from flaremq.testing.embedded import Embedded, EmbeddedThread
from flaremq.testing.fakes.wireclient import WireClient, send_request

PRODUCERS = "buyers"


class Silent(Nobody):
    """A producer that does not answer."""

    def send(self, command: Command) -> None: ...


class Shop:
    """Prepares messages at both brokers, whose time is moved by hand."""

    def __init__(self, servers: Embedded | EmbeddedThread, wire: WireClient, clock: MovableClock) -> None:
        self.servers = servers
        self._wire = wire
        self._clock = clock

    async def prepare(self, *numbers: int) -> None:
        for number in numbers:
            address = self.servers.addresses[number % 2]
            pairs = {"UNIQ_KEY": f"U{number}", "TRAN_MSG": "true", "PGROUP": PRODUCERS, "KEYS": f"k{number}"}
            text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
            request = send_request("paid", 0, b"%d" % number, properties=text)
            answer = await self._wire.caller.call(address, request, 30)
            assert answer.code == ResponseCode.SUCCESS

    async def ask(self, times: int) -> None:
        """Let brokers ask about all that is open so many times, half a minute apart."""
        for _ in range(times):
            self._clock.advance(30)
            for broker in self.servers.brokers:
                broker.tables.producers.register(PRODUCERS, ClientMember(peer=Silent(), client_id="p"))
                assert broker.composition is not None
                (feature,) = (each for each in broker.composition.inner if isinstance(each, Transactions))
                broker.store.dispatch()
                await feature.check()
                broker.store.dispatch()

    async def park(self, *numbers: int) -> None:
        await self.prepare(*numbers)
        await self.ask(3)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
async def servers(tmp_path: Path, clock: MovableClock) -> AsyncIterator[Embedded]:
    options = {"transactionCheckMax": 2, "transactionCheckInterval": 3_600_000}
    async with Embedded(tmp_path, brokers=2, options=options, clock=clock) as found:
        yield found


@pytest.fixture
async def shop(admin: Admin, servers: Embedded, wire: WireClient, clock: MovableClock) -> Shop:
    await admin.topics.create("paid", TopicSettings(read_queues=1, write_queues=1))
    return Shop(servers, wire, clock)


async def delivered(admin: Admin) -> list[bytes]:
    return [each.body for each in await _messages(admin)]


async def _messages(admin: Admin) -> list[FoundMessage]:
    return [each async for each in admin.messages.scan(Scan(topic="paid"))]


async def states(admin: Admin) -> dict[str, HalfState]:
    return {each.message_id: each.state for each in await admin.transactions.list()}


async def test_what_has_not_ended_is_listed_with_its_state(admin: Admin, shop: Shop) -> None:
    await shop.park(0, 1)
    await shop.prepare(2)
    assert await states(admin) == {"U0": HalfState.PARKED, "U1": HalfState.PARKED, "U2": HalfState.OPEN}
    found = await admin.transactions.get("U1")
    assert (found.topic, found.group, found.checks, found.was_parked) == ("paid", PRODUCERS, 2, True)
    assert (found.message.body, found.message.keys) == (b"1", ("k1",))
    assert await admin.transactions.get(found.message.offset_id) == found
    parked = await admin.transactions.list(HalfState.PARKED)
    assert {each.message_id for each in parked} == {"U0", "U1"}


async def test_a_parked_transaction_is_committed_once(admin: Admin, shop: Shop) -> None:
    await shop.park(0, 1)
    assert await admin.transactions.commit("U1") is True
    assert await delivered(admin) == [b"1"]
    assert await states(admin) == {"U0": HalfState.PARKED}
    assert await admin.transactions.commit("U1") is False
    await shop.ask(4)
    assert await delivered(admin) == [b"1"], "once, and nothing else"
    with pytest.raises(IllegalOperation, match="U1 was committed before"):
        await admin.transactions.roll_back("U1")
    with pytest.raises(MessageNotFound, match="has been decided since"):
        await admin.transactions.get("U1")


async def test_a_parked_transaction_is_rolled_back(admin: Admin, shop: Shop) -> None:
    await shop.park(0)
    assert await admin.transactions.roll_back("U0") is True
    assert await admin.transactions.roll_back("U0") is False
    with pytest.raises(IllegalOperation, match="U0 was rolled back before"):
        await admin.transactions.commit("U0")
    await shop.ask(4)
    assert (await delivered(admin), await states(admin)) == ([], {})


async def test_it_is_decided_once_across_a_restart_of_its_broker(
    admin: Admin, shop: Shop, servers: Embedded
) -> None:
    await shop.park(0)
    await admin.transactions.commit("U0")
    await servers.stop("broker-a")
    await servers.start("broker-a")
    assert await states(admin) == {}
    assert await admin.transactions.commit("U0") is False
    assert await delivered(admin) == [b"0"]


async def test_producers_are_asked_again_about_a_resumed_one_until_it_is_parked_again(
    admin: Admin, shop: Shop
) -> None:
    await shop.park(0)
    await admin.transactions.resume("U0")
    found = await admin.transactions.get("U0")
    assert (found.state, found.was_parked) == (HalfState.OPEN, True)
    with pytest.raises(IllegalOperation, match="not parked: its producers are being asked"):
        await admin.transactions.resume("U0")
    await shop.ask(3)
    assert await states(admin) == {"U0": HalfState.PARKED}
    assert await admin.transactions.commit("U0") is True
    assert await delivered(admin) == [b"0"]


async def test_a_crash_between_resume_and_end_leaves_it_decidable(
    admin: Admin, shop: Shop, wire: WireClient
) -> None:
    """The first step of a commit, as any operator does it: then the command is killed."""
    await shop.park(0)
    parked = await admin.transactions.get("U0")
    header = ResumeCheckHalfMessageRequestHeader(msg_id=parked.message.offset_id)
    await wire.ask(shop.servers.addresses[0], RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
    assert await states(admin) == {"U0": HalfState.OPEN}
    assert await admin.transactions.commit("U0") is True
    assert await admin.transactions.commit("U0") is False
    assert await delivered(admin) == [b"0"]


async def test_a_transaction_whose_producers_are_being_asked_is_theirs(admin: Admin, shop: Shop) -> None:
    await shop.prepare(0)
    for decide in (admin.transactions.commit, admin.transactions.roll_back, admin.transactions.resume):
        with pytest.raises(IllegalOperation, match="U0 is not parked: its producers are being asked"):
            await decide("U0")
    assert await delivered(admin) == []


async def test_a_commit_decides_no_other_transaction(admin: Admin, shop: Shop) -> None:
    """Parked messages and prepared ones are numbered alike: at each broker the first is 0."""
    await shop.park(0)
    await shop.prepare(2, 4, 6)
    await admin.transactions.commit("U0")
    assert await delivered(admin) == [b"0"]
    assert await states(admin) == dict.fromkeys(("U2", "U4", "U6"), HalfState.OPEN)


async def test_what_is_unknown_is_told(admin: Admin, shop: Shop) -> None:
    with pytest.raises(MessageNotFound, match="no broker has a parked or open transaction U9"):
        await admin.transactions.commit("U9")
    with pytest.raises(InvalidParameter, match="id is empty"):
        await admin.transactions.get(" ")
    assert await states(admin) == {}


async def test_without_a_broker_the_others_are_listed(admin: Admin, shop: Shop, servers: Embedded) -> None:
    await shop.park(0, 1)
    await servers.stop("broker-b")
    found = await admin.transactions.list()
    assert [each.message_id for each in found] == ["U0"]
