"""Who delivers: the master, or the lowest slave while there is none."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from tests.broker.desks import a_desk
from tests.broker.nobody import Nobody
from tests.broker.replicas.wires import MemberBench

from flaremq.broker.replicas.mastership import Mastership
from flaremq.broker.replicas.seat import Seat
from flaremq.broker.role import Role
from flaremq.broker.settings import Place
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command
from flaremq.store.settings import BrokerRole

MASTER, FIRST, SECOND = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def a_slave(broker_id: int = 1, **other: Any) -> MemberBench:
    """One that is through with the exchange."""
    bench = MemberBench(broker_id, **{"remote_escape": True, **other})
    bench.takes_slaves(MASTER, "10.0.0.1:10912")
    bench.duty.begin()
    return bench


def test_a_master_delivers_and_a_slave_does_not() -> None:
    assert MemberBench(0, acting_master=False).duty.serves()
    assert not MemberBench(1, acting_master=False).duty.serves()


async def test_the_lowest_slave_acts_while_there_is_no_master() -> None:
    bench, changes = a_slave(), list[bool]()
    bench.duty.listeners.append(changes.append)
    await bench.learn({0: MASTER, 1: FIRST, 2: SECOND})
    assert not bench.duty.serves()
    await bench.learn({1: FIRST, 2: SECOND})
    assert bench.duty.serves()
    assert bench.duty.alive_count == 2
    await bench.learn({0: MASTER, 1: FIRST, 2: SECOND})
    assert not bench.duty.serves()
    assert changes == [True, False]


async def test_another_slave_does_not_act() -> None:
    bench = a_slave(2)
    await bench.learn({1: FIRST, 2: SECOND})
    assert not bench.duty.serves()
    await bench.learn({2: SECOND})
    assert bench.duty.serves()


async def test_nobody_acts_where_that_is_not_wished() -> None:
    bench = a_slave(acting_master=False)
    await bench.learn({1: FIRST})
    assert not bench.duty.acts


async def test_an_acting_master_that_may_not_send_elsewhere_delivers_nothing_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = a_slave(remote_escape=False)
    bench.duty.listeners.append(lambda serves: pytest.fail(f"it said {serves}"))
    await bench.learn({1: FIRST})
    await bench.learn({1: FIRST})
    assert bench.duty.acts and not bench.duty.serves()
    assert caplog.text.count("delivers nothing in its place") == 1
    with_escape = a_slave()
    await with_escape.learn({1: FIRST})
    assert with_escape.duty.serves()


async def test_one_name_server_that_still_knows_the_master_is_enough() -> None:
    bench = MemberBench(1, "n:1;n:2", remote_escape=True)
    bench.takes_slaves(MASTER, "10.0.0.1:10912")
    bench.duty.begin()
    bench.wires.knows_group("n:2", {0: MASTER, 1: FIRST})
    await bench.learn({1: FIRST})
    assert not bench.duty.serves()
    await bench.learn({1: FIRST}, "n:2")
    assert bench.duty.serves()


async def test_old_news_are_none() -> None:
    bench = a_slave(not_active_ms=4_000)
    await bench.learn({1: FIRST})
    del bench.wires.peers["n:1"]
    bench.clock.advance_ms(4_000)
    await bench.duty.ask()
    assert bench.duty.serves()
    bench.clock.advance_ms(1)
    await bench.duty.ask()
    assert not bench.duty.serves()
    await bench.learn({1: FIRST})
    assert bench.duty.serves()


async def test_name_servers_that_know_nobody_change_nothing() -> None:
    bench = a_slave()
    await bench.learn({0: MASTER, 1: FIRST})
    await bench.learn({})
    assert not bench.duty.serves()


async def test_a_slave_that_follows_a_master_does_not_act() -> None:
    bench = a_slave()
    await bench.learn({1: FIRST})
    bench.replicas.following = True
    assert not bench.duty.serves()


async def test_no_member_delivers_before_the_exchange_is_through() -> None:
    for broker_id in (0, 1):
        bench = MemberBench(broker_id, remote_escape=True)
        await bench.learn({broker_id: FIRST})
        assert not bench.duty.serves()
        bench.duty.begin()
        await bench.learn({broker_id: FIRST})
        assert bench.duty.serves()


def test_the_exchange_may_be_skipped() -> None:
    assert MemberBench(0).duty.isolated
    assert not MemberBench(0, skip_pre_online=True).duty.isolated
    assert not MemberBench(0, acting_master=False).duty.isolated


async def test_a_slave_is_told_where_its_master_is_and_when_it_is_gone() -> None:
    bench = a_slave()
    await bench.learn({0: MASTER, 1: FIRST})
    await bench.learn({0: MASTER, 1: FIRST})
    assert bench.replicas.masters == [(MASTER, "10.0.0.1:10912")]
    await bench.learn({1: FIRST})
    assert bench.replicas.masters[1:] == [("", "")]
    bench.takes_slaves("10.0.0.9:10911", "10.0.0.9:10912")
    await bench.learn({0: "10.0.0.9:10911", 1: FIRST})
    assert bench.replicas.masters[2:] == [("10.0.0.9:10911", "10.0.0.9:10912")]


async def test_a_master_that_does_not_answer_is_asked_again_and_nobody_acts_for_it() -> None:
    bench = a_slave()
    await bench.learn({0: "10.0.0.9:10911", 1: FIRST})
    assert not bench.replicas.masters and not bench.duty.serves()
    bench.takes_slaves("10.0.0.9:10911", "10.0.0.9:10912")
    await bench.duty.ask()
    assert bench.replicas.masters == [("10.0.0.9:10911", "10.0.0.9:10912")]


async def told(bench: MemberBench, **fields: str) -> Command | None:
    ((_, handlers),) = bench.duty.handlers()
    request = Command(code=RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ext_fields=fields)
    return await handlers[RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE](Nobody(), request)


async def test_who_is_told_that_another_one_is_lowest_asks_at_once() -> None:
    bench = a_slave()
    await bench.learn({0: MASTER, 1: FIRST})
    bench.wires.knows_group("n:1", {1: FIRST})
    await told(bench, minBrokerId="1", minBrokerAddr=FIRST, offlineBrokerAddr=MASTER)
    assert bench.duty.serves()


async def test_nobody_is_believed_without_asking() -> None:
    bench = a_slave()
    await bench.learn({0: MASTER, 1: FIRST})
    await told(bench, minBrokerId="1", minBrokerAddr=FIRST, offlineBrokerAddr=MASTER)
    assert not bench.duty.serves()


async def test_many_who_say_so_at_once_make_it_ask_once() -> None:
    bench = a_slave()
    await bench.learn({1: FIRST})
    asked = len(bench.wires.asked)
    await asyncio.gather(*(told(bench, minBrokerId="1") for _ in range(50)))
    assert len(bench.wires.asked) == asked + 1


def test_a_slave_that_may_act_forgets_where_its_master_was() -> None:
    acting, other = Role(is_slave=True, may_act=True), Role(is_slave=True)
    for role in (acting, other):
        role.learn(MASTER, "10.0.0.1:10912")
        assert (role.master, role.has_master) == (MASTER, True)
        role.learn("", "")
        assert not role.has_master
    assert (acting.master, other.master) == ("", MASTER)


@pytest.mark.parametrize("may_act", [True, False])
async def test_a_slave_that_may_act_hears_of_its_master_by_its_duty_alone(
    tmp_path: Path, may_act: bool
) -> None:
    bench, role = MemberBench(1, acting_master=may_act), Role(is_slave=True, may_act=may_act)
    async with a_desk(tmp_path, role=BrokerRole.SLAVE) as desk:
        acting = Seat(
            *(bench.live, role, bench.members.namesrvs, bench.wires, bench.replicas),
            store=desk.store,
            place=lambda: Place("10.0.0.2:10911", "10.0.0.2:10912"),
            version=lambda: desk.tables.topics.version,
            mastership=Mastership(tmp_path),
            offload=desk.broker._offload,
            clock=bench.clock,
            rng=random.Random(1),
        )
        acting.master_named(MASTER, "10.0.0.1:10912")
        assert bench.replicas.masters == [(MASTER, "10.0.0.1:10912")]
        assert role.master == ("" if may_act else MASTER)
        for listener in acting.duty.on_master:
            listener(MASTER, "10.0.0.1:10912")
        assert role.master == MASTER
